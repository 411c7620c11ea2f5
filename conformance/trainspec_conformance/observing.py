"""Asks the validator about what a stack wrote: its newest checkpoint, and its metric streams."""

from __future__ import annotations

from pathlib import Path

from trainspec_conformance.records import Streams
from trainspec_validate.checkpoints.bundles import prefix_of
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.model.finding import Report, Severity
from trainspec_validate.pipeline.validation import Terms, examine
from trainspec_validate.system.boundary import InputError

MAX_FINDINGS = 200
_SHOWN_BYTES = 16
_SHOWN_FILES = 5


def judge_checkpoint(path: Path) -> tuple[str, ...]:
    """Findings of at least the severity of a warning about one checkpoint on disk, each as `severity id: message`."""
    alone = path.is_file()  # a file of its own is told for a checkpoint by the directory that it lies in
    own = path.parent / (prefix_of(path.name) or path.name) if alone else path
    try:
        if not read_checkpoint(own).formats:
            return (f"error unknown-format: {_unknown(path)}",)
        report = examine([path.parent if alone else path], Terms(num_workers=1))
        return _told(report, own if alone else None)
    except (InputError, OSError) as error:
        return (f"error unreadable: {error}",)


def _unknown(path: Path) -> str:
    """What lies there, for a reader who has to find out of which format it is."""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(_SHOWN_BYTES)
        return f"{path.name} has no format that the validator knows; it begins with {start!r}"
    files = sorted(one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file())
    shown = ", ".join(files[:_SHOWN_FILES]) + (", …" if len(files) > _SHOWN_FILES else "")
    return f"{path.name} holds no file of a format that the validator knows; it holds {shown or 'no file'}"


def judge_streams(directory: Path) -> Streams:
    """Findings on the metric streams of a run; it never raises, as the stack may have written anything."""
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


def _told(report: Report, own: Path | None = None) -> tuple[str, ...]:
    """Findings: all of them, or those of a file and of the files beside it that go on from its name."""
    found = [(one, Path(one.path)) for one in report.at_or_above(Severity.WARNING)]
    kept = [
        one for one, place in found if own is None or (place.parent == own.parent and _goes_on(place.name, own.name))
    ]
    return tuple(f"{one.severity.value} {one.requirement}: {one.message}" for one in kept[:MAX_FINDINGS])


def _goes_on(name: str, start: str) -> bool:
    return name == start or name.startswith(f"{start}.")
