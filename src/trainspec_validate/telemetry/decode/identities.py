"""Numbers the emitters of a run, and finds the writers and subjects of many records by their coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.names import Writer
from trainspec_validate.telemetry.decode.rows import RowBuilder
from trainspec_validate.telemetry.kernels import jit, numbering
from trainspec_validate.telemetry.view.run_view import Subject


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


class Identities:
    """Numbers of writers and subjects for columns of coordinates; what a record does not name is that of the head."""

    def __init__(self, builder: RowBuilder, texts: Sequence[str]) -> None:
        self.builder = builder
        self.texts = texts
        """What the numbers in columns of texts stand for; -1 stands for none."""
        self._begin()

    def _begin(self) -> None:
        self._heads = (self.builder.head, self.builder.names.num_heads)
        self._coordinates = Numbering(3)
        self.pairs: Any = np.zeros((0, 2), np.int32)
        """Writer and subject by number of the coordinates."""

    def of(self, emitter: Any, attempt: Any, rank: Any, host: Any, device: Any) -> Any:
        """Numbers of coordinates, each with its writer and subject in `pairs`."""
        if self._heads != (self.builder.head, self.builder.names.num_heads):  # records rest on other heads from now on
            self._begin()
        if not len(emitter):
            return np.zeros(0, np.int64)
        numbers = self._coordinates.of(_both(emitter, rank), _both(device, host), attempt)
        new = self._coordinates.codes[len(self.pairs) : self._coordinates.num]
        if len(new):
            columns = (*_apart(new[:, 0]), *_apart(new[:, 1]), new[:, 2])
            pairs = np.array(
                [self._identity(*each) for each in zip(*(column.tolist() for column in columns), strict=True)], np.int32
            )
            self.pairs = np.concatenate([self.pairs, pairs])
        return numbers

    def _identity(self, emitter: int, rank: int, device: int, host: int, attempt: int) -> tuple[int, int]:
        """Writer and subject of new coordinates."""
        writer = self._writer(emitter, attempt)
        return writer, self._subject(writer, rank, host, device)

    def _writer(self, emitter: int, attempt: int) -> int:
        head = self.builder.head
        name = self.texts[emitter] if emitter >= 0 else (head.emitter if head else "")
        number = attempt if attempt >= 0 else (head.att if head else 0)
        return self.builder.names.writer(Writer(head.run if head else self.builder.names.run, name, number))

    def _subject(self, writer: int, rank: int, host: int, device: int) -> int:
        head = self.builder.head_of(writer)
        subject = Subject(
            rank if rank >= 0 else (head.rank if head else None),
            self.texts[host] if host >= 0 else (head.host if head else None),
            self.texts[device] if device >= 0 else (head.device if head else None),
        )
        return self.builder.names.subjects.number(subject)


def _both(high: Any, low: Any) -> Any:
    """Two columns of numbers below 2^31, of which -1 is the smallest, as one."""
    both = high + 1
    both <<= 32
    both += low
    both += 1
    return both


def _apart(both: Any) -> tuple[Any, Any]:
    return (both >> 32) - 1, (both & 0xFFFFFFFF) - 1
