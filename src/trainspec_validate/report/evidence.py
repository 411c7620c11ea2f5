"""Describes in words the evidence of a finding on a stream, and how much of a run was seen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from trainspec_validate.model.finding import Coverage, Evidence
from trainspec_validate.model.quantities import singular_of_one

_MAX_NAMES = 6
_MAX_REASONS = 12
_MAX_STATED = 2
_UNKNOWN_RUN = "unknown"
"""Run of records that name none, as readers of other formats write it."""
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def evidence_in_words(evidence: Evidence | None) -> str:
    """How often, when, on what, and some of the values; empty where there is nothing to add."""
    if evidence is None:
        return ""
    parts = []
    if evidence.count > 1:
        parts.append(f"{evidence.count:,} times")
    if evidence.first_time_us is not None:
        parts.append(_span_in_words(evidence.first_time_us, evidence.last_time_us))
    if evidence.subjects:
        parts.append(f"on {evidence.subjects}")
    head = ", ".join(parts)
    values = ", ".join(evidence.samples)
    return "; ".join(part for part in (head, values) if part)


def _span_in_words(first: int, last: int | None) -> str:
    if last is None or last == first:
        return moment(first)
    return f"{moment(first)} to {moment(last)}"


def moment(time_us: int) -> str:
    """A time as people write it.

    >>> moment(1763722800000000)
    '2025-11-21 11:00:00Z'
    """
    try:
        return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{time_us} us"


def coverage_line(coverage: Coverage) -> str:
    """Evidence of a run, in one line."""
    absent = f", {len(coverage.metrics_absent)} required ones absent" if coverage.metrics_absent else ""
    ranks = _of(coverage.num_ranks_seen, coverage.num_ranks_expected)
    devices = _of(coverage.num_devices_seen, coverage.num_devices_expected)
    return singular_of_one(
        f"coverage of {_name(coverage)}: {len(coverage.metrics_seen)} metrics{absent}; "
        f"ranks {ranks}; devices {devices}; {_length(coverage)}{coverage.num_records:,} records; "
        f"{len(coverage.not_judged)} not judged{_stated(coverage)}" + "".join(f"; {note}" for note in coverage.notes)
    )


def _name(coverage: Coverage) -> str:
    """The run, or its files where they name none."""
    if coverage.run not in {"", _UNKNOWN_RUN} or not coverage.files:
        return f"run {coverage.run or '(unnamed)'}"
    more = len(coverage.files) - 1
    return f"{coverage.files[0]}{f' and {more:,} more' if more else ''}, which names no run"


def _stated(coverage: Coverage) -> str:
    """What the streams say went wrong, the first two of it."""
    if not coverage.incidents:
        return ""
    more = len(coverage.incidents) - _MAX_STATED
    return f"; the run states: {'; '.join(coverage.incidents[:_MAX_STATED])}{f'; {more} more' if more > 0 else ''}"


def _length(coverage: Coverage) -> str:
    """The time that records span, before their number; nothing where their source states no times."""
    is_unstated = coverage.num_records > 0 and coverage.first_time_us < 0 and not coverage.covered_seconds
    return "no times, " if is_unstated else f"{coverage.seconds:,.0f} s, "


def coverage_lines(coverage: Coverage) -> Iterator[str]:
    """Evidence of a run, one fact on each line."""
    yield f"coverage of {_name(coverage)}"
    size = _size(coverage.num_bytes)
    files = f"{len(coverage.files)} file{'' if len(coverage.files) == 1 else 's'}"
    yield singular_of_one(f"  read: {files}, {size}, {coverage.num_records:,} records, {coverage.num_samples:,} values")
    if coverage.num_records:
        attempts = f"{coverage.num_attempts} attempt{'' if coverage.num_attempts == 1 else 's'}"
        span = f"{moment(coverage.first_time_us)} to {moment(coverage.last_time_us)}, "
        begins = "" if coverage.first_time_us < 0 else span
        has_times = coverage.first_time_us >= 0 or coverage.covered_seconds
        stated = f"{begins}{coverage.seconds:,.0f} s" if has_times else "not stated"
        yield f"  time: {stated} in {attempts}"
    yield from (f"  the run states: {text}" for text in coverage.incidents)
    yield f"  metrics: {_metrics(coverage)}"
    yield from (f"  {note}" for note in coverage.notes)
    ranks = _of(coverage.num_ranks_seen, coverage.num_ranks_expected)
    devices = _of(coverage.num_devices_seen, coverage.num_devices_expected)
    yield f"  ranks: {ranks}; devices: {devices}; hosts: {coverage.num_hosts_seen:,}"
    yield from (f"  {text}" for text in _cut(coverage))
    yield from _not_judged(coverage)


def _cut(coverage: Coverage) -> Iterator[str]:
    """The records at the ends of files that were not judged."""
    for record in coverage.cut_records[:_MAX_NAMES]:
        yield f"not judged: the last record of {record.path}, cut at {record.place}"
    if len(coverage.cut_records) > _MAX_NAMES:
        yield f"not judged: the last records of {len(coverage.cut_records) - _MAX_NAMES:,} more files, which are cut"


def _metrics(coverage: Coverage) -> str:
    text = f"{len(coverage.metrics_seen)} seen"
    if coverage.metrics_unsupported:
        text += f", {len(coverage.metrics_unsupported)} declared unsupported"
    if coverage.metrics_absent:
        more = len(coverage.metrics_absent) - _MAX_NAMES
        names = ", ".join(coverage.metrics_absent[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
        text += f", {len(coverage.metrics_absent)} required ones absent: {names}"
    return text


def _of(seen: int, expected: int | None) -> str:
    return f"{seen:,} seen" if expected is None else f"{seen:,} of {expected:,}"


def _not_judged(coverage: Coverage) -> Iterator[str]:
    """Reasons why requirements were not judged, the most frequent first."""
    by_reason: dict[str, list[str]] = {}
    for requirement, reason in coverage.not_judged:
        by_reason.setdefault(reason, []).append(requirement)
    groups = sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[1]))
    if groups:
        yield f"  not judged: {len(coverage.not_judged)}"
    for reason, requirements in groups[:_MAX_REASONS]:
        names = ", ".join(requirements[:_MAX_NAMES]) + (", …" if len(requirements) > _MAX_NAMES else "")
        yield f"    {reason}: {names}"
    if len(groups) > _MAX_REASONS:
        yield f"    and {len(groups) - _MAX_REASONS} more reasons"


def _size(num_bytes: int) -> str:
    for unit, name in _UNITS:
        if num_bytes >= unit:
            return f"{num_bytes / unit:.1f} {name}"
    return f"{num_bytes} B"
