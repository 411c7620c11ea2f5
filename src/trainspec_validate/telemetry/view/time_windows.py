"""Fits windows of values and instants of comparison to the length of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainspec_validate.telemetry.kernels.layout import INSTANT_US, NUM_WINDOWS, WINDOW_US

WINDOW_CELLS, LOCK_CELLS = 6, 8
_MAX_ROWS = 512
"""Keys with windows; those that come later have none."""


def fitting(width_us: int, first_us: int, last_us: int) -> int:
    """The narrowest width, doubled from `width_us`, at which a span fits into the windows."""
    while last_us // width_us - first_us // width_us >= NUM_WINDOWS:
        width_us *= 2
    return width_us


@dataclass(slots=True)
class Frame:
    """Values by window and ranks by instant, over the span of all times so far.

    Widths are the base width times a power of two and starts are multiples of them, so that the frame of a run does not
    depend on the order in which its parts are seen.
    """

    first_us: int = -1
    last_us: int = -1
    windows: Any = field(default_factory=lambda: np.zeros((0, NUM_WINDOWS, WINDOW_CELLS)))
    locks: Any = field(default_factory=lambda: np.zeros((0, NUM_WINDOWS, LOCK_CELLS)))
    numbers: Any = field(default_factory=lambda: np.array([0, WINDOW_US, 0, INSTANT_US], np.int64))
    window_rows: dict[int, int] = field(default_factory=dict)
    """Row of each key."""
    lock_rows: dict[int, int] = field(default_factory=dict)

    def fit(self, first_us: int, last_us: int) -> None:
        """Make room for times."""
        if self.first_us >= 0:
            first_us, last_us = min(first_us, self.first_us), max(last_us, self.last_us)
        if (first_us, last_us) == (self.first_us, self.last_us):
            return
        self.first_us, self.last_us = first_us, last_us
        old = self.numbers.copy()
        width, instant = fitting(WINDOW_US, first_us, last_us), fitting(INSTANT_US, first_us, last_us)
        self.numbers = np.array([first_us // width, width, first_us // instant, instant], np.int64)
        if np.array_equal(old, self.numbers):
            return
        if self.windows.any():
            self.windows = _coarser(self.windows, old[0], old[1], self.numbers[0], width)
        if self.locks.any():
            self.locks = _fewer(self.locks, old[2], old[3], self.numbers[2], instant)

    def row(self, key: int, *, lock: bool) -> int:
        """Row of a key, made where there is none; -1 beyond the most keys."""
        rows = self.lock_rows if lock else self.window_rows
        if key in rows or len(rows) >= _MAX_ROWS:
            return rows.get(key, -1)
        rows[key] = len(rows)
        name = "locks" if lock else "windows"
        table = getattr(self, name)
        if len(rows) > len(table):
            more = np.zeros((max(8, len(table)), *table.shape[1:]))
            setattr(self, name, np.concatenate([table, more]))
        return rows[key]

    def merge(self, other: Frame, keys: Any, files: Any) -> None:
        """Take in the frame of another stretch; the arrays give the numbers that things have here."""
        if other.first_us < 0:
            return
        self.fit(other.first_us, other.last_us)
        renamed = _in_files(other.windows, files)
        windows = _coarser(renamed, other.numbers[0], other.numbers[1], self.numbers[0], self.numbers[1])
        span = _span(windows, 0)
        for key, row in other.window_rows.items():
            mine = self.row(int(keys[key]), lock=False)
            if mine >= 0:
                self.windows[mine, span] = _added(self.windows[mine, span], windows[row, span])
        locks = _fewer(other.locks, other.numbers[2], other.numbers[3], self.numbers[2], self.numbers[3])
        span = _span(locks, 4)
        for key, row in other.lock_rows.items():
            mine = self.row(int(keys[key]), lock=True)
            if mine >= 0:
                self.locks[mine, span] = _widened(self.locks[mine, span], _renamed(locks[row, span], files))


def _span(table: Any, column: int) -> slice:
    """Where a table holds anything, by the column that counts."""
    used = np.flatnonzero(table[:, :, column].any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1) if len(used) else slice(0)


def _coarser(table: Any, start: int, width: int, new_start: int, new_width: int) -> Any:
    """Windows of another width, each the sum of those that lie in it; an empty window has no minimum."""
    if (start, width) == (new_start, new_width):
        return table
    result = np.zeros_like(table)
    used = np.flatnonzero(table[:, :, 0].any(axis=0))
    if not len(used):
        return result
    places, begins = np.unique((used + start) * width // new_width - new_start, return_index=True)
    cells = table[:, used]
    empty = cells[..., 0] == 0
    low, high, file = (np.where(empty, end, cells[..., n]) for n, end in ((2, np.inf), (3, -np.inf), (4, np.inf)))
    first = np.minimum.reduceat(file, begins, axis=1)
    is_first = file == np.repeat(first, np.diff([*begins, len(used)]), axis=1)
    offset = np.where(is_first, cells[..., 5], np.inf)
    sums = (np.add.reduceat(cells[..., column], begins, axis=1) for column in (0, 1))
    ends = (np.minimum.reduceat(low, begins, axis=1), np.maximum.reduceat(high, begins, axis=1))
    found = np.stack([*sums, *ends, first, np.minimum.reduceat(offset, begins, axis=1)], axis=-1)
    found[found[..., 0] == 0] = 0
    result[:, places] = found
    return result


def _added(one: Any, other: Any) -> Any:
    """Count, total, minimum, maximum and first place of both; an empty window has no minimum."""
    none, empty = one[..., 0] == 0, other[..., 0] == 0
    low = np.where(none, other[..., 2], np.where(empty, one[..., 2], np.minimum(one[..., 2], other[..., 2])))
    high = np.where(none, other[..., 3], np.where(empty, one[..., 3], np.maximum(one[..., 3], other[..., 3])))
    earlier = (other[..., 4] < one[..., 4]) | ((other[..., 4] == one[..., 4]) & (other[..., 5] < one[..., 5]))
    swap = ~empty & (none | earlier)
    places = (np.where(swap, other[..., column], one[..., column]) for column in (4, 5))
    return np.stack([one[..., 0] + other[..., 0], one[..., 1] + other[..., 1], low, high, *places], axis=-1)


def _in_files(windows: Any, files: Any) -> Any:
    """Windows with the numbers that files have elsewhere."""
    found = windows.copy()
    used = found[:, :, 0] > 0
    found[used, 4] = files[found[used, 4].astype(np.int64)]
    return found


def _fewer(table: Any, start: int, width: int, new_start: int, new_width: int) -> Any:
    """The instants that are also instants of a larger width."""
    if (start, width) == (new_start, new_width):
        return table
    result = np.zeros_like(table)
    used = np.flatnonzero(table[:, :, 4].any(axis=0))
    moments = (used + start) * width
    kept = moments % new_width == 0
    result[:, (moments[kept] // new_width - new_start)] = table[:, used[kept]]
    return result


def _renamed(cells: Any, files: Any) -> Any:
    used = cells[:, 4] > 0
    found = cells.copy()
    found[used, 5] = files[cells[used, 5].astype(np.int64)]
    return found


def _widened(one: Any, other: Any) -> Any:
    """The lower low and the higher high, the smaller rank of two that are equal; of two attempts the later one."""
    result = one.copy()
    some = (other[:, 4] > 0) & ((one[:, 4] == 0) | (other[:, 7] >= one[:, 7]))
    none = (one[:, 4] == 0) | (other[:, 7] > one[:, 7])
    low = some & (none | (other[:, 0] < one[:, 0]) | ((other[:, 0] == one[:, 0]) & (other[:, 2] < one[:, 2])))
    high = some & (none | (other[:, 1] > one[:, 1]) | ((other[:, 1] == one[:, 1]) & (other[:, 3] < one[:, 3])))
    for column in (0, 2, 5, 6):
        result[low, column] = other[low, column]
    for column in (1, 3):
        result[high, column] = other[high, column]
    result[some, 4] = np.where(none, 0, one[:, 4])[some] + other[some, 4]
    result[some, 7] = other[some, 7]
    return result
