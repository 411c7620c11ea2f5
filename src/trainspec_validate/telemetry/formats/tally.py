"""Counts the losses of a conversion, each kind once with the place where it was met first."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from trainspec_validate.telemetry.formats.items import Loss, LossReason

_MAX_ENTRIES = 1_000
OTHERS = "(others)"
"""In place of the names beyond the limit, which are not kept."""
_OF_NAMES: Final = frozenset({"unknown-name", "quantity", "value"})
"""Reasons for which a value of a name is not read."""


@dataclass(slots=True)
class _Entry:
    message: str
    offset: int
    num: int = 0


@dataclass(slots=True)
class Tally:
    """Losses so far, by reason and name; bounded, whatever a file holds."""

    _entries: dict[tuple[LossReason, str], _Entry] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    """Names of which a value was read; bounded by those who add them."""
    _num_beyond: int = 0
    _beyond_offset: int = -1

    def is_new(self, reason: LossReason, what: str) -> bool:
        """Whether a loss would be reported that was not met before, so that its message is worth making."""
        return (reason, what[:200]) not in self._entries and len(self._entries) < _MAX_ENTRIES

    def lose(self, reason: LossReason, what: str, message: str, offset: int, num: int = 1) -> None:
        """Count a loss; the message of its first occurrence stays."""
        what = what[:200]
        entry = self._entries.get((reason, what))
        if entry is None:
            if len(self._entries) >= _MAX_ENTRIES:
                self._num_beyond += num
                self._beyond_offset = offset if self._beyond_offset < 0 else self._beyond_offset
                return
            entry = self._entries[reason, what] = _Entry(message[:400], offset)
        entry.num += num

    def places(self, reason: LossReason) -> set[int]:
        """Places of the first losses of a reason."""
        return {entry.offset for (each, _), entry in self._entries.items() if each == reason}

    def unread_names(self) -> tuple[str, ...]:
        """Names with values of which none was read, in order of the first occurrence, and `OTHERS` beyond the limit."""
        names = dict.fromkeys(what for reason, what in self._entries if reason in _OF_NAMES and what not in self.read)
        return (*names, OTHERS) if self._num_beyond else tuple(names)

    def losses(self) -> tuple[Loss, ...]:
        """Everything that was lost, in order of the first occurrence."""
        found = [
            Loss(reason, what, entry.message, entry.num, entry.offset)
            for (reason, what), entry in self._entries.items()
        ]
        if self._num_beyond:
            message = f"more than {_MAX_ENTRIES:,} things were lost; these are counted together"
            found.append(Loss("unknown-name", "others", message, self._num_beyond, self._beyond_offset))
        return tuple(found)
