"""What values mean: time by category, rates, counters, steps that are skipped, saves, faults and further attempts."""

from __future__ import annotations

import fcntl
import json
import os
import random
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trainspec_record
from trainspec_record.ledger import CATEGORIES, Ledger
from trainspec_record.past import MAX_SEARCHED_BYTES, counters_at, read_past
from trainspec_record.progress import TOKENS, Progress
from trainspec_record.succession import succeed

from .recorded import errors, events, records, train, values

LOSS = "train.loss.mean{train.loss.name=total}"

# --- time ---------------------------------------------------------------------------------------------------

ACTIONS = st.sampled_from(["enter", "leave", "complete", "until", "settle", "replay", "abandon"])


@given(st.lists(st.tuples(ACTIONS, st.integers(0, 10**9), st.sampled_from(CATEGORIES)), max_size=40))
def test_categories_always_add_up_and_never_fall(actions: list[tuple[str, int, str]]) -> None:
    now = begin = 1_000
    ledger = Ledger(now, {"productive": 7})
    spans: list[object] = []
    before = dict(ledger.totals_us)
    for action, passed, category in actions:
        now += passed
        if action == "enter":
            spans.append(object())
            ledger.enter(spans[-1], category, now)
        elif action == "leave" and spans:
            ledger.leave(spans.pop(random.Random(passed).randrange(len(spans))), now)
        elif action == "complete":
            assert ledger.complete(now) >= 0
        elif action == "settle":
            ledger.settle("productive", now)
        elif action == "abandon":
            ledger.abandon(category, now)
        ledger.is_replay = action == "replay"
        totals = ledger.until(now) if action == "until" else ledger.totals_us
        assert all(totals[name] >= before[name] for name in CATEGORIES)
        before = dict(totals)
    assert sum(ledger.until(now).values()) == 7 + now - begin


def test_an_update_that_never_ends_is_not_productive() -> None:
    ledger = Ledger(0)
    ledger.settle("productive", 10)
    assert ledger.complete(110) == 100
    ledger.abandon("fault_wait", 160)
    found = ledger.until(200)
    assert (found["initialization"], found["productive"], found["fault_wait"]) == (10, 100, 90)


def test_a_job_that_hangs_is_idle_once_the_update_takes_longer_than_any() -> None:
    ledger = Ledger(0)
    ledger.settle("productive", 0)
    assert [ledger.until(50)["productive"], ledger.complete(100), ledger.complete(160)] == [50, 100, 60]
    assert ledger.until(230)["productive"] == 230
    assert [ledger.until(now)[name] for now in (300, 900) for name in ("productive", "idle")] == [260, 40, 260, 640]
    assert ledger.complete(910) == 750
    assert ledger.until(950)["productive"] == 310


def test_pauses_are_no_part_of_an_update() -> None:
    ledger = Ledger(0)
    ledger.settle("productive", 0)
    span = object()
    ledger.enter(span, "evaluation", 30)
    ledger.leave(span, 80)
    assert ledger.complete(100) == 50


# --- counts and rates ---------------------------------------------------------------------------------------


def test_a_rate_is_the_growth_over_its_window_without_evaluation() -> None:
    progress = Progress(0, 0, 1)
    progress.begin(0, 0)
    progress.complete(1, {TOKENS: 500})
    assert progress.rate(5_000_000, 0) is None  # the window is short
    progress.complete(1, {TOKENS: 500})
    assert progress.rate(12_000_000, 2_000_000) == 100.0
    progress.complete(1, {TOKENS: 300})
    assert progress.rate(32_000_000, 7_000_000) == 20.0


def test_a_report_over_several_updates_is_their_mean(folder: Path) -> None:
    progress = Progress(0, 0, 3)
    assert [progress.complete(us, {}) is None for us in (1_000_000, 2_000_000)] == [True, True]
    found = progress.complete(6_000_000, {})
    assert found is not None
    assert found["train.step.duration"] == 3.0
    with trainspec_record.run(report_interval_steps=4) as run:
        for number in range(10):
            with run.step(number):
                run.log(loss=float(number))
    assert values(folder / "job.0.jsonl", "train.step.count") == [0, 4, 8, 10]
    assert values(folder / "rank-000000.0.jsonl", "train.rank.step")[-1] == 10
    assert records(folder / "job.0.jsonl")[0]["report_interval_steps"] == 4


def test_a_skipped_update_counts_as_skipped_and_not_as_completed(folder: Path) -> None:
    with trainspec_record.run() as run:
        for number in range(3):
            with run.step(number):
                run.log(loss=float("nan") if number == 1 else 2.5, samples=8)
                if number == 1:
                    run.log(skipped="non_finite", gradient_norm=float("inf"))
    job = folder / "job.0.jsonl"
    assert values(job, "train.step.count") == [0, 1, 1, 2]
    assert values(job, "train.step.skipped{train.skip.reason=non_finite}") == [0, 0, 1, 1]
    assert values(job, "train.sample.count") == [8, 8, 16]
    assert values(job, LOSS) == [2.5, "NaN", 2.5]
    assert values(job, "train.gradient.norm") == ["+Inf"]


def test_only_the_first_update_and_those_after_a_reset_are_warm_up(folder: Path) -> None:
    with trainspec_record.run() as run:
        for number in range(4):
            if number == 2:
                run.warm_up_again("another sequence length")
            with run.step(number):
                pass
    for name in ("job.0.jsonl", "rank-000000.0.jsonl"):
        found = [r["a"]["train.step.warmup"] for r in records(folder / name) if "train.step.warmup" in r.get("a", {})]
        assert found == [True, False, True, False]
    (reset,) = events(folder / "job.0.jsonl", "train.step.warmup_reset")
    assert reset["step"] == 3


def test_phases_add_up_to_the_update(folder: Path) -> None:
    with trainspec_record.run() as run:
        for number in range(3):
            with run.phase("data_wait"):
                time.sleep(0.002)
            with run.step(number), run.phase("optimizer"):
                time.sleep(0.002)
    last = records(folder / "rank-000000.0.jsonl")
    phases = [r["m"] for r in last if "train.step.phase.time{train.phase=other}" in r.get("m", {})]
    durations = values(folder / "rank-000000.0.jsonl", "train.step.duration")
    grown = [sum(value for key, value in m.items() if key.startswith("train.step.phase.time{")) for m in phases]
    assert grown[-1] == pytest.approx(sum(durations), rel=0.02)
    assert values(folder / "rank-000000.0.jsonl", "train.data.wait.time")[-1] > 0


def test_ranks_beside_the_first_write_nothing_of_the_job(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3"}.items():
        monkeypatch.setenv(name, value)
    with trainspec_record.run() as run:
        with run.step(0):
            run.log(loss=1.0, allocator_active_bytes=7)
        with run.evaluation(), run.checkpoint():
            pass
        run.event("train.loss.spike", {"train.loss.name": "total", "train.loss.baseline": 1.0})
        assert run.state() == {}
    assert [path.name for path in folder.iterdir()] == ["rank-000003.0.jsonl"]
    assert values(folder / "rank-000003.0.jsonl", "train.memory.allocator.active") == [7]


# --- saves, faults, attempts --------------------------------------------------------------------------------


def test_an_asynchronous_save_blocks_shorter_than_it_lasts(folder: Path) -> None:
    with trainspec_record.run() as run:
        with run.step(0):
            pass
        with run.checkpoint("c", asynchronous=True, durability="node") as save:
            pass
        time.sleep(0.02)
        save.commit(size_bytes=5)
        save.commit(durability="site", location="object-store")
        with run.checkpoint("lost", asynchronous=True):
            pass
    first, second = events(folder / "job.0.jsonl", "train.checkpoint.commit")
    took = {
        phase: first["m"][f"train.checkpoint.duration{{train.checkpoint.phase={phase}}}"]["sum"]
        for phase in ("blocking", "total")
    }
    assert took["total"] >= 0.02
    assert took["blocking"] < took["total"]
    assert (first["m"]["train.checkpoint.size"], first["m"]["train.checkpoint.step"]) == (5, 1)
    assert second["a"]["train.checkpoint.durability"] == "site"
    assert not any("duration" in key for key in second["m"])
    (failed,) = events(folder / "job.0.jsonl", "train.checkpoint.fail")
    assert failed["id"] == "lost"
    assert values(folder / "job.0.jsonl", "train.checkpoint.step")[-1] == 1


def test_a_fault_that_is_mended_in_the_attempt(folder: Path) -> None:
    with trainspec_record.run(flops_per_token=1.0, peak_flops=1e9) as run:
        for number in range(6):
            with run.step(number):
                time.sleep(0.005)
            if number == 3:
                with run.fault("network", domain="infrastructure", action="retry", vendor_code="x:1"):
                    time.sleep(0.05)
    (end,) = events(folder / "job.0.jsonl", "train.recovery.end")
    assert end["step"] == 5
    took = {key.partition("=")[2][:-1]: value["sum"] for key, value in end["m"].items() if "duration" in key}
    assert took["total"] == pytest.approx(sum(took.values()) - took["total"])
    assert events(folder / "job.0.jsonl", "train.fault.detected")[0]["a"]["train.fault.vendor_code"] == "x:1"
    assert not [error for error in errors(folder) if "REC" in error]


def test_a_fault_while_another_is_open_ends_with_the_same_update(folder: Path) -> None:
    with pytest.raises(RuntimeError):
        train(0, 13, error=RuntimeError)
    with pytest.raises(LookupError):
        train(10, 12, error=LookupError)
    train(10, 20)
    ends = events(folder / "job.2.jsonl", "train.recovery.end")
    assert [end["a"]["train.fault.id"] for end in ends] == ["fault-1", "fault-2"]
    assert {end["step"] for end in ends} == {14}
    (failed,) = events(folder / "job.1.jsonl", "train.recovery.end")
    assert failed["a"]["train.recovery.outcome"] == "failed"
    assert values(folder / "job.2.jsonl", "train.step.repeated")[-1] == 2 + 3
    assert values(folder / "job.2.jsonl", "train.sample.count")[0] == 40
    assert not errors(folder)


def test_steps_and_time_after_the_last_report_of_an_attempt_are_counted(folder: Path) -> None:
    def line(seconds: float, step: int, **m: float) -> dict[str, Any]:
        return {"k": "m", "time_us": int(seconds * 1e6), "seq": 0, "step": step, "m": {f"train.{k}": m[k] for k in m}}

    spent = {f"goodput.time{{train.time.category={name}}}": float(name == "productive") for name in CATEGORIES}
    count, duration, repeated = "step.count", "step.duration", "step.repeated"
    folder.mkdir()
    for attempt, lines in enumerate(
        [
            [line(0, 0, **{count: 0}), line(10, 10, **{count: 10, repeated: 0})],
            [
                line(100, 0, **{repeated: 0}, **spent),
                line(101, 4, **{count: 4}),
                line(103, 6, **{count: 6, duration: 1.0}),
                line(104, 7, **{repeated: 3}, **spent),
                line(105.5, 8, **{count: 8, duration: 1.0}),
                line(112, 12, **{count: 12, duration: 1.5}),
            ],
        ]
    ):
        (folder / f"job.{attempt}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    past = read_past(folder, 2)
    assert past.num_repeated == 3 + 1 + 2
    assert {name: us / 1e6 for name, us in past.totals_us.items() if us} == {
        "productive": 1 + 3,
        "replay": 1 + 3,
        "fault_wait": 0.5 + 0.5,
    }


def test_repeated_steps_that_are_not_recorded_are_counted(folder: Path) -> None:
    train(0, 8)
    with trainspec_record.run() as run:
        for number in (0, 5, 9):
            with run.step(number):
                pass
    assert values(folder / "job.1.jsonl", "train.step.count") == [0, 1, 6, 10]
    assert values(folder / "job.1.jsonl", "train.step.repeated")[-1] == 8


def test_a_preempted_attempt_is_no_fault(folder: Path) -> None:
    with trainspec_record.run() as run:
        with run.step(0):
            pass
        run.end("preempted")
    with trainspec_record.run() as run, run.step(1):
        pass
    assert not events(folder / "job.0.jsonl", "train.fault.detected")
    assert not events(folder / "job.0.jsonl", "train.run.end")
    assert len(events(folder / "job.1.jsonl", "train.run.end")) == 1


@pytest.mark.parametrize(
    ("error", "reason", "status"),
    [
        (None, "completed", "completed"),
        (SystemExit, "completed", "completed"),
        (KeyboardInterrupt, "operator", "cancelled"),
        (ValueError, "fault", None),
    ],
)
def test_how_an_attempt_ends(folder: Path, error: type[BaseException] | None, reason: str, status: str | None) -> None:
    with suppress(error or AssertionError):
        train(0, 2, error=error)
    assert events(folder / "job.0.jsonl", "train.attempt.end")[0]["a"]["train.attempt.reason"] == reason
    ends = events(folder / "job.0.jsonl", "train.run.end")
    assert [end["a"]["train.run.status"] for end in ends] == [status] * (status is not None)


def test_the_last_attempt_of_a_launcher_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS"):
        monkeypatch.setenv(name, "0")
    with pytest.raises(LookupError):
        train(0, 2, error=LookupError)
    (end,) = events(folder / "job.0.jsonl", "train.run.end")
    assert (end["a"]["train.run.status"], end["severity"]) == ("failed", 17)


def test_the_state_of_a_checkpoint_counts_more_than_files(folder: Path) -> None:
    train(0, 6)
    with trainspec_record.run() as run:
        with run.restore("step-5", 5, state={"train.sample.count": 99, "no number": "x"}):  # type: ignore[dict-item]
            pass
        assert run.state()["train.sample.count"] == 99


def test_what_earlier_attempts_wrote_is_read_as_untrusted(folder: Path) -> None:
    train(0, 4)
    good = (folder / "job.0.jsonl").read_bytes()
    lines = [b"{}", b"[]", b"null", b'{"k":"m"}', b'{"k":"m","time_us":"x","seq":1}', b"\xff" * 50, b"[" * 5000]
    (folder / "job.0.jsonl").write_bytes(good + b"\n".join(lines) + b"\n")
    past = read_past(folder, 1)
    assert (past.largest_step, past.attempt) == (4, 0)
    assert counters_at(past.files, 3)["train.sample.count"] == 12
    assert counters_at(past.files, 77) == {}
    assert MAX_SEARCHED_BYTES < 10**9
    train(4, 6)
    assert values(folder / "job.1.jsonl", "train.step.count")[-1] == 6


# --- the end of an attempt that is read while it is written


def test_an_attempt_that_ended_since_it_was_read_has_no_fault(folder: Path) -> None:
    """With four writers in a folder the next one read the file of one that was about to write its end."""
    train(0, 8)
    path = folder / "job.0.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    path.write_bytes(
        b"".join(line for line in lines if b"train.attempt.end" not in line and b"train.run.end" not in line)
    )
    before = read_past(folder, 1)
    assert before.end_reason is None
    path.write_bytes(whole)
    past, faults = succeed(before, partial(read_past, folder, 1), 1, before.alive_us)
    assert (past.end_reason, faults) == ("completed", ())
    assert path.read_bytes() == whole


def test_an_attempt_without_an_end_has_a_fault_once(folder: Path) -> None:
    train(0, 8)
    path = folder / "job.0.jsonl"
    ends = (b"train.attempt.end", b"train.run.end")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if not any(end in line for end in ends)))
    again = partial(read_past, folder, 1)
    past, faults = succeed(again(), again, 1, 0)
    assert [fault.attempt for fault in faults] == [past.attempt] == [0]
    assert len(events(path, "train.fault.detected")) == len(events(path, "train.attempt.end")) == 1
    with os.fdopen(os.open(path, os.O_RDWR)) as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as the writer of a stream does
        content = path.read_bytes()
        succeed(again(), again, 1, 0)
        assert path.read_bytes() == content
