"""The only place that asks the validator about what a stack wrote: its newest checkpoint, and its metric streams."""

from __future__ import annotations

from pathlib import Path

from trainspec_conformance.records import Streams
from trainspec_validate.check import Terms, examine
from trainspec_validate.collect import InputError
from trainspec_validate.findings import Report, Severity

MAX_FINDINGS = 200


def judge_checkpoint(path: Path) -> tuple[str, ...]:
    """Findings of at least the severity of a warning about one checkpoint on disk, each as `severity id: message`."""
    alone = path.is_file()  # a file of its own is told for a checkpoint by the directory that it lies in
    try:
        report = examine([path.parent if alone else path], Terms(num_workers=1))
        return _told(report, path.name if alone else "")
    except (InputError, OSError) as error:
        return (f"error unreadable: {error}",)


def judge_streams(directory: Path) -> Streams:
    """What is to be said of the metric streams of a run; it never raises, for the stack may have written anything."""
    files = sorted(path for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else []
    if not files:
        return Streams(num_files=0)
    try:
        report = examine([directory], Terms(num_workers=1))
    except (InputError, OSError) as error:
        return Streams(num_files=len(files), findings=(f"error unreadable: {error}",))
    metrics = {name for coverage in report.coverage for name in coverage.metrics_seen}
    absent = {name for coverage in report.coverage for name in coverage.metrics_absent}
    return Streams(
        num_files=len(files), findings=_told(report), metrics=tuple(sorted(metrics)), absent=tuple(sorted(absent))
    )


def _told(report: Report, name: str = "") -> tuple[str, ...]:
    found = [one for one in report.at_or_above(Severity.WARNING) if name in one.path]
    return tuple(f"{one.severity.value} {one.requirement}: {one.message}" for one in found[:MAX_FINDINGS])
