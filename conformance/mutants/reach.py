"""Selects the scenarios that can distinguish a mutant from the stack without its mutation.

The stack without a mutation runs once through every scenario, and records which of the functions that some mutant
replaces it enters. A scenario that enters none of the functions that a mutant replaces runs the same with this mutant.
A mutant that changes anything but functions counts as reached by every scenario.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from namespaces import replaced_by
from outcomes import Outcome, sources_digest, write_whole
from registry import HONEST, Mutant

FILE = f"{HONEST}.json"


class Reach(msgspec.Struct):
    """Facts known so far."""

    sources: str
    """Digest of all that could change it."""
    replaced: dict[str, tuple[str, ...] | None]
    """By mutant: functions that it replaces; None where it changes something else too."""
    outcomes: dict[str, Outcome] = {}
    """By scenario: result of the stack without a defect."""
    entered: dict[str, tuple[str, ...]] = {}
    """By scenario: functions among them that it entered."""

    @property
    def watched(self) -> list[str]:
        """Functions that some mutant replaces."""
        return sorted({path for paths in self.replaced.values() for path in paths or ()})

    @property
    def failed(self) -> dict[str, str]:
        """Scenarios that the stack without a defect did not pass, each with its problem."""
        return {name: one.message for name, one in self.outcomes.items() if one.state not in {"pass", "unsupported"}}

    def meets(self, one: Mutant, scenario: str) -> bool:
        """Whether a scenario may reach the defect of a mutant; true where nothing is known against it."""
        paths = self.replaced[one.name]
        known = scenario in self.outcomes and self.outcomes[scenario].state == "pass"
        return paths is None or not known or not set(paths).isdisjoint(self.entered[scenario])

    def add(self, scenario: str, outcome: Outcome, entered: Iterable[str]) -> None:
        """Note a scenario."""
        self.outcomes[scenario], self.entered[scenario] = outcome, tuple(sorted(entered))

    def write(self, directory: Path) -> None:
        """Keep what will not change: what was passed, and what this machine cannot test."""
        kept = {name: one for name, one in self.outcomes.items() if name not in self.failed}
        entered = {name: self.entered[name] for name in kept}
        write_whole(directory / FILE, msgspec.structs.replace(self, outcomes=kept, entered=entered))


def read(directory: Path, mutants: Iterable[Mutant]) -> Reach:
    """The kept results; where a source has changed since, replaced functions are looked up again."""
    try:
        found = msgspec.json.decode((directory / FILE).read_bytes(), type=Reach)
    except (OSError, msgspec.DecodeError):
        found = None
    if found is not None and found.sources == sources_digest():
        return found
    return Reach(sources_digest(), dict(_all_replaced(mutants)))


def _all_replaced(mutants: Iterable[Mutant]) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    for one in mutants:
        yield one.name, in_a_copy(one)


def in_a_copy(one: Mutant) -> tuple[str, ...] | None:
    """Functions that a mutant replaces, found out in a copy of this process, which it does not touch.

    Raises:
        ChildProcessError: the copy failed.
    """
    reading, writing = os.pipe()
    copy = os.fork()
    if copy == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as file:
                file.write(msgspec.json.encode(replaced_by(one)))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        text = file.read()
    if os.waitpid(copy, 0)[1]:
        raise ChildProcessError(f"what {one.name} replaces cannot be found out")
    return msgspec.json.decode(text, type=tuple[str, ...] | None)
