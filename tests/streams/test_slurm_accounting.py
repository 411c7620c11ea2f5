"""Accounting of Slurm: jobs of several versions of its JSON and tables become attempts and faults of one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import Result, read_text

from trainspec_validate import Severity, validate

HEADER = "JobID|JobName|State|ExitCode|Start|End"


def at(version: int, value: int) -> Any:
    """A number as a version of the schema writes it."""
    return value if version < 40 else {"set": True, "infinite": False, "number": value}


def entry(number: int = 7, state: str = "COMPLETED", start: int = 1000, end: int = 1100, **more: Any) -> dict[str, Any]:
    """A job as data_parser v0.0.40 and later write it, shortened."""
    version = more.pop("version", 43)
    states = [state] if version > 39 else state
    status: Any = more.pop("code", 0)
    return {
        "account": "ml",
        "allocation_nodes": 2,
        "array": {"job_id": 0, "task_id": {"set": False, "infinite": False, "number": 0}},
        "derived_exit_code": {"status": ["SUCCESS"], "return_code": at(version, 0)},
        "exit_code": {"status": ["ERROR" if status else "SUCCESS"], "return_code": at(version, status)},
        "job_id": number,
        "name": "train",
        "state": {"current": states, "reason": "None"},
        "steps": [],
        "time": {"elapsed": 100, "eligible": 990, "start": start, "end": end},
        **more,
    }


def document(*jobs: dict[str, Any]) -> str:
    return json.dumps({"jobs": jobs, "meta": {"command": ["sacct", "--json"]}, "errors": []}, indent=1)


def shown(result: Result) -> list[str]:
    """Each event by the second of its time, its attempt and what it says."""
    words = ("train.attempt.reason", "train.run.status", "train.fault.vendor_code")
    return [
        " ".join(
            [str(e.time_us // 1_000_000), str(e.att), e.name.removeprefix("train.")]
            + [str(e.a[word]) for word in words if word in e.a]
        )
        for e in result.events
    ]


@pytest.mark.parametrize("version", [37, 39, 40, 43])
def test_a_job_that_completes_is_a_run_of_one_attempt(version: int) -> None:
    found = read_text(document(entry(version=version)), "slurm-accounting")
    assert (found.heads[0].run, found.heads[0].att, found.losses.clock) == ("7", 0, "utc")
    assert shown(found) == [
        "1000 0 run.start",
        "1000 0 attempt.start",
        "1100 0 attempt.end completed",
        "1100 0 run.end completed",
    ]
    assert not found.refusals


@pytest.mark.parametrize(
    ("state", "reason", "status"),
    [
        ("TIMEOUT", "time_limit", "time_limit"),
        ("CANCELLED", "operator", "cancelled"),
        ("PREEMPTED", "preempted", "cancelled"),
    ],
)
def test_ends_that_are_no_faults(state: str, reason: str, status: str) -> None:
    assert shown(read_text(document(entry(state=state))))[2:] == [
        f"1100 0 attempt.end {reason}",
        f"1100 0 run.end {status}",
    ]


@pytest.mark.parametrize(
    ("state", "domain", "what"),
    [
        ("NODE_FAIL", "infrastructure", "node"),
        ("BOOT_FAIL", "infrastructure", "node"),
        ("OUT_OF_MEMORY", "workload", "process"),
        ("FAILED", "unknown", "process"),
    ],
)
def test_failures_are_faults(state: str, domain: str, what: str) -> None:
    found = read_text(document(entry(state=state, code=1, failed_node="n3")))
    (fault,) = [event for event in found.events if event.name == "train.fault.detected"]
    assert fault.a["train.fault.domain"] == domain
    assert fault.a["train.fault.class"] == what
    assert fault.a["train.fault.vendor_code"] == f"slurm:{state}"
    assert fault.a.get("train.fault.component") == ("n3" if what == "node" else None)
    assert "exit code 1" in str(fault.a["train.reason"])
    assert fault.id == fault.a["train.fault.id"]
    assert shown(found)[-2:] == ["1100 0 attempt.end fault", "1100 0 run.end failed"]


def test_a_job_that_was_requeued_has_an_attempt_for_each_start() -> None:
    again = entry(start=1500, end=1600)
    found = read_text(document(again, entry(state="NODE_FAIL")))
    assert shown(found) == [
        "1000 0 run.start",
        "1000 0 attempt.start",
        "1100 0 fault.detected slurm:NODE_FAIL",
        "1100 0 attempt.end fault",
        "1500 1 attempt.start",
        "1600 1 attempt.end completed",
        "1600 1 run.end completed",
    ]


def test_restarts_that_are_stated_number_the_attempts() -> None:
    """The rows of earlier starts are absent: sacct shows the newest one without --duplicates."""
    found = read_text(document(entry(restart_cnt=3)))
    assert shown(found) == ["1000 3 attempt.start", "1100 3 attempt.end completed"]


def test_steps_that_failed_in_a_job_that_did_not() -> None:
    steps = [
        {"state": ["FAILED"], "step": {"id": "7.batch"}, "time": {"end": at(43, 1090)}, "exit_code": {}},
        {
            "state": ["FAILED"],
            "step": {"id": "7.0", "name": "python"},
            "time": {"end": at(43, 1050)},
            "exit_code": {"return_code": at(43, 0), "signal": {"id": at(43, 9), "name": "KILL"}},
        },
        {"state": ["COMPLETED"], "step": {"id": "7.1"}, "time": {"end": at(43, 1090)}},
    ]
    found = read_text(document(entry(steps=steps)))
    (fault,) = [event for event in found.events if event.name == "train.fault.detected"]
    assert fault.time_us == 1_050_000_000
    assert fault.a["train.reason"] == "step 0 of job 7 of Slurm ended as FAILED, signal 9"


@pytest.mark.parametrize(("end", "num"), [(995, 0), (870, 1)])
def test_steps_that_fail_as_their_job_is_stopped(end: int, num: int) -> None:
    """In a published table a step of each job that reached its time limit is FAILED with code 7."""
    step = {"state": ["FAILED"], "step": {"id": "7.0"}, "time": {"end": at(43, end)}, "exit_code": {}}
    found = read_text(document(entry(state="TIMEOUT", start=500, end=1000, steps=[step])))
    assert len([event for event in found.events if event.name == "train.fault.detected"]) == num
    rows = "7|a|TIMEOUT|0:0", "7.batch|batch|CANCELLED|0:15", "7.0|pmi_proxy|FAILED|7:0"
    assert len(read_text(table(*rows, header="JobID|JobName|State|ExitCode")).events) == 4


def test_jobs_that_wait_or_run_are_left_out() -> None:
    jobs = entry(state="RUNNING", start=2000, end=0), entry(state="PENDING", start=0, end=0), entry(state="FAILED")
    found = read_text(document(*jobs))
    assert shown(found)[1:3] == ["1000 0 attempt.start", "1100 0 fault.detected slurm:FAILED"]
    assert found.lost["meaning", "RUNNING"] == 1
    assert found.lost["meaning", "PENDING"] == 1


def test_jobs_of_one_name_that_follow_each_other_are_one_run() -> None:
    found = read_text(document(entry(8, start=1200, end=1300), entry(7, "TIMEOUT")))
    assert found.heads[0].run == "train"
    assert shown(found) == [
        "1000 0 attempt.start",
        "1100 0 attempt.end time_limit",
        "1200 1 attempt.start",
        "1300 1 attempt.end completed",
    ]
    assert found.lost["meaning", "JobID"] == 2


def test_jobs_at_the_same_time_are_no_attempts_of_one_run() -> None:
    text = document(entry(7), entry(8, start=1050, end=1300))
    (refusal,) = read_text(text).refusals
    assert "jobs 7 and 8 run at the same time" in refusal.message
    assert shown(read_text(text, run="8"))[0] == "1050 0 run.start"


def test_a_run_is_named_where_there_are_several() -> None:
    text = document(entry(7), entry(9, name="other", start=5000, end=5100))
    (refusal,) = read_text(text).refusals
    assert "the file has 2 jobs, and no run was named: 7, 9" in refusal.message
    for name in ("other", "9"):
        found = read_text(text, run=name)
        assert found.heads[0].run == name
        assert shown(found)[-1].startswith("5100 0")
        assert found.lost["identity", "JobID"] == 1


def test_the_task_of_an_array_is_in_the_name_of_its_job() -> None:
    array = {"job_id": 100, "task_id": at(43, 6)}
    assert read_text(document(entry(array=array))).heads[0].run == "100_6"


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ({"state": {"current": ["nonsense"]}}, "job 7 has the state"),
        ({"job_id": "x"}, "a job has no job_id"),
    ],
)
def test_entries_that_are_no_jobs(damaged: dict[str, Any], words: str) -> None:
    (refusal,) = read_text(document(entry() | damaged)).refusals
    assert words in refusal.message


def test_a_document_that_is_cut_off() -> None:
    found = read_text(document(entry(), entry(state="FAILED", start=1200, end=1300))[:-40])
    assert [refusal.code for refusal in found.refusals] == ["cut-off"]
    assert len(found.events) == 7


# --- tables -------------------------------------------------------------------------------------------------


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join([header, *rows]) + "\n"


def test_a_table_with_times_of_no_zone() -> None:
    rows = [
        "7|train|NODE_FAIL|0:0|2026-01-01T00:00:00|2026-01-01T01:00:00",
        "7.batch|batch|CANCELLED|0:15|2026-01-01T00:00:00|2026-01-01T01:00:00",
        "7|train|COMPLETED|0:0|2026-01-01T01:05:00|2026-01-01T02:00:00",
        "7.0|python|FAILED|137:0|2026-01-01T01:05:00|2026-01-01T01:30:00",
        "8|train|PENDING|0:0|Unknown|Unknown",
    ]
    found = read_text(table(*rows))
    start = 1767225600
    assert shown(found)[1:] == [
        f"{start} 0 attempt.start",
        f"{start + 3600} 0 fault.detected slurm:NODE_FAIL",
        f"{start + 3600} 0 attempt.end fault",
        f"{start + 3900} 1 attempt.start",
        f"{start + 5400} 1 fault.detected slurm:FAILED",
        f"{start + 7200} 1 attempt.end completed",
        f"{start + 7200} 1 run.end completed",
    ]
    assert found.losses.clock == "local"
    assert ("time", "time") in found.lost
    moved = read_text(table(*rows), utc_offset_seconds=3600)
    assert moved.events[0].time_us == (start - 3600) * 1_000_000
    assert moved.losses.clock == "utc"


def test_times_in_seconds_since_1970_and_a_delimiter_at_the_end() -> None:
    found = read_text(table("7|train|CANCELLED by 1000|0:0|1000|1100|", header=HEADER + "|"))
    assert shown(found)[-1] == "1100 0 run.end cancelled"
    assert found.losses.clock == "utc"


@pytest.mark.parametrize("offset", ["+02:00", "+0200"])
def test_times_with_an_offset_are_moments(offset: str) -> None:
    row = f"7|train|COMPLETED|0:0|2026-01-01T02:00:00{offset}|2026-01-01T03:00:00{offset}"
    for given in ({}, {"utc_offset_seconds": -3600}):
        found = read_text(table(row, "8|train|PENDING|0:0|Unknown|Unknown"), **given)
        assert [event.time_us // 1_000_000 - 1_767_225_600 for event in found.events] == [0, 0, 3600, 3600]
        assert found.losses.clock == "utc"
        assert ("time", "time") not in found.lost


@pytest.mark.parametrize("end", ["2026-01-01T03:00:00", "2026-01-02"])
def test_times_of_which_one_has_no_zone_are_local(end: str) -> None:
    found = read_text(table(f"7|train|COMPLETED|0:0|2026-01-01T02:00:00Z|{end}"))
    assert (found.losses.clock, found.lost["time", "time"]) == ("local", 1)


def test_an_offset_alone_makes_no_clock() -> None:
    found = read_text(table("7|FAILED|1:0", header="JobID|State|ExitCode"), utc_offset_seconds=3600)
    assert found.losses.clock == "none"


@pytest.mark.parametrize("end", ["", "|"], ids=["parsable2", "parsable"])
def test_the_last_column_can_be_empty(end: str) -> None:
    rows = ["7|train|NODE_FAIL|0:0|1000|1100|node down", "7.batch|batch|CANCELLED|0:15|1000|1100|"]
    rows += ["7|train|COMPLETED|0:0|1200|1300|", "x|train|COMPLETED|0:0|1200|"]
    found = read_text(table(*(row + end for row in rows), header=HEADER + "|Reason" + end))
    assert [refusal.message for refusal in found.refusals] == ["the row has 6 cells, and the header 7"]
    assert shown(found)[-2:] == ["1300 1 attempt.end completed", "1300 1 run.end completed"]


def test_a_table_without_times() -> None:
    found = read_text(table("7|FAILED|1:0", header="JobID|State|ExitCode"))
    assert found.losses.clock == "none"
    assert [line.partition(" ")[2] for line in shown(found)] == [
        "0 run.start",
        "0 attempt.start",
        "0 fault.detected slurm:FAILED",
        "0 attempt.end fault",
        "0 run.end failed",
    ]


def test_rows_that_do_not_fit() -> None:
    found = read_text(table("7|train", "x|train|COMPLETED|0:0|1000|1100", "9|a|odd|0:0|1000|1100"))
    assert [refusal.message for refusal in found.refusals] == [
        "the row has 2 cells, and the header 6",
        "the row has no job and state: 'x COMPLETED'",
        "the row has no job and state: '9 odd'",
    ]


# --- judged -------------------------------------------------------------------------------------------------


def test_nothing_is_asked_of_the_accounting_that_it_cannot_hold(tmp_path: Path) -> None:
    """No value of a metric, and no event that says what came of a fault."""
    path, day = tmp_path / "sacct.json", 1_767_225_600
    again = entry(start=day + 1000, end=day + 5000)
    path.write_text(document(entry(state="NODE_FAIL", start=day, end=day + 900), again), encoding="utf-8")
    assert not validate(path).at_or_above(Severity.WARNING)


@pytest.mark.parametrize(
    ("state", "end", "num"),
    [("COMPLETED", 900, 1), ("FAILED", 1, 1), ("COMPLETED", 1000, 0), ("CANCELLED", 900, 0), ("COMPLETED", 1100, 0)],
)
def test_a_job_that_ends_before_it_starts_is_refused(state: str, end: int, num: int) -> None:
    found = read_text(document(entry(state=state, end=end)))
    assert [refusal.message for refusal in found.refusals] == ["job 7 ends before it starts"] * num


def test_jobs_that_were_completed_are_runs_of_their_own() -> None:
    """Where the run is not named; an attempt that fails before one is completed is of the same run."""
    done = document(entry(7), entry(8, start=1200, end=1300))
    (refusal,) = read_text(done).refusals
    assert refusal.is_unjudged
    assert "2 jobs were completed" in refusal.message
    assert not read_text(done, run="train").refusals
    again = read_text(document(entry(7, "FAILED"), entry(8, start=1200, end=1300)))
    assert not again.refusals
    assert len([event for event in again.events if event.name == "train.attempt.start"]) == 2


@pytest.mark.parametrize(("end", "num"), [("07:59:59", 1), ("09:00:00", 0), ("11:00:00", 0)])
def test_local_times_are_set_back_by_an_hour(end: str, num: int) -> None:
    text = f"JobID|JobName|State|Start|End\n7|a|COMPLETED|2025-10-26T10:00:00|2025-10-26T{end}\n"
    assert len(read_text(text).refusals) == num


@pytest.mark.parametrize(
    "rows",
    [
        ["JobID|JobName|State|ExitCode", "1|train|COMPLETED|0:0", "2|other|FAILED|1:0"],
        [HEADER, *(f"{n}|train|COMPLETED|0:0|2026-01-01T10:0{n}:00|2026-01-01T12:00:00" for n in (1, 2))],
    ],
    ids=["several names", "at the same time"],
)
def test_accounting_of_several_jobs_is_not_judged_and_no_error(tmp_path: Path, rows: list[str]) -> None:
    path = tmp_path / "sacct.txt"
    path.write_text("\n".join([*rows, ""]), encoding="utf-8")
    report = validate(path)
    assert report.findings == ()
    (entry,) = report.unjudged
    assert entry.reason.startswith("is about several runs: ")
    assert "trainspec import FILE --known run=" in entry.help


def test_times_of_accounting_without_a_zone_are_not_judged_and_no_error(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    row = "1|train|COMPLETED|0:0|2026-01-01T10:00:00|2026-01-01T12:00:00"
    path.write_text(f"{HEADER}\n{row}\n", encoding="utf-8")
    report = validate(path)
    assert report.findings == ()
    (entry,) = (each for each in report.unjudged if each.requirements == ("TS-TEL-016",))
    assert "without a zone" in entry.reason
    assert "trainspec import FILE --known utc_offset=" in entry.help
    path.write_text(f"{HEADER}\n{row}\n".replace(":00:00", ":00:00+01:00"), encoding="utf-8")
    assert not [each for each in validate(path).unjudged if each.requirements == ("TS-TEL-016",)]


@pytest.mark.parametrize("unset", [0xFFFFFFFE, 0xFFFFFFFF, 2**64 - 2, 2**64 - 1, {"set": True, "number": 0xFFFFFFFE}])
def test_the_number_for_no_value_is_no_time(unset: Any) -> None:
    never = entry(8, "FAILED")
    never["time"]["start"] = unset
    found = read_text(document(entry(), never))
    assert not found.refusals
    assert len(found.heads) == 1
    assert all(time_us < 0xFFFFFFF0 * 1_000_000 for time_us in (event.time_us for event in found.events))
