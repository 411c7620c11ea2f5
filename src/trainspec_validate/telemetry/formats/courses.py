"""Recognizes logs in which lines of several runs, or of several ranks, are mixed: steps that do not fit one course."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from trainspec_validate.telemetry.formats.items import Refusal

_HELP: Final = "write each run, and each rank, to a file of its own"
MIXED: Final = Refusal(
    "the lines of two runs are mixed: the step changes between two courses that both continue; the rest is left out",
    _HELP,
    "step",
)
_LEAST_TURNS: Final = 5
"""Changes between two courses that are not those of restarts, which do not continue where the first course ended."""
_LEAST_PAIRS: Final = 9
"""Steps in a row that are reported twice, with other values."""


class Courses:
    """The steps of the rows so far: one course, which restarts set back, or two that both continue."""

    def __init__(self) -> None:
        self._last = -1
        self._top = -1
        """Where the course ended that the last fall left."""
        self._low = -1
        """Where the lower course ended when the step rose above `_top` again; -1 before."""
        self._num_turns = 0
        self._values: Mapping[str, Any] | None = None
        self._num_pairs = 0
        self._is_paired = False
        """Whether the last row repeats the step before with other values."""

    def is_mixed(self, step: int) -> bool:
        """Whether a row shows that the rows are of two courses: the step returned to each of them several times."""
        if step < self._last:
            is_return = self._low >= 0 and self._low < step <= self._top
            self._num_turns = self._num_turns + 1 if is_return else 0
            self._top, self._low = self._last, -1
        elif step > self._top > self._last and self._low < 0:
            self._low = self._last
        self._last = step
        return self._num_turns >= _LEAST_TURNS

    def twice(self, step: int, values: Mapping[str, Any]) -> Refusal | None:
        """The refusal of the row with which many steps in a row were reported again with other values, once.

        Call it before `is_mixed`.
        """
        is_again = step == self._last and values != self._values
        refusal = None
        if is_again and not self._is_paired:
            self._num_pairs += 1
            if self._num_pairs == _LEAST_PAIRS:
                message = f"steps up to {step:,} are each reported again with other values"
                refusal = Refusal(message, _HELP, "step")
        elif not is_again and not self._is_paired:
            self._num_pairs = 0
        self._is_paired, self._values = is_again, values
        return refusal
