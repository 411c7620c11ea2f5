"""Reads console logs of programs that are not known, or reported no step: what they say of their end."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.telemetry.formats.items import Found
from trainspec_validate.telemetry.formats.transcript import Transcript


class Reader:
    """Passes all lines over: the end is an incident, which `ends` finds in the logs of every program."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        transcript.clock = "none"

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """Nothing; the line is counted as text."""
        del text
        self._transcript.lose("text", "text", "the program of the log is not known, its lines are not read", offset)
        return iter(())

    def end(self) -> Iterator[Found]:
        """Nothing."""
        return iter(())
