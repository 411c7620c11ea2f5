"""Energy from samples of power, against a known curve and power logs of MLPerf Training v4.0."""

from __future__ import annotations

import doctest
import json
import math
import os
import random
import statistics
from pathlib import Path

import pytest
from appendix_models import power_samples
from appendix_models.power_samples import sampled_energy

SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", Path(__file__).resolve().parents[3] / "shared" / "samples"))


def test_samples_of_a_known_curve() -> None:
    """Five seconds and more of a load that steps up and down, with jitter: within 5 % of the integral."""
    source, times, clock = random.Random(3), [], 0.0
    while clock < 600:
        times.append(clock)
        clock += source.uniform(0.8, 1.2)
    found = sampled_energy(times, [300 if second % 60 < 20 else 700 for second in times])
    exact = sum(300 if second % 60 < 20 else 700 for second in range(int(times[-1])))
    assert found.joules == pytest.approx(exact, rel=0.05)
    assert found.coverage == pytest.approx(1)


def test_a_missing_sample_is_not_zero() -> None:
    missing = sampled_energy([0, 1, 2, 3], [500, None, 500, 500])
    zero = sampled_energy([0, 1, 2, 3], [500, 0, 500, 500])
    assert missing.joules == 1500
    assert zero.joules == 1000
    assert missing.num_missing == 1
    assert missing.longest_gap_seconds == 2


def test_a_long_gap_is_left_out_and_shown() -> None:
    found = sampled_energy([0, 1, 2, 62, 63], [700] * 5, max_gap_seconds=5)
    assert found.joules == 2100
    assert found.mean_watts == 700
    assert sampled_energy([0, 5], [700, 700], max_gap_seconds=5).coverage == 1
    assert found.coverage == pytest.approx(3 / 63)
    assert math.isnan(sampled_energy([0, 9], [1, 1], max_gap_seconds=5).mean_watts)


def test_power_logs_of_three_nodes() -> None:
    """Three of the 64 nodes of GPT-3: their mean is within a tenth of the mean of all, 6.74 kW behind the supplies."""
    files = sorted((SAMPLES / "power").glob("mlperf_v40_gpt3_64nodes_node_*.txt"))
    if not files:
        pytest.skip("the power logs are not here; set TRAINSPEC_SAMPLES")
    powers = []
    for path in files:
        events = [json.loads(line.partition(" ")[2]) for line in path.read_text(encoding="utf-8").splitlines() if line]
        readings = [(e["time_ms"] / 1000, e["value"]) for e in events if e["key"] == "power_reading"]
        rising = [r for i, r in enumerate(readings) if i == 0 or r[0] > readings[i - 1][0]]
        found = sampled_energy([second for second, _ in rising], [watt for _, watt in rising], max_gap_seconds=30)
        assert 1.5 < found.median_interval_seconds < 2.5
        assert found.coverage > 0.99
        powers.append(found.mean_watts)
    assert statistics.fmean(powers) == pytest.approx(6744, rel=0.1)


@pytest.mark.parametrize(
    ("times", "watts"),
    [
        ([0, 1], [1]),
        ([0, 1, 2], [1, None, None]),
        ([0, 0], [1, 1]),
        ([0, 1], [1, -1]),
        ([0, 1], [1, math.inf]),
    ],
)
def test_nonsense_is_refused(times: list[float], watts: list[float | None]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        sampled_energy(times, watts)


def test_examples() -> None:
    result = doctest.testmod(power_samples)
    assert result.attempted >= 1
    assert result.failed == 0
