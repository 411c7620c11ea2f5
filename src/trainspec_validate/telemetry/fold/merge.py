"""Merges the digests of two successive stretches of a stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from trainspec_validate.telemetry.decode.rows import FileFacts
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.kernels import fold as folding
from trainspec_validate.telemetry.kernels import joins
from trainspec_validate.telemetry.kernels.layout import KEY_BITS, SKIP, WRITER, WRITER_BITS
from trainspec_validate.telemetry.kernels.sequence import MISSING, REPEATED
from trainspec_validate.telemetry.view.event_log import EventRow


def code_of(key: Any, writer: Any, subject: Any) -> Any:
    """Keys by which series are found, as in `fold`."""
    return (key.astype(np.int64) << KEY_BITS) ^ (writer.astype(np.int64) << WRITER_BITS) ^ subject


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers that things of one digest have in another."""

    keys: Any
    subjects: Any
    writers: Any
    files: Any


class HeadUnknownError(Exception):
    """A stretch was folded without a head that is in one before it, so that its cadences were not known."""


def merge(
    digest: Digest, later: Digest, series: Iterable[Any] | None = None, job_values: Iterable[Any] | None = None
) -> None:
    """Fold the digest of a stretch into that of the one before it; the later one is used up.

    `series` are the series of the later one, in parts, where it does not hold them itself; `job_values` likewise.

    Raises:
        HeadUnknownError: the later one was folded without a head that the earlier one has.
    """
    digest.grow(0)
    numbers = _numbers(digest, later)
    digest.names.has_late_heads |= later.names.has_late_heads
    digest.num_records += later.num_records
    digest.num_samples += later.num_samples
    _merge_facts(digest, later, numbers)
    digest.frame.merge(later.frame, numbers.keys, numbers.files)
    digest.trails.merge(later.trails, numbers, partial(_recall, digest))
    for rows in [later.rows[: later.num_rows]] if series is None else series:
        _merge_series(digest, rows, numbers)
    parts = later.jobs.parts() if job_values is None else job_values
    digest.jobs.merge(later.jobs, (_of_job(part, numbers) for part in parts), numbers.keys)
    _merge_writers(digest, later, numbers)


def _numbers(digest: Digest, later: Digest) -> Numbers:
    mine, other = digest.names, later.names
    for number, writer in enumerate(other.writers.items):
        known = mine.writers.numbers.get(writer)
        head = other.heads[number]
        if known is not None and (head is None) != (mine.heads[known] is None):
            raise HeadUnknownError
        mine.writer(writer, head)
    keys = [mine.key(text) for text in other.spelled]
    for text in other.texts:
        mine.key(text)
    subjects = [mine.subjects.number(subject) for subject in other.subjects.items]
    writers = [mine.writers.numbers[writer] for writer in other.writers.items]
    files = np.arange(1 + max(other_file for other_file in (*later.files, 0)))
    return Numbers(np.array(keys, np.int64), np.array(subjects, np.int64), np.array(writers, np.int64), files)


def _recall(digest: Digest, found: Any) -> Any:
    """Occurrences with the value before them, where that stands in the part before theirs."""
    rows = np.full(len(found), -1, np.int64)
    codes = code_of(found["key"], found["writer"], found["subject"])
    folding.locate(digest.rows, digest.slots, digest.num_rows, codes, rows)
    some = np.flatnonzero((found["before_file"] < 0) & (rows >= 0))
    before = digest.rows[rows[some]]
    found["before_file"][some], found["before_offset"][some] = before["last_file"], before["last_offset"]
    found["time_before_us"][some], found["value_before"][some] = before["last_time_us"], before["last_value"]
    return found


def _merge_series(digest: Digest, rows: Any, numbers: Numbers) -> None:
    rows["key"], rows["subject"] = numbers.keys[rows["key"]], numbers.subjects[rows["subject"]]
    rows["writer"] = numbers.writers[rows["writer"]]
    rows["code"] = code_of(rows["key"], rows["writer"], rows["subject"])
    mine = np.full(len(rows), -1, np.int64)
    folding.locate(digest.rows, digest.slots, digest.num_rows, rows["code"], mine)
    known = np.flatnonzero(mine >= 0)
    keys, writers = digest.tables()
    index = 0
    while index < len(known):
        index = joins.join(digest.state(), keys, writers, mine[known], rows[known], index)
        digest.drain()
    new = rows[mine < 0] if len(known) else rows
    digest.make_room(len(new))
    start = digest.num_rows
    digest.rows[start : start + len(new)] = new
    digest.counts[0] = start + len(new)
    folding.enter(digest.rows, digest.slots, digest.num_rows, start)
    digest.check_series()


def _of_job(part: Any, numbers: Numbers) -> Any:
    found = part.copy()
    found["key"], found["writer"] = numbers.keys[part["key"]], numbers.writers[part["writer"]]
    return found


def _merge_writers(digest: Digest, later: Digest, numbers: Numbers) -> None:
    if len(digest.names.writers) > len(digest.writers):
        digest.writers = np.concatenate(
            [digest.writers, np.zeros(2 * len(digest.names.writers) - len(digest.writers), WRITER)]
        )
    used = np.flatnonzero(later.writers["num"])
    mine = numbers.writers[used]
    is_new = digest.writers["num"][mine] == 0
    digest.writers[mine[is_new]] = later.writers[used[is_new]]
    for number in used[~is_new].tolist():
        _merge_writer(digest, int(numbers.writers[number]), later.writers[number])
    skips = later.skips[: int(later.skip_counts[0])].copy()
    skips["writer"] = numbers.writers[skips["writer"]]
    _add_skips(digest, skips)
    for number, counts in later.lags.items():
        mine = int(numbers.writers[number])
        digest.lags[mine] = digest.lags.get(mine, 0) + counts


def _merge_writer(digest: Digest, number: int, later: Any) -> None:
    row = digest.writers[number]
    gap = int(later["first_seq"]) - int(row["last_seq"]) - 1
    skip = np.zeros(1, SKIP)
    skip["writer"], skip["here_file"], skip["here_offset"] = number, later["first_file"], later["first_offset"]
    if later["first_seq"] >= 0 and gap > 0:
        row["num_missing"] += gap
        skip["kind"], skip["seq"], skip["num"] = MISSING, row["last_seq"] + 1, gap
        _add_skips(digest, skip)
    elif later["first_seq"] >= 0 and gap == -1:
        row["num_repeated"] += 1
        row["num_back"] += later["first_time_us"] < row["last_time_us"]
        skip["kind"], skip["seq"], skip["num"] = REPEATED, row["last_seq"], 1
        _add_skips(digest, skip)
    elif later["first_seq"] >= 0 and gap < -1:
        row["num_back"] += 1
    for name in ("num", "num_missing", "num_repeated", "num_back"):
        row[name] += later[name]
    row["first_time_us"] = min(row["first_time_us"], later["first_time_us"])
    row["last_time_us"] = max(row["last_time_us"], later["last_time_us"])
    row["last_seq"] = max(row["last_seq"], later["last_seq"])
    row["last_file"], row["last_offset"] = later["last_file"], later["last_offset"]


def _add_skips(digest: Digest, skips: Any) -> None:
    start = int(digest.skip_counts[0])
    kept = skips[: len(digest.skips) - start]
    digest.skips[start : start + len(kept)] = kept
    digest.skip_counts[0] = start + len(kept)


def _renumbered(row: EventRow, numbers: Numbers) -> tuple[int, int]:
    return int(numbers.writers[row.writer]), int(numbers.subjects[row.subject])


def _merge_facts(digest: Digest, later: Digest, numbers: Numbers) -> None:
    digest.events.extend(EventRow(row.file, row.offset, *_renumbered(row, numbers), row.record) for row in later.events)
    for number, facts in later.files.items():
        _merge_file(digest.facts(number), facts, numbers)


def _merge_file(mine: FileFacts, later: FileFacts, numbers: Numbers) -> None:
    mine.heads += later.heads
    mine.damage += later.damage
    mine.num_damaged += later.num_damaged
    mine.num_unread += later.num_unread
    mine.num_heads += later.num_heads
    mine.head_bytes += later.head_bytes
    mine.num_records += later.num_records
    mine.first_implicit = mine.first_implicit or later.first_implicit
    mine.first_record = mine.first_record or later.first_record
    mine.losses = mine.losses or later.losses
    mine.tail = mine.tail or later.tail
    for run, place in later.other_runs.items():
        mine.other_runs.setdefault(run, place)
    for key, num in later.num_of_key.items():
        own = int(numbers.keys[key])
        mine.num_of_key[own] = mine.num_of_key.get(own, 0) + num
        place = later.first_of_key[key]
        mine.first_of_key[own] = min(mine.first_of_key.get(own, place), place)
    for key, names in later.attributes.items():
        mine.attributes.setdefault(int(numbers.keys[key]), set()).update(names)
    for text, place in later.spellings.items():
        mine.spellings[text] = min(mine.spellings.get(text, place), place)
    for key, num in later.num_histograms.items():
        own = int(numbers.keys[key])
        mine.num_histograms[own] = mine.num_histograms.get(own, 0) + num
