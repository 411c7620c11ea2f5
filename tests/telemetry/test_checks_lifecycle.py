"""What a run begins it ends, and it is told in order: TS-TEL-043, 044, 048."""

from __future__ import annotations

import pytest
from life_makers import Stream, messages, places, why_not

BALANCE, ORDER, CLOSED = "TS-TEL-043", "TS-TEL-044", "TS-TEL-048"


def evaluation(stream: Stream, begin: float, end: float | None, id: str = "e-1") -> Stream:  # noqa: A002
    stream.event(begin, "evaluation.begin", id, a={"evaluation.set": "v"})
    if end is not None:
        stream.event(end, "evaluation.end", id, a={"evaluation.set": "v", "evaluation.outcome": "completed"})
    return stream


# --- TS-TEL-043


def test_intervals_with_one_id_follow_each_other() -> None:
    run = evaluation(evaluation(Stream(), 1, 2), 3, 4)
    assert places(BALANCE, run) == []


def test_intervals_of_two_ids_overlap() -> None:
    run = Stream()
    for seconds, name, tie in ((1, "begin", "a"), (2, "begin", "b"), (3, "end", "a"), (4, "end", "b")):
        a = {"evaluation.set": tie} | ({"evaluation.outcome": "completed"} if name == "end" else {})
        run.event(seconds, f"evaluation.{name}", tie, a=a)
    assert places(BALANCE, run) == []


def test_a_checkpoint_is_committed_again_when_it_becomes_more_durable() -> None:
    run = Stream().save(1, 10, durability="process")
    run.event(9, "checkpoint.commit", "c-10", a={"checkpoint.id": "c-10", "checkpoint.durability": "job"})
    assert places(BALANCE, run) == []


def test_a_failed_save_is_not_committed_afterwards() -> None:
    run = Stream().event(1, "checkpoint.begin", "c-1", a={"checkpoint.id": "c-1"})
    run.event(2, "checkpoint.fail", "c-1", a={"checkpoint.id": "c-1", "reason": "no space left"})
    run.event(3, "checkpoint.commit", "c-1", a={"checkpoint.id": "c-1"})
    assert places(BALANCE, run) == [(0, 4)]


def test_an_interval_that_begins_twice_is_told_at_the_second_begin() -> None:
    run = evaluation(evaluation(Stream(), 1, None), 2, 3)
    assert places(BALANCE, run) == [(0, 3)]


def test_an_end_before_its_begin_is_one_finding() -> None:
    run = Stream().event(5, "evaluation.begin", "e-1").event(2, "evaluation.end", "e-1")
    assert messages(BALANCE, run) == ["train.evaluation.end 'e-1' is 3 s before train.evaluation.begin"]


def test_events_without_an_id_tie_to_nothing() -> None:
    run = Stream().event(1, "evaluation.begin").event(2, "evaluation.end")
    assert places(BALANCE, run) == [(0, 2), (0, 3)]


def test_run_and_attempts_need_no_id() -> None:
    first = Stream().event(0, "run.start").started(1).ended(9)
    second = Stream(1, 10).started(11).ended(19).event(20, "run.end", a={"run.status": "completed"})
    assert places(BALANCE, first, second) == []
    assert messages(BALANCE, Stream().event(0, "run.start")) == [
        "train.run.start begins at 2026-01-01 00:00:00 UTC and never ends"
    ]


def test_an_interval_can_end_in_the_next_attempt() -> None:
    first = Stream().event(1, "checkpoint.begin", "c-1", a={"checkpoint.id": "c-1"})
    second = Stream(1, 5).event(6, "checkpoint.fail", "c-1", a={"checkpoint.id": "c-1", "reason": "lost"})
    assert places(BALANCE, first, second) == []


@pytest.mark.parametrize("name", ["fault.detected", "straggler.detected"])
def test_what_can_outlast_the_run_stays_open(name: str) -> None:
    run = evaluation(Stream(), 1, 2).event(3, name, "x-1")
    assert places(BALANCE, run) == []


def test_what_is_open_while_the_run_goes_on_is_not_judged() -> None:
    run = evaluation(evaluation(Stream(), 1, 2), 3, None, id="e-2")
    assert places(BALANCE, run) == [(0, 4)]
    assert places(BALANCE, run, is_live=True) == []
    assert places(BALANCE, run.update(9, 1), cut=True) == [(0, 4)]
    assert why_not(BALANCE, evaluation(Stream(), 3, None), is_live=True)


def test_a_stray_end_is_told_of_even_while_the_run_goes_on() -> None:
    run = Stream().event(1, "evaluation.end", "e-1")
    assert places(BALANCE, run, is_live=True) == [(0, 2)]


def test_an_end_can_have_its_begin_before_the_stream() -> None:
    assert places(BALANCE, Stream(first_seq=4000).event(1, "evaluation.end", "e-1")) == []
    assert places(BALANCE, Stream(3).event(1, "evaluation.end", "e-1")) == []


def test_many_open_intervals_share_a_finding() -> None:
    run = Stream()
    for number in range(40):
        evaluation(run, number, None, id=f"e-{number}")
    found = messages(BALANCE, run)
    assert len(found) == 8
    assert found[-1].endswith("the first of 33 cases")


def test_a_stream_of_samples_has_no_interval() -> None:
    assert why_not(BALANCE, Stream().update(1, 1)) == "no event of the run begins or ends anything"


# --- TS-TEL-044


def test_attempts_start_in_order() -> None:
    assert places(ORDER, Stream().started(5), Stream(1, 2).started(3)) == [(1, 2)]


def test_events_of_nodes_can_come_after_the_end() -> None:
    run = Stream().event(0, "run.start").event(9, "run.end")
    assert places(ORDER, run.event(12, "node.returned", "n", a={"host.id": "n"})) == []
    assert places(ORDER, run.event(13, "checkpoint.begin", "c")) == [(0, 5)]


def test_values_after_the_end_are_told_of() -> None:
    run = Stream().event(0, "run.start").update(1, 1).event(2, "run.end").update(3, 2)
    assert places(ORDER, run) == [(0, 5)]


@pytest.mark.parametrize(("behind", "count"), [(0.0, 0), (0.001, 0), (0.003, 0), (0.01, 0), (0.011, 2)])
def test_times_that_differ_by_the_jitter_of_clocks_count_as_equal(behind: float, count: int) -> None:
    run = Stream().event(0, "run.start").update(1, 1).event(2, "run.end")
    run.update(2 + behind, 2).event(2 + behind, "checkpoint.begin", "c")
    assert len(places(ORDER, run)) == count
    started = Stream().update(3, 1).started(3 + behind)
    assert len(places(ORDER, started)) == (1 if count else 0)
    assert len(places(ORDER, Stream().recovery(1).fault(1 + behind))) == (1 if count else 0)


def lives(second_start: float, *, status: str = "completed") -> tuple[Stream, Stream]:
    """A run that ends at 9, and that a second attempt takes up again."""
    first = Stream().event(0, "run.start").started(1).update(2, 1).ended(8, "completed")
    first.event(9, "run.end", a={"run.status": status})
    second = Stream(1, second_start).event(second_start, "run.start").started(second_start + 1, 1)
    return first, second.update(40, 2).ended(41, "completed").event(42, "run.end", a={"run.status": "completed"})


def test_a_run_that_has_ended_can_start_again() -> None:
    assert places(BALANCE, *lives(30)) == []
    assert places(ORDER, *lives(30)) == []


def test_between_an_end_and_the_next_start_a_job_tells_nothing() -> None:
    first, second = lives(30)
    first.event(20, "checkpoint.begin", "c-1", a={"checkpoint.id": "c-1"}).values(25, {"train.loss.mean": 1.0})
    second.event(50, "checkpoint.begin", "c-2", a={"checkpoint.id": "c-2"})
    assert places(ORDER, first, second) == [(0, 7), (0, 8), (1, 7)]
    assert set(places(ORDER, *lives(45))) == {(1, 4), (1, 5)}  # the step, and the end of the attempt


def test_an_attempt_after_the_end_needs_a_new_start() -> None:
    first, second = lives(30)
    del second.lines[0]
    assert messages(ORDER, first, second)[0] == "train.attempt.start is 22 s after the run has ended"
    assert messages(BALANCE, first, second) == []  # the start can be missing from the front
    assert messages(BALANCE, Stream().event(1, "run.start").event(2, "run.end").event(3, "run.end")) == [
        "train.run.end ends what has not begun"
    ]


def test_what_a_run_failed_with_is_mended_before_it_starts_again() -> None:
    first, second = lives(30, status="failed")
    first.fault(10).recovery(11)
    assert places(ORDER, first, second) == []
    assert places(CLOSED, first, second) == [(0, 7)]
    second.recovered(43).event(44, "fault.cleared", "f-1", a={"fault.id": "f-1"})
    assert places(CLOSED, first, second) == []


def test_updates_before_the_start_of_their_attempt() -> None:
    assert places(ORDER, Stream().update(1, 1).started(2).update(3, 2)) == [(0, 2)]


def test_an_update_before_its_restore_has_ended() -> None:
    run = Stream(1, 10).started(11, step=4).update(13, 5).restore(12, 20, 4).update(25, 6)
    assert places(ORDER, Stream().update(1, 1), run) == [(1, 3)]


def test_a_restore_that_heals_one_rank_leaves_the_others_training() -> None:
    run = Stream().started(1).update(2, 1).update(3, 2).restore(4, 9, 2).update(6, 3).update(9, 4)
    assert places(ORDER, run) == []


def test_a_recovery_follows_its_fault() -> None:
    assert places(ORDER, Stream().recovery(1).fault(2)) == [(0, 2)]
    assert places(ORDER, Stream().fault(1).recovery(1)) == []
    assert messages(ORDER, Stream().recovery(1)) == ["a recovery begins from the fault 'f-1', which nothing detected"]


def test_order_needs_events_of_the_life_of_a_run() -> None:
    assert why_not(ORDER, Stream().update(1, 1))


# --- TS-TEL-048


def test_outcomes_of_a_fault() -> None:
    assert places(CLOSED, Stream().fault(1).event(2, "fault.cleared", "f-1", a={"fault.id": "f-1"})) == []
    assert places(CLOSED, Stream().fault(1).recovery(2).recovered(3, outcome="failed")) == []
    assert places(CLOSED, Stream().fault(1).recovery(2)) == [(0, 2)]


def test_a_run_that_ends_with_the_fault_is_its_outcome() -> None:
    run = Stream().update(1, 1).fault(2)
    assert places(CLOSED, run.event(3, "run.end", a={"run.status": "failed"})) == []
    assert places(CLOSED, Stream().fault(1).event(2, "run.end", a={"run.status": "completed"})) == [(0, 2)]


def test_the_outcome_of_a_fault_can_come_while_the_run_goes_on() -> None:
    open_run = Stream().fault(1)
    assert why_not(CLOSED, open_run, is_live=True) == "the run continues, and no fault has an outcome yet"
    assert why_not(CLOSED, Stream().update(1, 1)) == "no event reports a fault"
