"""Answers questions about the history of a trial, for acts that wait and for checks that judge."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

from trainspec_conformance.records import Entry, Exited, Injected, Started, SuiteRecord
from trainspec_validate.documents.types.trace import End, FaultSeen, Process, Restore, Save, StepDone, TraceRecord

One = TypeVar("One", bound="TraceRecord | SuiteRecord")
Made = TypeVar("Made")


@dataclass
class View:
    """A history by kinds of records."""

    entries: Sequence[Entry] = field(default_factory=list)
    _by_kind: dict[type, list[Entry]] = field(default_factory=dict, init=False, repr=False)
    _kept: dict[Callable[[View], Any], tuple[int, Any]] = field(default_factory=dict, init=False, repr=False)
    _num_sorted: int = field(default=0, init=False, repr=False)

    def kept(self, make: Callable[[View], Made]) -> Made:
        """Result of a function on this history, cached while nothing is added to it."""
        if self._kept.get(make, (-1, None))[0] != len(self.entries):
            self._kept[make] = len(self.entries), make(self)
        return cast("Made", self._kept[make][1])

    def of(self, kind: type[One], since: float = -1.0) -> Iterator[tuple[Entry, One]]:
        """Entries of one kind that were seen after a time, in the order of being seen."""
        for entry in self._of_kind(kind):
            if entry.seconds > since:
                yield entry, cast("One", entry.record)

    def _of_kind(self, kind: type[One]) -> list[Entry]:
        """Every entry of one kind, also of those that were added since the last question."""
        for entry in self.entries[self._num_sorted :]:
            self._by_kind.setdefault(type(entry.record), []).append(entry)
        self._num_sorted = len(self.entries)
        return self._by_kind.get(kind, [])

    @cached_property
    def start_seconds(self) -> float:
        """When the command was started last."""
        return max((entry.seconds for entry, _ in self.of(Started)), default=0.0)

    @property
    def num_ranks(self) -> int:
        """Ranks of the last start."""
        return next((record.num_ranks for _, record in reversed(list(self.of(Started)))), 0)

    def injections(self) -> list[tuple[Entry, Injected]]:
        """Damage to the running job, without repairs."""
        mending = {"continue", "free-disk", "mend-writes", "mend-network", "mend-device"}
        return [(entry, record) for entry, record in self.of(Injected) if record.kind not in mending]

    def processes(self, since: float) -> dict[tuple[str, int | None], Process]:
        """The newest process of each role and rank that was reported after a time."""
        return {(record.role, record.rank): record for _, record in self.of(Process, since)}

    def steps_done(self, since: float = -1.0) -> dict[int, int]:
        """Last step that each rank has reported after a time."""
        done: dict[int, int] = {}
        for _, record in self.of(StepDone, since):
            if record.skipped is None:
                done[record.rank] = max(done.get(record.rank, 0), record.step)
        return done

    def largest_step(self, since: float = -1.0) -> int:
        """Optimizer steps that some rank has reported."""
        return max(self.steps_done(since).values(), default=0)

    def saves(self, stage: str, since: float = -1.0) -> list[tuple[Entry, Save]]:
        """Saves that have reached a stage; of `committed`, once for each checkpoint."""
        found = [(entry, record) for entry, record in self.of(Save, since) if record.stage == stage]
        if stage != "committed":
            return found
        return list({record.checkpoint: (entry, record) for entry, record in reversed(found)}.values())[::-1]

    def restores(self, since: float = -1.0) -> list[tuple[Entry, Restore]]:
        """States that ranks trained from."""
        return list(self.of(Restore, since))

    def faults(self, since: float = -1.0) -> list[tuple[Entry, FaultSeen]]:
        """Faults that the stack reported."""
        return list(self.of(FaultSeen, since))

    def ends(self) -> list[tuple[Entry, End]]:
        """Ends that the stack reported."""
        return list(self.of(End))

    def exits(self) -> list[tuple[Entry, Exited]]:
        """Ends of the command, as the suite saw them."""
        return list(self.of(Exited))

    def first_steps(self, since: float) -> Iterator[Entry]:
        """For each attempt that began after a time: the entry by which all of its ranks had completed a step."""
        ranks: dict[int, set[int]] = {}
        for _, record in self.of(Restore, since):
            ranks.setdefault(record.attempt, set()).add(record.rank)
        done: dict[int, set[int]] = {}
        for entry, step in self.of(StepDone, since):
            wanted = ranks.get(step.attempt)
            if wanted and step.skipped is None and _is_finite(step.loss):
                now = done.setdefault(step.attempt, set())
                if step.rank not in now:
                    now.add(step.rank)
                    if now >= wanted:
                        yield entry


def _is_finite(number: float | str) -> bool:
    return not isinstance(number, str)


def places(entries: Iterable[Entry]) -> list[str]:
    """Positions of entries, as `file:line`."""
    return [f"{entry.file}:{entry.line}" for entry in entries if entry.file]
