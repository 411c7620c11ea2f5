"""Infers the reporting interval and the cadence of a log without a stream header from the records themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import cast

from trainspec_validate.documents.types.stream import CadenceName, Head, Sample
from trainspec_validate.model.metrics import by_name, catalog
from trainspec_validate.telemetry.formats.items import Found
from trainspec_validate.telemetry.formats.transcript import Transcript

STEPS = "train.step.count"
_SKIPPED = "train.step.skipped"
_MAX_HELD = 50_000
"""Records that are looked at: the rhythm of a longer log is that of its beginning."""
_MAX_INTERVAL = 1_000_000
_MAX_SECONDS = 86_400.0
_LIKE_FROM = 10
"""Steps from which intervals that differ by 1, or by 1 %, are equal: counts are rounded."""
_FEWEST_OF_GRID = 3
_SHARE_OF_GRID = 0.25
"""Share of the differences that the interval has where reports at ends of epochs come between: one hole has less."""
_LIKE_SECONDS = 1.25
"""Factor up to which two intervals of time are of one rhythm."""
_LEAST_SHARE = 0.001
"""Share of the intervals of time that a rhythm has, but at least two: saves and evaluations recur, a hole does not."""


@dataclass(slots=True)
class _Seen:
    """The steps of one writer, and the times of its series, by key."""

    steps: list[int] = field(default_factory=list)
    times: dict[str, list[int]] = field(default_factory=dict)


def with_rhythm(found: Iterable[Found], transcript: Transcript) -> Iterator[Found]:
    """The same, with the inferred reporting interval and cadence in each stream header."""
    rest = iter(found)
    held = list(islice(rest, _MAX_HELD))
    seen = _seen(held, transcript)
    for offset, item in held:
        if isinstance(item, Head):
            item = _stated(item, seen.get(item.emitter, _Seen()), transcript, offset)  # noqa: PLW2901
        yield offset, item
    del held, seen
    yield from rest


def _seen(held: Sequence[Found], transcript: Transcript) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}
    names = {name for name in catalog().metrics if _class_of(name)}
    timed: dict[str, bool] = {}
    for _, item in held:
        if not isinstance(item, Sample):
            continue
        mine = found.setdefault(item.emitter or transcript.emitter, _Seen())
        skipped = _skipped(item) if transcript.takes_skips_off else 0
        for key, value in item.m.items():
            if key == STEPS and isinstance(value, float):
                mine.steps.append(int(value) + skipped)
                continue
            if key not in timed:
                timed[key] = key.partition("{")[0] in names
            if timed[key]:
                mine.times.setdefault(key, []).append(item.time_us)
    return found


def _skipped(item: Sample) -> int:
    """Steps that a record counts as skipped."""
    return int(sum(value for key, value in item.m.items() if key.startswith(_SKIPPED) and isinstance(value, float)))


def _class_of(name: str) -> CadenceName | None:
    """The class of cadence of a metric that is set in seconds."""
    metric = by_name(name)
    classes = metric.cadences if metric else ()
    return next((cast("CadenceName", each) for each in classes if catalog().cadences[each].seconds is not None), None)


def _stated(head: Head, seen: _Seen, transcript: Transcript, offset: int) -> Head:
    steps = interval_of(seen.steps, transcript.first_step)
    cadences: dict[CadenceName, float] = {}
    for key, times in seen.times.items():
        name = _class_of(key.partition("{")[0])
        seconds = cadence_of(times)
        if name is not None and seconds > cadences.get(name, float(catalog().cadences[name].seconds or 0)):
            cadences[name] = min(seconds, _MAX_SECONDS)
    if steps is not None:
        words = f"a report after every {steps:,} optimizer steps" if steps > 1 else "a report after each optimizer step"
        transcript.lose("meaning", "interval", f"the log states no reporting interval; inferred: {words}", offset)
    for name, seconds in cadences.items():
        message = f"the log states no cadence; inferred for class {name}: {seconds:.4g} s"
        transcript.lose("meaning", f"cadence {name}", message, offset)
    inferred = {
        "report_interval_steps": min(steps or 1, _MAX_INTERVAL),
        "cadence_seconds": {**cadences, **head.cadence_seconds},
    }
    return Head(**{name: getattr(head, name) for name in head.__struct_fields__} | inferred)


def interval_of(steps: Sequence[int], first: int = 0) -> int | None:
    """Optimizer steps between two reports: the most frequent difference; None where there are too few.

    Where no difference has half of all, it is the largest that recurs, else the largest. Reports that all miss the
    multiples of their interval, counted from the `first` step, are what is left of reports of each optimizer step.
    Sizes that each differ by little from the next are one interval: counts that follow from samples are rounded.
    Where reports come after every so many steps and also at the end of each epoch, it is the former.

    >>> interval_of([1, 11, 21, 31]), interval_of([9, 19, 29, 39])
    (1, 10)
    >>> interval_of([1, 11, 21, 31], first=1), interval_of([4, 14, 24, 34], first=1)
    (10, 1)
    >>> interval_of([10, 20, 30, 34, 40, 50]), interval_of([1, 2, 3, 9, 10]), interval_of([336, 671, 1006, 1342])
    (10, 1, 336)
    >>> interval_of([0, 32, 65, 97, 131, 162, 196]), interval_of([0, 43, 87, 130, 173, 218, 304])
    (34, 45)
    >>> interval_of([50, 75, 100, 150, 200, 225, 250, 300, 350, 375, 400])
    50
    """
    counts = Counter(after - before for before, after in pairwise(steps) if after > before)
    if not counts:
        return None
    if len(counts) == 1 and len(steps) > 3 and not _is_on_grid(steps[-1] - first, max(counts)):
        return 1
    if _is_of_two_grids(steps, counts, first):
        return max(counts)
    sizes = {size: sum(num for other, num in counts.items() if _is_like(size, other)) for size in counts}
    most = max(sizes, key=lambda size: (sizes[size], size))
    if 2 * sizes[most] < counts.total():
        most = max((size for size, num in sizes.items() if num > 1), default=max(sizes))
    for size in sorted(counts):
        most = size if size > most and _is_like(most, size) else most
    return most


def _is_of_two_grids(steps: Sequence[int], counts: Counter[int], first: int) -> bool:
    """Whether the largest difference is the interval, as each multiple of it shows, and others are closer."""
    size = max(counts)
    if len(counts) < 2 or counts[size] < max(_FEWEST_OF_GRID, _SHARE_OF_GRID * counts.total()):
        return False
    grids = ({step - start for step in steps} for start in {0, first})
    return any(all(step in seen for step in range(-(-min(seen) // size) * size, max(seen) + 1, size)) for seen in grids)


def _is_on_grid(step: int, interval: int) -> bool:
    """Whether a step is a multiple of an interval, counted from 0 or from 1."""
    return step % interval in {0, interval - 1}


def _is_like(one: int, other: int) -> bool:
    larger = max(one, other)
    return one == other or (larger >= _LIKE_FROM and abs(one - other) <= 1 + larger // 100)


def cadence_of(times_us: Sequence[int]) -> float:
    """Seconds between two values: the longest interval that recurs, else the longest; 0 where there is none.

    >>> second = 1_000_000
    >>> cadence_of([0, 10 * second, 20 * second, 30 * second, 3600 * second])
    10.0
    >>> cadence_of([0, 2 * second, 4 * second, 306 * second, 308 * second, 610 * second])
    302.0
    """
    found = sorted((after - before) / 1e6 for before, after in pairwise(times_us) if after > before)
    least = max(2, round(_LEAST_SHARE * len(found)))
    for place in range(len(found) - least, -1, -1):
        if found[place + least - 1] <= _LIKE_SECONDS * found[place]:
            return found[place + least - 1]
    return found[-1] if found else 0.0
