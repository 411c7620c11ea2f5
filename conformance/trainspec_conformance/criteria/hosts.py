"""Judges hosts: their clocks, and the commits of a host that was cut off."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from trainspec_conformance import told
from trainspec_conformance.criteria import SLOWNESS, CannotJudgeError, Case, Problem, check
from trainspec_conformance.records import Entry
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import Save, StepDone

CLOCK_SECONDS = 5.0
"""How far a clock may be from where it was set to: lines are seen late on a busy machine."""
DURATION_SECONDS = 5.0
"""Allowed error of a reported time: the maximum delay of a line, and far less than a jump of a clock."""


@check("tells-no-fault")
def tells_no_fault(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """No fault is reported, except of kinds that the scenario allows, and no step is completed in a new attempt."""
    if not case.trial.largest_step():
        raise CannotJudgeError("the trace reports no step")
    for entry, record in case.trial.faults():
        if record.kind not in criterion.words:
            message = f"a {record.kind} fault was reported, but no rank had failed"
            yield Problem(message, (entry,), by_load=record.kind in SLOWNESS)


@check("one-content-of-a-step")
def one_content_of_a_step(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Checkpoints of one step that are committed hold the same state, whoever committed them."""
    seen: dict[int, tuple[Entry, str]] = {}
    for entry, save in case.trial.of(Save):
        if save.stage != "committed" or save.digest is None:
            continue
        first = seen.setdefault(save.step, (entry, save.digest))
        if first[1] != save.digest:
            yield Problem(f"two checkpoints of step {save.step} hold different states", (first[0], entry))
    if not seen:
        raise CannotJudgeError("no commit reports the digest of its state")


def _clocks(view: View) -> Iterator[tuple[float, list[float]]]:
    """Each offset of the clock of ranks: how far it was set, and by how much their lines are ahead of the suite's."""
    steps = list(view.of(StepDone))
    if not steps:
        raise CannotJudgeError("the trace reports no step")
    offsets = [(entry, one) for entry, one in view.injections() if one.kind == "offset-clock" and one.ranks]
    begin = min((entry.seconds for entry, _ in offsets), default=0.0)
    before = [_ahead(entry, record) for entry, record in steps if entry.seconds < begin]
    if offsets and not before:
        raise CannotJudgeError("the trace reports no step before the clock was offset")
    zero = median(before) if before else 0.0
    for number, (entry, one) in enumerate(offsets):
        end = offsets[number + 1][0].seconds if number + 1 < len(offsets) else view.start_seconds
        ranks = set(one.ranks)
        found = [
            _ahead(at, record) - zero
            for at, record in steps
            if record.rank in ranks and entry.seconds + CLOCK_SECONDS / 20 < at.seconds < end
        ]
        yield one.value, found


def _ahead(entry: Entry, record: StepDone) -> float:
    return record.time_us / 1e6 - entry.seconds


@check("clock-was-offset")
def clock_was_offset(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """The ranks whose clock was offset really had that clock, or nothing was tested."""
    found = list(_clocks(case.trial))
    if not found:
        raise CannotJudgeError("the clock of no rank was offset")
    for wanted, ahead in found:
        if not ahead or abs(median(ahead) - wanted) > CLOCK_SECONDS:
            raise CannotJudgeError(f"ranks did not follow their clock when it was set {wanted:+g} s ahead")
    yield from ()


@check("durations-hold")
def durations_hold(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Reported times of steps agree with the clock of the suite, also across a jump of a clock."""
    seen: dict[int, dict[told.Key, float]] = {}
    for entry, record in case.trial.of(StepDone):
        seen.setdefault(record.rank, {}).setdefault((record.attempt, record.step), entry.seconds)
    series = told.of_ranks(case.trial, "train.step.duration")
    if not any(rank in seen for rank in series):
        raise CannotJudgeError("no rank reports the time of a step")
    for rank, values in series.items():
        clock = seen.get(rank, {})
        for key, point in values.items():
            before = (key[0], key[1] - 1)
            if key in clock and before in clock and not _is_near(point.value, clock[key] - clock[before]):
                message = f"step {key[1]} of rank {rank} took {point.value:.3g} s as reported, "
                message += f"{clock[key] - clock[before]:.3g} s by the clock of the suite"
                yield Problem(message, (point.entry,), by_load=True)
                return


def _is_near(told_seconds: float, seen_seconds: float) -> bool:
    return -DURATION_SECONDS <= told_seconds - seen_seconds <= DURATION_SECONDS
