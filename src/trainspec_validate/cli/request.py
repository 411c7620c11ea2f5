"""Reads the command line of the validator into a request, a selection and a threshold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from trainspec_validate.checking.selection import (
    NOT_READ,
    Selection,
    UnknownRequirementError,
    renamed,
    resolve,
)
from trainspec_validate.cli import terminal
from trainspec_validate.cli.settings import UNCOVERED, UNJUDGED
from trainspec_validate.model.finding import Severity
from trainspec_validate.model.requirements import Index, load_index
from trainspec_validate.report.summary import nothing_judged

if TYPE_CHECKING:
    from datetime import datetime

    from trainspec_validate.model.finding import Report, Unjudged
    from trainspec_validate.telemetry.user_rules import Engine


@dataclass(frozen=True, slots=True)
class Request:
    """Request of the command line and the settings."""

    paths: tuple[str, ...]
    formats: tuple[str, ...]
    fail_on: tuple[str, ...]
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    profile: str
    waivers: str | None
    baseline: str | None
    write_baseline: bool
    prune_baseline: bool
    statistics: bool
    quiet: bool
    color: str
    no_progress: bool
    list_files: bool
    stdin_filename: str | None
    today: datetime | None
    follow: bool = False
    interval_seconds: float = 5.0
    engine: str = "local"
    workers: int | None = None
    rules: tuple[str, ...] = ()
    rules_engine: Engine = "duckdb"
    values: bool = False
    dependents: bool = False
    exclude: tuple[str, ...] = ()
    left_out: tuple[Unjudged, ...] = ()
    """Changed files that cannot be judged."""
    settings_from: str | None = None
    config: str | None = None
    settings: str = ""
    """The settings file in force."""
    from_settings: frozenset[str] = frozenset()
    """The options that it sets."""


def threshold_of(fail_on: Sequence[str]) -> Severity | None:
    """The last severity among the words of `--fail-on`, error if there is none; None for `never`."""
    word = next((word for word in reversed(words_of(fail_on)) if word not in {UNJUDGED, UNCOVERED}), Severity.ERROR)
    return None if word == "never" else Severity(word)


def words_of(fail_on: Sequence[str]) -> list[str]:
    """The words of `--fail-on`, of all its uses."""
    return [word.strip() for text in fail_on for word in text.split(",")]


def is_open(entry: Unjudged, words: Collection[str]) -> bool:
    """Whether the words of `--fail-on` refuse an entry."""
    return not entry.recorded and (UNJUDGED if entry.cause == "absent" else UNCOVERED) in words


def fails(report: Report, fail_on: Sequence[str]) -> bool:
    """Whether the words of `--fail-on` make the exit code 1."""
    threshold = threshold_of(fail_on)
    words = words_of(fail_on)
    if UNJUDGED in words and nothing_judged(report):
        return True
    if any(is_open(entry, words) for entry in report.unjudged):
        return True
    return threshold is not None and bool(report.at_or_above(threshold))


def selection_of(request: Request, index: Index | None = None) -> Selection:
    """Which requirements the command line asks for.

    Raises:
        click.BadParameter: a word is no requirement.
    """
    index = index or load_index()
    words = {}
    for option in ("select", "ignore"):
        try:
            words[option] = resolve(getattr(request, option), index)
        except UnknownRequirementError as error:
            raise click.BadParameter(str(error), param_hint=f"'--{option}'") from error
        for note in renamed(getattr(request, option), index):
            terminal.tell(note)
    unread = sorted(NOT_READ.intersection(words["ignore"]))
    if unread:
        message = f"{unread[0]} cannot be ignored: it reports a file that was not read; fix or remove the file"
        raise click.BadParameter(message, param_hint="'--ignore'")
    return Selection(request.profile, words["select"], words["ignore"])
