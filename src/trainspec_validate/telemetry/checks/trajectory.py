"""Checks that recomputed optimizer steps equal their first execution."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from trainspec_validate.documents.types import CheckpointPolicy
from trainspec_validate.model.finding import Evidence
from trainspec_validate.telemetry.checks import NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._repeats import Repeat, repeats
from trainspec_validate.telemetry.checks._words import counted
from trainspec_validate.telemetry.view.run_view import JobSeries

RATE = "train.learning_rate"
LOSS = "train.loss.mean"
SAME = (LOSS, "train.gradient.norm")
"""Series that are equal to the last bit where a policy promises so."""
RATE_TOLERANCE = 1e-9
"""A rate is a function of the step; only its writing can differ."""
FEWEST = 10
"""The first step after a restore is equal even where the optimizer was lost: its loss comes before its use."""
LIMIT_DEVIATIONS = 4.0
"""Violations of the mean that chance passes once in 16,000 runs."""
DEVIATION_OF_MEDIAN = 1.4826
"""Standard deviation over median distance of normal values; two steps differ as two readings of one do."""
LOST_STATE = "look for state that is not saved: optimizer, random numbers, position in the data"
CHANGES = ("train.hyperparameter.changed", "train.batch_size.changed", "train.data.position.changed")


def _series(run: RunView, *metrics: str) -> Iterator[JobSeries]:
    return (series for series in run.job.values() if series.key.metric in metrics)


def _repeats(run: RunView, series: JobSeries) -> list[Repeat]:
    return list(repeats(series, [event.time_us for event in run.events_named(*CHANGES)]))


@check("TS-REC-018")
def schedule_repeats(run: RunView) -> Iterator[Violation]:
    """An optimizer step that is executed again has the learning rate of the first time."""
    judged = False
    for series in _series(run, RATE):
        pairs = _repeats(run, series)
        judged |= bool(pairs)
        wrong = [p for p in pairs if not math.isclose(p.before, p.after, rel_tol=RATE_TOLERANCE)]
        if wrong:
            help_text = "restore the schedule, or write train.hyperparameter.changed"
            yield _differs(series, pairs, wrong, help_text)
    if not judged:
        raise NotApplicable(f"no step with {RATE} was executed again")


@check("TS-REC-012")
def trajectory_continuity(run: RunView, policy: CheckpointPolicy) -> Iterator[Violation]:
    """Repeated steps are those of the first time: to the last bit, or within the scatter of the loss."""
    is_bitwise = policy.state.resume_class == "bitwise"
    most, found = 0, []
    for series in _series(run, *(SAME if is_bitwise else (LOSS,))):
        pairs = _repeats(run, series)
        most = max(most, len(pairs))
        other = _other_bits(series, pairs) if is_bitwise else _beyond_scatter(series, pairs)
        found += [other] if other is not None else []
    if not found and most < FEWEST:
        raise NotApplicable(f"{counted(most, 'step')} executed again show nothing; it takes {FEWEST}")
    yield from found


def _other_bits(series: JobSeries, pairs: list[Repeat]) -> Violation | None:
    wrong = [p for p in pairs if p.before != p.after and not (math.isnan(p.before) and math.isnan(p.after))]
    return _differs(series, pairs, wrong, LOST_STATE) if wrong else None


def _beyond_scatter(series: JobSeries, pairs: list[Repeat]) -> Violation | None:
    """Where the mean difference is larger than two readings of one loss can have by chance."""
    finite = [p for p in pairs if math.isfinite(p.before) and math.isfinite(p.after)]
    values = np.asarray(series.value)
    changes = np.abs(np.diff(values[np.isfinite(values)]))
    if len(finite) < 2 or len(changes) < FEWEST:
        return None
    scatter = float(np.median(changes)) * DEVIATION_OF_MEDIAN
    mean = math.fsum(p.after - p.before for p in finite) / len(finite)
    limit = LIMIT_DEVIATIONS * scatter / math.sqrt(len(finite))
    if abs(mean) <= limit:
        return None
    first, side = finite[0], "above" if mean > 0 else "below"
    message = (
        f"{series.key} of {counted(len(finite), 'repeated step')} is {abs(mean):.4g} {side} "
        f"that of the first time on average, and the scatter of the run explains {limit:.4g}"
    )
    evidence = Evidence(
        series=str(series.key),
        count=len(finite),
        samples=tuple(f"{p.step}: {p.before:.6g} then {p.after:.6g}" for p in finite[:5]),
    )
    return Violation(first.location, message, LOST_STATE, evidence, ((first.location_before, "the first time"),))


def _differs(series: JobSeries, pairs: list[Repeat], wrong: list[Repeat], help_text: str) -> Violation:
    first = wrong[0]
    message = (
        f"{series.key} of step {first.step:,} is {first.after!r} in attempt {first.attempt} and was {first.before!r} "
        f"the first time; {len(wrong):,} of {counted(len(pairs), 'repeated step')} differ"
    )
    evidence = Evidence(
        series=str(series.key),
        count=len(wrong),
        samples=tuple(f"{p.step}: {p.before!r} then {p.after!r}" for p in wrong[:5]),
    )
    related = ((first.location_before, "the first time"),)
    return Violation(first.location, message, help_text, evidence, related)
