"""Compares what was trained after a fault or a resume with a run that had none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trainspec_conformance.criteria import CannotJudgeError, Case, Problem, check
from trainspec_conformance.records import Entry
from trainspec_conformance.view import View
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone
from trainspec_validate.model.units import counted


@dataclass
class Step:
    """Reports of all ranks for one step, in one attempt."""

    loss: float
    learning_rate: float
    gradient_norm: float | None
    samples: dict[int, tuple[int, ...]]
    """Ids by rank."""
    entry: Entry

    @property
    def sample_ids(self) -> tuple[int, ...]:
        """Samples of the global batch, sorted; samples that several ranks share count once."""
        groups = set(self.samples.values())
        return tuple(sorted(identifier for group in groups for identifier in group))


def number(value: float | str | None) -> float:
    """A number of the trace, with its texts for what is not finite."""
    return (
        {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}.get(str(value), math.nan)
        if isinstance(value, str)
        else (math.nan if value is None else float(value))
    )


def steps(view: View) -> Mapping[tuple[int, int], Step]:
    """Every step that was applied, by attempt and number."""
    return view.kept(_gathered)


def _gathered(view: View) -> dict[tuple[int, int], Step]:
    found: dict[tuple[int, int], Step] = {}
    for entry, record in view.of(StepDone):
        if record.skipped is not None:
            continue
        key = (record.attempt, record.step)
        if key not in found:
            norm = None if record.gradient_norm is None else number(record.gradient_norm)
            found[key] = Step(number(record.loss), record.learning_rate, norm, {}, entry)
        found[key].samples[record.rank] = record.sample_ids
    return found


def final_steps(view: View) -> Mapping[int, Step]:
    """Each step as it was done last."""
    return view.kept(_in_order)


def _in_order(view: View) -> dict[int, Step]:
    return {step: one for (_, step), one in sorted(steps(view).items())}


def _compared(case: Case, criterion: Criterion) -> tuple[Mapping[int, Step], Mapping[int, Step], list[int]]:
    if case.control is None:
        raise CannotJudgeError("there is no run without faults to compare with")
    done, wanted = final_steps(case.trial), final_steps(case.control)
    restores = [record.step for _, record in case.trial.restores() if record.source != "initial"]
    first = min(restores, default=0)
    common = [step for step in sorted(done.keys() & wanted.keys()) if step > first]
    least = criterion.steps if criterion.steps is not None else 10
    if len(common) < least:
        raise CannotJudgeError(
            f"only {counted(len(common), 'step')} can be compared with the run without faults, not {least}"
        )
    return done, wanted, common


@check("same-trajectory")
def same_trajectory(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """After the earliest restored step, losses are those of the baseline run.

    They are equal for the claim `bitwise`, else within `relative_tolerance` or the tolerance of the scenario.
    """
    done, wanted, common = _compared(case, criterion)
    tolerance = criterion.tolerance
    if tolerance is None:
        tolerance = 0.0 if case.claims.resume_class == "bitwise" else case.claims.relative_tolerance
    for step in common:
        mine, theirs = done[step].loss, wanted[step].loss
        if not abs(mine - theirs) <= tolerance * abs(theirs):
            message = f"the loss of step {step} is {mine!r}, without the fault {theirs!r}"
            yield Problem(message, (done[step].entry, wanted[step].entry))
            return


@check("same-rates")
def same_rates(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Learning rates are exactly those of the baseline run."""
    done, wanted, common = _compared(case, criterion)
    for step in common:
        if done[step].learning_rate != wanted[step].learning_rate:
            mine, theirs = done[step].learning_rate, wanted[step].learning_rate
            message = f"the learning rate of step {step} is {mine!r}, without the fault {theirs!r}"
            yield Problem(message, (done[step].entry, wanted[step].entry))
            return


@check("same-samples")
def same_samples(case: Case, criterion: Criterion) -> Iterator[Problem]:
    """Each step consumes the samples of the baseline run: none is skipped, none repeated."""
    done, wanted, common = _compared(case, criterion)
    if not any(one.sample_ids for one in wanted.values()):
        raise CannotJudgeError("the trace names no samples")
    for step in common:
        if done[step].sample_ids != wanted[step].sample_ids:
            mine, theirs = done[step].sample_ids, wanted[step].sample_ids
            extra, lacking = sorted(set(mine) - set(theirs)), sorted(set(theirs) - set(mine))
            message = f"step {step} consumed samples {extra[:4]} in place of {lacking[:4]}"
            if not extra and not lacking:
                message = f"step {step} consumed a sample more than once"
            yield Problem(message, (done[step].entry, wanted[step].entry))
            return
