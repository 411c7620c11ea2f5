"""Slurm: trees, blocks and other shapes of both files, host lists, and what is said of a bad line."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._hostlist import expand
from trainspec_validate.interop.readers.slurm import CONF, YAML, read_conf, read_yaml


def conf(*lines: str) -> ForeignText:
    return ForeignText("topology.conf", "\n".join(lines) + "\n")


def test_a_tree() -> None:
    text = fixture("tree.conf")
    assert_recognised(text, CONF)
    fragment = read_conf(text)
    assert_sound(fragment, CONF)
    assert value(fragment, "num_nodes") == 8
    assert value(fragment, "fabrics", 0, "tiers") == [
        {"name": "leaf", "num_switches": 2, "group_num_nodes": 4},
        {"name": "spine", "num_switches": 1, "group_num_nodes": 8},
    ]
    assert "LinkSpeed 400 has no unit" in told(fragment)


def test_an_uneven_tree_gives_no_group_size_and_says_so() -> None:
    fragment = read_conf(fixture("uneven.conf"))
    assert_sound(fragment, CONF)
    assert "group_num_nodes" not in value(fragment, "fabrics", 0, "tiers", 0)
    assert "leaf differ" in told(fragment)
    assert "1 node is on several switches, for example a4" in told(fragment)
    assert "1 switch is named below others but not listed, for example leaf3" in told(fragment)


def test_blocks_are_nested_groups() -> None:
    text = fixture("block.conf")
    assert_recognised(text, CONF)
    fragment = read_conf(text)
    assert_sound(fragment, CONF)
    assert value(fragment, "num_nodes") == 32
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == [16, 32]
    assert "scale_up" not in fragment.facts.get("node_groups", [{}])[0]


def test_blocks_smaller_than_the_sizes_are_told() -> None:
    fragment = read_conf(conf("BlockName=a Nodes=n[1-3]", "BlockName=b Nodes=n[4-7]", "BlockSizes=8,16"))
    assert "blocks differ in their nodes" in told(fragment)
    assert "the smallest of BlockSizes is 8, but the largest block has 4" in told(fragment)


def test_groups_of_blocks_hold_whole_blocks_and_not_their_planned_size() -> None:
    lines = [f"BlockName=block{i} Nodes=node[{32 * i + 1}-{32 * i + 32}]" for i in range(4)]
    fragment = read_conf(conf(*lines, "BlockSizes=30,120"))
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == [32, 128]


def test_blocks_that_differ_give_no_group_size() -> None:
    fragment = read_conf(conf("BlockName=a Nodes=n[1-16]", "BlockName=b Nodes=n[17-34]", "BlockSizes=16,32"))
    assert_sound(fragment, CONF)
    assert all("group_num_nodes" not in tier for tier in value(fragment, "fabrics", 0, "tiers"))


def test_a_tree_as_the_scheduler_prints_it() -> None:
    text = conf(
        "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-4]",
        "",
        "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n[5-8] Switches=(null)",
        "SwitchName=spine Level=1 LinkSpeed=1 Nodes=n[1-8] Switches=leaf[1-2]",
    )
    assert_recognised(text, CONF)
    fragment = read_conf(text)
    assert_sound(fragment, CONF)
    assert value(fragment, "fabrics", 0, "tiers") == [
        {"name": "leaf", "num_switches": 2, "group_num_nodes": 4},
        {"name": "spine", "num_switches": 1, "group_num_nodes": 8},
    ]
    assert "several switches" not in told(fragment)
    assert "scontrol show topology" in told(fragment)


def test_blocks_as_the_scheduler_prints_them() -> None:
    text = conf(
        "BlockName=b1 BlockIndex=0 Nodes=n[1-9] BlockSize=8",
        "BlockName=b2 BlockIndex=1 Nodes=n[10-18] BlockSize=8",
        "AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-18] BlockSize=16",
    )
    assert_recognised(text, CONF)
    fragment = read_conf(text)
    assert_sound(fragment, CONF)
    assert value(fragment, "num_nodes") == 18
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == [9, 18]


def test_rings() -> None:
    fragment = read_conf(conf("RingName=r1 Nodes=n[1-4]", "RingName=r2 Nodes=n[4-8]"))
    assert_sound(fragment, CONF)
    assert value(fragment, "num_nodes") == 8
    assert "1 node is in several rings" in told(fragment)


@pytest.mark.parametrize("marks", [("false", "false"), ("true", "true")])
def test_yaml_without_one_default_topology_leaves_nodes_and_fabrics_open(marks: tuple[str, str]) -> None:
    entry = "- {{topology: t{}, cluster_default: {}, block: {{block_sizes: [4], blocks: [{{nodes: 'n[1-4]'}}]}}}}"
    lines = [entry.format(number, mark) for number, mark in enumerate(marks)]
    fragment = read_yaml(ForeignText("topology.yaml", "\n".join(lines) + "\n"))
    assert fragment.facts == {}
    reasons = {item.pointer: item.reason for item in fragment.unknown}
    assert reasons[("num_nodes",)] == "the file has the topologies t0, t1, and not exactly one is the cluster_default"


def test_yaml_takes_the_default_topology() -> None:
    text = fixture("topology.yaml")
    assert_recognised(text, YAML)
    fragment = read_yaml(text)
    assert_sound(fragment, YAML)
    assert value(fragment, "num_nodes") == 16
    assert [tier["num_switches"] for tier in value(fragment, "fabrics", 0, "tiers")] == [2, 1]
    assert "topology main is taken, the others are left out: login" in told(fragment)


@pytest.mark.parametrize(
    ("body", "num_nodes"),
    [
        ("block: {block_sizes: [4, 8], blocks: [{block: b1, nodes: 'n[1-4]'}, {block: b2, nodes: 'n[5-8]'}]}", 8),
        ("ring: {rings: [{ring: r1, nodes: 'n[1-3]'}]}", 3),
        ("torus3d: {toruses: [{name: t, dims: {x: 2, y: 2, z: 2}, nodes: 'n[1-8]'}]}", 8),
        ("torus3d: [{dims: [2, 2, 4]}]", 16),
        ("flat: true", None),
    ],
)
def test_yaml_shapes(body: str, num_nodes: int | None) -> None:
    fragment = read_yaml(ForeignText("topology.yaml", f"- topology: t\n  {body}\n"))
    assert_sound(fragment, YAML)
    assert fragment.facts.get("num_nodes") == num_nodes


def test_a_torus_whose_extents_do_not_fit_is_told() -> None:
    text = "- topology: t\n  torus3d: [{dims: [2, 2, 2], nodes: 'n[1-7]'}]\n"
    fragment = read_yaml(ForeignText("topology.yaml", text))
    assert "the extents make 8 places, but 7 nodes are listed" in told(fragment)
    assert value(fragment, "fabrics", 0, "topology") == "torus"


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        (["SwitchName=a Node=n1"], 1, "no key 'Node'"),
        (["SwitchName=a Nodes=n1", "BlockName=b Nodes=n2"], 2, "SwitchName and BlockName in one file"),
        (["SwitchName=a Nodes=n[1-"], 1, "do not match"),
        (["", "SwitchName=a Nodes=n[5-1]"], 2, "runs backwards"),
        (["SwitchName=a Nodes=n[1-999999999]"], 1, "more than 200,000 names"),
        (["SwitchName=a Nodes=n[1-500][1-500]"], 1, "more than 200,000 names"),
        (["SwitchName=a Switches=b", "SwitchName=b Switches=a"], 1, "circle of switches"),
        (["SwitchName=a Nodes=n1", "SwitchName=a Nodes=n2"], 2, "listed twice"),
        (["SwitchName=a Nodes=n1", "what is this"], 2, "this line has no key"),
        (["BlockName=a Nodes=n1", "BlockSizes=four"], 2, "are no numbers"),
        (["BlockName=a Nodes=n1", "Nodes=n2"], 2, "without a name"),
        (["BlockName=a Nodes=n1", "AggregatedBlock=a BlockIndex=1 Nodes=n1"], 2, "without its BlockSize"),
        (["RingName=a Nodes=n1", "RingName=a Nodes=n2"], 2, "listed twice"),
    ],
)
def test_a_bad_line_is_named(lines: list[str], line: int, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=re.escape(words)) as caught:
        read_conf(conf(*lines))
    assert caught.value.line == line


def test_a_file_that_ends_within_a_line() -> None:
    with pytest.raises(ForeignFormatError, match="within a continued line"):
        read_conf(ForeignText("topology.conf", "SwitchName=a Nodes=n1 \\"))


@pytest.mark.parametrize("text", ["", "\n", "# SwitchName=leaf Nodes=n1\n"])
def test_a_file_without_a_line_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError, match="no line describes a switch") as caught:
        read_conf(ForeignText("topology.conf", text))
    assert caught.value.help == "copy the whole topology.conf"


def test_many_ranges_share_one_limit() -> None:
    lines = [f"SwitchName=s{i} Nodes=n{i}x[1-60000]" for i in range(4)]
    with pytest.raises(ForeignFormatError, match="more than") as caught:
        read_conf(conf(*lines))
    assert caught.value.line == 4


@pytest.mark.slow
def test_switches_that_share_all_nodes_are_bounded() -> None:
    lines = ["SwitchName=leaf Nodes=n[1-90000]", "SwitchName=spine[1-90000] Switches=leaf"]
    with pytest.raises(ForeignFormatError, match="most several times") as caught:
        read_conf(conf(*lines))
    assert caught.value.line == 2


def test_host_lists() -> None:
    assert expand("tux[0-2,12],login") == ["tux0", "tux1", "tux2", "tux12", "login"]
    assert expand("r[1-2]n[08-09]") == ["r1n08", "r1n09", "r2n08", "r2n09"]
    assert expand(" a , ,b ") == ["a", "b"]


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=20), st.text("abc-", min_size=1, max_size=5))
def test_host_lists_of_single_numbers(numbers: list[int], prefix: str) -> None:
    expression = f"{prefix}[{','.join(map(str, numbers))}]"
    assert expand(expression) == [f"{prefix}{number}" for number in numbers]


@given(st.text(alphabet="n[]-,0123456789 \\", max_size=60))
def test_any_host_list_ends(expression: str) -> None:
    try:
        assert len(expand(expression, limit=1000)) <= 1000
    except ForeignFormatError:
        return


@examples(60)
@given(damaged("tree.conf") | damaged("block.conf") | st.text(max_size=200))
def test_any_conf_is_read_or_refused(text: str) -> None:
    survives(read_conf, text)


@examples(60)
@given(damaged("topology.yaml") | st.text(max_size=200))
def test_any_yaml_is_read_or_refused(text: str) -> None:
    survives(read_yaml, text)


def test_the_published_tree() -> None:
    fragment = read_conf(sample("topograph-expected-slinky-oci-sim-tree.conf"))
    sizes = [(tier["num_switches"], tier["group_num_nodes"]) for tier in value(fragment, "fabrics", 0, "tiers")]
    assert sizes == [(12, 8), (6, 16), (1, 96)]


def test_the_published_blocks() -> None:
    fragment = read_conf(sample("topograph-expected-slinky-dra-block.conf"))
    assert value(fragment, "num_nodes") == 96
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == [8, 16, 32]
