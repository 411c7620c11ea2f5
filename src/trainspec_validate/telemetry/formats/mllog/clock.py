"""Judges the order of times in a log of MLPerf, whose lines come from one program from the start of the run on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.mllog.units import Entry

_KEYS = frozenset(
    {"tracked_stats", "train_loss", "eval_start", "eval_stop", "eval_accuracy", "block_start", "block_stop"}
)
_SLACK_US = 10_000_000
"""How far lines of several processes are out of order in logs of thousands of ranks."""


_MINUTE_US = 60_000_000
_FEWEST_TIMES = 8
"""Entries of which whole minutes are no chance: not one of 5,335 public logs has times of whole seconds."""
_MOST_AT_ONCE = 4
"""Positions of one key that have one time, from which a clock has stopped; public logs have up to two."""
_LEAST_RUN_US = 2_000_000
"""A run is longer, from its start to its stop: the shortest of 5,335 public logs takes 6.7 s, on 3,472 GPUs."""
_FEWEST_EVALUATIONS = 2
_POSITIONS = ("samples_count", "step", "step_num", "epoch_num")
_AHEAD = "give each entry the time of what it is about, not of its writing"


class _Moment(NamedTuple):
    """Positions of one key in a row that have one time."""

    time_us: int
    position: str
    num: int
    offset: int


class Clock:
    """The times of the run so far."""

    def __init__(self) -> None:
        self._latest_us = self._start_us = self._stop_us = 0
        self._is_running = False
        self._start = self._num = self._num_minutes = self._num_evaluations = 0
        self._moments: dict[str, _Moment] = {}
        self._longest = _Moment(0, "", 0, 0)
        self._longest_key = ""

    def take(self, entry: Entry) -> Iterator[Found]:
        """Take an entry; the refusal of a time far before that of an earlier one, once for each time it goes back."""
        key, time_us = entry.key, entry.time_us
        if key == "run_start":
            self._is_running, self._latest_us = True, time_us
            self._start, self._start_us = entry.offset, time_us
        self._stop_us = time_us if key == "run_stop" else self._stop_us
        if not self._is_running or key not in _KEYS:
            return
        self._note(entry)
        if time_us < self._latest_us - _SLACK_US:
            back = (self._latest_us - time_us) / 1e6
            message = f"{key} is {back:.6g} s before an entry above it"
            help_text = "write lines in the order of their times, by a clock that is not set back"
            yield entry.offset, Refusal(message, help_text, "time")
        self._latest_us = time_us if time_us < self._latest_us - _SLACK_US else max(self._latest_us, time_us)

    def _note(self, entry: Entry) -> None:
        """Count whole minutes, evaluations, and positions of one key that have one time."""
        self._num += 1
        self._num_minutes += entry.time_us % _MINUTE_US == 0
        self._num_evaluations += entry.key == "eval_accuracy"
        position = next((str(entry.metadata[name]) for name in _POSITIONS if name in entry.metadata), None)
        if position is None:
            return
        before = self._moments.get(entry.key)
        if before is None or before.time_us != entry.time_us:
            before = _Moment(entry.time_us, "", 0, entry.offset)
        now = before._replace(position=position, num=before.num + (position != before.position))
        self._moments[entry.key] = now
        if now.num > self._longest.num:
            self._longest, self._longest_key = now, entry.key

    def end(self) -> Iterator[Found]:
        """Times that are of the writing of the log, rounded, or of a clock that has stopped."""
        if self._num >= _FEWEST_TIMES and self._num_minutes == self._num:
            message = f"all {self._num:,} times of the run are whole minutes, where time_ms counts milliseconds"
            yield self._start, Refusal(message, "write times as the clock has them", "time")
        elif 0 <= self._stop_us - self._start_us < _LEAST_RUN_US and self._num_evaluations >= _FEWEST_EVALUATIONS:
            taken = (self._stop_us - self._start_us) / 1e6
            message = (
                f"the run takes {taken:g} s from run_start to run_stop, with {self._num_evaluations:,} evaluations"
            )
            yield self._start, Refusal(message, _AHEAD, "time")
        elif self._longest.num >= _MOST_AT_ONCE:
            message = f"{self._longest.num:,} positions in a row of {self._longest_key} have one time"
            yield self._longest.offset, Refusal(message, _AHEAD, "time")
