"""How the recovery path from faults is told of and timed: TS-REC-001 to 004, 008, 016, 017, 020, TS-TEL-047."""

from __future__ import annotations

from typing import Any

import pytest
from life_makers import Stream, judged, messages, places, why_not

BUDGET = {"recovery": [{"fault": "process-loss", "budget_seconds": 90, "quantile": 0.95}], "recovery_point_seconds": 60}
SHORT = {"fault": "process-loss", "budget_seconds": 40}


def before(fault: float = 70, **more: Any) -> Stream:
    """Two steps, a fault and the decision."""
    return Stream().update(30, 1).update(60, 2).fault(fault, **more).recovery(fault + 1)


def after(first: float = 120, att: int = 1, **phases: float) -> Stream:
    """A new attempt that repeats step 2 and ends the recovery with step 3."""
    run = Stream(att, 80).started(81, step=1).restore(82, 90, 1)
    return run.update(first, 2).update(first + 30, 3).recovered(first + 30, **phases)


# --- TS-REC-001


def test_a_recovery_with_all_marks() -> None:
    assert places("TS-REC-001", before(), after()) == []


@pytest.mark.parametrize(
    ("streams", "absent"),
    [
        ((Stream().update(30, 1).fault(70), after()), "decided, caught up"),
        ((before(), Stream(1, 80).restore(82, 90, 1).update(120, 2).update(150, 3).recovered(150)), "restarted"),
        ((before(), Stream(1, 80).started(81, 1).update(120, 2).update(150, 3).recovered(150)), "restored"),
        ((before(), Stream(1, 80).started(81, 1).restore(82, 90, 1)), "first step, caught up"),
        ((before(), Stream(1, 80).started(81, 1).restore(82, 90, 1).update(120, 2).update(150, 3)), "caught up"),
    ],
)
def test_marks_that_are_absent(streams: tuple[Stream, ...], absent: str) -> None:
    (message,) = messages("TS-REC-001", *streams)
    assert message == f"the recovery from the fault 'f-1' has no mark for {absent}"


def test_a_job_that_shrinks_needs_no_restart() -> None:
    run = before().update(100, 3).recovered(100)
    assert places("TS-REC-001", run) == []


def test_a_start_from_nothing_restores_nothing() -> None:
    first = Stream().fault(5).recovery(6)
    assert places("TS-REC-001", first, Stream(1, 9).started(10, step=0).update(40, 1).recovered(40)) == []


def test_a_recovery_that_failed_is_complete() -> None:
    assert places("TS-REC-001", before().recovered(80, outcome="failed")) == []
    assert places("TS-REC-001", before().event(80, "run.end", a={"run.status": "failed"})) == []


def test_a_recovery_that_goes_on_is_not_judged() -> None:
    assert why_not("TS-REC-001", before(), is_live=True) == "the recovery from the fault continues"
    assert places("TS-REC-001", before()) == [(0, 4)]


def test_a_fault_without_recovery_leaves_the_job_alone() -> None:
    run = Stream().update(30, 1).fault(40, kind="link").event(45, "fault.cleared", "f-1", a={"fault.id": "f-1"})
    assert why_not("TS-REC-001", run.update(60, 2)) == "no fault of the run needed a recovery"


def test_faults_that_overlap_have_an_episode_each() -> None:
    middle = Stream(1, 80).started(81, step=1).restore(82, 90, 1).fault(95, "f-2").recovery(96, "f-2")
    last = Stream(2, 100).started(101, step=1).restore(102, 110, 1).update(140, 2).update(170, 3)
    last.recovered(170, "f-1").recovered(170, "f-2")
    assert places("TS-REC-001", before(), middle, last) == []
    assert places("TS-REC-002", before(), middle, last) == []
    found = judged("TS-REC-003", before(), middle, last, policy={"recovery": [SHORT]})
    assert [violation.message.split(" after ")[0] for _, _, violation in found] == [
        "the first step is completed 80 s",
        "the first step is completed 45 s",
    ]


# --- TS-REC-002 and TS-REC-017


def test_a_mark_before_the_one_before_it() -> None:
    late = Stream(1, 80).started(81, step=1).restore(82, 200, 1).update(120, 2).update(150, 3).recovered(150)
    (message,) = messages("TS-REC-002", before(), late)
    assert message == "after the fault 'f-1', 'first step' is 80 s before 'restored'"


def test_marks_at_one_moment_are_in_order() -> None:
    first = Stream().update(30, 1).fault(70).recovery(70)
    second = Stream(1, 70).started(70, step=0).restore(70, 70, 0).update(70, 1).update(70, 2).recovered(70)
    assert places("TS-REC-002", first, second) == []


@pytest.mark.parametrize(
    ("phases", "says"),
    [
        ({"detect": 5, "decide": 1, "restart": 10, "restore": 9, "replay": 60, "total": 85}, None),
        ({"detect": 5, "decide": 1, "restart": 10, "restore": 9, "replay": 20, "total": 85}, "add up to 45 s"),
        ({"detect": 5, "total": 60}, "the total is 60 s, but the records are 85 s apart"),
        ({"total": 60}, "the total is 60 s, but the records are 80 s apart"),
        ({"total": 84}, None),
    ],
)
def test_phases_are_those_of_the_records(phases: dict[str, float], says: str | None) -> None:
    found = messages("TS-REC-017", before(), after(**phases))
    assert [says in message for message in found] == [True] if says else found == []


def test_phases_that_nobody_states() -> None:
    assert why_not("TS-REC-017", before(), after()) == "no recovery of the run states its train.recovery.duration"


# --- TS-REC-003, TS-REC-004 and TS-TEL-047


def test_a_fault_without_a_time_counts_from_the_last_sign_of_life() -> None:
    (found,) = judged("TS-REC-003", before(140), after(155), policy=BUDGET)
    assert "95 s after the last sign of life" in found[2].message
    assert places("TS-REC-003", before(140), after(155, detect=5), policy=BUDGET) == []


def test_the_end_of_an_attempt_is_a_sign_of_life() -> None:
    first = Stream().update(30, 1).update(60, 2).ended(138).fault(140).recovery(141)
    assert places("TS-REC-003", first, after(155), policy=BUDGET) == []


def many(num: int, slow: int) -> list[Stream]:
    """Faults in a row, of which one is slow."""
    streams, clock = [], 0.0
    for number in range(num):
        run = Stream(number, clock)
        if number:
            run.started(clock + 1, step=number).restore(clock + 2, clock + 5, number)
        run.update(clock + 30, number + 1)
        if number:
            run.recovered(clock + 30, f"f-{number}", detect=1)
        clock += 40 + (100 if number + 1 == slow else 0)
        run.fault(clock, f"f-{number + 1}").recovery(clock + 0.5, f"f-{number + 1}")
        clock += 1 + (100 if number + 1 == slow else 0)
        streams.append(run)
    return streams


def test_one_fault_of_twenty_can_be_over_the_budget() -> None:
    assert len(messages("TS-REC-003", *many(20, 4), policy=BUDGET)) == 1
    assert messages("TS-REC-003", *many(22, 4), policy=BUDGET) == []


def test_classes_of_faults_have_their_own_budget() -> None:
    policy = {"recovery": [SHORT, {"fault": "node-loss", "budget_seconds": 500}]}
    assert places("TS-REC-003", before(kind="node"), after(detect=1), policy=policy) == []
    assert len(places("TS-REC-003", before(), after(detect=1), policy=policy)) == 1
    swapped = Stream().update(60, 2).fault(70, kind="device").recovery(71, action="node_swap")
    assert places("TS-REC-003", swapped, after(detect=1), policy=policy) == []
    assert why_not("TS-REC-003", before(kind="gremlin"), after(), policy=policy).startswith("after no fault")


def test_detection_is_judged_where_it_is_stated() -> None:
    policy = {"detection": [{"layer": "launcher", "timeout_seconds": 5, "faults": ["process-loss"]}]}
    assert places("TS-REC-004", before(), after(detect=5), policy=policy) == []
    assert places("TS-REC-004", before(), after(detect=6), policy=policy) == [(0, 4)]
    assert why_not("TS-REC-004", before(), after(), policy=policy).startswith("no recovery states")


def test_catching_up_has_the_recovery_point_on_top() -> None:
    assert places("TS-TEL-047", before(), after(120, detect=1), policy=BUDGET) == []
    assert places("TS-TEL-047", before(), after(200, detect=1), policy=BUDGET) == [(0, 4)]


# --- TS-REC-008


def goodput(seconds: float, **spent: float) -> dict[str, Any]:
    return {f"train.goodput.time{{train.time.category={name}}}": value for name, value in spent.items()}


@pytest.mark.parametrize(
    ("spent", "says"),
    [
        ({"productive": 91, "fault_wait": 20, "checkpoint_restore": 10, "replay": 30}, None),
        ({"productive": 91, "fault_wait": 20, "checkpoint_restore": 10}, "grow by 61 s in 91 s"),
        ({"productive": 91, "fault_wait": 60}, "replay does not grow"),
        ({"productive": 141, "replay": 10}, "productive, but no step was completed for 50 s"),
    ],
)
def test_time_of_a_recovery_is_booked(spent: dict[str, float], says: str | None) -> None:
    first = Stream().update(30, 1).update(60, 2).values(60, goodput(60, productive=60)).fault(70).recovery(71)
    found = messages("TS-REC-008", first, after().values(151, goodput(151, **spent)))
    assert [says in message for message in found] == [True] if says else found == []


def test_time_that_nobody_books() -> None:
    assert why_not("TS-REC-008", before(), after()) == "no train.goodput.time in the run"


# --- TS-REC-016 and TS-REC-020


def test_faults_that_the_policy_knows() -> None:
    assert places("TS-REC-016", before(), after()) == []
    assert places("TS-REC-016", before(kind="network"), after()) == [(0, 4)]
    assert why_not("TS-REC-016", before(kind="gremlin"), after()).startswith("no fault that needed a recovery")


def test_actions_that_the_policy_knows() -> None:
    assert places("TS-REC-020", before(), after()) == []
    shrunk = Stream().update(60, 2).fault(70).recovery(71, action="shrink")
    assert places("TS-REC-020", shrunk, after()) == [(0, 4)]
