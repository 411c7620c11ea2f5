"""ASTRA-sim: units, the first dimension as the domain, and lists that do not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from network_files import assert_recognised, assert_sound, damaged, fixture, sample, survives, told, value

from tests.examples import examples
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers.simulator import NAME, read


def test_a_network() -> None:
    text = fixture("network.yml")
    assert_recognised(text, NAME)
    fragment = read(text)
    assert_sound(fragment, NAME)
    assert value(fragment, "num_accelerators") == 32
    assert value(fragment, "node_groups", 0, "scale_up") == {
        "topology": "switched",
        "domain_num_accelerators": 8,
        "bandwidth_bytes_per_second": 450e9,
        "latency_seconds": 5e-7,
    }
    assert value(fragment, "fabrics", 0, "tiers", 0) == {
        "name": "dimension-2",
        "port_bandwidth_bytes_per_second": 50e9,
        "latency_seconds": 2e-6,
    }
    assert "10^9 bytes per second" in told(fragment)


def test_a_ring_has_the_rate_of_one_link() -> None:
    fragment = read(ForeignText("ring", "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50]\n"))
    assert value(fragment, "node_groups", 0, "scale_up", "link_bandwidth_bytes_per_second") == 50e9
    assert "bandwidth_bytes_per_second" not in value(fragment, "node_groups", 0, "scale_up")


def test_an_implausible_latency_is_left_out_and_told() -> None:
    text = "topology: [Switch]\nnpus_count: [8]\nbandwidth: [400]\nlatency: [0]\n"
    fragment = read(ForeignText("none", text))
    assert_sound(fragment, NAME)
    assert "latency_seconds" not in value(fragment, "node_groups", 0, "scale_up")
    assert "node_groups.0.scale_up.latency_seconds is left out: 0.0 is below" in told(fragment)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topology: [Switch, Ring]\nnpus_count: [8]\nbandwidth: [400]\n", "the lists have 2, 1, 1 and 2 entries"),
        ("topology: []\nnpus_count: []\nbandwidth: []\n", "0, 0, 0 and 0"),
        ("topology: [Switch]\nnpus_count: [eight]\nbandwidth: [400]\n", "no count"),
        ("- topology\n", "has the keys"),
        ("topology: [Switch\n", "no network of ASTRA-sim"),
    ],
)
def test_what_is_no_network(text: str, words: str) -> None:
    with pytest.raises(ForeignFormatError, match=words):
        read(ForeignText("broken", text))


@examples(80)
@given(damaged("network.yml") | st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    survives(read, text)


def test_the_validated_node() -> None:
    fragment = read(sample("astra-sim-HGX-H100-validated.yml"))
    own = value(fragment, "node_groups", 0, "scale_up")
    assert (own["domain_num_accelerators"], own["bandwidth_bytes_per_second"]) == (8, 400e9)
    assert own["latency_seconds"] == pytest.approx(936.25e-9)
