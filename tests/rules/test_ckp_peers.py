"""State that is restored from peers, and corruption that only screening finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]
PEERS = {"recovery": [{"fault": "process-loss", "restore_from": "peers"}]}
AT = "recovery.0.restore_from"


@pytest.mark.parametrize(
    ("parallelism", "bad"),
    [
        ({"sharding": "optimizer"}, True),
        ({"sharding": "optimizer", "sharding_degree": 4}, True),
        ({"sharding": "optimizer", "sharding_degree": 2}, False),
        ({"sharding": "none"}, False),
        ({"sharding": "none", "data": 1, "pipeline": 16}, True),
        ({"sharding": "parameters", "sharding_degree": 4, "context": 2, "pipeline": 2}, False),
        ({"sharding": "parameters", "sharding_degree": 8, "context": 2, "pipeline": 2}, True),
    ],
)
def test_copies_among_peers(findings: Findings, parallelism: dict[str, Any], bad: bool) -> None:
    found = findings(plan={"parallelism": parallelism}, checkpoint=PEERS, select=("TS-CKP-106",))
    assert found == ({("TS-CKP-106", AT)} if bad else set())


@pytest.mark.parametrize(
    ("fault", "bad"),
    [("job-loss", True), ("silent-corruption", True), ("process-loss", False), ("node-loss", False), ("hang", False)],
)
def test_faults_without_peers(findings: Findings, fault: str, bad: bool) -> None:
    path = {"fault": fault, "restore_from": "peers", "action": "rollback", "budget_seconds": 4000}
    path |= {"decide_seconds": 10, "restart_seconds": 15, "restore_seconds": 15, "first_step_seconds": 40}
    found = findings(checkpoint={"recovery": [path]}, select=("TS-CKP-107",))
    assert {identifier for identifier, _ in found} == ({"TS-CKP-107"} if bad else set())


def test_without_peers_nothing_is_judged(verdict: Verdicts) -> None:
    assert verdict("TS-CKP-106") is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-107") is Verdict.NOT_APPLICABLE


def test_a_restore_from_peers_reads_no_store(findings: Findings) -> None:
    fast = {"fault": "process-loss", "restore_seconds": 1}
    assert findings(checkpoint={"recovery": [fast]}, select=("TS-CKP-045",)) == {
        ("TS-CKP-045", "recovery.0.restore_seconds")
    }
    peers = {"recovery": [{**fast, "restore_from": "peers"}]}
    assert findings(checkpoint=peers, select=("TS-CKP-045",)) == set()


BLIND = [{"layer": "loss-watch", "timeout_seconds": 3600, "faults": ["hang"], "signal": "progress"}]


@pytest.mark.parametrize(("interval", "bad"), [(3600, False), (3601, True), (3888000, True)])
def test_checkpoints_outlast_a_screening(findings: Findings, interval: float, bad: bool) -> None:
    cluster = {"reliability": {"screening": {"interval_seconds": interval}}}
    found = findings(cluster=cluster, checkpoint={"detection": BLIND}, select=("TS-CKP-108",))
    assert found == ({("TS-CKP-108", "retention.error_detection_seconds")} if bad else set())


def test_a_layer_that_looks_for_corruption_is_enough(verdict: Verdicts) -> None:
    cluster = {"reliability": {"screening": {"interval_seconds": 3888000}}}
    assert verdict("TS-CKP-108", cluster=cluster) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-108", checkpoint={"detection": BLIND}) is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(("duration", "bad"), [(None, False), (3600, False), (3601, True)])
def test_a_screening_ends_within_its_interval(findings: Findings, duration: float | None, bad: bool) -> None:
    cluster = {"reliability": {"screening": {"interval_seconds": 3600, "duration_seconds": duration}}}
    place = "reliability.screening.duration_seconds"
    assert findings(cluster=cluster, select=("TS-CLU-077",)) == ({("TS-CLU-077", place)} if bad else set())
