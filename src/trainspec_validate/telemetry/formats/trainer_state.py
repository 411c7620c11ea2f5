"""Reads `trainer_state.json` of the Hugging Face Trainer: the entries of its log_history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import HUGGINGFACE
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import Transcript

_LIST = "log_history"
_PLACES = frozenset({"step", "epoch"})


class Reader:
    """Reads one document; entries are records as they end."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._list = JsonList(_LIST)
        self._scalars = Scalars(transcript, HUGGINGFACE)
        self._has_entries = False

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of the entries that end on a line."""
        for place, entry in self._list.line(offset, text):
            self._has_entries = True
            if isinstance(entry, Refusal):
                yield place, entry
            elif not isinstance(entry, dict):
                yield place, Refusal(f"an entry of {_LIST} is no object", '{"loss": 2.5, "step": 10}', "value")
            else:
                yield from self._entry(place, entry)

    def _entry(self, offset: int, entry: Mapping[str, Any]) -> Iterator[Found]:
        step = fit.step(entry.get("step"))
        if step is None and "step" in entry:
            shown = str(entry["step"])[:40]
            yield offset, Refusal(f"step is {shown!r}", "optimizer steps completed, a whole number from 0", "value")
            return
        values = {name: value for name, value in entry.items() if name not in _PLACES}
        self._transcript.lose("time", "time", "entries have no times; each counts as a second", offset)
        yield from self._scalars.row((offset, None, step, values))

    def end(self) -> Iterator[Found]:
        """The damage of a document that is not whole; of one that logged nothing yet, the step that it is of."""
        rest = self._list.end()
        if isinstance(rest, Refusal):
            yield 0, rest
        elif not self._has_entries and (step := fit.step(rest.get("global_step"))) is not None:
            self._transcript.lose("time", "time", "the file has no time; it counts as the first second", 0)
            yield from StepRows(self._transcript).row(0, None, step, {}, trained=True)
