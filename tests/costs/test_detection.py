"""Detection and recovery against published time lines and defaults, and against brute force."""

from __future__ import annotations

import csv
import doctest
import math
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs import detection as module
from trainspec_validate.performance.costs.detection import (
    Layer,
    Phases,
    detection,
    recoveries,
    recovery,
    trials_needed,
    worst_seconds,
)

NODE = frozenset({"node-loss"})
HANG = frozenset({"hang"})
FAST = Phases(decide=2, restart=20, restore=20, first_step=20)


def simulated_report(layer: Layer, source: random.Random) -> float:
    """Report of a layer that looks every poll from a random phase, for a fault at time 0."""
    if not layer.poll_seconds:
        return layer.timeout_seconds
    phase = source.uniform(0, layer.poll_seconds)
    looks = math.ceil((layer.timeout_seconds - phase) / layer.poll_seconds)
    return phase + max(0, looks) * layer.poll_seconds


def test_a_polling_layer_reports_within_one_poll_of_its_time_out() -> None:
    layer, source = Layer("health", 30, NODE, poll_seconds=7), random.Random(1)
    reports = [simulated_report(layer, source) for _ in range(5000)]
    assert min(reports) >= 30
    assert max(reports) <= worst_seconds([layer], "health")
    assert max(reports) == pytest.approx(worst_seconds([layer], "health"), abs=0.05)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 100), st.booleans()), min_size=1, max_size=6))
def test_the_earliest_layer_that_sees_the_fault_decides(drawn: list[tuple[float, float, bool]]) -> None:
    layers = [Layer(str(i), timeout, NODE if sees else HANG, poll) for i, (timeout, poll, sees) in enumerate(drawn)]
    seen = [timeout + poll for timeout, poll, sees in drawn if sees]
    found = detection(layers, "node-loss")
    assert (found.worst_seconds if found else None) == (min(seen) if seen else None)


def test_a_recovery_within_ninety_seconds() -> None:
    # 13 + 50 + 5.4 + 12.7 s = 81.1 s
    verdict = recovery([Layer("heartbeat", 13, NODE)], "node-loss", Phases(0, 50, 5.4, 12.7), 90)
    assert verdict.total_seconds == pytest.approx(81.1)
    assert verdict.over_seconds == 0
    assert verdict.longest == "restart"
    assert verdict.shorten is None


# Default time-outs in seconds of layers that see a hang or a lost node. Sources: pytorch/pytorch
# torch/distributed/constants.py; NVIDIA/nvidia-resiliency-ext@d8686d9; kubernetes/website taint-and-toleration.md;
# AI-Hypercomputer/maxtext@e591f30cb.
DEFAULTS = {"c10d": 1800, "nccl-process-group": 600, "nvrx-rank-heartbeat": 2700, "eviction": 300, "maxtext": 300}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_cannot_keep_ninety_seconds(name: str) -> None:
    verdict = recovery([Layer(name, DEFAULTS[name], HANG)], "hang", FAST, 90)
    assert verdict.longest == "detect"
    assert verdict.over_seconds == DEFAULTS[name] + 62 - 90
    assert (verdict.shorten, verdict.shorten_to_seconds) == (name, 28)


def test_torchft_heartbeats_keep_it() -> None:
    # meta-pytorch/torchft@7eb7087: heartbeats are lost after 5 s, looked at every 100 ms.
    layers = [Layer("heartbeat", 5, NODE, poll_seconds=0.1), Layer("nccl", 600, NODE | HANG)]
    assert recovery(layers, "node-loss", FAST, 90).over_seconds == 0
    assert recovery(layers, "hang", FAST, 90).over_seconds == 572


def test_the_cut_that_is_named_keeps_the_budget() -> None:
    layers = [
        Layer("monitor", 40, NODE, poll_seconds=5),
        Layer("eviction", 300, frozenset({"pod-loss"}), after="monitor"),
        Layer("watchdog", 600, frozenset({"pod-loss"})),
    ]
    verdict = recovery(layers, "pod-loss", FAST, 150)
    assert verdict.detection is not None
    assert verdict.detection.path == ("monitor", "eviction")
    assert verdict.total_seconds == 345 + 62
    assert verdict.shorten == "eviction"
    assert verdict.shorten_to_seconds == 43
    mended = [
        Layer("eviction", 43, frozenset({"pod-loss"}), after="monitor") if x.name == "eviction" else x for x in layers
    ]
    assert recovery(mended, "pod-loss", FAST, 150).over_seconds == 0


def test_no_cut_helps_when_the_rest_is_too_long() -> None:
    verdict = recovery([Layer("agent", 5, HANG)], "hang", Phases(2, 20, 130, 20), 90)
    assert verdict.shorten is None
    assert verdict.longest == "restore"
    assert verdict.over_seconds == 87


def test_a_poll_that_is_too_long_cannot_be_mended_by_the_time_out() -> None:
    verdict = recovery([Layer("health", 10, HANG, poll_seconds=300)], "hang", FAST, 90)
    assert verdict.over_seconds > 0
    assert verdict.shorten is None


def test_a_fault_that_nothing_sees_is_never_over() -> None:
    verdict = recovery([Layer("agent", 5, NODE)], "hang", FAST, 90)
    assert verdict.detection is None
    assert verdict.total_seconds is None
    assert verdict.over_seconds == math.inf


@pytest.mark.parametrize(
    ("quantile", "confidence", "needed"),
    [
        *((0.5, 0.95, (5, 8, 11)), (0.9, 0.95, (29, 46, 61)), (0.95, 0.95, (59, 93, 124))),
        *((0.99, 0.95, (299, 473, 628)), (0.5, 0.9, (4, 7, 9)), (0.9, 0.9, (22, 38, 52))),
        *((0.95, 0.9, (45, 77, 105)), (0.99, 0.9, (230, 388, 531))),
    ],
)
def test_trials(quantile: float, confidence: float, needed: tuple[int, int, int]) -> None:
    assert tuple(trials_needed(quantile, confidence, misses) for misses in range(3)) == needed
    for misses, trials in enumerate(needed):
        exact = [
            sum(math.comb(n, k) * (1 - quantile) ** k * quantile ** (n - k) for k in range(misses + 1))
            for n in (trials - 1, trials)
        ]
        assert exact[0] > 1 - confidence >= exact[1]


def test_published_defaults_file() -> None:
    """Every default in the collected table that is marked as too long is too long here, where it is a plain time."""
    data = Path(os.environ.get("TRAINSPEC_SAMPLES", Path(__file__).resolve().parents[3] / "shared" / "samples"))
    table = data.parent / "data" / "reliability_detection_timeouts.csv"
    if not table.is_file():
        pytest.skip("the table of time-outs is not here; set TRAINSPEC_SAMPLES")
    units = {"s": 1, "min": 60}
    judged = 0
    for row in csv.DictReader(table.open(encoding="utf-8")):
        words = row["default"].split()
        if row["fits_90s_budget"] not in {"yes", "no"} or len(words) != 2 or words[1] not in units:
            continue
        layer = Layer(row["parameter"], float(words[0]) * units[words[1]], HANG)
        fits = recovery([layer], "hang", Phases(0, 0, 0, 0), 90).over_seconds == 0
        assert fits == (row["fits_90s_budget"] == "yes"), row
        judged += 1
    assert judged >= 6


@pytest.mark.parametrize(
    "call",
    [
        lambda: Layer("a", -1, NODE),
        lambda: Layer("a", 1, NODE, poll_seconds=math.nan),
        lambda: worst_seconds([Layer("a", 1, NODE)], "b"),
        lambda: worst_seconds([Layer("a", 1, NODE, after="b"), Layer("b", 1, NODE, after="a")], "a"),
        lambda: worst_seconds([Layer("a", 1, NODE), Layer("a", 2, NODE)], "a"),
        lambda: Phases(1, 1, math.inf, 1),
        lambda: recovery([], "hang", FAST, -1),
        lambda: recoveries([], {}, {"hang": 90}),
        lambda: trials_needed(1),
        lambda: trials_needed(0.5, 0),
        lambda: trials_needed(0.5, 1),
        lambda: trials_needed(0.5, misses=-1),
        lambda: trials_needed(1 - 1e-9),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()


def test_examples() -> None:
    result = doctest.testmod(module)
    assert result.attempted >= 10
    assert result.failed == 0
