"""Counts the reports of optimizer steps without a loss, in files whose other reports have one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

_LOSS: Final = "train.loss.mean"
_APART: Final = ("train.loss", "train.evaluation", "train.step.count")
"""Begins the keys that do not show of what kind a report is."""
_EVALUATED: Final = "train.evaluation"
_MOST_KINDS: Final = 100
_FEWEST_TRAILING: Final = 3
_MOST_GAPS: Final = 2
"""The most reports between two losses, so many times, after which a loss that is logged now and then has ended."""


@dataclass(slots=True)
class _Kind:
    """The reports that have the same values, but for the loss."""

    num_losses: int = 0
    num_adjacent: int = 0
    """Losses that follow one in the report before."""
    num_apart: int = 0
    num_between: int = 0
    """Reports without a loss between two that have one, and the place of the first."""
    first_between: int = -1
    longest: int = 0
    """The most of them between two losses."""
    num_since: int = 0
    first_since: int = -1
    """The same since the last loss."""

    def take(self, offset: int, *, has_loss: bool) -> None:
        """Take a report."""
        if not has_loss:
            self.first_since = self.first_since if self.num_since else offset
            self.num_since += 1
            return
        if self.num_losses and self.num_since:
            self.first_between = self.first_between if self.num_between else self.first_since
            self.num_between += self.num_since
            self.longest = max(self.longest, self.num_since)
        self.num_adjacent += self.num_losses > 0 and not self.num_since
        self.num_apart += self.num_losses > 0 and self.num_since > 0
        self.num_losses += 1
        self.num_since = 0

    def absent(self) -> tuple[int, int] | None:
        """Place of the first report that lacks its loss, and how many do; None where losses are logged now and then."""
        if not self.num_losses:
            return None
        if self.num_adjacent > self.num_apart:
            num = self.num_between + self.num_since
            return (self.first_between if self.num_between else self.first_since, num) if num else None
        has_ended = self.num_since >= max(_MOST_GAPS * self.longest + 1, _FEWEST_TRAILING)
        return (self.first_since, self.num_since) if has_ended and self.num_losses > 1 else None


class AbsentLosses:
    """The reports of one file, by the values that they have."""

    def __init__(self) -> None:
        self._kinds: dict[frozenset[str], _Kind] = {}
        self._known: dict[tuple[str, ...], tuple[_Kind | None, bool]] = {}
        self._written: dict[frozenset[str], _Kind] = {}
        """Rows that have a cell for a loss, by the names of their other numbers."""

    def take(self, offset: int, keys: Iterable[str]) -> None:
        """Take a report of an optimizer step."""
        named = tuple(keys)
        found = self._known.get(named)
        if found is None:
            found = self._kind(named), any(key.startswith(_LOSS) for key in named)
            if len(self._known) < _MOST_KINDS:
                self._known[named] = found
        kind, has_loss = found
        if kind is not None:
            kind.take(offset, has_loss=has_loss)

    def take_written(self, offset: int, names: Iterable[str], *, has_loss: bool) -> None:
        """Take a row of a table that writes a loss, or a word such as `null` in its place, next to other numbers."""
        rest = frozenset(names)
        if rest in self._written or len(self._written) < _MOST_KINDS:
            self._written.setdefault(rest, _Kind()).take(offset, has_loss=has_loss)

    def counts(self, keys: Iterable[str]) -> bool:
        """Whether a report of an optimizer step with these values is of a kind that `take` counts."""
        return self._kind(tuple(keys)) is not None

    def _kind(self, named: tuple[str, ...]) -> _Kind | None:
        """The kind of a report; None of one with values of an evaluation, or of one kind too many."""
        rest = frozenset(key for key in named if not key.startswith(_APART))
        if any(key.startswith(_EVALUATED) for key in named) or not rest:
            return None
        if rest not in self._kinds and len(self._kinds) >= _MOST_KINDS:
            return None
        return self._kinds.setdefault(rest, _Kind())

    def found(self) -> Iterator[tuple[int, int]]:
        """Place of the first report of each kind that lacks its loss, and how many do."""
        for kind in (*self._kinds.values(), *self._written.values()):
            if absent := kind.absent():
                yield absent
