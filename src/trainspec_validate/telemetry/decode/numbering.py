"""Keeps the numbers of codes from one batch to the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from trainspec_validate.telemetry.kernels import jit, numbering


class Numbering:
    """Numbers of codes of so many whole numbers each, in the order in which they first appear."""

    def __init__(self, width: int) -> None:
        self.num = 0
        self.codes: Any = np.zeros((64, width), np.int64)
        """The code of each number; those beyond `num` mean nothing."""
        self._slots: Any = np.zeros(256, np.int64)
        self._following: Any = np.zeros(65, np.int64)
        self._known: dict[tuple[int, ...], int] = {}

    def of(self, *columns: Any) -> Any:
        """The number of each code, of which the columns are the parts."""
        codes = np.empty((len(columns[0]), len(columns)), np.int64)
        for part, column in enumerate(columns):
            codes[:, part] = column
        if not jit.is_compiled():
            return self._plainly(codes)
        numbers = np.empty(len(codes), np.int64)
        done = 0
        while done < len(codes):
            if self.num == len(self.codes):
                self._grow()
            tables = (self.codes, self._slots, self._following)
            done, self.num = numbering.number(codes, *tables, self.num, done, numbers)
        return numbers

    def _grow(self) -> None:
        size, width = 4 * len(self.codes), self.codes.shape[1]
        self.codes = np.concatenate([self.codes, np.zeros((size - len(self.codes), width), np.int64)])
        self._following = np.concatenate([self._following, np.zeros(size + 1 - len(self._following), np.int64)])
        self._slots = np.zeros(4 * size, np.int64)
        numbering.register(self.codes, self._slots, self.num)

    def _plainly(self, codes: Any) -> Any:
        distinct, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        numbers = np.zeros(len(distinct), np.int64)
        for place in np.argsort(first).tolist():
            numbers[place] = self._known.setdefault(tuple(distinct[place].tolist()), len(self._known))
        self.num = len(self._known)
        self.codes = np.array(list(self._known), np.int64).reshape(self.num, codes.shape[1])
        return numbers[inverse.reshape(-1)]
