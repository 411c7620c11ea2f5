"""Finds lines of console logs that say that a checkpoint is saved, and how long it took, for the gap between steps."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from trainspec_validate.documents.types.stream import AttributeValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.local_times import local_us

_HOLDS: Final = re.compile("sav(?:e-|ed|ing)", re.IGNORECASE)
_DONE: Final = re.compile(
    r"\b(?:saved|(?:finished|done|completed) saving)\b[^\n]{0,200}\b(?:checkpoint|state|weights|model)"
    r"|\bcheckpoint\b[^\n]{0,300}\bsaved\b|\[Torch\] Saved \S",
    re.IGNORECASE,
)
_BEGUN: Final = re.compile(
    r"\bsaving\b[^\n]{0,200}\b(?:checkpoint|state|weights|model)|\[Torch\] Saving \S", re.IGNORECASE
)
_NUMBER: Final = r"(?P<time>[0-9]{1,9}(?:\.[0-9]{1,9})?)"
_SECONDS: Final = re.compile(rf"\b(?:in|took|took about|time:?) {_NUMBER} ?(?P<unit>ms|s|sec|seconds|milliseconds)\b")
_TIMER: Final = re.compile(rf"\bsave-checkpoint[ .]{{0,80}}: \({_NUMBER}, {_NUMBER.replace('time', 'most')}\)")
"""The timer of Megatron-LM: least and largest time of a rank in milliseconds."""
_TIME: Final = re.compile(
    r"(?<![0-9])[0-9]{4}-[0-9][0-9]-[0-9][0-9][ T][0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:[.,][0-9]{1,6})?"
)
_MOST_CHARACTERS: Final = 4_000
_SECOND_US: Final = 1_000_000
REASON: Final = "the log says that a checkpoint is saved"


class Save(NamedTuple):
    """Saves that are printed between two steps, in microseconds; times are None where the lines have none."""

    begin_us: int | None = None
    end_us: int | None = None
    length_us: int = 0
    """The longest time that is stated."""
    is_done: bool = False
    """Whether one is said to be complete: a hang within a save leaves it open, and explains no gap."""

    def within(self, before_us: int, after_us: int) -> dict[str, AttributeValue] | None:
        """Attributes of the gap that saves leave between two steps; None where they leave none that is known."""
        begin = max(before_us, before_us if self.begin_us is None else self.begin_us)
        until = after_us if self.end_us is None and not self.length_us else self.end_us or 0
        end = min(after_us, max(until, begin + self.length_us))
        if not self.is_done or end <= begin:
            return None
        return {"train.gap.start": begin, "train.gap.end": end, "train.reason": REASON}


class PrintedSaves:
    """Collects saves in the lines since the last step."""

    def __init__(self, utc_offset_seconds: int | None) -> None:
        self._zone = utc_offset_seconds
        self._save: Save | None = None

    def take(self, text: str) -> None:
        """Take a line, which may say nothing of a save."""
        if _HOLDS.search(text) is None or len(text) > _MOST_CHARACTERS:
            return
        timer = _TIMER.search(text)
        if timer:
            self._add(Save(length_us=round(float(timer["most"]) * 1000), is_done=True))
        elif _DONE.search(text):
            said = _SECONDS.search(text)
            scale = 1000 if said and said["unit"].startswith("m") else _SECOND_US
            length = round(float(said["time"]) * scale) if said else 0
            self._add(Save(end_us=self._time(text), length_us=length, is_done=True))
        elif _BEGUN.search(text):
            self._add(Save(begin_us=self._time(text)))

    def pop(self) -> Save | None:
        """Saves since the last step, which are forgotten."""
        save, self._save = self._save, None
        return save

    def _add(self, new: Save) -> None:
        old = self._save or Save()
        begins = [each for each in (old.begin_us, new.begin_us) if each is not None]
        ends = [each for each in (old.end_us, new.end_us) if each is not None]
        longest = max(old.length_us, new.length_us)
        self._save = Save(min(begins, default=None), max(ends, default=None), longest, old.is_done or new.is_done)

    def _time(self, text: str) -> int | None:
        found = _TIME.search(text)
        return fit.time_us(local_us(found[0].replace(",", "."), self._zone)) if found else None
