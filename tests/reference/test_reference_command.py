"""The command line: a run from documents to a directory that validates."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from trainspec_conformance.testbed import PLAIN
from trainspec_reference.common.run_settings import IN_USE, NOTHING_RESTORABLE, PREEMPTED

from tests.reference.plain_crew import PLANS
from trainspec_validate import Severity, validate
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types.trace import End, Restore, StepDone, TraceRecord

TIMEOUT_SECONDS = 600
PAPERS = ("--plan", "state-space.yaml", "--cluster", "cluster.yaml", "--checkpoint", "policy.yaml")


def _start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "trainspec_reference", *arguments]
    told = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.Popen(
        command, cwd=PLANS, env=told, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _run(*arguments: str) -> tuple[int, str]:
    process = _start(*arguments)
    try:
        out, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        _end(process)
    return process.returncode, out + errors


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _written(path: Path) -> int:
    """When a trace was written last: its name has the number of its process, and the system begins them anew."""
    return path.stat().st_mtime_ns


def _trace(directory: Path) -> list[TraceRecord]:
    lines = [
        line
        for path in sorted((directory / "trace").glob("*.jsonl"), key=_written)
        for line in path.read_bytes().splitlines()
    ]
    return [msgspec.json.decode(line, type=TraceRecord) for line in lines]


def _losses(directory: Path) -> dict[int, float]:
    return {r.step: float(r.loss) for r in _trace(directory) if isinstance(r, StepDone) and r.rank == 0}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_run_validates_clean(tmp_path: Path, ranks: str) -> None:
    _validates(tmp_path / "run", PLAIN, "--ranks", ranks)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_run_of_a_framework_validates_clean(tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(backend)
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiles in half of the time
    _validates(tmp_path / "run", backend, of_storage=COMPRESSED.get(backend, frozenset()))
    assert any((tmp_path / "run" / ".programs").iterdir()) == (backend == "jax")


COMPRESSED = {"jax": frozenset({"TS-CKP-096"})}
"""Orbax compresses arrays, so that two checkpoints of a small model differ by more than 1 %."""


def _validates(out: Path, *arguments: str, of_storage: frozenset[str] = frozenset()) -> None:
    status, text = _run(*arguments, *PAPERS, "--out", str(out), "--steps", "50")
    assert status == 0, text
    report = validate([str(out)])
    assert report.at_or_above(Severity.ERROR) == ()
    # Nothing on a machine without accelerators can write of devices; heads of files differ in size by the format.
    assert {finding.requirement for finding in report.findings} <= {"TS-TEL-071", "TS-TEL-062"} | of_storage
    names = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert names == ["latest", "step-00000025", "step-00000050"]
    assert sorted(_losses(out)) == list(range(1, 51))


def test_a_run_without_a_profile_validates(tmp_path: Path) -> None:
    arguments = (PLAIN, "--plan", "state-space.yaml", "--out", str(tmp_path), "--ranks", "1", "--steps", "3")
    assert _run(*arguments)[0] == 0
    assert validate([str(tmp_path / "plan.json")]).at_or_above(Severity.ERROR) == ()


@pytest.mark.slow
def test_no_program_is_taken_from_a_directory_that_is_found(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".programs").symlink_to(tmp_path / "elsewhere")
    assert _run(PLAIN, "--plan", "state-space.yaml", "--out", str(tmp_path / "run"), "--steps", "1")[0] == 0
    assert not (tmp_path / "run" / ".programs").is_symlink()
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "stopped"
    assert _run(PLAIN, *PAPERS, "--out", str(whole), "--steps", "150", "--ranks", "1")[0] == 0
    process = _start(PLAIN, *PAPERS, "--out", str(out), "--steps", "150", "--ranks", "1")
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not (out / "trace").is_dir() or len(_losses(out)) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT_SECONDS)
    finally:
        _end(process)
    assert process.returncode == PREEMPTED
    stopped_at = max(_losses(out))
    assert 5 <= stopped_at < 150
    assert _run(PLAIN, *PAPERS, "--out", str(out), "--steps", "150", "--ranks", "1")[0] == 0
    restores = [record for record in _trace(out) if isinstance(record, Restore)]
    assert [(record.source, record.step) for record in restores if record.step] == [("checkpoint", stopped_at)]
    assert _losses(out) == _losses(whole)
    ends = {tmp: [r.digest for r in _trace(tmp) if isinstance(r, End) and r.step == 150] for tmp in (whole, out)}
    assert ends[whole] == ends[out]
    report = validate([str(out)])
    assert report.at_or_above(Severity.ERROR) == ()


def _extended(out: Path, backend: str) -> None:
    """A run is given more steps after its end, then on another number of ranks, and then has nothing to do."""
    plan = out.parent / "plan.yaml"
    plan.write_text("".join(x for x in (PLANS / PAPERS[1]).open() if "elastic:" not in x and "cluster:" not in x))
    arguments = (backend, "--plan", str(plan), "--checkpoint", PAPERS[5], "--out", str(out), "--steps")
    for rest in (("6",), ("9",), ("12", "--ranks", "1"), ("12", "--ranks", "1")):
        status, text = _run(*arguments, *rest)
        assert status == 0, text
    report = validate([str(out)])
    assert [f"{each.requirement} {each.message}" for each in report.at_or_above(Severity.ERROR)] == []
    assert [record.step for record in _trace(out) if isinstance(record, End)] == [6, 9, 12, 12]
    assert sorted(_losses(out)) == list(range(1, 13))


@pytest.mark.slow
def test_a_run_that_has_ended_is_given_more_updates(tmp_path: Path) -> None:
    _extended(tmp_path / "run", PLAIN)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_run_of_a_framework_is_given_more_updates(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    _extended(tmp_path / "run", backend)


@pytest.mark.slow
def test_damage_is_not_trained_from(tmp_path: Path) -> None:
    arguments = (PLAIN, *PAPERS, "--out", str(tmp_path), "--ranks", "1", "--steps")
    assert _run(*arguments, "25")[0] == 0
    state = tmp_path / "checkpoints/step-00000025/state-0-of-1.npz"
    state.write_bytes(state.read_bytes()[:-1])
    assert _run(*arguments, "30")[0] == NOTHING_RESTORABLE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((PLAIN, "--plan", "absent.yaml"), "absent.yaml"),
        ((PLAIN, "--plan", "policy.yaml"), "missing required field `kind` with the value TrainingPlan"),
        ((PLAIN, "--plan", "state-space.yaml", "--ranks", "0"), "0 is not 1 or more"),
        ((PLAIN, "--plan", "state-space.yaml", "--ranks", "3"), "TS-BAT-001"),
        ((PLAIN, "--plan", "state-space.yaml", "--on-loss", "pray"), "invalid choice: 'pray'"),
        ((PLAIN, "--plan", "broken.yaml"), "TS-DOC"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    (tmp_path / "broken.yaml").write_text("apiVersion: trainspec/v1\nkind: TrainingPlan\nmetadata: {name: x}\n")
    told = [str(tmp_path / part) if part == "broken.yaml" else part for part in arguments]
    status, text = _run(*told, "--out", str(tmp_path / "run"))
    assert status == IN_USE
    assert words in text
    assert not (tmp_path / "run").exists()


def test_a_plan_that_a_backend_cannot_follow_leaves_nothing_behind(tmp_path: Path) -> None:
    plan = load_file(PLANS / "transformer.yaml").data
    plan["parallelism"] = {"num_accelerators": 2, "pipeline": 2, "schedule": "1f1b"}
    plan["batch"] = {"global_sequences": 16, "micro_sequences": 4, "accumulation_steps": 4}
    del plan["cluster"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    status, text = _run("jax", "--plan", str(tmp_path / "plan.json"), "--out", str(tmp_path / "run"))
    assert status == IN_USE
    assert "jax does not support parallelism.schedule of this plan: a pipeline runs by gpipe, not by 1f1b" in text
    assert not (tmp_path / "run").exists()
