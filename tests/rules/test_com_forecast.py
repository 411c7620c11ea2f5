"""Algorithms, waiting, buckets and compression against predictions: edges that the examples do not show."""

from __future__ import annotations

from typing import Any

import pytest
from predicted_documents import EXAMPLES, cluster, places, plan, violations

from trainspec_validate.rules import NotApplicable

META = EXAMPLES / "clusters" / "meta-llama3-24k.yaml"


def row(**keys: Any) -> dict[str, Any]:
    return {"communication": {"collectives": [{"operation": "reduce-scatter", "axis": "tensor"} | keys]}}


ROW = ("communication", "collectives", 0, "algorithm")
SLOW = {"algorithm": "ring", "protocol": "low-latency"}


@pytest.mark.parametrize(
    ("keys", "slow"),
    [
        (SLOW, True),
        (SLOW | {"max_bytes": 1e6}, False),  # the plan sends 134 MB
        (SLOW | {"min_bytes": 1e6}, True),
        (SLOW | {"operation": "broadcast"}, False),  # which the plan does not send
        ({"algorithm": "ring"}, False),
        ({"algorithm": "ring", "protocol": "simple"}, False),
        ({"algorithm": "halving-doubling"}, False),  # slower, but within the band
    ],
)
def test_algorithms_of_large_messages(keys: dict[str, Any], slow: bool) -> None:
    assert places("TS-COM-025", plan(row(**keys)), cluster()) == ([ROW] if slow else [])


def test_the_finding_shows_both_times_and_what_is_better() -> None:
    (found,) = violations("TS-COM-025", plan(row(**SLOW)), cluster())
    assert "reduce-scatter of 134.2 MB between tensor ranks is predicted to take" in found.message
    assert "by ring (low-latency)" in found.message
    assert "by ring (simple)" in found.message
    assert found.message.count(" us to ") == 2
    assert "use ring (simple) or automatic at this size" in found.help


def test_a_ring_over_thousands_of_ranks_is_slow_for_small_buckets() -> None:
    published = EXAMPLES / "plans" / "llama3-405b-16384.yaml"
    rows = [{"operation": "reduce-scatter", "axis": "data", "algorithm": "ring"}]
    wide = {
        "parallelism": {
            "data": 2048,
            "pipeline": 1,
            "schedule": "none",
            "stage_layers": None,
            "sharding": "parameters",
        },
        "batch": {"global_sequences": 2048, "accumulation_steps": 1},
    }
    small = wide | {"communication": {"collectives": rows, "bucket_bytes": 1e6}}
    (found,) = violations("TS-COM-025", plan(small, published), cluster(path=META))
    assert "by halving-doubling" in found.message
    large = wide | {"communication": {"collectives": rows, "bucket_bytes": 4e9}}
    assert violations("TS-COM-025", plan(large, published), cluster(path=META)) == []


def test_rows_that_leave_the_choice_to_the_library_are_not_judged() -> None:
    with pytest.raises(NotApplicable, match="names no algorithm"):
        violations("TS-COM-025", plan(row(algorithm="automatic", protocol="low-latency")), cluster())
    with pytest.raises(NotApplicable, match="gives its reasons"):
        violations("TS-COM-025", plan(row(**SLOW, reason="a bug of the simple protocol in this version")), cluster())


NARROW = {
    "node_groups": [{"name": "compute", "nics": [{"name": "rail", "rate_bytes_per_second": 1e9}]}],
}


def test_a_step_that_waits_on_a_slow_network() -> None:
    sharded = {
        "parallelism": {"sharding": "parameters", "data": 16, "pipeline": 1, "schedule": None},
        "batch": {"accumulation_steps": 32},
    }
    (found,) = violations("TS-COM-026", plan(sharded), cluster(NARROW))
    assert found.place.pointer == ("parallelism", "data")
    assert "is predicted to wait for communication: tensor " in found.message
    assert found.help.startswith(
        "at most 60 %; let data ranks send less or over a faster network, or use fewer ranks: without "
    )
    sharded["communication"] = {"overlap_gradients": False}
    (found,) = violations("TS-COM-026", plan(sharded), cluster(NARROW))
    assert "overlap gradients and parameters" in found.help
    sharded["parallelism"]["rank_order"] = "alphabetical"
    (found,) = violations("TS-COM-026", plan(sharded), cluster(NARROW))
    assert "sort the hosts by topology" in found.help


def test_overlap_that_is_not_stated_is_not_assumed() -> None:
    """A step that waits too long without overlap only is not judged where the plan says nothing of overlap."""
    rate = {"node_groups": [{"name": "compute", "nics": [{"name": "rail", "rate_bytes_per_second": 2e9}]}]}
    sharded: dict[str, Any] = {
        "parallelism": {"sharding": "parameters", "data": 16, "pipeline": 1, "schedule": None},
        "batch": {"micro_sequences": 32, "accumulation_steps": 1},
    }
    silent = sharded | {"communication": None}
    with pytest.raises(NotApplicable, match="the plan does not state"):
        violations("TS-COM-026", plan(silent), cluster(rate))
    with_overlap = sharded | {"communication": {"overlap_gradients": True, "overlap_parameters": True}}
    assert violations("TS-COM-026", plan(with_overlap), cluster(rate)) == []
    without = sharded | {"communication": {"overlap_gradients": False, "overlap_parameters": False}}
    assert violations("TS-COM-026", plan(without), cluster(rate))
    (found,) = violations("TS-COM-026", plan(silent), cluster(NARROW))
    assert "even with overlap, which the plan does not state" in found.message


@pytest.mark.parametrize("name", ["llama3-405b-16384", "llama3-405b-131k", "llama3-405b-8192"])
def test_published_plans_do_not_wait_too_long(name: str) -> None:
    assert places("TS-COM-026", plan(path=EXAMPLES / "plans" / f"{name}.yaml"), cluster(path=META)) == []


def test_one_rank_does_not_wait() -> None:
    alone = {
        "parallelism": {
            "num_accelerators": 1,
            "data": 1,
            "tensor": 1,
            "pipeline": 1,
            "schedule": None,
            "sequence": False,
        },
        "batch": {"accumulation_steps": 512},
    }
    with pytest.raises(NotApplicable, match="no axis"):
        violations("TS-COM-026", plan(alone), cluster())


def buckets(size: float, sharding: str = "gradients") -> dict[str, Any]:
    return {
        "parallelism": {"data": 16, "pipeline": 1, "schedule": None, "sharding": sharding},
        "batch": {"accumulation_steps": 32},
        "communication": {"bucket_bytes": size},
    }


@pytest.mark.parametrize(
    ("documents", "slow"),
    [
        (buckets(1.5e6), True),
        (buckets(25e6), False),
        (buckets(1.5e6, "optimizer"), False),  # sent once in a step, so little is at stake
        (buckets(20e9), False),
    ],
)
def test_buckets(documents: dict[str, Any], slow: bool) -> None:
    assert places("TS-COM-027", plan(documents), cluster()) == ([("communication", "bucket_bytes")] if slow else [])


def test_the_better_bucket_passes() -> None:
    (found,) = violations("TS-COM-027", plan(buckets(1.5e6)), cluster())
    assert found.help.startswith("set bucket_bytes: 24e6; such buckets take ")
    assert places("TS-COM-027", plan(buckets(24e6)), cluster()) == []


def compressed(**keys: Any) -> dict[str, Any]:
    return {"communication": {"compression": {"method": "int8", "wire_ratio": 3.9} | keys}}


BEFORE = ("communication", "compression", "exposed_fraction_before")
COST = ("communication", "compression", "compression_seconds_per_step")
CLAIM = ("communication", "compression", "expected_speedup")


@pytest.mark.parametrize(("share", "credible"), [(0.0, True), (0.3, True), (0.46, True), (0.5, False), (0.9, False)])
def test_stated_shares_of_waiting(share: float, credible: bool) -> None:
    found = places("TS-COM-028", plan(compressed(exposed_fraction_before=share)), cluster())
    assert found == ([] if credible else [BEFORE])


def test_a_share_below_the_predicted_one() -> None:
    slow = {"parallelism": {"sharding": "parameters"}, **compressed(exposed_fraction_before=0.01)}
    (found,) = violations("TS-COM-028", plan(slow), cluster(NARROW))
    assert "of its time for data ranks, but" in found.message


def test_what_compression_costs_and_promises() -> None:
    def found(**keys: Any) -> list[tuple[str | int, ...]]:
        return places("TS-COM-029", plan(compressed(**keys)), cluster())

    assert found(compression_seconds_per_step=1) == []
    assert found(compression_seconds_per_step=15) == [COST]
    assert found(expected_speedup=1.3) == []
    assert found(expected_speedup=2.5) == [CLAIM]
    assert found(expected_speedup=2.5, exposed_fraction_before=0.9) == []  # TS-COM-023 and TS-COM-028 judge that
    assert found(compression_seconds_per_step=15, expected_speedup=2.5) == [COST, CLAIM]


def test_compression_without_figures_is_not_judged() -> None:
    with pytest.raises(NotApplicable, match="neither the time"):
        violations("TS-COM-029", plan(compressed()), cluster())
    with pytest.raises(NotApplicable, match="no exposed share"):
        violations("TS-COM-028", plan(compressed()), cluster())
    with pytest.raises(NotApplicable, match="compresses no traffic"):
        violations("TS-COM-028", plan(), cluster())
    other = compressed(exposed_fraction_before=0.9) | {"parallelism": {"schedule": "other"}}
    with pytest.raises(NotApplicable, match="idle time"):
        violations("TS-COM-028", plan(other), cluster())
