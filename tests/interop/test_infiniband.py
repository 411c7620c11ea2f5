"""ibnetdiscover: tiers inferred from cables, missing uplinks, lane rates, and output that is cut off."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.infiniband import NAME, rate_of, read


def changed(*pairs: tuple[str, str]) -> Fragment:
    text = fixture("ibnetdiscover.out").text
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return read(ForeignText("changed", text))


def test_a_survey() -> None:
    text = fixture("ibnetdiscover.out")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert value(fragment, "num_nodes") == 4
    assert value(fragment, "fabrics", 0, "transport") == "infiniband"
    assert value(fragment, "fabrics", 0, "topology") == "rail-optimised"
    assert value(fragment, "fabrics", 0, "num_rails") == 3
    leaf, spine = value(fragment, "fabrics", 0, "tiers")
    assert (leaf["num_switches"], leaf["num_ports"], leaf["num_down_ports"], leaf["num_up_ports"]) == (3, 8, 4, 2)
    assert leaf["uplinks_found"] == [2, 2, 1]
    assert leaf["port_bandwidth_bytes_per_second"] == 50e9
    assert (spine["num_switches"], spine["num_up_ports"]) == (2, 0)
    assert "1 of 3 leaf switches have fewer than 2 uplinks, 1 link in all: leaf-2 has 1" in told(fragment)


def test_crossed_rails_leave_the_topology_open() -> None:
    fragment = changed(('"host1 mlx5_0"', '"host1 mlx5_9"'))
    assert "topology" not in value(fragment, "fabrics", 0)
    assert "leaf-0 carries mlx5_0 (3), mlx5_9 (1)" in told(fragment)


def test_a_cable_within_a_layer_is_no_uplink() -> None:
    cable = '[7]\t"S-0000000000000101"[7]\t\t# "leaf-1" lid 1 4xNDR\n[9]\t"H-0000000000000900"'
    fragment = changed(('[9]\t"H-0000000000000900"', cable))
    assert value(fragment, "fabrics", 0, "tiers", 0, "uplinks_found") == [2, 2, 1]
    assert value(fragment, "fabrics", 0, "tiers", 0, "num_down_ports") == 4
    assert "leaf-0 has 1 cable within its own layer" in told(fragment)


def test_adapters_without_host_names_leave_the_nodes_open() -> None:
    fragment = changed(('"host1 mlx5_0"', '"MT4129 ConnectX7   Mellanox Technologies"'))
    assert "num_nodes" not in fragment.facts
    assert "1 adapters without a host name" in told(fragment)


def test_ports_of_another_rate_are_told() -> None:
    fragment = changed(('"host1 mlx5_0" lid 7 4xNDR', '"host1 mlx5_0" lid 7 4xHDR'))
    assert "ports run at different widths or rates" in told(fragment)
    assert value(fragment, "fabrics", 0, "tiers", 0, "port_bandwidth_bytes_per_second") == 50e9


def test_an_unknown_generation_is_told() -> None:
    fragment = changed(("4xNDR", "4xZDR"))
    assert "no rate is known for 4xZDR" in told(fragment)
    assert "port_bandwidth_bytes_per_second" not in value(fragment, "fabrics", 0, "tiers", 0)


@pytest.mark.parametrize(
    ("width", "rate"),
    [("4xNDR", 50e9), ("1xNDR", 12.5e9), ("4xXDR", 100e9), ("2xHDR100", 12.5e9), ("4xFDR", 7e9), ("4xQDR", None)],
)
def test_lane_rates(width: str, rate: float | None) -> None:
    assert rate_of(width) == rate


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('Ca\t1 "H-1"\t\t# "host1 mlx5_0"\n', 1, "^1 adapter and no switch: the output is cut off"),
        ('[1]\t"H-1"[1](1) \t\t# "host1 mlx5_0" lid 1 4xNDR\n', 1, "a port before any switch"),
        ('Switch\t8 "S-1"\t\t# "leaf" base\nwhat is this\n', 2, "no line of ibnetdiscover"),
        ("\n", 1, "^0 adapters and no switch"),
    ],
)
def test_what_is_no_survey(text: str, line: int, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=words) as caught:
        read(ForeignText("broken", text))
    assert caught.value.line == line


def test_devices_that_are_not_listed_are_told() -> None:
    text = fixture("ibnetdiscover.out").text
    cut = text[: text.index("Ca\t1")]
    with_one = cut + text[text.index('Ca\t1 "H-0000000000030000"') :]
    assert "devices are named by cables but not listed" in told(read(ForeignText("cut", with_one)))


@examples(60)
@given(damaged("ibnetdiscover.out") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


def test_a_real_fabric_misses_uplinks_on_twelve_leaves() -> None:
    fragment = read(sample("topograph-ibnetdiscover-example.out"))
    leaf, spine = value(fragment, "fabrics", 0, "tiers")
    assert (leaf["num_switches"], spine["num_switches"], leaf["num_up_ports"]) == (31, 9, 18)
    assert leaf["num_ports"] == 64
    assert Counter(leaf["uplinks_found"]) == {18: 19, 16: 7, 17: 2, 15: 2, 14: 1}
    assert "12 of 31 leaf switches have fewer than 18 uplinks, 26 links in all" in told(fragment)


HEAD = "#\n# Topology file: generated on a day\n#\n# Initiated from node 00000000000000a1 port 00000000000000a1\n\n"
ALONE = 'Ca\t1 "H-00000000000000a1"\t\t# "host1 HCA-1"\n'
FAR = '[1](a1) \t"{}"[1](a2) \t\t# lid 0 lmc 0 "far" lid 0 4xNDR\n'
OTHER = 'Ca\t1 "H-00000000000000a2"\t\t# "host2 HCA-1"\n'


def test_a_survey_from_a_host_whose_link_is_down_is_whole() -> None:
    fragment = read(ForeignText("alone", HEAD + "caguid=0xa1\n" + ALONE))
    assert_sound(fragment, NAME)
    assert fragment.facts == {"fabrics": [{"name": "fabric", "transport": "infiniband"}]}
    [remark] = fragment.remarks
    assert remark.line == 7
    assert "met no switch and shows nothing of the fabric: host1 HCA-1, no port has a link" in remark.message
    assert ("num_nodes",) in {entry.pointer for entry in fragment.unknown}


def test_two_hosts_that_are_cabled_to_each_other_are_whole() -> None:
    both = ALONE + FAR.format("H-00000000000000a2") + OTHER + FAR.format("H-00000000000000a1")
    fragment = read(ForeignText("both", HEAD + both))
    assert "host1 HCA-1, host2 HCA-1, cabled to each other" in told(fragment)


@pytest.mark.parametrize(
    "text",
    [
        ALONE,
        HEAD + OTHER,
        HEAD + ALONE + FAR.format("S-0000000000000001"),
        HEAD + ALONE + FAR.format("H-00000000000000a2"),
    ],
    ids=["no head", "start not listed", "switch not listed", "adapter not listed"],
)
def test_a_survey_that_lost_a_part_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError, match="no switch: the output is cut off"):
        read(ForeignText("cut", text))


def test_a_real_survey_from_a_host_whose_link_is_down() -> None:
    fragment = read(sample("topograph-ibnetdiscover-example-bad.out"))
    [remark] = fragment.remarks
    assert remark.line == 10
    assert "dgx-gb200-n01-c1 HCA-1, no port has a link" in remark.message
