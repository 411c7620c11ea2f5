"""The only place that finds the writers and subjects of many records at once, by the coordinates that they name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trainspec_validate.telemetry.names import Writer
from trainspec_validate.telemetry.rows import RowBuilder
from trainspec_validate.telemetry.view import Subject


class Identities:
    """Numbers of writers and subjects for columns of coordinates; what a record does not name is that of the head."""

    def __init__(self, builder: RowBuilder, texts: Sequence[str]) -> None:
        self.builder = builder
        self.texts = texts
        """What the numbers in columns of texts stand for; -1 stands for none."""
        self._head = builder.head
        self._writers: dict[tuple[int, int], int] = {}
        self._subjects: dict[tuple[int, int, int, int], int] = {}

    def writers(self, emitter: Any, attempt: Any) -> Any:
        """Numbers of writers."""
        if self._head is not self.builder.head:  # it came after records that rest on none
            self._head = self.builder.head
            self._writers.clear()
            self._subjects.clear()
        if not len(emitter):
            return np.zeros(0, np.int32)
        if emitter.max() < 0 and attempt.max() < 0:
            return np.full(len(emitter), self._writer(-1, -1), np.int32)
        code = (emitter.astype(np.int64) + 1) << 21 | (attempt + 1)
        found, inverse = np.unique(code, return_inverse=True)
        numbers = [self._writer(int(one >> 21) - 1, int(one & 0x1FFFFF) - 1) for one in found.tolist()]
        return np.array(numbers, np.int32)[inverse]

    def _writer(self, emitter: int, attempt: int) -> int:
        known = self._writers.get((emitter, attempt))
        if known is None:
            head = self.builder.head
            name = self.texts[emitter] if emitter >= 0 else (head.emitter if head else "")
            number = attempt if attempt >= 0 else (head.att if head else 0)
            known = self.builder.names.writer(Writer(head.run if head else self.builder.names.run, name, number))
            self._writers[emitter, attempt] = known
        return known

    def subjects(self, writer: Any, rank: Any, host: Any, device: Any) -> Any:
        """Numbers of subjects; `writer` are the numbers of the writers, whose heads say what a record does not."""
        if not len(rank):
            return np.zeros(0, np.int32)
        places = writer.astype(np.int64) << 28 | (rank + 1)
        for column in (host, device):
            if column.max() >= 0:
                _, places = np.unique(places, return_inverse=True)
                places = places << 32 | (column + 1)
        _, first, inverse = np.unique(places, return_index=True, return_inverse=True)
        columns = [column[first].tolist() for column in (writer, rank, host, device)]
        numbers = [self._subject(*coordinates) for coordinates in zip(*columns, strict=True)]
        return np.array(numbers, np.int32)[inverse]

    def _subject(self, writer: int, rank: int, host: int, device: int) -> int:
        owner = -1 if self.builder.names.heads[writer] is None else writer
        known = self._subjects.get((owner, rank, host, device))
        if known is None:
            head = self.builder.head_of(writer)
            subject = Subject(
                rank if rank >= 0 else (head.rank if head else None),
                self.texts[host] if host >= 0 else (head.host if head else None),
                self.texts[device] if device >= 0 else (head.device if head else None),
            )
            known = self._subjects[owner, rank, host, device] = self.builder.names.subjects.number(subject)
        return known
