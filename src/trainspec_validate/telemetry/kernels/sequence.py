"""Follows the sequence numbers of writers."""

from __future__ import annotations

from typing import Any

MISSING, REPEATED = 0, 1


def note_skip(skips: Any, counts: Any, writer: int, kind: int, seq: int, num: int, file: int, offset: int) -> None:
    """Keep the first skips and repetitions; all are counted in the state of the writer."""
    place = counts[0]
    if place >= len(skips):
        return
    counts[0] = place + 1
    found = skips[place]
    found["writer"], found["kind"], found["seq"], found["num"] = writer, kind, seq, num
    found["here_file"], found["here_offset"] = file, offset


def follow(rows: Any, skips: Any, counts: Any, columns: Any) -> None:
    """Fold records into the state of their writers, in the order of writing.

    `columns` are file, offset, time, sequence number and writer of each record.
    """
    files, offsets, times, seqs, writers = columns
    for i in range(len(offsets)):
        writer, seq, time = writers[i], seqs[i], times[i]
        row = rows[writer]
        if row["num"] == 0:
            row["first_time_us"], row["last_time_us"], row["first_seq"] = time, time, seq
            row["first_file"], row["first_offset"] = files[i], offsets[i]
        else:
            step_on(row, skips, counts, writer, seq, files[i], offsets[i])
            if seq == row["last_seq"] and seq >= 0 and time < row["last_time_us"]:
                row["num_back"] += 1
        row["num"] += 1
        row["first_time_us"] = min(row["first_time_us"], time)
        row["last_time_us"] = max(row["last_time_us"], time)
        row["last_file"], row["last_offset"] = files[i], offsets[i]
        row["last_seq"] = max(row["last_seq"], seq)


def step_on(row: Any, skips: Any, counts: Any, writer: int, seq: int, file: int, offset: int) -> None:
    """Compare a sequence number with the last one of its writer."""
    if seq < 0:
        return
    if seq == row["last_seq"]:
        row["num_repeated"] += 1
        note_skip(skips, counts, writer, REPEATED, seq, 1, file, offset)
    elif seq < row["last_seq"]:
        row["num_back"] += 1
    elif seq > row["last_seq"] + 1:
        row["num_missing"] += seq - row["last_seq"] - 1
        note_skip(skips, counts, writer, MISSING, row["last_seq"] + 1, seq - row["last_seq"] - 1, file, offset)
