"""Makes few findings of many occurrences, and writes times, amounts, values and series in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from trainspec_validate.model.finding import Evidence
from trainspec_validate.model.units import counted, number
from trainspec_validate.model.units import seconds as seconds_in_words
from trainspec_validate.telemetry.checks import Violation
from trainspec_validate.telemetry.view.run_view import NOWHERE, Key, Location, Occurrence, RunView, Subject, Trail

MAX_ALONE = 8
"""Series of one metric that have a finding of their own; more than that share one."""
MAX_SAMPLES = 5

Said = str | Callable[[Occurrence], str]
MAX_NAMES = 8
_MAX_RANGES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of one series, before faults of the same kind are put together."""

    key: Key
    subject: Subject
    location: Location
    message: str
    help: str
    first_time_us: int
    last_time_us: int
    count: int = 1
    samples: tuple[str, ...] = ()
    related: tuple[tuple[Location, str], ...] = ()


def violations_of(trails: Iterable[Trail], message: Said, help_text: Said = "") -> Iterator[Violation]:
    """One violation for each series, or one for all series of a metric where there are more than `MAX_ALONE`.

    `message` and `help_text` are those of the first occurrence; how often, when, and on whom else is added here.
    """
    by_metric: dict[str, list[Trail]] = {}
    for trail in trails:
        if trail.first:
            by_metric.setdefault(trail.key.metric, []).append(trail)
    for mine in by_metric.values():
        pairs = {(trail.key, subject) for trail in mine for subject in trail.subjects}
        complete = all(len(trail.first) == trail.num for trail in mine)
        if len(pairs) == 1 or (complete and len(pairs) <= MAX_ALONE):
            yield from _each(_faults(mine, message, help_text))
        else:
            yield _together(mine, message, help_text)


def of_records(trails: Iterable[Trail], message: Said, help_text: Said = "") -> Iterator[Violation]:
    """One violation for each file: what befalls a record befalls every metric in it, and mostly other records too."""
    by_file: dict[int, list[Trail]] = {}
    for trail in trails:
        if trail.first:
            by_file.setdefault(trail.first[0].location.file, []).append(trail)
    yield from few(_together(mine, message, help_text) for mine in by_file.values())


def grouped(faults: Iterable[Fault]) -> Iterator[Violation]:
    """One violation for each fault, or one for all faults of a metric where there are more than `MAX_ALONE`."""
    by_metric: dict[str, list[Fault]] = {}
    for fault in faults:
        by_metric.setdefault(fault.key.metric, []).append(fault)
    for mine in by_metric.values():
        mine.sort(key=lambda fault: fault.location)
        yield from _each(mine) if len(mine) <= MAX_ALONE else [_joined(mine)]


def damaged(run: RunView, requirement: str) -> Iterator[Violation]:
    """Faults that the reader found against a requirement, line by line; the last one of a file covers the rest."""
    by_file: dict[tuple[int, bool], list[Violation]] = {}
    for damage in run.damage:
        if damage.requirement == requirement:
            found = Violation(damage.location, damage.message, damage.help, at_most_warning=damage.is_accepted)
            by_file.setdefault((damage.location.file, damage.is_accepted), []).append(found)
    for mine in by_file.values():
        yield from few(mine)


def few(violations: Iterable[Violation]) -> Iterator[Violation]:
    """Violations that concern no series: all of them, or the first ones and the rest as one above `MAX_ALONE`."""
    mine = sorted(violations, key=lambda violation: violation.place)
    yield from mine[: MAX_ALONE - 1]
    rest = mine[MAX_ALONE - 1 :]
    if rest:
        count = sum(violation.evidence.count for violation in rest)
        yield replace(rest[0], message=f"{rest[0].message}{_times(len(rest))}", evidence=_span(rest, count))


def _said(text: Said, occurrence: Occurrence) -> str:
    return text if isinstance(text, str) else text(occurrence)


def _times(count: int, others: str = "", num_metrics: int = 1) -> str:
    where = f" in {num_metrics} metrics" if num_metrics > 1 else ""
    where += f", on {others}" if others else ""
    return f"; the first of {count:,} cases{where}" if count > 1 else ""


def _span(violations: Sequence[Violation], count: int) -> Evidence:
    """The time that violations span."""
    first = [d.evidence.first_time_us for d in violations if d.evidence.first_time_us is not None]
    last = [d.evidence.last_time_us for d in violations if d.evidence.last_time_us is not None]
    return Evidence(first_time_us=min(first, default=None), last_time_us=max(last, default=None), count=count)


def _faults(trails: Sequence[Trail], message: Said, help_text: Said) -> Iterator[Fault]:
    """One fault for each series, whose occurrences are all at hand unless there is only one series."""
    by_series: dict[tuple[Key, Subject], list[Occurrence]] = {}
    for trail in trails:
        for occurrence in trail.first:
            by_series.setdefault((occurrence.key, occurrence.subject), []).append(occurrence)
    alone = len(by_series) == 1
    for (key, subject), mine in by_series.items():
        mine.sort(key=lambda occurrence: occurrence.location)
        times = [occurrence.time_us for occurrence in mine]
        count = sum(trail.num for trail in trails) if alone else len(mine)
        last = max(trail.last_time_us for trail in trails) if alone else max(times)
        yield Fault(
            key=key,
            subject=subject,
            location=mine[0].location,
            message=_said(message, mine[0]),
            help=_said(help_text, mine[0]),
            first_time_us=min(times),
            last_time_us=last,
            count=count,
            samples=_samples(mine),
            related=_before(mine[0]),
        )


def _each(faults: Iterable[Fault]) -> Iterator[Violation]:
    for fault in faults:
        evidence = Evidence(
            series=str(fault.key),
            subjects=subjects_in_words([fault.subject]),
            first_time_us=fault.first_time_us,
            last_time_us=fault.last_time_us,
            count=fault.count,
            samples=fault.samples,
        )
        yield Violation(fault.location, f"{fault.message}{_times(fault.count)}", fault.help, evidence, fault.related)


def _together(trails: Sequence[Trail], message: Said, help_text: Said) -> Violation:
    first = sorted((o for trail in trails for o in trail.first), key=lambda occurrence: occurrence.location)
    subjects = {subject for trail in trails for subject in trail.subjects}
    count = sum(trail.num for trail in trails)
    metrics = {trail.key.metric for trail in trails}
    evidence = Evidence(
        series=_series(trail.key for trail in trails),
        subjects=subjects_in_words(subjects),
        first_time_us=min(trail.first_time_us for trail in trails),
        last_time_us=max(trail.last_time_us for trail in trails),
        count=count,
        samples=_samples(first) if len(metrics) == 1 else (),
    )
    whose = evidence.subjects if len(subjects) > 1 else ""
    text = f"{_said(message, first[0])}{_times(count, whose, len(metrics))}"
    return Violation(first[0].location, text, _said(help_text, first[0]), evidence, _before(first[0]))


def _joined(faults: Sequence[Fault]) -> Violation:
    count = sum(fault.count for fault in faults)
    evidence = Evidence(
        series=_series(fault.key for fault in faults),
        subjects=subjects_in_words(fault.subject for fault in faults),
        first_time_us=min(fault.first_time_us for fault in faults),
        last_time_us=max(fault.last_time_us for fault in faults),
        count=count,
        samples=tuple(sample for fault in faults for sample in fault.samples)[:MAX_SAMPLES],
    )
    text = f"{faults[0].message}{_times(count, evidence.subjects)}"
    return Violation(faults[0].location, text, faults[0].help, evidence, faults[0].related)


def _series(keys: Iterable[Key]) -> str:
    """The key that all share, else the metric; empty where there are several."""
    distinct = set(keys)
    metrics = {key.metric for key in distinct}
    return str(distinct.pop()) if len(distinct) == 1 else metrics.pop() if len(metrics) == 1 else ""


def _samples(occurrences: Sequence[Occurrence]) -> tuple[str, ...]:
    return tuple(value_in_words(occurrence.value) for occurrence in occurrences[:MAX_SAMPLES])


def _before(occurrence: Occurrence) -> tuple[tuple[Location, str], ...]:
    return () if occurrence.location_before == NOWHERE else ((occurrence.location_before, "the value before it"),)


__all__ = [
    "Fault",
    "counted",
    "damaged",
    "few",
    "grouped",
    "moment",
    "names_in_words",
    "number",
    "of_records",
    "ranges_in_words",
    "seconds_in_words",
    "series_in_words",
    "subjects_in_words",
    "value_in_words",
    "violations_of",
]


def moment(time_us: int) -> str:
    """A time in microseconds since 1970 as UTC text, with as many digits of the second as it has.

    >>> moment(1_767_225_600_250_000)
    '2026-01-01 00:00:00.25 UTC'
    """
    whole, fraction = divmod(time_us, 1_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%d %H:%M:%S")
    digits = f".{fraction:06}".rstrip("0").rstrip(".")
    return f"{text}{digits} UTC"


def ranges_in_words(numbers: Iterable[int]) -> str:
    """Whole numbers as ranges.

    >>> ranges_in_words([7, 0, 1, 2, 3])
    '0-3, 7'
    """
    ordered = sorted(set(numbers))
    runs = []
    for _, group in groupby(enumerate(ordered), lambda pair: pair[1] - pair[0]):
        members = [value for _, value in group]
        runs.append((members[0], members[-1]))
    said = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:_MAX_RANGES]]
    left = sum(high - low + 1 for low, high in runs[_MAX_RANGES:])
    return ", ".join(said) + (f" and {left:,} more" if left else "")


def names_in_words(names: Iterable[str]) -> str:
    """Names in order, the first few of many.

    >>> names_in_words(["b", "a"])
    'a, b'
    """
    ordered = sorted(set(names))
    left = len(ordered) - MAX_NAMES
    return ", ".join(ordered[:MAX_NAMES]) + (f" and {left:,} more" if left > 0 else "")


def subjects_in_words(subjects: Iterable[Subject]) -> str:
    """Ranks as ranges, else devices by name, else hosts; empty for the job.

    >>> subjects_in_words([Subject(rank, None, None) for rank in (0, 1, 2, 7)])
    'ranks 0-2, 7'
    >>> subjects_in_words([Subject(3, "node-1", None)]), subjects_in_words([Subject(None, "node-1", "GPU-3f")])
    ('rank 3 of node-1', 'device GPU-3f of node-1')
    """
    ranks, devices, hosts = set(), set(), set()
    homes: set[str] = set()
    for rank, host, device in subjects:
        if rank is not None:
            ranks.add(rank)
            homes.update(() if host is None else (host,))
        elif device is not None:
            devices.add(f"{device} of {host}" if host else device)
        elif host is not None:
            hosts.add(host)
    of_hosts = f" of {names_in_words(homes)}" if homes else ""
    parts = [f"rank{'s' * (len(ranks) > 1)} {ranges_in_words(ranks)}{of_hosts}"] if ranks else []
    parts += [f"device{'s' * (len(devices) > 1)} {names_in_words(devices)}"] if devices else []
    parts += [f"host{'s' * (len(hosts) > 1)} {names_in_words(hosts)}"] if hosts else []
    return "; ".join(parts)


def series_in_words(key: Key, subject: Subject) -> str:
    """A series as messages name it.

    >>> series_in_words(Key("train.rank.step"), Subject(3, None, None))
    'train.rank.step of rank 3'
    """
    whose = subjects_in_words([subject])
    return f"{key} of {whose}" if whose else str(key)


def value_in_words(value: float) -> str:
    """A value as a sample of the evidence."""
    return "not a number" if math.isnan(value) else number(value)
