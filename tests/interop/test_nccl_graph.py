from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from topology_facts import assert_fits_schema, fixture, group, messages, mutated, read_or_refuse, samples, unknown_keys

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers.nccl_graph import FORMATS, read

[FORMAT] = FORMATS
GRAPH = fixture("nccl-graph.xml")


def test_a_graph_tells_the_path_and_the_rest_becomes_remarks() -> None:
    fragment = read(GRAPH)
    assert_fits_schema(fragment)
    assert group(fragment) == {
        "name": "nodes",
        "nics": [{"name": "nics", "accelerator_path": "PIX"}],
        "scale_up": {"technology": "nvlink", "in_network_reduction": True},
    }
    told = {remark.message: remark.line for remark in fragment.remarks}
    assert told["graph 0 (ring), order of devices: net0 gpu0 gpu1 net0"] == 3
    assert told["graph 3 (NVLS) states 2 channels and lists 1"] == 16
    assert "num_accelerators_per_node" in unknown_keys(fragment)


def test_without_the_network_there_is_no_path() -> None:
    fragment = read(ForeignText("x", GRAPH.text.replace("<net ", "<other ")))
    assert "nics" not in group(fragment)


def test_without_a_path_class_there_is_no_path() -> None:
    fragment = read(ForeignText("x", GRAPH.text.replace(' typeinter="PIX"', "")))
    assert "nics" not in group(fragment)
    assert "state the path classes none" in messages(fragment)


def test_a_tree_pattern_says_nothing_of_reduction_in_switches() -> None:
    fragment = read(ForeignText("x", GRAPH.text.replace('pattern="5"', 'pattern="3"')))
    assert "scale_up" not in group(fragment)


def test_an_accelerator_that_a_channel_passes_twice_is_remarked() -> None:
    fragment = read(ForeignText("x", GRAPH.text.replace('<gpu dev="1"/>', '<gpu dev="0"/>', 1)))
    assert "passes an accelerator twice" in messages(fragment)


@pytest.mark.parametrize("text", ["<system/>", "<graphs/>", "<graphs>", ""])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        read(ForeignText("x", text))


@pytest.mark.parametrize("path", samples("*-graph.xml"))
def test_published_files_import(path: Path) -> None:
    text = ForeignText(path.name, path.read_text(encoding="utf-8"))
    assert FORMAT.looks_like(text)
    fragment = FORMAT.read(text)
    assert_fits_schema(fragment)
    assert "the graphs pass 4 accelerators and 0 network interfaces" in messages(fragment)
    assert "graph 0 (ring), order of devices: gpu0 gpu3 gpu2 gpu1" in messages(fragment)


@examples(60)
@given(mutated(GRAPH.text) | st.text(max_size=200))
def test_any_text_is_facts_or_a_refusal(text: str) -> None:
    read_or_refuse(FORMAT, text)
