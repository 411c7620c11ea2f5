"""The only place that follows a live run at the terminal: findings as they become true, until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import click

from trainspec_validate import terminal
from trainspec_validate.cli.gate import Request, selection_of
from trainspec_validate.collect import InputError, collect
from trainspec_validate.findings import Finding, Report, Severity
from trainspec_validate.report import render
from trainspec_validate.report.evidence import coverage_lines
from trainspec_validate.report.terminal import printable
from trainspec_validate.requirements import load_index
from trainspec_validate.streamed import documents_beside, is_stream
from trainspec_validate.telemetry.follow import Follower
from trainspec_validate.terminal import Failure


def follow(request: Request, interval_seconds: float) -> int:
    """Judge the streams below the paths again and again, and return the exit code once the run has ended.

    Raises:
        Failure: wrong use, or the documents beside the streams cannot be read.
    """
    index = load_index()
    selection = selection_of(request)
    wanted = [r for r in index.by_id.values() if r.check == "stream" and selection.takes(index, r.id)]
    try:
        follower = Follower(wanted, index, documents_beside(request.paths or (".",)))
    except InputError as error:
        raise Failure("\n".join(map(str, error.args))) from error
    worst: list[Finding] = []
    refused: set[str] = set()
    try:
        while True:
            new, judgement = follower.look(_streams(request, follower.unreadable), time.time_ns() // 1_000)
            worst += new
            _tell(new)
            for name in follower.refused.keys() - refused:
                click.echo(f"{printable(name)}: {follower.refused[name]}", err=True)
            refused |= follower.refused.keys()
            if follower.has_ended:
                break
            time.sleep(interval_seconds)
    except KeyboardInterrupt:
        if not follower.followed:
            raise
    if not follower.followed:
        raise Failure("nothing was judged: no stream with a head came")
    if judgement.coverage is not None:
        terminal.emit("\n".join(printable(line) for line in coverage_lines(judgement.coverage)) + "\n")
    threshold = None if request.fail_on == "never" else Severity(request.fail_on)
    failed = threshold is not None and any(f.severity.rank >= threshold.rank for f in worst)
    if follower.unreadable:
        return terminal.WRONG_USE
    return terminal.FINDINGS if failed else terminal.OK


def _streams(request: Request, unreadable: set[str]) -> Iterator[Path]:
    """The streams that are there now; a file that cannot be read is told once and counts as unreadable."""
    failures: list[InputError] = []
    for candidate in collect(request.paths or (".",), failures):
        try:
            if candidate.name not in unreadable and is_stream(candidate):
                yield candidate.path
        except InputError as error:
            unreadable.add(candidate.name)
            click.echo(printable(str(error)), err=True)


def _tell(findings: list[Finding]) -> None:
    """One line for each finding, at once."""
    if findings:
        text = render(Report(findings=tuple(findings)), "concise")
        terminal.emit("".join(f"{line}\n" for line in text.splitlines()[: len(findings)]))
