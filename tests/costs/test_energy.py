"""Bounds on energy against power logs of MLPerf Training v4.0 and v5.1 and a published model card."""

from __future__ import annotations

import doctest

import pytest

from trainspec_validate.costs import energy
from trainspec_validate.costs.energy import least_joules, least_joules_per_token, most_joules

# Nodes, accelerators, limit of one accelerator, full power of a node, minutes, kWh: from the power logs.
MEASURED = {
    "gpt3, 64 x 8 H100": (64, 512, 700, 10200, 56.8778, 415.2798),
    "llama2-70b-lora, 64 x 8 H100": (64, 512, 700, 10200, 1.9839, 10.5285),
    "llama2-70b-lora, 8 x 8 H100": (8, 64, 700, 10200, 5.3152, 4.0926),
    "bert, 8 H100": (1, 8, 700, 10200, 4.6175, 0.5241),
    "llama2-70b-lora, 8 H100": (1, 8, 700, 10200, 28.242, 3.3661),
}


def test_examples() -> None:
    result = doctest.testmod(energy)
    assert result.attempted >= 3
    assert result.failed == 0


@pytest.mark.parametrize("name", MEASURED)
def test_measured_runs_lie_between_the_bounds(name: str) -> None:
    nodes, accelerators, limit, node_watts, minutes, kilowatt_hours = MEASURED[name]
    joules, seconds = kilowatt_hours * 3.6e6, minutes * 60
    assert least_joules(limit, accelerators, seconds) < joules < most_joules(nodes * node_watts, seconds)
    for slip in (1000, 3600, 1 / 1000, 1 / 3600):
        slipped = joules * slip
        assert not least_joules(limit, accelerators, seconds) <= slipped <= most_joules(nodes * node_watts, seconds)


def test_llama_3_1_at_full_power() -> None:
    # Model card of Llama 3.1: 39.3 million GPU hours at 700 W, 27.5 GWh.
    seconds = 39.3e6 * 3600
    assert most_joules(700, seconds) / 1.1 / 3.6e12 == pytest.approx(27.5, rel=0.01)


def test_network_and_facility_add_up() -> None:
    assert most_joules(100, 10, with_network=True, overhead=1.2) == pytest.approx(100 * 10 * 1.1 * 1.25 * 1.2)


def test_no_token_is_cheaper_than_its_operations() -> None:
    # GPT-3 on 512 H100: 415.3 kWh at the nodes; 1.24 J per token.
    assert least_joules_per_token(175e9, 1979e12, 700) < 1.24
    assert least_joules_per_token(175e9, 1979e12, 700) > 1.24 / 8


@pytest.mark.parametrize(
    "call",
    [
        lambda: least_joules(0, 1, 1),
        lambda: most_joules(1, 0),
        lambda: most_joules(1, 1, overhead=0.9),
        lambda: least_joules_per_token(1, 0, 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()
