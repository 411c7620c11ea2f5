"""Reads `trainer_state.json` of the Hugging Face Trainer: the entries of its log_history."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import HUGGINGFACE
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList
from trainspec_validate.telemetry.formats.row_copies import RowCopies
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import Transcript

_LIST = "log_history"
_SAVED = re.compile(r"checkpoint-[0-9]{1,12}[/\\][^/\\]*$")
"""Ends the path of a state that was saved on the way, and is not that of the end."""
_LOSS = "loss"
_PLACES = frozenset({"step", "epoch"})


_TOGETHER = "keep the file and its log of one save together"
_FEWEST = 3
"""Entries from which it is known how often there is one."""
_MOST_GAPS = 2
"""The most steps between two entries, so many times, that a log may end before its save."""


class Reader:
    """Reads one document; entries are records as they end."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._list = JsonList(_LIST)
        self._scalars = Scalars(transcript, HUGGINGFACE)
        self._has_entries = False
        self._copies = RowCopies(of_any_part=True)  # the Trainer resumes with the log of its checkpoint
        self._last_step = -1
        self._longest_gap = 0
        """Most steps between entries of rising steps, the first of which is after the start."""
        self._num_steps = 0
        """Entries of rising steps."""
        self._last_epoch = 0.0
        self._trained: Mapping[str, Any] | None = None
        """The last entry of a training step."""

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
        if self._is_again(step, entry):
            same = entry == self._trained
            words = "the entry is there twice" if same else f"step {step:,} has two entries with a loss"
            yield offset, Refusal(words, "an optimizer step is logged once", "sequence")
            return
        if copy := self._copies.row(step, entry):
            yield offset, copy
        self._compare_epoch(offset, step, entry)
        self._trained = entry if _LOSS in entry else self._trained
        if step is not None and step > self._last_step:
            self._longest_gap = max(self._longest_gap, step - max(self._last_step, 0))
            self._num_steps += 1
            self._last_step = step
        values = {name: value for name, value in entry.items() if name not in _PLACES}
        self._transcript.lose("time", "time", "entries have no times; each counts as a second", offset)
        yield from self._scalars.row((offset, None, step, values))

    def _is_again(self, step: int | None, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is of the training step that the entry before it is of."""
        before = self._trained
        return step is not None and before is not None and _LOSS in entry and fit.step(before.get("step")) == step

    def _compare_epoch(self, offset: int, step: int | None, entry: Mapping[str, Any]) -> None:
        """Note an epoch that falls while steps rise, as at a restart with other data."""
        epoch = fit.number(entry.get("epoch"))
        if not isinstance(epoch, float):
            return
        if epoch < self._last_epoch and step is not None and step > self._last_step:
            words = f"the epoch falls from {self._last_epoch:g} to {epoch:g} while steps rise from {self._last_step:,}"
            self._transcript.lose("meaning", "epoch", f"{words}: the data or the batch size changed", offset)
        self._last_epoch = epoch

    def end(self) -> Iterator[Found]:
        """Rows that wait, the damage of a document that is not whole, and the step of one without entries."""
        yield from self._scalars.end()
        rest = self._list.end()
        if isinstance(rest, Refusal):
            yield 0, rest
            return
        step = fit.step(rest.get("global_step"))
        if step is not None and step < self._last_step:
            words = f"global_step is {step:,}, and {_LIST} reaches step {self._last_step:,}"
            yield 0, Refusal(words, _TOGETHER, "value")
        elif (
            step is not None and self._num_steps >= _FEWEST and step - self._last_step > _MOST_GAPS * self._longest_gap
        ):
            often = f"every {self._longest_gap:,} steps or more often"
            words = f"global_step is {step:,}, and {_LIST} has entries {often}, and ends at step {self._last_step:,}"
            yield 0, Refusal(words, _TOGETHER, "absent")
        most = fit.step(rest.get("max_steps"))
        if step is not None and most and step > most:
            words = f"global_step is {step:,}, beyond the {most:,} of max_steps, where the Trainer ends"
            self._transcript.lose("meaning", "max_steps", words, 0)
        if not (_SAVED.search(self._transcript.name) or _is_stopped(rest)):
            self._transcript.reach(step, most)
        if not self._has_entries and step is not None:
            self._transcript.lose("time", "time", "the file has no time; it counts as the first second", 0)
            yield from StepRows(self._transcript).row(0, None, step, {}, trained=True)


def _is_stopped(state: Mapping[str, Any]) -> bool:
    """Whether a callback ended the training before its last step, such as one that waits for no better result."""
    for name in ("stateful_callbacks", "TrainerControl", "args"):
        found = state.get(name)
        state = found if isinstance(found, dict) else {}
    return state.get("should_training_stop") is True
