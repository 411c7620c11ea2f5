"""Tests how hangs are detected and decided on, by a clock that the test moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from recovery_run import elastic, tiny_job
from trainspec_reference.common import crew as attention
from trainspec_reference.common import decisions
from trainspec_reference.common.crew import Crew, Worker
from trainspec_reference.common.decisions import Episode, RestartLimits
from trainspec_reference.common.messages import Left
from trainspec_reference.common.recovery import Attempts, Recovery
from trainspec_reference.common.run_settings import Settings
from trainspec_reference.common.saves import odd_one_out
from trainspec_reference.common.trace import TraceWriter
from trainspec_reference.common.watch import Limits, Watch, silent

from trainspec_validate.documents import types as documents

DIGESTS = [f"sha256:{digit * 64}" for digit in "abc"]


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def watched(clock: Clock, step_seconds: float, num_steps: int = 5, **limits: float) -> Watch:
    """Three workers that have done some updates."""
    watch = Watch(Limits(**limits), frozenset({0, 1, 2}), clock)
    for worker in range(3):
        watch.ready(worker, 0)
    for step in range(1, num_steps + 1):
        clock.seconds += step_seconds
        for worker in range(3):
            watch.arrived(worker, step)
        assert [watch.done(worker, step) for worker in range(3)] == [False, False, True]
    return watch


def test_the_worker_that_has_not_arrived_is_to_blame(clock: Clock) -> None:
    watch = watched(clock, 0.1)
    watch.arrived(0, 6)
    watch.arrived(2, 6)
    clock.seconds += 4.9
    assert not watch.is_stalled
    clock.seconds += 0.2
    assert watch.is_stalled
    assert watch.culprits() == {1}


def test_nobody_is_to_blame_when_all_have_arrived(clock: Clock) -> None:
    watch = watched(clock, 0.1)
    for worker in range(3):
        watch.arrived(worker, 6)
    clock.seconds += 6
    assert watch.is_stalled
    assert watch.culprits() == frozenset()


def test_long_steps_are_no_hang_and_the_policy_sets_the_limit(clock: Clock) -> None:
    watch = watched(clock, 0.4)
    assert watch.timeout_seconds == pytest.approx(8)
    assert watched(clock, 60).timeout_seconds == Limits.most


def test_the_first_step_and_a_save_that_training_waits_for_may_take_long(clock: Clock) -> None:
    watch = watched(clock, 0.1, num_steps=0)
    clock.seconds += Limits.start - 1
    assert not watch.is_stalled
    watch = watched(clock, 0.1)
    watch.waits(1)
    clock.seconds += Limits.save - 1
    assert not watch.is_stalled
    watch.done(1, 6)
    clock.seconds += 6
    assert watch.is_stalled


def waiting(clock: Clock) -> tuple[Watch, attention.Clock]:
    """Two workers in step 2, after which both wait, and the time of the controller that watches them."""
    attended = attention.Clock(clock)
    watch = Watch(Limits(), frozenset({0, 1}), attended)
    for worker in range(2):
        watch.ready(worker, 0)
        watch.done(worker, 1)
    attended.advance()
    for worker in range(2):
        watch.done(worker, 2)
        watch.arrived(worker, 3)
    return watch, attended


@pytest.mark.parametrize("num_turns_after", [0, 1, 3])
def test_time_in_which_the_controller_was_away_is_not_counted(clock: Clock, num_turns_after: int) -> None:
    """It was suspended anywhere in a turn, and has heard nothing in the first turns after that."""
    watch, attended = waiting(clock)
    clock.seconds += 600
    for _ in range(num_turns_after):
        now = attended.advance()
        assert silent([(0, now), (1, 0.0)], Limits.silence, now) == frozenset()
        clock.seconds += 0.02
    assert not watch.is_stalled


def test_a_controller_whose_turns_all_take_long_still_notices_a_hang(clock: Clock) -> None:
    watch, attended = waiting(clock)
    for _ in range(100):
        clock.seconds += 30
        attended.advance()
    assert watch.is_stalled
    assert attended() == pytest.approx(100 * attention.LONGEST_TURN_SECONDS)


def test_turns_of_a_usual_length_count_in_full(clock: Clock) -> None:
    attended = attention.Clock(clock)
    for _ in range(50):
        clock.seconds += 0.02
        attended.advance()
    assert attended() == pytest.approx(1)


def test_the_limits_follow_the_policy() -> None:
    policy = tiny_job().policy
    assert policy is not None
    limits = Limits.of_policy(policy)
    assert (limits.least, limits.most, limits.silence) == (5, 5, 5)
    fast = tuple(documents.changed(layer, timeout_seconds=2) for layer in policy.detection)
    assert Limits.of_policy(documents.changed(policy, detection=fast)).least == 2


def test_an_accelerator_has_minutes_to_start() -> None:
    policy = tiny_job().policy
    assert Limits.of_policy(policy, "cuda").start == 300
    assert Limits.of_policy(None, "cuda").start == 300
    assert Limits.of_policy(None).start == 60


def test_a_step_may_take_as_long_as_the_first_one_did(clock: Clock) -> None:
    """A batch of another size compiles anew; the first step, which compiled too, took 40 s."""
    watch = Watch(Limits(compiles=True), frozenset({0}), clock)
    watch.ready(0, 0)
    for step, seconds in enumerate((40, 0.1, 0.1, 0.1), 1):
        clock.seconds += seconds
        assert watch.done(0, step)
    clock.seconds += 39
    assert not watch.is_stalled
    clock.seconds += 2
    assert watch.is_stalled


def test_silence_is_told_by_worker() -> None:
    assert silent([(0, 10.0), (1, 4.0)], 5, now=10.0) == {1}


def refusals(limits: RestartLimits, bests: list[int]) -> list[bool]:
    return [limits.refusal(best) is not None for best in bests]


def test_restarts_that_reach_nothing_new_end() -> None:
    assert refusals(RestartLimits(tiny_job().policy), [5, 5, 5, 5]) == [False, False, False, True]
    assert refusals(RestartLimits(tiny_job().policy), [5, 5, 6, 6, 6, 6]) == [*[False] * 5, True]


def test_the_policy_limits_all_restarts_too() -> None:
    policy = tiny_job().policy
    assert policy is not None
    few = documents.changed(policy, restart=documents.changed(policy.restart, max_restarts=2))
    assert refusals(RestartLimits(few), [5, 10, 15]) == [False, False, True]
    none = documents.changed(policy, restart=documents.changed(policy.restart, max_restarts_without_progress=0))
    assert refusals(RestartLimits(none), [5]) == [True]


def left(step: int | None, digest: str | None) -> Left:
    return Left(formation=0, step=step, digest=digest)


def test_the_replica_that_is_the_furthest_is_the_newest_state() -> None:
    found = decisions.newest_replica({4: left(9, DIGESTS[0]), 7: left(10, DIGESTS[1]), 8: left(10, DIGESTS[1])})
    assert found is not None
    assert found[0] == [7, 8]


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {0: left(None, None)},
        {0: left(10, None)},
        {0: left(10, DIGESTS[0]), 1: left(10, DIGESTS[1])},
    ],
)
def test_no_replica_is_used_that_is_undefined_or_differs_from_another(answers: dict[int, Left]) -> None:
    assert decisions.newest_replica(answers) is None


def test_a_majority_tells_who_is_odd() -> None:
    assert odd_one_out({3: DIGESTS[0], 4: DIGESTS[1], 5: DIGESTS[0]}) == 4
    assert odd_one_out({3: DIGESTS[0], 4: DIGESTS[1]}) is None
    assert odd_one_out(dict(enumerate(DIGESTS))) is None


def test_a_job_shrinks_to_what_its_plan_works_with() -> None:
    job = elastic(tiny_job(4), (1, 2, 4))
    assert [decisions.shrunk_size(job, number) for number in (3, 2, 1, 0)] == [2, 2, 1, None]
    fixed = documents.changed(job.plan, batch=documents.changed(job.plan.batch, elastic=None))
    assert decisions.shrunk_size(replace(job, plan=fixed), 3) is None


def test_a_node_is_lost_with_all_of_its_ranks() -> None:
    hosts = ["a", "a", "b", "b"]
    assert decisions.hosts_lost(hosts, ["b", "b"]) == ["b"]
    assert decisions.hosts_lost(hosts, ["b"]) == []
    assert decisions.hosts_lost(["a", "a"], ["a", "a"]) == []


def test_ways_back_are_those_of_the_policy() -> None:
    policy = tiny_job().policy
    assert decisions.way_back("node", policy, None) == "wait"
    assert decisions.way_back("process", policy, None) == "restart"
    assert decisions.way_back("process", policy, "shrink") == "shrink"
    assert decisions.way_back("corruption", policy, "shrink") == "rollback"
    assert decisions.way_back("hang", None, None) == "restart"


def test_a_run_that_shrinks_starts_from_a_state_that_it_keeps(tmp_path: Path) -> None:
    """The one who was a step further does not go on."""
    crew = Crew(attention.Clock(), ["true"], {})
    settings = Settings(("a",) * 3, tmp_path, tmp_path / "checkpoints", way="shrink")
    recovery = Recovery(elastic(tiny_job(3), (1,)), settings, crew, TraceWriter(None, "controller"))
    alive, gone = SimpleNamespace(returncode=None), SimpleNamespace(returncode=-9)
    recovery._members = [
        Worker(number, cast("Any", process), "a", 0.0) for number, process in enumerate((alive, alive, gone))
    ]
    recovery._left = {0: left(9, DIGESTS[0]), 1: left(10, DIGESTS[1])}
    recovery._after(Episode("process", "rank 2 was killed", 2))
    assert [member.number for member in recovery._members] == [0]
    assert (recovery._start.step, recovery._start.of([0]).source) == (9, "memory")
    crew.end_all()


def test_numbers_of_attempts_grow_over_starts(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path / "attempt", 0)
    assert [attempts.take(), attempts.take()] == [0, 1]
    assert Attempts(tmp_path / "attempt", 0).next_number == 2
    assert Attempts(tmp_path / "attempt", 7).take() == 7
    (tmp_path / "attempt").write_bytes(b"\xff garbage")
    assert Attempts(tmp_path / "attempt", 3).next_number == 3
