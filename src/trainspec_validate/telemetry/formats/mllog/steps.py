"""Finds where the steps of a log of MLPerf contradict each other, in logs whose steps have no unit for that reason."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.mllog.units import Entry, is_report, readings, sums_up

_MOST_EQUAL = 4
"""Reports in a row with one step, from which a counter has stopped; no two in 5,335 public logs have the same."""
_FEWEST = 8
"""Reports of which the first half shows a unit."""
_MOST_OTHER = 0.2
"""Share of the reports whose steps may be other than those of the rest."""
_HELP = "write the count of completed steps, or of samples, in all reports"


def contradictions(entries: Sequence[Entry]) -> Iterator[Found]:
    """The first report whose step falls, stays, or leaves the unit of those before it."""
    reports = [each for each in entries if is_report(each) and each.step is not None]
    detailed = [each for each in reports if not sums_up(each)]
    found = next(_order(reports), None) or _turn(entries, detailed) or _no_multiple(entries, detailed)
    if found is not None:
        yield found


def _order(reports: Sequence[Entry]) -> Iterator[Found]:
    """Steps that fall or stay from one report to the next of the same statistics."""
    last: dict[tuple[str, ...], tuple[int, int]] = {}
    for each in reports:
        names, step = tuple(sorted(each.value)), each.step or 0
        before, num = last.get(names, (step - 1, 0))
        num = num + 1 if step == before else 1
        if step < before:
            message = f"step falls from {before:,} to {step:,} in the reports of {', '.join(names)}"
            yield each.offset, Refusal(message, "write the position of each report, which grows", "step")
        elif num == _MOST_EQUAL:
            message = f"step is {step:,} in {num} reports in a row of {', '.join(names)}"
            yield each.offset, Refusal(message, "write the position of each report, which grows", "step")
        last[names] = step, num


def _turn(entries: Sequence[Entry], reports: Sequence[Entry]) -> Found | None:
    """The report from which on no unit fits that fits the reports before it, half of all at least."""
    if len(reports) < _FEWEST:
        return None
    batch, length = (_setting(entries, key) for key in ("global_batch_size", "max_sequence_length"))

    def is_contradicted(num: int) -> bool:
        end = entries.index(reports[num - 1]) + 1
        return not readings(entries[:end], reports[:num], batch, length)

    half = len(reports) // 2
    if is_contradicted(half) or not is_contradicted(len(reports)):
        return None
    num = bisect_left(range(half, len(reports)), True, key=is_contradicted) + half
    unit = readings(entries[: entries.index(reports[num - 2]) + 1], reports[: num - 1], batch, length)[0]
    message = (
        f"steps count {_UNITS[unit]} up to report {num - 1:,} at most, and then contradict samples_count of others"
    )
    return reports[num - 1].offset, Refusal(message, _HELP, "step")


def _no_multiple(entries: Sequence[Entry], reports: Sequence[Entry]) -> Found | None:
    """The first report whose step is no multiple of the samples or tokens of a step, as nearly all others are."""
    batch, length = (_setting(entries, key) for key in ("global_batch_size", "max_sequence_length"))
    for size, unit in ((batch * length, "tokens"), (batch, "samples")):
        other = [each for each in reports if size > 1 and (each.step or 0) % size]
        regular = [each for each in reports if each not in other]
        fitting = readings(entries, regular, batch, length) if len(regular) >= _FEWEST else []
        if other and len(other) <= _MOST_OTHER * len(reports) and fitting == [unit]:
            message = f"step is {other[0].step or 0:,}, no multiple of the {size:,} {unit} of a step, as those of "
            message += f"{len(regular):,} of {len(reports):,} reports are"
            return other[0].offset, Refusal(message, _HELP, "step")
    return None


_UNITS = {"count": "optimizer steps", "samples": "samples", "tokens": "tokens"}


def _setting(entries: Sequence[Entry], key: str) -> int:
    return next((fit.whole(each.value, 10**12) or 0 for each in reversed(entries) if each.key == key), 0)
