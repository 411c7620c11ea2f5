"""Runs whose ranks share sequences: they validate, follow the golden trace, change their degree, and lose a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import golden_traces
import pytest
from recovery_run import PLANS, Run
from trainspec_conformance.testbed.planted import PlantedFault, planted
from trainspec_conformance.testbed.precision import loss_tolerance
from trainspec_reference.common.job import Job, ModelShape
from trainspec_reference.common.reading import Changes, read_job

from trainspec_validate import Severity, validate
from trainspec_validate.documents.load import load_file

TIMEOUT_SECONDS = 600
BACKENDS = ("torch", "jax")
SHAPE = ModelShape(num_layers=1, hidden_size=16, num_heads=2, ffn_hidden_size=32, sequence_length=16)
WITHOUT_DEVICES = {"TS-TEL-071", "TS-TEL-062"}


def _plan(directory: Path, num_context: int) -> Path:
    """The plan of the golden trace on one data rank."""
    data = load_file(PLANS / "transformer.yaml").data
    data["parallelism"] = {"num_accelerators": num_context, "data": 1, "context": num_context}
    data["batch"] |= {"accumulation_steps": 4, "elastic": {"data_degrees": [1, 2], "micro_sequences": [4]}}
    del data["cluster"]["file"]
    path = directory / f"context-{num_context}.json"
    path.write_text(json.dumps(data))
    return path


def _train(backend: str, plan: Path, out: Path, num_steps: int) -> None:
    papers = ["--plan", str(plan), "--cluster", "cluster.yaml", "--checkpoint", "transformer-policy.yaml"]
    command = [sys.executable, "-m", "trainspec_reference", backend, *papers, "--out", str(out)]
    done = subprocess.run(
        [*command, "--steps", str(num_steps)],
        cwd=PLANS,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _told(out: Path) -> dict[int, dict[str, Any]]:
    """What rank 0 told of each update."""
    lines = [line for path in (out / "trace").glob("*.jsonl") for line in path.read_text().splitlines()]
    records = [record for record in map(json.loads, lines) if record["k"] == "step" and record["rank"] == 0]
    return {record["step"]: record for record in records}


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_follows_the_golden_trace_and_goes_on_with_another_degree(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    out, two, one = tmp_path / "run", _plan(tmp_path, 2), _plan(tmp_path, 1)
    _train(backend, two, out, 50)
    report = validate([str(out)])
    assert report.at_or_above(Severity.ERROR) == ()
    assert {finding.requirement for finding in report.findings} <= WITHOUT_DEVICES | {"TS-CKP-096"}
    _train(backend, one, out, 75)
    _train(backend, two, out, 100)
    told, kept = _told(out), golden_traces.golden("transformer")
    assert sorted(told) == list(range(1, golden_traces.NUM_STEPS + 1))
    losses = [told[step]["loss"] for step in sorted(told)]
    assert losses == pytest.approx(kept["losses"], rel=loss_tolerance("fp32"))


def _job(directory: Path, *faults: PlantedFault) -> Job:
    job = read_job(_plan(directory, 2), PLANS / "transformer-policy.yaml", Changes(num_steps=30))
    return planted(replace(job, model=SHAPE, min_step_seconds=0.005), faults)


@pytest.mark.long
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lost_context_rank_changes_no_number(tmp_path: Path, backend: str) -> None:
    pytest.importorskip(backend)
    whole = Run(tmp_path / "whole", _job(tmp_path), backend=backend)
    lost = Run(tmp_path / "lost", _job(tmp_path, PlantedFault("exception", 1, 15)), backend=backend)
    try:
        assert (whole.run(), lost.run()) == (0, 0)
    finally:
        whole.end()
        lost.end()
    (fault,) = lost.records("fault")
    assert (fault["kind"], fault["rank"]) == ("process", 1)
    assert lost.losses() == whole.losses()
    assert lost.digest == whole.digest
    sources = {record["source"] for record in lost.records("restore") if record.get("attempt")}
    assert sources == {"peer" if backend == "torch" else "initial"}
