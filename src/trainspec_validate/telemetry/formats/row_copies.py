"""Recognizes rows that repeat those of a log from its first row on, where rows have no times that would differ."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from trainspec_validate.telemetry.formats.items import Refusal

COPY: Final = Refusal(
    "rows repeat the log from its first row on, each with the same step and the same values",
    "remove the copy; another attempt has other values",
    "sequence",
)
PART: Final = Refusal(
    "rows repeat an earlier part of the log, each with the same step and the same values",
    "remove the copy; a run that resumes has the log of its checkpoint, without later steps",
    "sequence",
)
PART_OF_TABLE: Final = Refusal(
    PART.message, "remove the copy; a step that is executed again seldom has all its values again", PART.code, True
)
PASTED: Final = Refusal(
    "the lines repeat an earlier part of the log, each with the same step, time and values; the copy is left out",
    "remove the copy; steps that are executed again have other times",
    "sequence",
)
_LEAST: Final = 9
"""Rows that are enough to be a copy: a resume repeats a few steps, and not from the first row on."""
_MOST_KNOWN: Final = 1_000_000
_MOST_HELD: Final = 10_000
"""Rows without a time of their own that wait until it is known whether they are a copy."""
_Row = TypeVar("_Row")


class RowCopies:
    """The rows of a log so far, by their hash."""

    def __init__(self, *, of_any_part: bool = False) -> None:
        """`of_any_part` says that no resume writes rows again, so that also a part that repeats is a copy."""
        self._parts = _Parts() if of_any_part else None
        self._hashes = array("q")
        self._place = 0
        """Rows in a row that repeat the log from its first one on."""

    def row(self, step: int | None, values: Mapping[str, Any]) -> Refusal | None:
        """The refusal of the row with which a copy of the log, or of a part of it, is known: once for each copy."""
        found = hash((step, *sorted((name, str(value)) for name, value in values.items())))
        is_part = self._parts is not None and self._parts.row(found)
        return COPY if self._is_copy(found) else PART if is_part else None

    def _is_copy(self, found: int) -> bool:
        """Whether a copy of the log from its first row on is known with this row."""
        if self._place < len(self._hashes) and self._hashes[self._place] == found:
            self._place += 1
            return self._place == _LEAST
        if self._place or len(self._hashes) >= _MOST_KNOWN:
            self._place = int(bool(self._hashes) and self._hashes[0] == found)
            return False
        self._hashes.append(found)
        return False


class _Parts:
    """Finds rows that repeat an earlier part of a log, one after another."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """The last place of a row, by its hash."""
        self._place = 0
        self._before = -1
        """Place of the earlier row that the last one repeats; -1 where it repeats none."""
        self._num = 0

    def row(self, found: int) -> bool:
        """Whether a copy of a part is known with this row: once for each copy."""
        before = self._places.get(found, -1)
        if self._place - before < _LEAST:
            before = -1  # values that stay the same are no copy of each other
        follows = before >= 0 and self._before >= 0 and before == self._before + 1
        self._num = self._num + 1 if follows else int(before >= 0)
        self._before = before
        if len(self._places) < _MOST_KNOWN:
            self._places[found] = self._place
        self._place += 1
        return self._num == _LEAST


class PastedRows(Generic[_Row]):
    """Holds rows that repeat an earlier part of a log until it is known whether they are a copy of it.

    Only rows with a time, or with a duration or a rate that was measured, show a copy: a resume that computes the same
    again has the same values otherwise.
    """

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        """The last place of a row, by its hash."""
        self._place = 0
        self._held: list[tuple[int, _Row]] = []
        self._num_timed = 0
        self._next = -1
        """Place of the earlier row that the next one repeats, if it continues the copy."""
        self._is_copy = False

    @property
    def is_empty(self) -> bool:
        """Whether no row with a time has come, so that a row without one is no copy."""
        return not self._places

    def take(self, found: int, row: _Row, *, is_timed: bool) -> tuple[list[_Row], Refusal | None]:
        """The rows that are known to be no copy; and the refusal with which a copy is known, once for each copy."""
        if not is_timed and not self._places:
            return [row], None
        before = self._places.get(found, -1)
        if self._next < 0 or before != self._next:
            free = [*self.end(), *([row] if before < 0 else [])]
            if before < 0:
                self._learn(found)
                return free, None
        else:
            free = []
        self._next = before + 1
        if self._is_copy:
            return free, None
        self._held.append((found, row))
        self._num_timed += is_timed
        if self._num_timed == _LEAST:
            self._held.clear()
            self._is_copy = True
            return free, PASTED
        if len(self._held) >= _MOST_HELD:
            free += self.end()
        return free, None

    def end(self) -> list[_Row]:
        """The rows that are held, which are no copy."""
        rows = [row for _, row in self._held]
        for found, _ in self._held:
            self._learn(found)
        self._held.clear()
        self._num_timed, self._next, self._is_copy = 0, -1, False
        return rows

    def _learn(self, found: int) -> None:
        if len(self._places) < _MOST_KNOWN:
            self._places[found] = self._place
        self._place += 1
