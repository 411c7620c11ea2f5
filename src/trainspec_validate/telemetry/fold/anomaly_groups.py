"""Gathers the observations of the fold: how often, on what, and the first places."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.kernels.layout import OCCURRENCE
from trainspec_validate.telemetry.view.run_view import NOWHERE, Location, Occurrence, Subject, Trail, Trouble

NUM_FIRST = 64
_MAX_SUBJECTS = 200_000
TrailKey = tuple[int, int, int]
"""Trouble, key and attempt."""


@dataclass(slots=True)
class _Gathered:
    """All occurrences of one trouble in one key and attempt."""

    num: int = 0
    subjects: set[int] = field(default_factory=set)
    first: Any = field(default_factory=lambda: np.zeros(0, OCCURRENCE))
    first_us: int = np.iinfo(np.int64).max
    last_us: int = -1

    def take(self, found: Any, num: int, subjects: set[int], first_us: int, last_us: int) -> None:
        self.num += num
        if len(self.subjects) < _MAX_SUBJECTS:
            self.subjects |= subjects
        self.first_us, self.last_us = min(self.first_us, first_us), max(self.last_us, last_us)
        both = np.concatenate([self.first, _foremost(found)])
        order = np.lexsort((both["subject"], both["here_offset"], both["here_file"]))
        self.first = both[order[:NUM_FIRST]]


def _foremost(found: Any) -> Any:
    """Those occurrences that can be among the first by place."""
    if len(found) <= 4 * NUM_FIRST:
        return found
    file = found["here_file"].min()
    mine = found[found["here_file"] == file]
    if len(mine) <= NUM_FIRST:
        return found
    return mine[mine["here_offset"] <= np.partition(mine["here_offset"], NUM_FIRST)[NUM_FIRST]]


class Trails:
    """Occurrences by trouble, key and attempt."""

    def __init__(self) -> None:
        self.gathered: dict[TrailKey, _Gathered] = {}

    def take(self, found: Any) -> None:
        """Take occurrences out of the buffer of the loops."""
        codes = found["trouble"].astype(np.int64) << 48 | found["key"].astype(np.int64) << 32 | found["attempt"]
        order = np.argsort(codes, kind="stable")
        unique, begin = np.unique(codes[order], return_index=True)
        for code, start, end in zip(unique.tolist(), begin.tolist(), [*begin[1:].tolist(), len(codes)], strict=True):
            some = found[order[start:end]]
            times = some["time_us"]
            trail = self.gathered.setdefault((code >> 48, (code >> 32) & 0xFFFF, code & 0xFFFFFFFF), _Gathered())
            subjects = set(np.unique(some["subject"]).tolist())
            trail.take(some, len(some), subjects, int(times.min()), int(times.max()))

    def merge(self, other: Trails, numbers: Any, recall: Callable[[Any], Any]) -> None:
        """Take in those of another stretch; `numbers` gives the numbers of things here, `recall` the values before."""
        for (trouble, key, attempt), trail in other.gathered.items():
            mine = self.gathered.setdefault((trouble, int(numbers.keys[key]), attempt), _Gathered())
            subjects = {int(numbers.subjects[subject]) for subject in trail.subjects}
            mine.take(recall(renumbered(trail.first, numbers)), trail.num, subjects, trail.first_us, trail.last_us)

    def of(self, names: Names) -> list[Trail]:
        """The trails with the names of things."""
        return [
            Trail(
                Trouble(trouble),
                names.keys.items[key],
                attempt,
                trail.num,
                tuple(sorted((names.subjects.items[s] for s in trail.subjects), key=in_order)),
                tuple(_spelled(found, names) for found in trail.first),
                trail.first_us,
                trail.last_us,
            )
            for (trouble, key, attempt), trail in sorted(self.gathered.items())
        ]


def renumbered(found: Any, numbers: Any) -> Any:
    """Occurrences with the numbers that things have elsewhere."""
    result = found.copy()
    result["key"], result["subject"] = numbers.keys[found["key"]], numbers.subjects[found["subject"]]
    result["writer"] = numbers.writers[found["writer"]]
    result["here_file"] = numbers.files[found["here_file"]]
    before = found["before_file"] >= 0
    result["before_file"][before] = numbers.files[found["before_file"][before]]
    return result


def in_order(subject: Subject) -> tuple[int, str, str]:
    """Order of subjects: rank, then host, then device."""
    return (-1 if subject.rank is None else subject.rank, subject.host or "", subject.device or "")


def _spelled(found: Any, names: Names) -> Occurrence:
    before = Location(int(found["before_file"]), int(found["before_offset"]))
    return Occurrence(
        trouble=Trouble(int(found["trouble"])),
        key=names.keys.items[found["key"]],
        subject=names.subjects.items[found["subject"]],
        attempt=int(found["attempt"]),
        emitter=names.writers.items[found["writer"]].emitter,
        location=Location(int(found["here_file"]), int(found["here_offset"])),
        location_before=before if before.file >= 0 else NOWHERE,
        time_us=int(found["time_us"]),
        time_before_us=int(found["time_before_us"]),
        value=float(found["value"]),
        value_before=float(found["value_before"]),
        step=int(found["step"]),
    )
