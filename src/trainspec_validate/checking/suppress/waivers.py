"""Applies waivers: findings that a named person has accepted until a date."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainspec_validate.checking.suppress.common import (
    EXPIRED,
    UNKNOWN,
    UNUSED,
    Complaint,
    Run,
    SuppressionResult,
    home_of,
    lookup,
    says_something,
)
from trainspec_validate.documents.types import Waiver
from trainspec_validate.model.finding import Finding, Pointer, Suppressed, SuppressionKind
from trainspec_validate.system.budget import Limit
from trainspec_validate.system.patterns import WILDCARDS, Pattern, find

if TYPE_CHECKING:
    from datetime import date


_MOST_WILDCARDS = Limit("a waiver file", 200_000, "wildcards in its patterns")
_MOST_SEARCHED = 100
"""Patterns without a judged file that are looked up on the disk, to say that no file has such a name."""


@dataclass(frozen=True, slots=True)
class WaiverFile:
    """The waivers of one file, with their places in its list."""

    path: str
    waivers: Sequence[tuple[int, Waiver]]
    tree: str | None = None
    """A copy of another state of the working directory, that the file may be in."""

    def check(self) -> None:
        """Accept what it costs to hold each finding against each pattern.

        Raises:
            OverLimitError: the patterns have too many wildcards.
        """
        _MOST_WILDCARDS.check(sum(waiver.file.count(char) for _, waiver in self.waivers for char in WILDCARDS))

    @property
    def directory(self) -> str:
        """Directory that the patterns are relative to."""
        return home_of(self.path, self.tree)


@dataclass(slots=True)
class _Active:
    """A waiver that holds today."""

    index: int
    waiver: Waiver
    requirement: str
    pattern: Pattern
    pointer: tuple[str, ...]
    used: bool = False

    def covers(self, finding: Finding, relative: str) -> bool:
        """Whether the finding is at the waiver's place."""
        if finding.requirement != self.requirement or not self.pattern.fits(relative):
            return False
        return _text(finding.pointer)[: len(self.pointer)] == self.pointer


def apply(findings: Iterable[Finding], file: WaiverFile, run: Run, today: date | None) -> SuppressionResult:
    """Silence what the waivers cover, and complain about waivers that have ended, are unknown or idle."""
    tally = SuppressionResult()
    active: list[_Active] = []
    for entry in _active(file, run, today):
        (tally.complaints if isinstance(entry, Complaint) else active).append(entry)  # type: ignore[arg-type]
    relative = {path: _relative(path, file.directory) for path in run.paths}
    for finding in findings:
        name = relative.get(finding.path) or _relative(finding.path, file.directory)
        waiver = next((waiver for waiver in active if waiver.covers(finding, name)), None)
        if waiver is None:
            tally.kept.append(finding)
            continue
        waiver.used = True
        reason = f"{waiver.waiver.reason} (until {waiver.waiver.expires}, {waiver.waiver.owner})"
        tally.suppressed.append(Suppressed(finding, SuppressionKind.WAIVER, reason))
    tally.complaints.extend(_idle(file, active, run, relative.items()))
    return tally


def _active(file: WaiverFile, run: Run, today: date | None) -> Iterator[_Active | Complaint]:
    from datetime import date as day  # noqa: PLC0415 - only runs with waivers need a calendar

    now = today or day.today()
    for index, waiver in file.waivers:
        requirement, message, help_text = lookup(waiver.requirement, run.index)
        if requirement is None:
            yield Complaint(UNKNOWN, file.path, message, help_text, ("waivers", index, "requirement"))
            continue
        blank = next((key for key in ("reason", "owner") if not says_something(getattr(waiver, key))), None)
        if blank is not None:
            message = f"the {blank} of the waiver of {requirement.id} is blank, so it silences nothing"
            remedy = "say why the finding is acceptable" if blank == "reason" else "name a person or a team"
            yield Complaint(EXPIRED, file.path, message, remedy, ("waivers", index, blank))
            continue
        place = ("waivers", index, "expires")
        try:
            last = day.fromisoformat(waiver.expires)
        except ValueError:
            message = f"{waiver.expires} is not a day of the calendar"
            yield Complaint(EXPIRED, file.path, message, "write the last day as YYYY-MM-DD", place)
            continue
        if last < now:
            message = f"the waiver of {requirement.id} ended on {waiver.expires} and silences nothing any more"
            remedy = f"fix the finding, or let {waiver.owner} set a new day"
            yield Complaint(EXPIRED, file.path, message, remedy, place)
            continue
        yield _Active(index, waiver, requirement.id, Pattern(_normal(waiver.file)), _steps(waiver.pointer))


def _idle(
    file: WaiverFile, active: Iterable[_Active], run: Run, relative: Iterable[tuple[str, str]]
) -> Iterator[Complaint]:
    names, exists = list(relative), cache(partial(_exists, file.directory))
    searched = set[str]()
    for waiver in active:
        if waiver.used:
            continue
        place, name = ("waivers", waiver.index), waiver.waiver.file
        covered = [path for path, name in names if waiver.pattern.fits(name)]
        if not covered and WILDCARDS & set(name):
            searched.add(name)
            if len(searched) > _MOST_SEARCHED:  # each may walk over all directories
                continue
        inner = _inside(name, file.directory)
        if not covered and inner:
            message = f"{name!r} fits no file, since it is not the shortest path from the directory of the waivers"
            yield Complaint(UNUSED, file.path, message, f"write {inner}, or remove the waiver", (*place, "file"))
        elif not covered and not exists(name):
            message = f"no file is called {name!r}, seen from the directory of the waivers"
            yield Complaint(UNUSED, file.path, message, "correct the path or remove the waiver", (*place, "file"))
        elif covered and all(run.judged(waiver.requirement, path) for path in covered):
            message = f"the waiver of {waiver.requirement} silences nothing: there is no such finding"
            yield Complaint(UNUSED, file.path, message, "remove it", (*place, "requirement"))


def _relative(path: str, directory: str) -> str:
    try:
        return Path(os.path.relpath(path, directory)).as_posix()
    except ValueError:  # another drive
        return Path(path).as_posix()


def _inside(name: str, directory: str) -> str:
    """The path as findings are named, of a name that is written in another way; empty for one that is written so."""
    plain = _relative(os.path.join(directory, name), directory)  # noqa: PTH118 - keeps what an absolute name is
    return plain if plain != _normal(name) else ""


def _exists(directory: str, pattern: str) -> bool:
    path = Path(_normal(pattern))
    if not WILDCARDS & set(pattern):
        return Path(directory, pattern).exists()
    if path.is_absolute():
        return False
    try:
        return any(True for _ in find(Path(directory), path.parts))
    except (OSError, ValueError):  # a name that no file can have
        return False


def _normal(pattern: str) -> str:
    return os.path.normpath(pattern).replace("\\", "/")


def _steps(pointer: str | None) -> tuple[str, ...]:
    if not pointer:
        return ()
    if pointer.startswith("/"):
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/"))
    return tuple(pointer.replace("[", ".").replace("]", "").split("."))


def _text(pointer: Pointer) -> tuple[str, ...]:
    return tuple(str(step) for step in pointer)
