"""Topograph models: tiers, nodes and accelerator domains."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers.topograph import NAME, read


def test_a_model() -> None:
    text = fixture("model.yaml")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert value(fragment, "num_nodes") == 4
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == [2, 4]
    domains = {node["name"]: node["scale_up_domain"] for node in value(fragment, "layout", "nodes")}
    assert domains == {"t1": "nvl-a", "t2": "nvl-a", "t3": "nvl-b", "t4": "nvl-b"}


def test_a_block_without_a_domain_is_told() -> None:
    text = fixture("model.yaml").text.replace("    annotations: {accelerator.example.org/domain: nvl-b}\n", "")
    fragment = read(ForeignText("model.yaml", text))
    assert "1 of 2 blocks name no accelerator domain" in told(fragment)
    assert len(value(fragment, "layout", "nodes")) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("switches: [a]\nblocks: []\n", "a mapping `switches`"),
        ("switches: {}\nblocks: {}\n", "a list `blocks`"),
        ("switches: {a: 3}\nblocks: []\n", "switch a is no mapping"),
        ("switches: {}\nblocks: [3]\n", "a block is no mapping"),
        ("switches: {}\nblocks: [{switch: a, nodes: ['n[1-99999999]']}]\n", "more than"),
        ("switches: {}\nblocks: [{switch: a, nodes: {b: 1}}]\n", "no list of names"),
        ("switches: {}\nblocks:\n\t- x\n", "no model of Topograph"),
    ],
)
def test_what_is_no_model(text: str, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=words):
        read(ForeignText("model.yaml", text))


@examples(60)
@given(damaged("model.yaml") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


@pytest.mark.parametrize(
    ("name", "num_nodes", "sizes"),
    [
        ("topograph-model-small-tree.yaml", 6, [3, 6]),
        ("topograph-model-medium.yaml", 8, [2, 4, 8]),
        ("topograph-model-dual-xclr-regular.yaml", 96, [8, 16, 96]),
    ],
)
def test_the_published_models(name: str, num_nodes: int, sizes: list[int]) -> None:
    fragment = read(sample(name))
    assert value(fragment, "num_nodes") == num_nodes
    assert [tier["group_num_nodes"] for tier in value(fragment, "fabrics", 0, "tiers")] == sizes
    assert len(value(fragment, "layout", "nodes")) == num_nodes
