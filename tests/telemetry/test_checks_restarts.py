"""What new attempts go on from and what that costs: TS-REC-005 to 007, 009 to 015, 018, 019, 021."""

from __future__ import annotations

from typing import Any

import pytest
from life_makers import Stream, messages, places, why_not

RATE = "train.learning_rate"
LOSS = "train.loss.mean{train.loss.name=total}"
NOTICES = {"retention": {"error_detection_seconds": 3600}}


def trained(last: int, *saved: int) -> Stream:
    """Optimizer steps of half a minute, with saves after some of them."""
    run = Stream()
    for step in range(1, last + 1):
        run.update(30 * step, step)
        if step in saved:
            run.save(30 * step, step)
    return run


def stopped(last: int, *saved: int, kind: str = "process") -> Stream:
    """The same, with a fault and a decision."""
    return trained(last, *saved).fault(30 * last + 10, kind=kind).recovery(30 * last + 11)


def goes_on(begin: float, restored: int, last: int, att: int = 1) -> Stream:
    """A new attempt that restores an optimizer step and goes on with the next ones."""
    run = Stream(att, begin).started(begin + 1, step=restored).restore(begin + 2, begin + 10, restored)
    for number, step in enumerate(range(restored + 1, last + 1), start=1):
        run.update(begin + 10 + 30 * number, step)
    return run


# --- TS-REC-005 and TS-REC-015


def every(updates: int, **more: Any) -> dict[str, Any]:
    seconds = 30 * updates
    tiers = [{"name": "partner-copies", "interval_seconds": seconds}, {"name": "durable", "interval_seconds": seconds}]
    interval = {"steps": updates, "seconds": seconds, "step_seconds": 30}
    return {"interval": interval, "save": {"persist_seconds_p95": 20}, "tiers": tiers, **more}


def test_lost_updates_are_those_of_an_interval() -> None:
    assert places("TS-REC-005", stopped(5, 1), goes_on(180, 1, 7), policy=every(2)) == []
    (message,) = messages("TS-REC-005", stopped(6, 1), goes_on(210, 1, 8), policy=every(2))
    assert message.startswith(
        "the fault 'f-1' costs 5 optimizer steps (2.417 min of training): step 1 is restored after 6"
    )


def test_a_slower_tier_loses_more() -> None:
    policy = every(2)
    policy["tiers"][1]["interval_seconds"] = 600
    assert places("TS-REC-005", stopped(9, 1), goes_on(300, 1, 11), policy=policy) == []


def test_lost_time_leaves_out_evaluations() -> None:
    run = Stream().update(30, 1).save(30, 1).event(31, "evaluation.begin", "e").event(91, "evaluation.end", "e")
    run.update(121, 2).fault(130).recovery(131)
    assert places("TS-REC-015", run, goes_on(140, 1, 3), policy={"recovery_point_seconds": 40}) == []
    assert places("TS-REC-015", run, goes_on(140, 1, 3), policy={"recovery_point_seconds": 20}) == [(1, 4)]


def seldom(*steps: int) -> Stream:
    """Optimizer steps of half a minute, of which only some are reported, with their time."""
    run = Stream()
    for step in steps:
        run.update(30 * step, step, **{"step.duration": 30.0})
    return run


@pytest.mark.parametrize(
    ("reported", "restored", "words"),
    [
        ((4, 5, 8), 4, "2 min of training (4 steps)"),  # from one report to the other
        ((5, 8), 4, "2 min of training (4 steps)"),  # the restored step was reported later: 4 times 30 s
        ((5, 8), 6, "1 min of training (2 steps)"),
        ((8,), 0, "4 min of training (8 steps)"),
    ],
)
def test_lost_time_where_the_restored_update_was_not_reported(
    reported: tuple[int, ...], restored: int, words: str
) -> None:
    run = seldom(*reported).fault(250).recovery(251)
    (message,) = messages("TS-REC-015", run, goes_on(260, restored, 9), policy={"recovery_point_seconds": 10})
    assert words in message


def test_lost_time_is_not_known_without_the_time_of_an_update() -> None:
    run = Stream().update(150, 5).update(240, 8).fault(250).recovery(251)
    assert why_not("TS-REC-015", run, goes_on(260, 4, 9), policy={"recovery_point_seconds": 10}) == (
        "the time of the lost optimizer steps is not known"
    )


def test_a_restored_update_that_is_the_last_one_costs_no_time() -> None:
    run = seldom(5, 8).fault(250).recovery(251)
    assert places("TS-REC-015", run, goes_on(260, 8, 9), policy={"recovery_point_seconds": 1e-3}) == []


def test_a_recovery_without_restore_loses_nothing() -> None:
    run = stopped(2).update(120, 3).recovered(120)
    assert why_not("TS-REC-005", run, policy=every(2)).startswith("no recovery of the run has a restored step")


# --- TS-REC-021


@pytest.mark.parametrize(("stated", "num_findings"), [(2, 0), (1, 1), (3, 1)])
def test_repeated_updates(stated: float, num_findings: int) -> None:
    second = goes_on(110, 1, 4).recovered(210, repeated=stated)
    assert len(places("TS-REC-021", stopped(3, 1), second)) == num_findings


def test_repeated_updates_of_several_attempts_add_up() -> None:
    second = goes_on(110, 1, 2).fault(155, "f-2").recovery(156, "f-2")
    third = goes_on(200, 1, 4, att=2).recovered(300, "f-2", repeated=3)
    assert places("TS-REC-021", stopped(3, 1), second, third) == []


def test_a_recovery_that_is_not_judged_is_part_of_the_answer() -> None:
    second = goes_on(110, 1, 4).recovered(210, repeated=2).fault(255, "f-2").recovery(256, "f-2")
    third = goes_on(300, 1, 4, att=2).recovered(400, "f-2")
    reason = why_not("TS-REC-021", stopped(3, 1), second, third)
    assert reason.startswith("1 of 2 recoveries are not judged: none of these has train.step.repeated")


# --- TS-REC-006 and TS-REC-007


def test_a_silent_start_from_nothing() -> None:
    assert messages("TS-REC-006", trained(3, 2), Stream(1, 100).started(101, step=0)) == [
        "attempt 1 starts from nothing, although checkpoint 'c-2' of step 2 is committed"
    ]
    none = Stream(1, 100).restore(101, 102, 0, "none")
    assert places("TS-REC-006", trained(3, 2), none) == [(1, 3)]
    assert places("TS-REC-006", trained(3), Stream(1, 100).started(101, step=0)) == []


def test_a_deleted_checkpoint_is_not_passed_over() -> None:
    first = trained(3, 2).event(95, "checkpoint.delete", a={"checkpoint.id": "c-2", "reason": "damaged"})
    assert places("TS-REC-006", first, Stream(1, 100).started(101, step=0)) == []


def test_a_checkpoint_whose_save_began_after_its_fault() -> None:
    first = trained(3).fault(95).recovery(96).save(97, 3, persist=4)
    assert places("TS-REC-006", first, goes_on(110, 3, 5)) == [(1, 4)]
    assert messages("TS-REC-006", first, goes_on(110, 3, 5)) == [
        "checkpoint 'c-3' is restored, but its save began 2 s after the fault 'f-1' was detected"
    ]
    assert places("TS-REC-006", stopped(3, 2), goes_on(110, 2, 5)) == []


def test_state_from_before_a_fault_may_be_committed_after_it() -> None:
    first = trained(3).fault(95).recovery(96).save(94, 3, persist=4)
    assert places("TS-REC-006", first, goes_on(110, 3, 5)) == []


def test_a_restore_from_peers_is_no_start_from_nothing() -> None:
    peers = Stream(1, 110).started(111, step=3).restore(112, 113, 3, "peers")
    assert places("TS-REC-006", stopped(3, 2), peers) == []


def test_the_first_update_follows_the_restored_one() -> None:
    assert places("TS-REC-007", trained(3), goes_on(110, 2, 5)) == []
    skipped = Stream(1, 110).started(111, step=2).restore(112, 120, 2).update(150, 5)
    assert places("TS-REC-007", trained(3), skipped) == [(1, 5)]
    skipped.head["report_interval_steps"] = 10
    assert places("TS-REC-007", trained(3), skipped) == []


def test_a_report_of_the_restored_update_comes_before_the_first() -> None:
    run = Stream(1, 110).started(111, step=2).restore(112, 120, 2).update(121, 2)
    assert places("TS-REC-007", trained(3), run.update(150, 3)) == []
    assert places("TS-REC-007", trained(3), run.update(180, 9)) == []
    again = Stream(1, 110).started(111, step=2).restore(112, 120, 2).update(121, 2).update(180, 9)
    assert places("TS-REC-007", trained(3), again) == [(1, 6)]


def test_start_and_restore_name_one_update() -> None:
    run = Stream(1, 110).started(111, step=3).restore(112, 120, 2).update(150, 3)
    assert places("TS-REC-007", trained(3), run) == [(1, 2)]


def test_repeated_updates_read_the_same_samples() -> None:
    first = Stream().update(30, 1, **{"sample.count": 8}).update(60, 2, **{"sample.count": 16})
    second = Stream(1, 70).started(71, step=1).restore(72, 80, 1)
    assert places("TS-REC-007", first, second.update(110, 2, **{"sample.count": 24})) == [(1, 5)]
    told = Stream(1, 70).started(71, step=1).restore(72, 80, 1).event(81, "data.position.changed")
    assert places("TS-REC-007", first, told.update(110, 2, **{"sample.count": 24})) == []


# --- TS-REC-012, TS-REC-013 and TS-REC-018


def twice(metric: str, first: list[float], second: list[float], event: str | None = None) -> tuple[Stream, Stream]:
    old, new = Stream(), Stream(1, 1000).started(1001, step=0)
    for step, value in enumerate(first, start=1):
        old.values(30 * step, {metric: value}, step=step)
    if event:
        new.event(1002, event)
    for step, value in enumerate(second, start=1):
        new.values(1010 + 30 * step, {metric: value}, step=step)
    return old, new


def test_the_schedule_repeats_itself() -> None:
    assert places("TS-REC-018", *twice(RATE, [1e-4, 2e-4], [1e-4, 2e-4])) == []
    assert places("TS-REC-018", *twice(RATE, [1e-4, 2e-4], [1e-4, 2.0001e-4])) == [(1, 4)]
    assert why_not("TS-REC-018", *twice(RATE, [1e-4], [2e-4], "hyperparameter.changed"))


LOSSES = [2.5, 2.48, 2.51, 2.47, 2.49, 2.46, 2.47, 2.44, 2.46, 2.43, 2.44, 2.41]


def test_a_bitwise_resume_has_the_same_losses() -> None:
    policy = {"state": {"resume_class": "bitwise"}}
    assert places("TS-REC-012", *twice(LOSS, LOSSES, LOSSES), policy=policy) == []
    other = [*LOSSES[:5], LOSSES[5] + 1e-12, *LOSSES[6:]]
    assert places("TS-REC-012", *twice(LOSS, LOSSES, other), policy=policy) == [(1, 8)]
    assert "it takes 10" in why_not("TS-REC-012", *twice(LOSS, LOSSES, LOSSES[:9]), policy=policy)


def test_a_statistical_resume_has_losses_within_their_scatter() -> None:
    near = [value + 0.01 * (-1) ** number for number, value in enumerate(LOSSES)]
    assert places("TS-REC-012", *twice(LOSS, LOSSES, near), policy={}) == []
    assert places("TS-REC-012", *twice(LOSS, LOSSES, [value + 0.1 for value in LOSSES]), policy={}) == [(1, 3)]
    assert "it takes 10" in why_not("TS-REC-012", *twice(LOSS, LOSSES, near[:9]), policy={})


def corrupted(**more: float) -> tuple[Stream, Stream]:
    return stopped(9, 2, 8, kind="silent_corruption"), goes_on(300, 8, 10).recovered(370, **more)


def test_corruption_reaches_back_as_far_as_it_can() -> None:
    assert places("TS-REC-013", *corrupted(), policy=NOTICES) == [(1, 4)]
    assert places("TS-REC-013", *corrupted(detect=30), policy=NOTICES) == []
    assert places("TS-REC-013", *corrupted(detect=60), policy=NOTICES) == [(1, 4)]
    assert why_not("TS-REC-013", stopped(9, 8), goes_on(300, 8, 10), policy=NOTICES)
