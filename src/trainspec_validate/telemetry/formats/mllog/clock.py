"""Judges the order of times in a log of MLPerf, whose lines come from one program from the start of the run on."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.telemetry.formats.items import Found, Refusal

_KEYS = frozenset(
    {"tracked_stats", "train_loss", "eval_start", "eval_stop", "eval_accuracy", "block_start", "block_stop"}
)
_SLACK_US = 10_000_000
"""How far lines of several processes are out of order in logs of thousands of ranks."""


class Clock:
    """The latest time of the run so far."""

    def __init__(self) -> None:
        self._latest_us = self._num_back = 0
        self._is_running = False

    def take(self, offset: int, key: str, time_us: int) -> Iterator[Found]:
        """Take an entry; the refusal of a time far before that of an earlier one, once for each time it goes back."""
        if key == "run_start":
            self._is_running, self._latest_us = True, time_us
        if not self._is_running or key not in _KEYS:
            return
        if time_us < self._latest_us - _SLACK_US:
            back = (self._latest_us - time_us) / 1e6
            message = f"{key} is {back:.6g} s before an entry above it"
            yield (
                offset,
                Refusal(message, "write lines in the order of their times, by a clock that is not set back", "time"),
            )
        self._latest_us = time_us if time_us < self._latest_us - _SLACK_US else max(self._latest_us, time_us)
