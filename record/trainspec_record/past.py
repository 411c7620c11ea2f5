"""Reads the streams of earlier attempts of a run, so that a new attempt continues from them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from trainspec_record.claim import open_regular
from trainspec_record.guard import tell_once
from trainspec_record.identity import MAX_ATTEMPT
from trainspec_record.ledger import CATEGORIES
from trainspec_record.stream import file_name

TAIL_BYTES = 2_000_000
"""Bytes that are read from the end of a file: thousands of updates."""
MAX_SEARCHED_BYTES = 64_000_000
"""Most bytes that are read to find the counters of one update."""
COUNTERS = ("train.step.skipped", "train.sample.count", "train.token.count", "train.gradient.clip.count")
"""Counters that a restore sets back to their values at the restored update."""
STEPS = "train.step.count"
REPEATED = "train.step.repeated"
DURATION = "train.step.duration"
GOODPUT = "train.goodput.time"
_OF_STEPS = ("productive", "replay")
"""What the time of a step is booked as, the first time and again."""
_MOST = 2**62
_KEY = re.compile(r"[a-z][a-z0-9_.]*(\{[^{}\x00-\x1f]+\})?")
"""Key of a value in a record."""

Record = dict[str, Any]


class OpenFault(NamedTuple):
    """A fault that the run has not caught up with yet."""

    id: str
    attempt: int
    """Attempt in which it was detected."""
    detected_us: int
    alive_us: int
    """The last sign of life before."""
    recovery: str | None = None
    """Identifier of the action against it that is in progress."""
    began_us: int | None = None
    """When the first action against it began."""


def recovery_id(fault: OpenFault, action: str, attempt: int) -> str:
    """Identifier of an action against a fault."""
    return f"{fault.id}/{action}/{attempt}"


def action_of(fault: OpenFault) -> str:
    """The action against a fault that is in progress."""
    parts = (fault.recovery or "").split("/")
    return parts[-2] if len(parts) > 2 else "restart"


class Past(NamedTuple):
    """Facts of a job from its earlier attempts."""

    files: tuple[Path, ...] = ()
    """Files of the job, one for each earlier attempt, in order."""
    start_us: int | None = None
    """When the run started."""
    totals_us: dict[str, int] = {}  # noqa: RUF012 - never changed
    """Time by category up to the last sign of life."""
    largest_step: int = 0
    num_repeated: int = 0
    checkpoint_step: int = 0
    alive_us: int = 0
    """The last sign of life of the newest attempt."""
    step: int = 0
    """Optimizer steps that were completed then."""
    next_seq: int = 0
    end_reason: str | None = None
    """How the newest attempt ended; None where it ended without a word."""
    has_ended: bool = False
    """Whether the run ended with the newest attempt."""
    attempt: int = -1
    """The newest attempt."""
    faults: tuple[OpenFault, ...] = ()
    num_faults: int = 0


def attempts_of(folder: Path, emitter: str) -> list[tuple[int, Path]]:
    """Attempts that an emitter has written files of, in order."""
    prefix, found = f"{file_name(emitter)}.", []
    for path in folder.glob(f"{prefix}*.jsonl"):
        number = path.name[len(prefix) : -len(".jsonl")]
        if number.isascii() and number.isdecimal() and int(number) <= MAX_ATTEMPT:
            found.append((int(number), path))
    return sorted(found)


def read_past(folder: Path, attempt: int) -> Past:
    """Records that the job wrote before an attempt."""
    past = Past()
    for number, path in attempts_of(folder, "job"):
        if number < attempt:
            try:
                first, records = _first(path), list(_records(_tail(path)))
            except OSError as error:
                tell_once(f"{path.name} of an earlier attempt is not read: {error.strerror}")
                continue
            past = _after(past._replace(files=(*past.files, path)), number, first, records)
    return past


def counters_at(files: tuple[Path, ...], step: int) -> dict[str, float]:
    """Values of the counters when a step was completed, by the newest attempt that did; empty where none did."""
    for path in reversed(files):
        for record in _records_backwards(path):
            values = record.get("m", {})
            if record.get("k") == "m" and values.get(STEPS) == step:
                return {key: value for key, value in values.items() if key.partition("{")[0] in COUNTERS}
    return {}


def mend(path: Path) -> None:
    """Cut off the half line that a killed writer left at the end of its file."""
    with os.fdopen(open_regular(path, os.O_RDWR), "rb+") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(size - len(content) + content.rfind(b"\n") + 1)


def _after(past: Past, attempt: int, head: Record, records: list[Record]) -> Past:
    """What is known after one more attempt."""
    samples = [record for record in records if record.get("k") == "m"]
    steps = [int(record["m"][STEPS]) for record in samples if STEPS in record["m"]]
    ended = _newest(records, "train.attempt.end")
    reason = ended["a"].get("train.attempt.reason") if ended else None
    alive_us = ended["time_us"] if ended else max((record["time_us"] for record in records), default=past.alive_us)
    tally = _Tally(past)
    for record in records:
        tally.add(record)
    return Past(
        files=past.files,
        start_us=past.start_us or _whole(head.get("counters_start_us")) or _whole(head.get("time_us")),
        totals_us=tally.totals_us(alive_us) or past.totals_us,
        largest_step=max([past.largest_step, *steps]),
        num_repeated=tally.num_repeated,
        checkpoint_step=int(_last(records, "train.checkpoint.step", past.checkpoint_step)),
        alive_us=alive_us,
        step=steps[-1] if steps else past.step,
        next_seq=records[-1]["seq"] + 1 if records else 0,
        end_reason=reason if isinstance(reason, str) else None,
        has_ended=_newest(records, "train.run.end") is not None,
        attempt=attempt,
        faults=_open_faults(past.faults, attempt, records, alive_us),
        num_faults=past.num_faults + sum(record.get("name") == "train.fault.detected" for record in records),
    )


class _Tally:
    """Repeated steps and time by category of an attempt, up to its last record.

    A job reports both every half minute, and a killed one reports nothing at its end: later steps are counted here.
    """

    def __init__(self, past: Past) -> None:
        self.num_repeated = past.num_repeated
        self._largest_step = past.largest_step
        self._step: int | None = None
        """Optimizer steps that were completed at the record before; None until a record of the attempt counts them."""
        self._reported_us: dict[str, int] = {}
        """Time by category, as last reported."""
        self._report_us = self._mark_us = 0
        """When that was, and up to when time is booked."""
        self._since_us = dict.fromkeys(_OF_STEPS, 0)
        """Time of later steps."""
        self._untimed = dict.fromkeys(_OF_STEPS, 0)
        """Steps whose duration is in a record to come."""

    def add(self, record: Record) -> None:
        """The next record."""
        m, time_us = record["m"], record["time_us"]
        step = _whole(m.get(STEPS))
        if step is not None:
            self._count(step, is_timed=DURATION in m)
        if DURATION in m:
            self._book(m[DURATION], time_us)
        if REPEATED in m:
            self.num_repeated = int(m[REPEATED])
            if self._step is not None:  # before, the step of a record is not the restored one yet
                self._step = max(self._step, _whole(record.get("step")) or 0)
                self._largest_step = max(self._largest_step, self._step)
        times = {key.partition("=")[2].rstrip("}"): value for key, value in m.items() if key.startswith(GOODPUT)}
        if times:
            self._reported_us = {name: round(times.get(name, 0.0) * 1e6) for name in CATEGORIES}
            self._report_us = self._mark_us = time_us
            self._since_us, self._untimed = dict.fromkeys(_OF_STEPS, 0), dict.fromkeys(_OF_STEPS, 0)

    def totals_us(self, alive_us: int) -> dict[str, int]:
        """Time by category until the end: what no step took was a fault's. Empty where none was reported."""
        if not self._reported_us:
            return {}
        found, left_us = dict(self._reported_us), max(0, alive_us - self._report_us)
        for category, spent_us in self._since_us.items():
            booked_us = min(left_us, spent_us)
            found[category] += booked_us
            left_us -= booked_us
        found["fault_wait"] += left_us
        return found

    def _count(self, step: int, *, is_timed: bool) -> None:
        """So many optimizer steps are completed; the first record of an attempt that has no duration is its start."""
        before = self._step if self._step is not None and self._step <= step else max(0, step - is_timed)
        num_repeated = max(0, min(step, self._largest_step) - before)
        self.num_repeated += num_repeated
        self._untimed["replay"] += num_repeated
        self._untimed["productive"] += step - before - num_repeated
        self._step, self._largest_step = step, max(self._largest_step, step)

    def _book(self, mean_seconds: float, time_us: int) -> None:
        """The mean duration of the steps since the duration before."""
        num_steps = sum(self._untimed.values())
        spent_us = min(round(mean_seconds * num_steps * 1e6), max(0, time_us - self._mark_us))
        replay_us = spent_us * self._untimed["replay"] // max(1, num_steps)
        self._since_us["replay"] += replay_us
        self._since_us["productive"] += spent_us - replay_us
        self._untimed, self._mark_us = dict.fromkeys(_OF_STEPS, 0), time_us


def _open_faults(
    before: tuple[OpenFault, ...], attempt: int, records: list[Record], alive_us: int
) -> tuple[OpenFault, ...]:
    found = {fault.id: fault for fault in before}
    last_us = records[0]["time_us"] if records else alive_us
    for record in records:
        name, identifier = record.get("name"), str(record["a"].get("train.fault.id"))
        if name == "train.fault.detected":
            found[identifier] = OpenFault(identifier, attempt, record["time_us"], last_us)
        elif name == "train.fault.cleared":
            found.pop(identifier, None)
        elif name == "train.recovery.begin" and identifier in found:
            began_us = found[identifier].began_us or record["time_us"]
            found[identifier] = found[identifier]._replace(recovery=str(record.get("id")), began_us=began_us)
        elif name == "train.recovery.end" and identifier in found:
            found[identifier] = found[identifier]._replace(recovery=None)
        if STEPS in record["m"]:
            last_us = max(last_us, record["time_us"])
    return tuple(found.values())


def _newest(records: list[Record], name: str) -> Record | None:
    return next((record for record in reversed(records) if record.get("name") == name), None)


def _last(records: list[Record], key: str, otherwise: float) -> float:
    return next((float(record["m"][key]) for record in reversed(records) if key in record["m"]), otherwise)


# --- lines --------------------------------------------------------------------------------------------------


def _first(path: Path) -> Record:
    with os.fdopen(open_regular(path), "rb") as file:
        return next(iter(_records([file.readline(TAIL_BYTES)], heads=True)), {})


def _tail(path: Path) -> list[bytes]:
    with os.fdopen(open_regular(path), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL_BYTES))
        lines = file.read().split(b"\n")
    return lines[1:] if size > TAIL_BYTES else lines


def _records_backwards(path: Path) -> Iterator[Record]:
    with os.fdopen(open_regular(path), "rb") as file:
        end = size = file.seek(0, os.SEEK_END)
        rest = b""
        while end > 0 and size - end < MAX_SEARCHED_BYTES:
            begin = max(0, end - TAIL_BYTES)
            file.seek(begin)
            first, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from _records(reversed(lines))
            rest, end = first, begin


def _records(lines: Any, *, heads: bool = False) -> Iterator[Record]:
    """Records that can be read, with the numbers of `m`, and `a` filled in; a half line is none."""
    for line in lines:
        try:
            record = json.loads(line)
            if record["k"] == "head":
                if heads:
                    yield record
                continue
            record["m"] = {
                key: value for key, value in record.get("m", {}).items() if _KEY.fullmatch(key) and _is_count(value)
            }
            record["a"] = dict(record.get("a", {}))
            record["time_us"], record["seq"] = _whole(record["time_us"]), _whole(record["seq"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        if record["time_us"] is not None and record["seq"] is not None:
            yield record


def _is_count(value: object) -> bool:
    """Whether a value is a number as a record can hold one, and none below 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _whole(value: object) -> int | None:
    """A number of a record as a whole one; None where it is none."""
    return int(value) if isinstance(value, int | float) and _is_count(value) else None
