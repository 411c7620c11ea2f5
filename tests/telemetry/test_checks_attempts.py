"""How attempts follow each other: TS-REC-009 to 011, 014, 019."""

from __future__ import annotations

from typing import Any

import pytest
from life_makers import Stream, messages, places, why_not

TWICE = {"restart": {"max_restarts": 100, "max_restarts_without_progress": 2}}


def attempts(*reached: int, reason: str = "fault") -> list[Stream]:
    """Attempts that start from step 1 and reach these updates."""
    found = []
    for number, last in enumerate(reached):
        run = Stream(number, 100 * number).started(100 * number + 1, step=1)
        for step in range(2, last + 1):
            run.update(100 * number + 10 * step, step)
        found.append(run.ended(100 * number + 99, reason))
    return found


def test_restarts_without_progress() -> None:
    assert places("TS-REC-009", *attempts(4, 4, 3), policy=TWICE) == []
    assert places("TS-REC-009", *attempts(4, 4, 3, 4), policy=TWICE) == [(3, 2)]
    assert places("TS-REC-009", *attempts(4, 4, 3, 5, 5, 5), policy=TWICE) == []


def test_a_crash_loop_is_told_once() -> None:
    assert len(messages("TS-REC-009", *attempts(4, 4, 4, 4, 4, 4), policy=TWICE)) == 1


def test_ends_on_purpose_are_no_restarts() -> None:
    assert places("TS-REC-009", *attempts(4, 4, 4, 4, reason="preempted"), policy=TWICE) == []


def test_restarts_in_all() -> None:
    policy = {"restart": {"max_restarts": 2, "max_restarts_without_progress": 2}}
    assert places("TS-REC-009", *attempts(2, 3, 4), policy=policy) == []
    (message,) = messages("TS-REC-009", *attempts(2, 3, 4, 5), policy=policy)
    assert message == "attempt 3 is restart number 3, and the policy allows 2"


def test_the_newest_attempt_of_a_live_run_can_still_progress() -> None:
    run = attempts(4, 4, 4, 3)
    assert places("TS-REC-009", *run, policy=TWICE) == [(3, 2)]
    assert places("TS-REC-009", *run, policy=TWICE, is_live=True) == []


def test_one_attempt_has_no_restart() -> None:
    assert why_not("TS-REC-009", *attempts(4), policy=TWICE) == "the run has one attempt"


# --- TS-REC-019


def test_the_old_attempt_is_fenced() -> None:
    first, second = Stream().update(30, 1).save(31, 1), Stream(1, 40).started(41, step=1)
    assert places("TS-REC-019", first, second) == []
    assert places("TS-REC-019", Stream().update(30, 1).update(60, 2), second) == [(0, 3)]
    assert places("TS-REC-019", Stream().update(30, 1).save(31, 1, persist=30), second) == [(0, 4)]
    assert why_not("TS-REC-019", first, Stream(1, 40).update(50, 2))


# --- TS-REC-010


def sized(att: int, world_size: int, batch: float | None, event: bool = False) -> Stream:
    run = Stream(att, 100 * att).started(100 * att + 1, world_size=world_size)
    if event:
        run.event(100 * att + 2, "batch_size.changed", a={"change.before": "512", "change.after": "384"})
    return run.update(100 * att + 30, att + 1, **({} if batch is None else {"batch.size": batch}))


@pytest.mark.parametrize(
    ("batch", "event", "says"),
    [
        (512, False, None),
        (384, True, None),
        (384, False, "a step has 384 samples after 512"),
        (None, False, "no value of train.batch.size"),
    ],
)
def test_another_world_size(batch: float | None, event: bool, says: str | None) -> None:
    found = messages("TS-REC-010", sized(0, 128, 512), sized(1, 96, batch, event))
    assert [says in message for message in found] == [True] if says else found == []


def test_the_same_world_size_is_not_judged() -> None:
    assert why_not("TS-REC-010", sized(0, 128, 512), sized(1, 128, 384)).startswith("all attempts")


# --- TS-REC-011


def ranks(att: int, seconds: float, host: str) -> Stream:
    run = Stream(att, seconds, head={"emitter": "agent", "scopes": ["rank"]})
    return run.values(seconds + 1, {"train.rank.step": 1}, rank=0, host=host)


def drained(seconds: float, host: str, returned: float | None = None) -> Stream:
    run = ranks(0, 0, host).event(seconds, "node.drained", "d", a={"host.id": host, "reason": "memory"})
    return run if returned is None else run.event(returned, "node.returned", "d", a={"host.id": host})


def test_a_drained_node_stays_out() -> None:
    assert places("TS-REC-011", drained(50, "n1"), ranks(1, 100, "n1")) == [(1, 2)]
    assert places("TS-REC-011", drained(50, "n1"), ranks(1, 100, "n2")) == []
    assert places("TS-REC-011", drained(50, "n1", returned=90), ranks(1, 100, "n1")) == []
    assert places("TS-REC-011", drained(50, "n1", returned=190), ranks(1, 100, "n1")) == [(1, 2)]
    assert why_not("TS-REC-011", ranks(0, 0, "n1")) == "no node was drained"


# --- TS-REC-014

RATE = {"reliability": {"failures_per_1000_node_days": 6.5}}


def faulty(num: int, days: float, domain: str = "infrastructure") -> Stream:
    run = Stream(head={"world_size": 128}).update(1, 1)
    for number in range(num):
        seconds = 10 + 86_400 * days * number / num
        a: dict[str, Any] = {"fault.id": f"f-{number}", "fault.domain": domain, "fault.class": "node"}
        run.event(seconds, "fault.detected", f"f-{number}", a=a).recovery(seconds + 5, f"f-{number}")
    return run.update(86_400 * days, 9000)


def test_the_rate_of_faults() -> None:
    assert places("TS-REC-014", faulty(5, 30), cluster=RATE) == []
    (message,) = messages("TS-REC-014", faulty(6, 10), cluster=RATE)
    assert message.endswith("give 0 to 3")
    assert messages("TS-REC-014", faulty(5, 300), cluster=RATE)[0].endswith("give 21 to 43")


def test_the_rate_of_faults_on_one_of_several_groups() -> None:
    """128 ranks are 16 nodes of 8 or 32 of 4: both have to be left by the number of faults."""
    model = {"model": "nvidia-h100-sxm-80gb"}
    half = {"name": "half", "num_nodes": 32, "num_accelerators_per_node": 4, "accelerator": model}
    several = {**RATE, "node_groups": [{"name": "compute"}, half]}
    assert messages("TS-REC-014", faulty(5, 10), cluster=several) == []
    assert messages("TS-REC-014", faulty(6, 10), cluster=several)[0].endswith("give 0 to 5")
    alike = {**RATE, "node_groups": [{"name": "compute"}, {**half, "num_accelerators_per_node": 8}]}
    assert messages("TS-REC-014", faulty(5, 10), cluster=alike)[0].endswith("give 0 to 3")


def test_few_faults_and_those_of_the_workload_show_no_rate() -> None:
    reason = "fewer than 5 faults of machines show nothing about their rate"
    assert why_not("TS-REC-014", faulty(4, 1), cluster=RATE) == reason
    assert why_not("TS-REC-014", faulty(40, 1, domain="workload"), cluster=RATE) == reason
