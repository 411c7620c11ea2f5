"""Merging: the first source stays, every disagreement is told, and counts that follow are filled in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import fixture

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, Fragment, Remark, Unknown
from trainspec_validate.interop.merge import Choice, Merged, merge
from trainspec_validate.interop.readers import infiniband, mlperf_system, slurm, topograph


def part(name: str, facts: dict[str, Any], **keys: Any) -> Fragment:
    return Fragment("ClusterProfile", "test", name, facts, **keys)


def told(merged: Merged) -> list[str]:
    return [entry.remark.message for entry in merged.remarks]


NODE = {"name": "nodes", "num_accelerators_per_node": 8, "nics": [{"name": "rail", "technology": "infiniband"}]}
LABEL = {("node_groups", 0, "name"): "a label"}


def test_node_and_network_combine() -> None:
    network = {"num_nodes": 16, "fabrics": [{"name": "fabric", "transport": "infiniband"}]}
    merged = merge([part("node.xml", {"node_groups": [NODE]}), part("fabric.out", network)])
    (group,) = merged.facts["node_groups"]
    assert (merged.facts["num_nodes"], merged.facts["num_accelerators"], group["num_nodes"]) == (16, 128, 16)
    assert group["nics"][0]["fabric"] == "fabric"
    assert merged.derived[("node_groups", 0, "num_nodes")] == "num_nodes; there is one node group"
    assert merged.derived[("node_groups", 0, "nics", 0, "fabric")] == "the only fabric"
    assert told(merged) == []


def test_fragments_are_not_changed() -> None:
    first = part("a", {"node_groups": [{"name": "nodes"}]})
    merge([first, part("b", {"num_nodes": 3})])
    assert first.facts == {"node_groups": [{"name": "nodes"}]}


def test_ethernet_does_not_join_an_infiniband_fabric() -> None:
    nic = {"name": "eth", "technology": "ethernet"}
    facts = {"node_groups": [{"name": "n", "nics": [nic]}], "fabrics": [{"name": "f", "transport": "infiniband"}]}
    assert "fabric" not in merge([part("a", facts)]).facts["node_groups"][0]["nics"][0]


def test_a_fabric_that_a_file_names_stays() -> None:
    nic = {"name": "ib", "technology": "infiniband", "fabric": "other"}
    facts = {"node_groups": [{"name": "n", "nics": [nic]}], "fabrics": [{"name": "f", "transport": "infiniband"}]}
    assert merge([part("a", facts)]).facts["node_groups"][0]["nics"][0]["fabric"] == "other"


def test_the_first_source_wins_and_both_values_are_told() -> None:
    merged = merge([part("a", {"num_nodes": 2}), part("b", {"num_nodes": 2}), part("c", {"num_nodes": 5})])
    assert merged.facts["num_nodes"] == 2
    assert told(merged) == ["num_nodes is 2 by a, which is taken, and 5 by c"]


def test_options_win_over_files() -> None:
    facts = {"num_nodes": 2, "num_accelerators": 16, "node_groups": [{**NODE, "num_nodes": 2}]}
    merged = merge([part("a", facts)], Choice(num_nodes=4, name="hall"))
    assert merged.facts["num_nodes"] == 4
    assert merged.facts["node_groups"][0]["num_nodes"] == 4
    assert merged.facts["num_accelerators"] == 32
    assert merged.facts["metadata"]["name"] == "hall"
    assert told(merged) == ["num_nodes is 4 by --num-nodes, which is taken, and 2 by the files"]


def test_accelerators_that_do_not_add_up_are_told() -> None:
    merged = merge([part("a", {"num_nodes": 2, "num_accelerators": 9, "node_groups": [NODE]})])
    assert merged.facts["num_accelerators"] == 9
    assert told(merged) == ["num_accelerators is 9, but the node groups have 16"]


def test_labels_of_ours_give_way_and_references_follow() -> None:
    first = part("a", {"node_groups": [{"name": "trays", "num_nodes": 2}]})
    second = part("b", {"node_groups": [NODE], "measurements": [{"group": "nodes"}]}, derived=LABEL)
    merged = merge([first, second])
    assert merged.facts["node_groups"][0]["name"] == "trays"
    assert merged.facts["measurements"][0]["group"] == "trays"
    assert told(merged) == []


def test_names_that_files_give_are_told_when_they_differ() -> None:
    merged = merge([part("a", {"fabrics": [{"name": "x"}]}), part("b", {"fabrics": [{"name": "y"}]})])
    assert told(merged) == ["fabrics.0.name is x by a, which is taken, and y by b"]


def test_interfaces_join_by_role() -> None:
    ours = [{"name": "c", "role": "compute", "num_per_node": 8}, {"name": "s", "role": "storage", "num_per_node": 1}]
    theirs = [{"name": "ib", "role": "storage", "bonded": True}, {"name": "rail", "role": "compute", "bonded": False}]
    first, second = ({"node_groups": [{"name": "n", "nics": nics}]} for nics in (ours, theirs))
    merged = merge([part("a", first), part("b", second)])
    nics = merged.facts["node_groups"][0]["nics"]
    assert [(nic["name"], nic["bonded"]) for nic in nics] == [("c", False), ("s", True)]


def test_an_interface_without_a_role_joins_the_compute_interfaces() -> None:
    ours = [{"name": "c", "role": "compute", "num_per_node": 8}, {"name": "s", "role": "storage", "num_per_node": 1}]
    first, second = (
        {"node_groups": [{"name": "n", "nics": nics}]} for nics in (ours, [{"name": "ib", "num_ports": 2}])
    )
    merged = merge([part("a", first), part("b", second)])
    nics = merged.facts["node_groups"][0]["nics"]
    assert [nic.get("num_ports") for nic in nics] == [2, None]


def test_groups_that_do_not_match_stay_side_by_side_and_are_told() -> None:
    two = {"node_groups": [{"name": "a"}, {"name": "b"}]}
    merged = merge([part("one", two), part("two", {"node_groups": [{"name": "c"}]})])
    assert [group["name"] for group in merged.facts["node_groups"]] == ["a", "b", "c"]
    assert told(merged) == ["node_groups: 2 entries are kept next to 1 of two; none of them match"]


def test_unknowns_and_derivations_follow_their_entry() -> None:
    second = part(
        "two",
        {"node_groups": [{"name": "c", "num_nodes": 4}]},
        unknown=(Unknown(("node_groups", 0, "host"), "why"),),
        derived={("node_groups", 0, "num_nodes"): "counted"},
    )
    merged = merge([part("one", {"node_groups": [{"name": "a"}, {"name": "b"}]}), second])
    assert [entry.pointer for entry in merged.unknown] == [("node_groups", 2, "host")]
    assert merged.derived[("node_groups", 2, "num_nodes")] == "counted"


def test_what_another_file_tells_is_no_longer_unknown() -> None:
    first = part("a", {}, unknown=(Unknown(("num_nodes",), "no"), Unknown(("clock",), "no")))
    merged = merge([first, part("b", {"num_nodes": 3}, unknown=(Unknown(("clock",), "neither"),))])
    assert [(entry.pointer, entry.reason) for entry in merged.unknown] == [(("clock",), "no")]


def test_measurements_of_every_file_are_kept_once() -> None:
    row = {"operation": "all-reduce", "num_ranks": 8}
    merged = merge([part("a", {"measurements": [row]}), part("b", {"measurements": [row, row | {"num_ranks": 16}]})])
    assert [entry["num_ranks"] for entry in merged.facts["measurements"]] == [8, 16]


def test_remarks_keep_their_file_and_line() -> None:
    merged = merge([part("a", {}, remarks=(Remark("odd", 3),))])
    assert [(entry.name, entry.remark.line) for entry in merged.remarks] == [("a", 3)]


def test_several_kinds_are_refused() -> None:
    plan = Fragment("TrainingPlan", "test", "b", {})
    with pytest.raises(ForeignFormatError, match="several kinds: ClusterProfile, TrainingPlan"):
        merge([part("a", {}), plan])
    with pytest.raises(ForeignFormatError, match="nothing was read"):
        merge([])


def test_a_plan_gets_its_name_and_no_counts() -> None:
    merged = merge([Fragment("TrainingPlan", "test", "b", {"num_nodes": 3})], Choice(name="run"))
    assert merged.facts == {"num_nodes": 3, "metadata": {"name": "run"}}


def test_a_system_its_scheduler_and_its_fabric() -> None:
    merged = merge(
        [
            mlperf_system.read(fixture("mlperf-system.json")),
            slurm.read_conf(fixture("tree.conf")),
            infiniband.read(fixture("ibnetdiscover.out")),
        ]
    )
    assert merged.facts["fabrics"][0]["tiers"][0]["uplinks_found"] == [2, 2, 1]
    assert merged.facts["fabrics"][0]["tiers"][0]["group_num_nodes"] == 4
    assert "num_nodes is 4 by mlperf-system.json, which is taken, and 8 by tree.conf" in told(merged)


def test_explicit_nodes_get_the_only_group() -> None:
    merged = merge([topograph.read(fixture("model.yaml")), part("node", {"node_groups": [NODE]})])
    assert [node["group"] for node in merged.facts["layout"]["nodes"]] == ["nodes"] * 4


def test_the_explicit_node_of_one_description_does_not_stand_for_all() -> None:
    node = {"node_groups": [NODE], "layout": {"nodes": [{"name": "node-0", "group": "nodes", "nics": [{"name": "a"}]}]}}
    labels = LABEL | {("layout", "nodes", 0, "name"): "a label", ("layout", "nodes", 0, "nics", 0, "name"): "a label"}
    unknown = (Unknown(("layout", "nodes", 0, "rack"), "no"),)
    first = part("node.xml", node, derived=labels, unknown=unknown)
    assert "layout" in merge([first]).facts
    assert "layout" in merge([first], Choice(num_nodes=1)).facts
    alone = merge([first], Choice(num_nodes=3))
    assert "layout" not in alone.facts
    assert "the explicit node node-0 represents 3 nodes of nodes" in told(alone)[-1]
    assert (alone.unknown, [pointer for pointer in alone.derived if pointer[0] == "layout"]) == ((), [])
    listed = merge([first, topograph.read(fixture("model.yaml"))])
    assert [entry["name"] for entry in listed.facts["layout"]["nodes"]] == ["t1", "t2", "t3", "t4"]
    assert listed.derived[("layout", "nodes", 0, "scale_up_domain")] == "accelerator domain of the block"


SCALARS = st.integers(0, 3) | st.sampled_from(["a", "b"])
FACTS = st.dictionaries(
    st.sampled_from(["num_nodes", "fabrics", "host", "name", "measurements"]),
    st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["name", "role", "x", "tiers"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    max_size=4,
)


@examples(200)
@given(st.lists(FACTS, min_size=1, max_size=3))
def test_any_facts_merge_and_the_first_file_is_never_overruled(parts: list[dict[str, Any]]) -> None:
    for facts in parts:
        if not isinstance(facts.get("fabrics"), list) or not all(isinstance(f, dict) for f in facts["fabrics"]):
            facts.pop("fabrics", None)
    merged = merge([part(str(i), facts) for i, facts in enumerate(parts)])
    for key, item in parts[0].items():
        if not isinstance(item, dict | list):
            assert merged.facts[key] == item
        assert key in merged.facts


@examples(100)
@given(FACTS)
def test_a_file_merged_with_itself_is_itself(facts: dict[str, Any]) -> None:
    if not isinstance(facts.get("fabrics"), list) or not all(isinstance(f, dict) for f in facts["fabrics"]):
        facts.pop("fabrics", None)
    once, twice = merge([part("a", facts)]), merge([part("a", facts), part("b", facts)])
    assert set(once.facts) == set(twice.facts)
    scalars = {key: item for key, item in facts.items() if not isinstance(item, dict | list)}
    assert scalars.items() <= twice.facts.items()


def with_links(**links: Any) -> Fragment:
    own = {"model": "nvidia-h100-sxm-80gb"}
    group = {"name": "n", "accelerator": own, "scale_up": {"technology": "nvlink", **links}}
    return part("node.xml", {"node_groups": [group]})


@pytest.mark.parametrize("links", [{}, {"num_links": 18}])
def test_links_of_a_known_product_have_its_generation(links: dict[str, Any]) -> None:
    merged = merge([with_links(**links)])
    assert merged.facts["node_groups"][0]["scale_up"]["generation"] == "4"
    place = ("node_groups", 0, "scale_up", "generation")
    assert merged.derived[place] == "the catalog's links of NVIDIA H100 SXM"


@pytest.mark.parametrize(
    "links",
    [{"num_links": 12}, {"technology": "pcie"}, {"link_bandwidth_bytes_per_second": 25e9}],
    ids=["fewer links", "another technology", "a rate that is told"],
)
def test_the_generation_stays_open_where_the_product_does_not_settle_it(links: dict[str, Any]) -> None:
    assert "generation" not in merge([with_links(**links)]).facts["node_groups"][0]["scale_up"]


def test_a_generation_that_a_file_tells_stays() -> None:
    merged = merge([with_links(generation="3")])
    assert merged.facts["node_groups"][0]["scale_up"]["generation"] == "3"
    assert merged.derived == {}


def test_what_the_family_of_a_model_has_not_is_not_unknown() -> None:
    keys = ("num_active_parameters", "experts", "state_space", "num_parameters")
    unknown = tuple(Unknown(("model", key), "not counted") for key in keys)
    for family, left in (("dense-transformer", {3}), ("moe-transformer", {0, 1, 3}), ("hybrid", {0, 1, 2, 3})):
        facts = {"model": {"name": "m", "family": family}}
        merged = merge([Fragment("TrainingPlan", "test", "a", facts, unknown=unknown)])
        assert {entry.pointer[1] for entry in merged.unknown} & set(keys) == {keys[i] for i in left}
