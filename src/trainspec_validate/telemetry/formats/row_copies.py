"""Recognizes rows that repeat those of a log from its first row on, where rows have no times that would differ."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final

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
_LEAST: Final = 9
"""Rows that are enough to be a copy: a resume repeats a few steps, and not from the first row on."""
_MOST_KNOWN: Final = 1_000_000


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
        follows = before >= 0 and self._before >= 0 and before == self._before + 1
        self._num = self._num + 1 if follows else int(before >= 0)
        self._before = before
        if len(self._places) < _MOST_KNOWN:
            self._places[found] = self._place
        self._place += 1
        return self._num == _LEAST
