"""NetQ: the graph with its uplinks, the list of compute nodes, and both together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers.netq import GRAPH, NODES, read_graph, read_nodes


def test_a_graph() -> None:
    text = fixture("netq-graph.json")
    assert_recognised(text, GRAPH)
    fragment = read_graph(text)
    assert_sound(fragment, GRAPH)
    assert value(fragment, "num_nodes") == 2
    leaf, spine = value(fragment, "fabrics", 0, "tiers")
    assert (leaf["num_switches"], leaf["num_down_ports"], leaf["uplinks_found"]) == (2, 4, [4, 3])
    assert (spine["num_switches"], spine["num_down_ports"]) == (1, 7)
    assert "1 of 2 leaf switches have fewer than 4 uplinks" in told(fragment)


def test_cables_that_are_not_listed_are_told() -> None:
    data: Any = json.loads(fixture("netq-graph.json").text)
    data[0]["links"][0]["compounded_links"].pop()
    data[0]["links"][1]["target"] = "nobody"
    fragment = read_graph(ForeignText("graph", json.dumps(data)))
    assert "l1-*-h1 says 4 cables and lists 3" in told(fragment)
    assert "l2-*-h2 ends at a device that is not listed" in told(fragment)


def test_compute_nodes() -> None:
    text = fixture("netq-nodes.json")
    assert_recognised(text, NODES)
    fragment = read_nodes(text)
    assert_sound(fragment, NODES)
    assert value(fragment, "num_nodes") == 4
    assert value(fragment, "num_accelerators") == 16
    assert value(fragment, "node_groups", 0, "num_accelerators_per_node") == 4
    domains = [node["scale_up_domain"] for node in value(fragment, "layout", "nodes")]
    assert domains == ["rack-0", "rack-0", "rack-1", "rack-1"]
    assert "tray0 is DEGRADED" in told(fragment)


def test_uneven_compute_nodes_make_no_group() -> None:
    data: Any = json.loads(fixture("netq-nodes.json").text)
    data[0]["GpuIDList"].pop()
    fragment = read_nodes(ForeignText("nodes", json.dumps(data)))
    assert_sound(fragment, NODES)
    assert "node_groups" not in fragment.facts
    assert value(fragment, "num_accelerators") == 15
    assert "nodes differ in their accelerators: 3 with 4, 1 with 3" in told(fragment)


def test_both_together_tell_that_they_disagree() -> None:
    merged = merge([read_nodes(fixture("netq-nodes.json")), read_graph(fixture("netq-graph.json"))])
    assert merged.facts["num_nodes"] == 4
    assert [node["group"] for node in merged.facts["layout"]["nodes"]] == ["nodes"] * 4
    assert any("and 2 by netq-graph.json" in entry.remark.message for entry in merged.remarks)


@pytest.mark.parametrize("text", ["{}", "[]", "[{}]", "[3]", "not json {", '[{"nodes": 3, "links": 4}]'])
def test_what_is_neither(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        read_graph(ForeignText("graph", text))
    with pytest.raises(ForeignFormatError):
        read_nodes(ForeignText("nodes", text))


@examples(60)
@given(damaged("netq-graph.json") | st.text(max_size=200))
def test_any_graph_is_read_or_refused(text: str) -> None:
    survives(read_graph, text)


@examples(60)
@given(damaged("netq-nodes.json") | st.text(max_size=200))
def test_any_list_is_read_or_refused(text: str) -> None:
    survives(read_nodes, text)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "nodes",
                    "links",
                    "compounded_nodes",
                    "node_type",
                    "id",
                    "tier",
                    "src",
                    "target",
                    "size",
                    "GpuIDList",
                    "Name",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@examples(100)
@given(_JSON)
def test_any_values_are_read_or_refused(data: Any) -> None:
    for read in (read_graph, read_nodes):
        survives(read, json.dumps([data]))


def test_the_published_pair() -> None:
    graph = read_graph(sample("topograph-netq-topologyGraph.json"))
    assert value(graph, "num_nodes") == 8
    assert value(graph, "fabrics", 0, "tiers", 0, "uplinks_found") == [28, 19]
    nodes = read_nodes(sample("topograph-netq-computeNodes.json"))
    assert value(nodes, "num_accelerators") == 8
