"""Reads `trainer_log.jsonl` of LLaMA-Factory: one line for each report of the Trainer that it runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.dialects import HUGGINGFACE
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.row_copies import RowCopies
from trainspec_validate.telemetry.formats.scalars import Scalars
from trainspec_validate.telemetry.formats.step_rows import SECOND_US
from trainspec_validate.telemetry.formats.transcript import Transcript

_STEP, _RATE = "current_steps", "lr"
_PLACES = frozenset({_STEP, "total_steps", "percentage", "epoch", "elapsed_time", "remaining_time"})
_LEFT_OUT = {
    "throughput": "is a mean since the last start, of tokens with or without padding",
    "total_tokens": "counts tokens with or without padding; the file does not say which",
}
_ELAPSED = re.compile(
    r"(?:(?P<days>[0-9]{1,6}) days?, )?(?P<hours>[0-9]{1,2}):(?P<minutes>[0-9][0-9]):(?P<seconds>[0-9][0-9])"
)
_OF_PREDICTION = frozenset({_STEP, "total_steps", "percentage", "elapsed_time", "remaining_time"})
_PREDICTION = "the lines have no value and no epoch, as those of a prediction, whose current_steps counts batches"
_TRAINING = "give the log of a training"
_RESTART = "elapsed_time falls; inferred: a restart, which begins an attempt; the time between the two is not known"
_ANOTHER = "steps repeat while elapsed_time increases, as of another process that writes the same file; left out"
_SET_BACK = "a clock that was set back; later times continue from where it was, and this one is taken between them"
_FEWEST_INTERVALS = 10
"""Intervals between reports that a clock must have counted before its fall is distinguished from a restart."""
_MOST_OF_PACE, _MARGIN_SECONDS = 3, 60
"""How many times as long as before steps may take; a clock that was set back shows more, by the margin."""
_EXAMPLE = '{"current_steps": 10, "total_steps": 100, "loss": 2.5}'


@dataclass(frozen=True, slots=True)
class _Line:
    offset: int
    step: int
    elapsed: int | None
    """Seconds since the program started; None where the line has none."""
    values: Mapping[str, Any]


class Reader:
    """Reads the lines of one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._scalars = Scalars(transcript, HUGGINGFACE)
        self._copies = RowCopies(of_any_part=True)  # a resume has other times
        self._since_us = transcript.given.start_us or 0
        """Moment that the program of the last line started at, as far as its lines show."""
        self._elapsed_seconds = 0
        self._first: _Line | None = None
        """First line of the program that is read."""
        self._fallen: _Line | None = None
        """A line whose time falls while its step rises, until the next line shows whether the program was restarted."""
        self._is_timed = False
        self._is_shared = False
        """Whether another program was seen to write into the file since the last start."""
        self._step = -1
        self._names: set[str] = set()
        """Values that the last step has so far."""
        self._first_of_prediction: int | None = None
        self._has_training = False

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        found = decode(text, not_finite=True)
        if not isinstance(found, dict):
            yield offset, found if isinstance(found, Refusal) else Refusal("the line is no object", _EXAMPLE)
            return
        step = fit.step(found.get(_STEP))
        if step is None:
            shown = str(found.get(_STEP))[:40]
            yield offset, Refusal(f"{_STEP} is {shown!r}", "optimizer steps completed, a whole number from 0", "value")
            return
        if all(value is None for name, value in found.items() if name not in _OF_PREDICTION):
            self._first_of_prediction = offset if self._first_of_prediction is None else self._first_of_prediction
            self._transcript.lose("meaning", "prediction", _PREDICTION, offset)
            return
        self._has_training = True
        self._transcript.reach(step, fit.step(found.get("total_steps")))
        if copy := self._copies.row(step, found):
            yield offset, copy
        for name, why in _LEFT_OUT.items():
            if name in found:
                self._transcript.lose("meaning", name, f"{name} {why}", offset)
        outside = _PLACES | _LEFT_OUT.keys()
        values = {
            ("learning_rate" if name == "lr" else name): value for name, value in found.items() if name not in outside
        }
        line = _Line(offset, step, elapsed_seconds(found.get("elapsed_time")), values)
        yield from self._settle(line)
        is_back = line.elapsed is not None and line.elapsed < self._elapsed_seconds
        if is_back and step > self._step and not self._is_shared:
            self._fallen = line
        else:
            yield from self._take(line)

    def _settle(self, line: _Line | None) -> Iterator[Found]:
        """The record of a line whose time falls; the line after it, or the end of the file, shows why it does."""
        fallen, self._fallen = self._fallen, None
        if fallen is None:
            return
        if line is not None and self._is_set_back(fallen, line):
            before, after = (str(timedelta(seconds=each or 0)) for each in (self._elapsed_seconds, fallen.elapsed))
            message = f"elapsed_time falls from {before} to {after} at step {fallen.step:,}"
            yield fallen.offset, Refusal(message, _SET_BACK, "time")
            share = (fallen.step - self._step) / (line.step - self._step)
            since = ((line.elapsed or 0) - self._elapsed_seconds) * share
            fallen = replace(fallen, elapsed=self._elapsed_seconds + round(since))
        yield from self._take(fallen)

    def _is_set_back(self, fallen: _Line, line: _Line) -> bool:
        """Whether the line after a fall continues the time before it, at a pace that no restart would explain."""
        first = self._first
        num_steps = line.step - fallen.step
        if line.elapsed is None or fallen.elapsed is None or first is None or first.elapsed is None or num_steps <= 0:
            return False
        num_before = self._step - first.step
        if line.elapsed < self._elapsed_seconds or num_before < _FEWEST_INTERVALS * num_steps:
            return False
        pace = _MOST_OF_PACE * (self._elapsed_seconds - first.elapsed) / num_before
        is_continued = line.elapsed - self._elapsed_seconds <= pace * (line.step - self._step)
        return is_continued and line.elapsed - fallen.elapsed > pace * num_steps + _MARGIN_SECONDS

    def _take(self, line: _Line) -> Iterator[Found]:
        if line.elapsed is not None and not self._follow(line.offset, line.step, line.elapsed, line.values):
            return
        self._first = self._first or line
        time_us = self._time_us(line.offset, line.elapsed)
        yield from self._scalars.row((line.offset, time_us, line.step, line.values))

    def _follow(self, offset: int, step: int, elapsed: int, values: Mapping[str, Any]) -> bool:
        """Whether a line is of the program that is read; a restart is noted, after which it counts from zero.

        A program that starts again has counted little time at its first line. Steps that fall while the time
        increases are of another program that writes into the same file; its lines have no other sign.
        """
        is_again = step < self._step or (step == self._step and not self._names.isdisjoint(values))
        is_back = elapsed < self._elapsed_seconds
        is_far_back = 2 * elapsed < self._elapsed_seconds
        if is_back and (is_far_back or not (is_again or self._is_shared)):
            self._since_us += self._elapsed_seconds * SECOND_US
            self._elapsed_seconds, self._first = 0, None
            self._names, self._step, self._is_shared = set(), -1, False
            self._scalars.restart(offset, _RESTART)
        elif is_again:
            self._is_shared = True
            self._transcript.lose("incident", "processes", _ANOTHER, offset)
            return False
        self._names = self._names | values.keys() if step == self._step else set(values)
        self._step = step
        self._elapsed_seconds = max(elapsed, self._elapsed_seconds)
        return True

    def _time_us(self, offset: int, elapsed: int | None) -> int | None:
        """The time of a line; None in a file whose lines have none."""
        if elapsed is None and not self._is_timed:
            self._transcript.lose("time", "time", "lines have no times; each counts as a second", offset)
            return None
        if not self._is_timed:
            self._is_timed = True
            self._transcript.clock = "relative" if self._transcript.given.start_us is None else "utc"
        if elapsed is None:
            self._transcript.lose("time", "time", "lines without elapsed_time count as of the one before", offset)
        return fit.time_us(self._since_us + self._elapsed_seconds * SECOND_US)

    def end(self) -> Iterator[Found]:
        """Mark of a log of a prediction alone."""
        yield from self._settle(None)
        yield from self._scalars.end()
        if self._first_of_prediction is not None and not self._has_training:
            yield (
                self._first_of_prediction,
                Refusal(f"is no log of a training: {_PREDICTION}", _TRAINING, "no-training"),
            )


def elapsed_seconds(told: object) -> int | None:
    """Seconds of a duration as Python prints it; None for another text.

    >>> elapsed_seconds("0:32:48"), elapsed_seconds("9 days, 21:39:23"), elapsed_seconds("soon")
    (1968, 855563, None)
    """
    match = _ELAPSED.fullmatch(told) if isinstance(told, str) else None
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
