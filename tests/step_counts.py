"""Counts the steps that a call takes in the modules of this project, in place of the time that it takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import trainspec_validate

_PACKAGE = str(Path(trainspec_validate.__file__).parent)


class Steps:
    """While it is entered, counts the lines that are executed; each round of a loop and of a comprehension is one."""

    def __init__(self) -> None:
        self.num = 0

    def __enter__(self) -> Steps:
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, *_: object) -> Any:
        return self._step if frame.f_code.co_filename.startswith(_PACKAGE) else None

    def _step(self, _: FrameType, event: str, __: object) -> Any:
        self.num += event == "line"
        return self._step


def num_steps(work: Callable[[], object]) -> int:
    """Number of steps that something takes."""
    with Steps() as steps:
        work()
    return steps.num


def quadratic_share(num_of: Callable[[int], int], first: int, step: int) -> float:
    """Steps for each pair of items: 0 where the number of steps is linear, 1 where one step is done for each pair.

    `num_of` gives the number of steps for a number of items.
    """
    few, more, most = (num_of(first + round_ * step) for round_ in range(3))
    return (most - 2 * more + few) / (2 * step * step)
