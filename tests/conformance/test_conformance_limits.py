"""A history that somebody else sends costs bounded memory, and time that grows with its size alone."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from conformance_reports import report, scenario_report, trial
from trainspec_conformance import commands, history, verifying
from trainspec_conformance.criteria import trajectory
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import judge_trial
from trainspec_conformance.reading import all_scenarios, read
from trainspec_conformance.records import Ended, Entry, Started, Streamed
from trainspec_conformance.verifying import differences
from trainspec_conformance.view import View

from tests.trees import deep_tree
from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.conformance_report import ConformanceReport, Evidence
from trainspec_validate.documents.types.trace import FaultSeen, Refused, Restore, Save, StepDone

HERE = Path(__file__).parent
LINE = b'{"seconds":0.0,"record":{"k":"ended","reason":"done"}}\n'
LISTS = b"[" + b"[]," * 600_000 + b"[]]"
STREAMED = b'{"seconds":0.0,"record":{"k":"streamed","kind":"event","attempt":0,"time_us":1,"attributes":{"a":%s}}}\n'
READ = """
import re, sys
from pathlib import Path
from trainspec_conformance.history import read_history
try:
    read_history(Path(sys.argv[1]))
except ValueError as error:
    print(error)
print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1])
"""
PACKAGE = str(Path(history.__file__).parent)


@pytest.mark.parametrize(
    ("name", "most", "unit"),
    [
        ("HISTORY_BYTES", 600, "bytes"),
        ("HISTORY_LINE_BYTES", 20, "bytes of one line"),
        ("HISTORY_ENTRIES", 10, "entries"),
        ("HISTORY_ACTS", 10, "entries of what the suite did to the job and the store"),
        ("HISTORY_VALUE_BYTES", 6_000, "bytes of values in memory"),
    ],
)
def test_a_history_that_passes_a_limit_is_refused_by_its_name(
    name: str, most: int, unit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(LINE * 20)
    assert len(read_history(path)) == 20
    monkeypatch.setattr(history, name, replace(getattr(history, name), most=most))
    with pytest.raises(
        ValueError, match=rf"history\.jsonl:[0-9]+: the history of a trial may have at most {most:,} {unit}"
    ):
        read_history(path)


@pytest.mark.slow
def test_nested_lists_of_a_history_cost_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(STREAMED % LISTS * 60)  # decoded, 2.3 GB
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
    refusal, peak_kibibytes = done.stdout.splitlines()
    assert "may have at most 600,000,000 bytes of values in memory" in refusal
    assert int(peak_kibibytes) < 1 << 20


@pytest.mark.parametrize(
    "first",
    [
        b'{"seconds":2.0,"record":{"k":"ended","reason":"done"}}\n',
        b'{"seconds":-1.0,"record":{"k":"ended","reason":"done"}}\n',
    ],
    ids=["back", "negative"],
)
def test_a_history_is_in_the_order_of_time(first: bytes, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(first + LINE)
    with pytest.raises(ValueError, match=r"history\.jsonl:[12]: a trial writes entries in the order of time"):
        read_history(path)


def test_more_ranks_than_a_job_can_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b'{"seconds":0.0,"record":{"k":"started","pid":1,"attempt":0,"num_ranks":9999999999}}\n')
    with pytest.raises(ValueError, match=r"history\.jsonl:1: .*num_ranks"):
        read_history(path)


def test_a_view_sees_what_is_added_to_its_history() -> None:
    entries = [Entry(seconds=0.0, record=Started(pid=1, attempt=0, num_ranks=2))]
    view = View(entries)
    assert len(list(view.of(Started))) == 1
    entries.append(Entry(seconds=1.0, record=Started(pid=2, attempt=1, num_ranks=2)))
    assert [entry.seconds for entry, _ in view.of(Started)] == [0.0, 1.0]
    assert [entry.seconds for entry, _ in view.of(Started, 0.5)] == [1.0]


def _grown(num: int) -> list[Entry]:
    """A run of two ranks that has as many attempts, saves, faults and values in streams as steps."""
    found: list[Any] = [Started(pid=1, attempt=0, num_ranks=2), Started(pid=1, attempt=0, num_ranks=2, resume=True)]
    for number in range(1, num + 1):
        of_all = {"time_us": number, "attempt": number}
        name = f"step-{number}"
        found += [
            Restore(**of_all, rank=0, step=number + 30, source="checkpoint", checkpoint=name),
            FaultSeen(**of_all, kind="process", rank=1),
            Refused(**of_all, checkpoint=name, reason="damaged"),
            *(
                StepDone(
                    **of_all,
                    rank=n,
                    step=number,
                    loss=1.0,
                    learning_rate=1.0,
                    sample_ids=(number, n),
                    gradient_norm=1.0,
                )
                for n in (0, 1)
            ),
            *(
                Save(**of_all, checkpoint=name, step=number, stage=stage, rank=0)
                for stage in ("begin", "committed", "failed")
            ),
            *(_streamed(number, rank) for rank in (None, 0, 1)),
        ]
    return [Entry(seconds=float(number), record=record) for number, record in enumerate(found)]


def _streamed(number: int, rank: int | None) -> Streamed:
    names = (
        "train.step.count",
        "train.gradient.variance",
        "train.gradient.signal",
        "train.step.duration",
        "train.sample.count",
    )
    attributes: Any = {"train.gradient.group_sizes": [1, 1], "train.gradient.num_groups": 2}
    kind: Any = "sample" if number > 1 else "head"
    place: Any = {"attempt": number, "time_us": number, "rank": rank, "step": number}
    return Streamed(kind=kind, values=dict.fromkeys(names, 1.0), attributes=attributes, **place)


def _num_lines(work: Callable[[], object]) -> int:
    """How many lines of the suite are executed."""
    count = 0

    def seen(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return seen

    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


@pytest.mark.parametrize("name", sorted(all_scenarios()))
def test_the_work_of_a_verdict_grows_with_its_history_alone(name: str) -> None:
    stack, scenario = read(HERE / "fake.yaml", StackDescriptor), all_scenarios()[name]
    judge_trial(stack, scenario, [], None)
    few, more, many = (_num_lines(partial(judge_trial, stack, scenario, _grown(n), _grown(n))) for n in (10, 40, 160))
    assert many - more < 6 * (more - few)  # 4 times as much in proportion to the size, 16 times with its square


def test_updates_are_gathered_once_for_all_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered, seen = trajectory._gathered, list[int]()
    monkeypatch.setattr(trajectory, "_gathered", lambda view: seen.append(len(view.entries)) or gathered(view))
    stack = read(HERE / "fake.yaml", StackDescriptor)
    judge_trial(stack, all_scenarios()["kill-rank"], _grown(10), _grown(20))
    assert sorted(seen) == [len(_grown(10)), len(_grown(20))]
    view = View(_grown(10))
    assert len(trajectory.steps(view)) == 10
    view.entries = _grown(20)
    assert len(trajectory.steps(view)) == 20


def test_a_trial_writes_no_more_than_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "HISTORY_ENTRIES", replace(history.HISTORY_ENTRIES, most=100))
    trace, path = tmp_path / "trace", tmp_path / "history.jsonl"
    trace.mkdir()
    (trace / "rank-0.jsonl").write_bytes(b"no record\n" * 1_000)
    own = history.History(path)
    watcher = history.Watcher(trace, tmp_path, own)
    watcher.poll()
    assert (own.has_room, watcher.poll()) == (False, [])
    own.tell(Ended(reason="done"))
    own.close()
    assert read_history(path) == own.entries
    assert 90 < len(own.entries) < 100


def _judged_again(directory: Path, made: ConformanceReport) -> list[str]:
    (directory / "report.json").write_bytes(msgspec.json.encode(made))
    return list(differences(directory))


def test_each_file_and_history_is_read_once_however_often_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "x" / "trial-1"
    place.mkdir(parents=True)
    (place / "history.jsonl").write_bytes(LINE)
    listed = Evidence(path="x/trial-1/history.jsonl", size_bytes=len(LINE), sha256=hashlib.sha256(LINE).hexdigest())
    one = scenario_report("kill-rank", "fail", *[trial(1)] * 50, control="x/trial-1")
    reads: list[Path] = []
    monkeypatch.setattr(verifying, "read_history", lambda path: reads.append(path) or read_history(path))
    told = _judged_again(tmp_path, report(*[one] * 50, evidence=(listed,) * 50))
    assert len(reads) <= 2
    assert "kill-rank: the report names the scenario twice; the second is not judged" in told
    assert "x/trial-1/history.jsonl: the report names the file twice" in told
    assert "kill-rank: 50 trials name 1 directory" in told


def test_a_file_of_another_size_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").touch()
    os.truncate(tmp_path / "x", 1 << 40)  # sparse
    told = _judged_again(tmp_path, report(evidence=(Evidence(path="x", size_bytes=1, sha256="0" * 64),)))
    assert "x: the file has changed since the report: it has another size" in told
    claimed = report(evidence=(Evidence(path="x", size_bytes=1 << 40, sha256="0" * 64),))
    with pytest.raises(ValueError, match="the evidence of a report may have at most 274,877,906,944 bytes"):
        _judged_again(tmp_path, claimed)


def test_directories_of_any_depth_are_looked_through(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(msgspec.json.encode(report()))
    with deep_tree(tmp_path):
        assert list(verifying.not_looked_at(tmp_path)) == ["a/" * 1_200 + "file"]


def test_what_the_storage_refuses_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(commands, "write_templates", full)
    assert commands.init(tmp_path / "Mine") == 2
    assert capsys.readouterr().err == f"trainspec-conformance: {tmp_path / 'Mine'}: no space left on device\n"
