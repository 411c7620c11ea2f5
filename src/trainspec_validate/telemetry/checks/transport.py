"""Checks the delivery of a stream: delay, loss, and the number of its series."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trainspec_validate.model.metrics import Metric, by_name, catalog
from trainspec_validate.telemetry.checks import Evidence, NotApplicable, RunView, Violation, check
from trainspec_validate.telemetry.checks._seen import is_own
from trainspec_validate.telemetry.checks._words import (
    Fault,
    counted,
    few,
    grouped,
    number,
    seconds_in_words,
    series_in_words,
    subjects_in_words,
)
from trainspec_validate.telemetry.checks.attributes import STEP_LIKE
from trainspec_validate.telemetry.checks.names import TOO_MANY
from trainspec_validate.telemetry.checks.streams import num_lost
from trainspec_validate.telemetry.view.run_view import NOWHERE, EmitterSpan, Location

LONGEST_LAG_SECONDS = 60.0
LAG_SHARE = 0.99
LEAST_LAG_SECONDS, LAG_STEP = 1e-3, 0.25
"""Bucket i of the lags begins at this time times two to the power of i quarters."""
LARGEST_LOSS = 0.001
FREE_VALUES = 64
"""Values of an attribute that is no list of words, of one subject: groups of parameters, links, process groups."""
MORE_WORDS = 8
"""Values beyond those listed, for attributes that can have others."""
ROOM = 1.2
DROPPED, LAG = "train.telemetry.dropped", "train.telemetry.lag"


@check("TS-TEL-051")
def lag_bounded(run: RunView) -> Iterator[Violation]:
    """Records are written soon after what they report."""
    observed = [span for span in run.emitters if span.lags is not None and np.sum(span.lags)]
    if observed:
        yield from few(found for span in observed for found in _late(span))
        return
    if not len(run.series) or LAG not in run.series.metrics():
        raise NotApplicable(f"no record says when it was written, and {LAG} has no value")
    yield from grouped(_long_lags(run))


@check("TS-TEL-052")
def no_loss(run: RunView) -> Iterator[Violation]:
    """Nothing of a stream is lost."""
    yield from few(loss.violation() for loss in _losses(run) if loss.num)


@check("TS-TEL-073")
def loss_bounded(run: RunView) -> Iterator[Violation]:
    """At most one record of a thousand is lost."""
    yield from few(loss.violation() for loss in _losses(run) if loss.share > LARGEST_LOSS)


@check("TS-TEL-053")
def series_bounded(run: RunView) -> Iterator[Violation]:
    """There are as many series as the catalog lets expect, and no step or job number is part of a key."""
    if not run.keys:
        raise NotApplicable("no metric")
    for key in run.keys:
        labels = [name for name, _ in key.key.attributes if name.rsplit(".", 1)[-1] in STEP_LIKE]
        if key.key.metric == TOO_MANY:
            help_text = "leave steps, times and names of jobs out of the names; records have keys for them"
            yield Violation(key.location, "the run has more names of metrics than can be kept", help_text)
        elif labels:
            message = f"{key.text} distinguishes series by {', '.join(labels)}, which makes a series of every value"
            yield Violation(key.location, message, "leave it out; records have keys for step, time, run and attempt")
    yield from _too_many(run)


# --- delay --------------------------------------------------------------------------------------------------


def _late(span: EmitterSpan) -> Iterator[Violation]:
    lags = np.asarray(span.lags)
    total = int(lags.sum())
    bucket = int(np.searchsorted(np.cumsum(lags), LAG_SHARE * total))
    lag = LEAST_LAG_SECONDS * 2 ** (bucket * LAG_STEP)
    if lag > LONGEST_LAG_SECONDS:
        message = (
            f"1 of 100 records of emitter {span.emitter!r} in attempt {span.attempt} is written "
            f"{seconds_in_words(lag)} or more after what it reports"
        )
        help_text = f"at most {seconds_in_words(LONGEST_LAG_SECONDS)}; write more often, or from a thread of its own"
        evidence = Evidence(first_time_us=span.first_time_us, last_time_us=span.last_time_us, count=total)
        yield Violation(span.first_location, message, help_text, evidence)


def _long_lags(run: RunView) -> Iterator[Fault]:
    indices = run.series.of(LAG)
    rows = run.series.rows[indices]
    for index in indices[rows["total"] > LONGEST_LAG_SECONDS * rows["num_finite"]]:
        found = run.series.at(int(index))
        mean = seconds_in_words(found.total / max(found.num_finite, 1))
        yield Fault(
            key=found.key,
            subject=found.subject,
            location=found.first_location,
            message=f"{LAG} of emitter {found.emitter!r} is {mean} on average",
            help=f"at most {seconds_in_words(LONGEST_LAG_SECONDS)}; write more often, or from a thread of its own",
            first_time_us=found.first_time_us,
            last_time_us=found.last_time_us,
            samples=(number(found.maximum),),
        )


# --- loss ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loss:
    """Records of one emitter in one attempt that did not arrive."""

    emitter: str
    attempt: int
    num_dropped: int
    num_missing: int
    num_records: int
    location: Location
    first_time_us: int
    last_time_us: int

    @property
    def num(self) -> int:
        """Records that are lost."""
        return self.num_dropped + self.num_missing

    @property
    def share(self) -> float:
        """Lost records over all records."""
        return self.num / max(1, self.num + self.num_records)

    def violation(self) -> Violation:
        """What to say of it."""
        causes = [f"{self.num_dropped:,} dropped by the emitter"] if self.num_dropped else []
        causes += [f"{self.num_missing:,} missing by their numbers"] if self.num_missing else []
        whose = f"emitter {self.emitter!r} in attempt {self.attempt}"
        share = f"{self.share * 100:.2g} %"
        message = f"{whose} lost {counted(self.num, 'record')}, {share} of its records: {' and '.join(causes)}"
        help_text = "lose none, and never more than 0.1 %: write fewer metrics, or give the queue more room"
        evidence = Evidence(first_time_us=self.first_time_us, last_time_us=self.last_time_us, count=self.num)
        return Violation(self.location, message, help_text, evidence)


def _losses(run: RunView) -> list[_Loss]:
    rows = run.series.rows[run.series.of(DROPPED)]
    names = ("emitter", "attempt", "last_value", "last_file", "last_offset")
    columns = zip(*(rows[name].tolist() for name in names), strict=True)
    dropped = {
        (run.series.emitters[emitter], attempt): (int(value) if math.isfinite(value) else 0, Location(file, offset))
        for emitter, attempt, value, file, offset in columns
    }
    numbered = any(is_own(run, span.first_location) for span in run.emitters)
    if not dropped and not numbered:
        raise NotApplicable(f"no sequence numbers, and {DROPPED} has no value")
    return [_loss(run, span, *dropped.get((span.emitter, span.attempt), (0, NOWHERE))) for span in run.emitters]


def _loss(run: RunView, span: EmitterSpan, num_dropped: int, location: Location) -> _Loss:
    missing = num_lost(run, span)
    if not num_dropped:
        location = span.missing[0][2] if span.missing else span.first_location
    return _Loss(
        span.emitter,
        span.attempt,
        max(0, num_dropped),
        missing,
        span.num_records,
        location,
        span.first_time_us,
        span.last_time_us,
    )


# --- number of series ---------------------------------------------------------------------------------------


def _expected(metric: Metric) -> float:
    """Series of one subject that a metric can have."""
    expected = 1.0
    for name in {*metric.attributes, *metric.optional_attributes}:
        attribute = catalog().attributes[name]
        if attribute.role == "series" and name != "hw.id":
            words = len(attribute.values) + MORE_WORDS * attribute.open
            expected *= words or FREE_VALUES
    return expected


def _too_many(run: RunView) -> Iterator[Violation]:
    """Metrics of which one subject has more series than the words of their attributes allow."""
    if not len(run.series):
        return
    for name in sorted(run.series.metrics()):
        metric = by_name(name)
        if metric is None or metric.scopes == ("pair",):
            continue
        expected = _expected(metric)
        indices = run.series.of(name)
        rows = run.series.rows[indices]
        owner = rows["subject"].astype(np.int64) * (int(rows["attempt"].max()) + 1) + rows["attempt"]
        owners, counts = np.unique(owner, return_counts=True)
        if counts.max() > ROOM * expected:
            mine = indices[owner == owners[counts.argmax()]]
            places = sorted((run.series.at(int(index)) for index in mine), key=lambda series: series.first_location)
            beyond = places[math.floor(ROOM * expected)]
            whose = subjects_in_words([beyond.subject]) or "the job"
            message = f"{whose} has {int(counts.max()):,} series of {name}, and {number(expected)} are expected"
            help_text = f"{beyond.key} is one of them; keep what changes with every value out of attributes"
            evidence = Evidence(series_in_words(beyond.key, beyond.subject), count=int(counts.max()))
            yield Violation(beyond.first_location, message, help_text, evidence)
