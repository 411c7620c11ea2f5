"""Runs the loops without a compiler: on lists and dictionaries, quick in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.telemetry.kernels import fold as folding
from trainspec_validate.telemetry.kernels.layout import SERIES, Keys, Samples, State, Writers

_NAMES = SERIES.names or ()
_EMPTY = dict(zip(_NAMES, np.zeros(1, SERIES)[0].item(), strict=True))


class _Rows(dict[int, dict[str, Any]]):
    """Rows as dictionaries; those that are not there yet begin with zeros."""

    def __init__(self, rows: Any, num: int) -> None:
        found = rows[:num].tolist()
        super().__init__((number, dict(zip(_NAMES, row, strict=True))) for number, row in enumerate(found))
        self.room = len(rows)

    def __missing__(self, number: int) -> dict[str, Any]:
        found = self[number] = dict(_EMPTY)
        return found

    def __len__(self) -> int:
        return self.room


def _plain(arrays: Keys | Writers | Samples) -> Any:
    """The same with lists for arrays."""
    return type(arrays)(*(array.tolist() for array in arrays))


def fold_plainly(state: State, keys: Keys, writers: Writers, samples: Samples, index: int) -> int:
    """What `fold` does, on plain values; the arrays of the state hold the result."""
    rows = _Rows(state.rows, int(state.counts[0]))
    slots, counts = state.slots.tolist(), state.counts.tolist()
    arrays = (state.occurrences, state.windows, state.locks, state.ranks.tolist(), state.frame.tolist())
    lists: Any = State(*(rows, slots, counts, *arrays))  # type: ignore[arg-type]
    plain = (_plain(keys), _plain(writers), _plain(samples))
    found = folding.fold(lists, *plain, index)
    for number, row in rows.items():
        state.rows[number] = tuple(row.values())
    state.slots[:] = slots
    state.counts[:] = counts
    return int(found)
