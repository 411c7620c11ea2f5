"""Every figure of a plan comes with the band that eight of ten cases keep to."""

from __future__ import annotations

import pytest

from tests.planner_makers import Make
from trainspec_validate.documents.types.cluster import Reliability
from trainspec_validate.planner.safety import Names, policy_figures, with_spares
from trainspec_validate.planner.search import search
from trainspec_validate.planner.uncertainty import (
    effective_band,
    failure_rates,
    memory_band,
    utilisation_band,
)

NAMES = Names("plan", "policy", "{name: cluster}", "{name: plan}")


def test_bands_hold_their_figures(asked: Make) -> None:
    request = asked("gcp-a3-ultra-h200", "llama3-8b", num_ranks=32, global_sequences=64)
    best = search(request.goal, 1).best[0]
    figures = policy_figures(request, best, NAMES)
    low, high, share = best.outlook.low_seconds, best.outlook.high_seconds, utilisation_band(best)
    assert low is not None
    assert high is not None
    assert share is not None
    assert low < best.seconds < high
    assert share.low < best.outlook.utilisation < share.high
    assert memory_band(best).low < best.memory.total < memory_band(best).high
    band = effective_band(request, figures)
    assert band.low <= figures.effective_share <= band.high


def test_spares_never_make_it_worse(asked: Make) -> None:
    request = asked("gcp-a3-ultra-h200", "llama3-8b", num_ranks=32, global_sequences=64)
    figures = policy_figures(request, search(request.goal, 1).best[0], NAMES)
    better = with_spares(request, figures)
    assert better is not None
    assert better.effective_share >= figures.effective_share


def measured(num_failures: int) -> Reliability:
    return Reliability(
        failures_per_1000_node_days=4.0, source="measured", num_failures=num_failures, node_days=num_failures * 250.0
    )


def test_more_failures_tell_the_rate_better() -> None:
    few, many = failure_rates(measured(16)), failure_rates(measured(400))
    assert few[0] < many[0] < 4.0 < many[1] < few[1]
    assert many == pytest.approx((4.0 * (1 - 1.282 / 20), 4.0 * (1 + 1.282 / 20)))


def test_an_assumed_rate_may_be_any_that_was_published() -> None:
    assert failure_rates(Reliability(failures_per_1000_node_days=8.0, source="vendor")) == (2.3, 8.0)
