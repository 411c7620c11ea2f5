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
_LEAST: Final = 9
"""Rows that are enough to be a copy: a resume repeats a few steps, and not from the first row on."""
_MOST_KNOWN: Final = 1_000_000


class RowCopies:
    """The rows of a log so far, by their hash."""

    def __init__(self) -> None:
        self._hashes = array("q")
        self._place = 0
        """Rows in a row that repeat the log from its first one on."""

    def row(self, step: int | None, values: Mapping[str, Any]) -> bool:
        """Whether a copy of the log is known with this row: once for each copy."""
        found = hash((step, *sorted((name, str(value)) for name, value in values.items())))
        if self._place < len(self._hashes) and self._hashes[self._place] == found:
            self._place += 1
            return self._place == _LEAST
        if self._place or len(self._hashes) >= _MOST_KNOWN:
            self._place = int(bool(self._hashes) and self._hashes[0] == found)
            return False
        self._hashes.append(found)
        return False
