"""Reads which failures of a stack are declared, with reason and end, and sees whether they hold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from fnmatch import fnmatchcase
from pathlib import Path

from trainspec_conformance.reading import DocumentError, all_scenarios, present_names, read
from trainspec_validate.checking.suppress.common import home_of, is_below
from trainspec_validate.documents.types import Waiver, Waivers
from trainspec_validate.model.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class Gaps:
    """Declared gaps of one stack."""

    reasons: Mapping[str, str]
    """Reason of each gap that holds today, by requirement."""
    ended: tuple[str, ...] = ()
    """Messages about expired gaps."""
    is_fixed: bool = False
    """Whether they are those of another branch, which the stack that is tested cannot correct."""

    def complaints(self, verdicts: Mapping[str, str]) -> list[str]:
        """Problems of the declaration, given the verdict of each requirement that was run."""
        if self.is_fixed:
            return []
        idle = [
            f"the gap of {requirement} is not needed: it passed; remove it"
            for requirement in self.reasons
            if verdicts.get(requirement) == "pass"
        ]
        return [*self.ended, *idle]


def read_gaps(
    file: Path | None, descriptor: Path, today: date | None = None, settings_from: Path | None = None
) -> Gaps:
    """The gaps that a file of kind Waivers declares for the stack of a descriptor.

    A file in `settings_from`, a copy of another state of the working directory, speaks of the working directory.

    Raises:
        DocumentError: the file cannot be used, or names a requirement that no scenario tests.
    """
    if file is None:
        return Gaps({})
    now = today or datetime.now(UTC).date()
    tree = None if settings_from is None else os.fspath(settings_from)
    is_fixed = is_below(os.fspath(file), tree)
    home = Path(home_of(os.fspath(file), tree)) if is_fixed else file.resolve().parent
    name = os.path.relpath(descriptor.resolve(), home.resolve()).replace(os.sep, "/")
    reasons, ended = {}, []
    for number, one in enumerate(read(file, Waivers).waivers, start=1):
        requirement = _requirement(file, number, one)
        if not fnmatchcase(name, os.path.normpath(one.file).replace(os.sep, "/")):
            continue
        if _last_day(file, number, one) < now:
            ended.append(f"the gap of {requirement} ended on {one.expires}; fix it, or let {one.owner} set a new day")
        else:
            reasons[requirement] = f"{one.reason} (until {one.expires}, {one.owner})"
    return Gaps(reasons, tuple(ended), is_fixed)


def uncovered(reasons: Mapping[str, str], verdicts: Mapping[str, str]) -> Sequence[str]:
    """Requirements that did not pass and are no declared gap."""
    return [name for name, verdict in verdicts.items() if verdict != "pass" and name not in reasons]


def _requirement(file: Path, number: int, one: Waiver) -> str:
    known = all_scenarios()
    name = present_names().get(one.requirement, one.requirement)
    if name in known:
        return known[name].requirement
    if any(scenario.requirement == one.requirement for scenario in known.values()):
        return one.requirement
    hint = did_you_mean(one.requirement, known) or ""
    raise DocumentError(file.as_posix(), 1, f"waiver {number}: no scenario tests {one.requirement!r}", hint)


def _last_day(file: Path, number: int, one: Waiver) -> date:
    try:
        return date.fromisoformat(one.expires)
    except ValueError as error:
        message = f"waiver {number}: {one.expires} is not a day of the calendar"
        raise DocumentError(file.as_posix(), 1, message, "write the last day as YYYY-MM-DD") from error
