"""Checks recovery times against the budgets of the policy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.units import percent
from trainspec_validate.performance.costs.detection import trials_needed
from trainspec_validate.performance.derived.policy import detection_seconds
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check, require
from trainspec_validate.telemetry.checks._budget import Promised, class_in_policy, promised, too_many
from trainspec_validate.telemetry.checks._episodes import Episode, Mark, recovered_episodes, time_in_words
from trainspec_validate.telemetry.checks._words import few

MOST_SHOWN = 0.999
"""No run has the 2,995 recoveries that show a promise for 999 of 1,000, or more."""


@check("TS-TEL-047")
def recovery_bound(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """A job has caught up within the budget of the fault and the recovery point together."""
    mine = _judged(promised(run, policy, _caught_up_seconds), "caught up")
    point = policy.recovery_point_seconds
    for one, count in too_many(mine, lambda path: path.budget_seconds + point):
        limit = time_in_words(one.path.budget_seconds + point)
        parts = f"{time_in_words(one.path.budget_seconds)} to recover and {time_in_words(point)} to repeat"
        message = f"the job has caught up {_since(one)}, but the policy promises {limit}: {parts}; {count}"
        yield _slow(one, message)


@check("TS-REC-003")
def time_to_first_step(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """The first step after a fault is completed within the budget, for the promised share of faults."""
    mine = _judged(promised(run, policy, lambda episode: episode.seconds_to_first_step), "completed a step")
    for one, count in too_many(mine, lambda path: path.budget_seconds):
        budget, share = time_in_words(one.path.budget_seconds), percent(one.path.quantile)
        message = (
            f"the first step is completed {_since(one)}, but the budget is {budget} for {share} of faults; {count}"
        )
        yield _slow(one, message)


@check("TS-REC-004")
def time_to_detect(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """A fault is detected within the shortest time-out of the layers that notice its class."""
    judged, late = False, []
    for episode in recovered_episodes(run):
        fault = class_in_policy(episode.fault)
        limit = detection_seconds(policy, fault) if fault is not None else None
        took = episode.detect_seconds
        if limit is None or took is None:
            continue
        judged = True
        if took > limit:
            message = (
                f"the fault {episode.id!r} is detected after {time_in_words(took)}, but the policy has a layer that "
                f"notices {fault} within {time_in_words(limit)}"
            )
            help_text = "find out why that layer did not report first, or correct its time-out"
            late.append(Violation(episode.fault.location, message, help_text))
    if not judged:
        raise NotApplicable(
            "no recovery states how long its fault was not detected, of a class that the policy notices"
        )
    yield from few(late)


def _caught_up_seconds(episode: Episode) -> float | None:
    end = episode.resumed.time_us if episode.resumed is not None else None
    if end is None:
        end = episode.passed.time_us if episode.passed is not None else None
    return None if end is None else (end - episode.fault_us) / 1e6


def _judged(mine: list[Promised], what: str) -> list[Promised]:
    return require(mine, f"after no fault that the policy has a recovery path from, the job {what}")


def _since(one: Promised) -> str:
    """The time, and what it is counted from."""
    words = time_in_words(one.seconds)
    if one.episode.detect_seconds is not None:
        return f"{words} after the fault {one.episode.id!r}"
    return f"{words} after the last sign of life before the fault {one.episode.id!r}"


def _slow(one: Promised, message: str) -> Violation:
    episode, path = one.episode, one.path
    stated = episode.detect_seconds is not None
    help_text = "" if stated else "state the phase detect in train.recovery.duration, so that the fault has a time; "
    evidence = Evidence(
        series="train.step.count",
        first_time_us=episode.fault_us,
        last_time_us=episode.first.time_us if episode.first is not None else None,
        samples=tuple(
            f"{mark.name} {time_in_words((mark.time_us - episode.fault_us) / 1e6)}" for mark in episode.marks()
        ),
    )
    related = tuple((mark.location, mark.name) for mark in episode.marks()[1:])
    help_text += f"{_longest(episode)}{_trials(path.quantile)}"
    return Violation(episode.fault.location, message, help_text, evidence, related)


def _trials(quantile: float) -> str:
    """How many recoveries show such a promise."""
    if quantile > MOST_SHOWN:
        return ""
    return f"; {trials_needed(quantile)} recoveries without a miss show a promise for {percent(quantile)}"


def _longest(episode: Episode) -> str:
    """The longest stretch between two marks, up to the first update."""
    marks = [Mark("the fault", episode.fault_us, episode.fault.location), *episode.marks()]
    if marks[-1].name == "caught up" and len(marks) > 2:
        marks.pop()
    before, after = max(pairwise(marks), key=lambda pair: pair[1].time_us - pair[0].time_us)
    took = time_in_words((after.time_us - before.time_us) / 1e6)
    return f"the longest part is from {before.name} to {after.name}, {took}"
