"""Makes views of small runs for tests of stream checks: a few rows in, what checks see out."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from trainspec_validate.telemetry.checks import NotApplicable, Violation, all_checks
from trainspec_validate.telemetry.fold.engine import Options, read_run, run_file
from trainspec_validate.telemetry.view.run_view import RunView

START_US = 1_767_225_600_000_000
"""2026-01-01 00:00:00 UTC, a multiple of every window."""


def micros(seconds: float) -> int:
    """A moment, in seconds since the start of the made run, as streams write it."""
    return START_US + round(seconds * 1e6)


class Stream:
    """The stream of one emitter in one attempt, written record by record."""

    def __init__(self, emitter: str = "job", scopes: tuple[str, ...] = ("job",), **head: Any) -> None:
        first = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "made", "att": 0}
        self.lines = [{**first, "emitter": emitter, "time_us": START_US, "scopes": list(scopes), **head}]

    def sample(self, seconds: float, values: dict[str, Any], **more: Any) -> Self:
        """Add values of one moment."""
        self.lines.append({"k": "m", "time_us": micros(seconds), "seq": len(self.lines) - 1, "m": values, **more})
        return self

    def event(self, seconds: float, name: str, attributes: dict[str, Any] | None = None, **more: Any) -> Self:
        """Add an event."""
        record = {"k": "e", "time_us": micros(seconds), "seq": len(self.lines) - 1, "name": f"train.{name}"}
        self.lines.append({**record, "a": attributes or {}, **more})
        return self

    def every(self, times: Any, values: dict[str, Any], **more: Any) -> Self:
        """Add the same values at several moments."""
        for seconds in times:
            self.sample(seconds, values, **more)
        return self

    def between(self, begin: float, end: float, kind: str, **attributes: Any) -> Self:
        """Add the two events of an evaluation, a save or a restore."""
        closing = "commit" if kind == "checkpoint" else "end"
        self.event(begin, f"{kind}.begin", attributes, id=f"{kind}-{begin}")
        return self.event(end, f"{kind}.{closing}", attributes, id=f"{kind}-{begin}")


def view(*streams: Stream, is_live: bool = False) -> RunView:
    """What checks see of a run of these streams."""
    with TemporaryDirectory() as directory:
        paths = [Path(directory) / f"{number:04}.jsonl" for number, _ in enumerate(streams)]
        for path, stream in zip(paths, streams, strict=True):
            path.write_text("".join(json.dumps(line) + "\n" for line in stream.lines), encoding="utf-8")
        files = [run_file(number, path, path.name) for number, path in enumerate(paths)]
        found = read_run(files, Options(is_live=is_live))
    assert found.damage == (), found.damage
    return found


def judged(requirement: str, run: RunView, **documents: Any) -> list[Violation]:
    """What the check of a requirement yields; fails where it does not judge."""
    return list(all_checks()[requirement].function(run, **documents))


def messages(requirement: str, run: RunView, **documents: Any) -> list[str]:
    """What the check of a requirement says."""
    return [violation.message for violation in judged(requirement, run, **documents)]


def refused(requirement: str, run: RunView, **documents: Any) -> str:
    """Why the check of a requirement does not judge; empty where it does."""
    try:
        judged(requirement, run, **documents)
    except NotApplicable as reason:
        return str(reason)
    return ""


def line_of(violation: Violation, stream: Stream, file: int = 0) -> int:
    """Number of the record that a violation is about, the head being 0."""
    assert violation.place.file == file
    sizes = [len(json.dumps(line)) + 1 for line in stream.lines]
    return [sum(sizes[:number]) for number in range(len(sizes))].index(violation.place.offset)
