"""Joins the state of a series with its state in the next stretch of the stream."""

from __future__ import annotations

from typing import Any

from trainspec_validate.telemetry.kernels.fold import NUM_CADENCES, ROOM, end_above, end_run
from trainspec_validate.telemetry.kernels.layout import Keys, State, Writers
from trainspec_validate.telemetry.kernels.pairs import judge, lockstep, note, same_run


def join_runs(row: Any, later: Any) -> None:
    """Join runs of equal values across the seam; the row still ends with its own last value."""
    if same_run(row, later["first_value"], later["first_step"]):
        row["run"] += later["lead"]
        row["num"] += later["lead"]
        end_run(row, later["lead_end_us"], row["last_value"])
        row["num"] -= later["lead"]
        if later["lead"] == later["num"]:
            return
    take_longest(row, later)
    row["run"], row["run_start_us"] = later["run"], later["run_start_us"]
    row["run_file"], row["run_offset"] = later["run_file"], later["run_offset"]


def join_above(row: Any, later: Any) -> None:
    """Join values above the bound across the seam."""
    lead = later["above_lead"]
    if lead > 0:
        if row["above"] == 0:
            row["above_file"], row["above_offset"] = later["first_file"], later["first_offset"]
        row["above"] += lead
        row["num"] += lead
        end_above(row)
        row["num"] -= lead
        if lead == later["num"]:
            return
    if later["longest_above"] > row["longest_above"]:
        row["longest_above"] = later["longest_above"]
        row["longest_above_file"] = later["longest_above_file"]
        row["longest_above_offset"] = later["longest_above_offset"]
    row["above"] = later["above"]
    row["above_file"], row["above_offset"] = later["above_file"], later["above_offset"]


def take_longest(row: Any, later: Any) -> None:
    """Keep the longer of the longest runs; the earlier one of two that are equal."""
    if later["longest_run"] > row["longest_run"]:
        row["longest_run"], row["longest_run_value"] = later["longest_run"], later["longest_run_value"]
        row["longest_run_start_us"] = later["longest_run_start_us"]
        row["longest_run_end_us"] = later["longest_run_end_us"]
        row["longest_run_file"], row["longest_run_offset"] = later["longest_run_file"], later["longest_run_offset"]


def add_up(row: Any, later: Any) -> None:
    """Numbers that are counted, added up, or a smallest or largest value."""
    row["num"] += later["num"]
    row["num_finite"] += later["num_finite"]
    row["minimum"] = min(row["minimum"], later["minimum"])
    row["maximum"] = max(row["maximum"], later["maximum"])
    row["total"] += later["total"]
    row["num_intervals"] += later["num_intervals"]
    row["num_late"] += later["num_late"]
    row["num_above"] += later["num_above"]
    row["num_falls"] += later["num_falls"]
    row["num_gaps"] += later["num_gaps"]
    row["integral"] += later["integral"]
    row["integral_seconds"] += later["integral_seconds"]
    if row["num_short"] == 0 and later["num_short"] > 0:
        row["short_us"], row["short_value"] = later["short_us"], later["short_value"]
        row["short_file"], row["short_offset"] = later["short_file"], later["short_offset"]
    row["num_short"] += later["num_short"]
    if later["longest_interval_us"] > row["longest_interval_us"]:
        row["longest_interval_us"] = later["longest_interval_us"]
        row["longest_interval_end_us"] = later["longest_interval_end_us"]
        row["longest_interval_file"] = later["longest_interval_file"]
        row["longest_interval_offset"] = later["longest_interval_offset"]


def join(state: State, keys: Keys, writers: Writers, mine: Any, later: Any, index: int) -> int:
    """Join rows of the state (by number, in `mine`) with later rows; returns where it stopped, or their number."""
    for i in range(index, len(mine)):
        if state.counts[1] + ROOM > len(state.occurrences):
            return i
        row, after = state.rows[mine[i]], later[i]
        key, writer = row["key"], row["writer"]
        kind = keys.cadence[key]
        cadence = writers.cadence_us[NUM_CADENCES * writer + kind] if kind >= 0 else 0
        limit = writers.report_steps[writer] if keys.steps[key] else 0
        file, offset = after["first_file"], after["first_offset"]
        time, value, start = after["first_time_us"], after["first_value"], after["first_start_us"]
        troubles = judge(row, cadence, keys.falls[key], limit, file, offset, time, value, start)
        if keys.lock_row[key] >= 0:
            cells, rank = state.locks[keys.lock_row[key]], state.ranks[row["subject"]]
            last, kept, attempt = row["last_time_us"], row["last_value"], row["attempt"]
            last_file, last_offset = row["last_file"], row["last_offset"]
            first, width = state.frame[2], state.frame[3]
            lockstep(cells, last, kept, attempt, last_file, last_offset, rank, first, width, cadence, time)
        if troubles != 0:
            step = after["first_step"]
            note(state.occurrences, state.counts, row, True, troubles, writer, file, offset, time, value, step)
        join_runs(row, after)
        join_above(row, after)
        add_up(row, after)
        take_last(row, after)
    return len(mine)


def take_last(row: Any, later: Any) -> None:
    """The last value of the later part is the last of the whole."""
    row["last_time_us"], row["last_value"], row["last_step"] = (
        later["last_time_us"],
        later["last_value"],
        later["last_step"],
    )
    row["last_file"], row["last_offset"] = later["last_file"], later["last_offset"]
    row["start_us"] = later["start_us"]
