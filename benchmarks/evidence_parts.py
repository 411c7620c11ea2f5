"""Measures each part of the evidence of a device; `evidence` runs each in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import golden_traces
import recovery
import torch
from trainer import Ranks, Rounds
from trainer_setups import MICRO_SEQUENCES, NUM_MICRO_BATCHES, SHAPES, Setup, setups
from trainer_worker import Measured
from trainspec_conformance.testbed.precision import loss_tolerance
from trainspec_conformance.testbed.probe_arrays import Request
from trainspec_conformance.testbed.probe_machine import energy as metered
from trainspec_conformance.testbed.torch import floors
from trainspec_conformance.testbed.torch.memory import predicted_bytes
from trainspec_conformance.testbed.torch.probes import BackendProbes
from trainspec_reference.common.reading import NotTrainableError

from trainspec_validate.performance.costs.transformer import (
    Shape,
    attention_flops_per_token,
    model_flops_per_token,
    parameters,
)

_PREDICTED = "fused attention"
"""The setup whose memory is predicted: `predicted_bytes` counts tensors in fp32, with fused attention."""


def kernels(device: str, short: bool) -> dict[str, Any]:  # noqa: ARG001 - nothing to shorten; as every part
    """Kernels of a training step against the roofline of the same run."""
    found = floors.measure(torch.device(device))
    shares = [kernel for kernel in found["kernels"] if kernel["share"] is not None]
    below = [kernel["operation"] for kernel in shares if kernel["share"] < kernel["floor"]]
    words = f"{len(shares) - len(below)} of {len(shares)} kernels at or above their floor"
    return {**found, "summary": f"{words}; below it: {', '.join(below)}" if below else words}


def narrow_products(device: str, short: bool) -> dict[str, Any]:
    """Products in FP8 with scales of a whole tensor and of rows, against the same in BF16, in turn in one run."""
    if device != "cuda":
        raise SystemExit("products in FP8 run on an accelerator alone")
    found = floors.narrow_products(torch.device(device), num_timed_runs=20 if short else None)
    ratios = [row["times_bf16"] for row in found["products"]]
    words = f"FP8 {min(ratios):.2f} to {max(ratios):.2f} times the rate of BF16 over {len(ratios)} products"
    return {**found, "summary": words}


def steps(device: str, short: bool) -> dict[str, Any]:
    """Steps of naive and conformant setups, in one run, with the share of the roofline and the memory."""
    num_rounds, num_steps = (1, 4) if short else (2, 12)
    num_ranks = min(2, torch.cuda.device_count()) if device == "cuda" else 2
    chosen = [replace(setup, hosts=("a",) * num_ranks) for setup in setups()]
    ranks = Ranks()
    with tempfile.TemporaryDirectory() as folder:
        try:
            runs = Rounds(device, num_rounds, num_steps, Path(folder)).measured(ranks, chosen)
        finally:
            ranks.close()
    best = max(rate.per_second for rate in _rooflines(device))
    rows = {setup.name: _row(runs[setup.name], device, best) for setup in chosen}
    naive, conformant = (rows[name]["computing_seconds"] for name in ("naive", "all together"))
    shape = {"model": asdict(SHAPES[device]), "num_ranks": num_ranks, "num_rounds": num_rounds, "num_steps": num_steps}
    memory = _memory(chosen, runs, device)
    share = rows["all together"]["share_of_roofline"]
    words = f"{naive / conformant:.2f} times as fast together, without saves; {share:.3f} of the roofline"
    return {**shape, "roofline_flops_per_second": best, "setups": rows, "memory": memory, "summary": words}


def _rooflines(device: str) -> list[floors.Rate]:
    """The best square products, in the format that the fastest setup computes in."""
    return [
        floors.Rate(**rate)
        for rate in floors.measure(torch.device(device))["rooflines"]
        if "matmul" in rate["operation"]
    ]


def _row(runs: Sequence[Measured], device: str, best: float) -> dict[str, Any]:
    seconds = [run.step_seconds for run in runs]
    median = statistics.median(seconds)
    per_second = _flops_per_step(device) / statistics.median(run.computing_seconds for run in runs)
    return {
        "median_step_seconds": median,
        "least_step_seconds": min(seconds),
        "largest_step_seconds": max(seconds),
        "computing_seconds": statistics.median(run.computing_seconds for run in runs),
        "exposed_seconds": statistics.median(run.exposed_seconds for run in runs),
        "save_stall_seconds": statistics.median(run.stall_seconds for run in runs),
        "model_flops_per_second": per_second,
        "share_of_roofline": per_second / best,
    }


def _flops_per_step(device: str) -> float:
    """Model operations of one rank and step: six for each parameter and token, and those of causal attention."""
    of = SHAPES[device]
    heads = of.num_heads, of.num_heads, of.hidden_size // of.num_heads
    shape = Shape(of.num_layers, of.hidden_size, *heads, of.ffn_hidden_size, of.vocabulary_size)
    attention = attention_flops_per_token(shape, of.sequence_length, causal=True)
    per_token = model_flops_per_token(parameters(shape).total, attention, shape.embedding_parameters)
    return per_token * of.sequence_length * MICRO_SEQUENCES[device] * NUM_MICRO_BATCHES


def _memory(chosen: Sequence[Setup], runs: dict[str, list[Measured]], device: str) -> dict[str, Any]:
    """What tensors took at most, beside what was predicted before the run."""
    (setup,) = (setup for setup in chosen if setup.name == _PREDICTED)
    predicted = predicted_bytes(setup.job(device, 1))
    peaks = [run.peak_bytes for run in runs[_PREDICTED] if run.peak_bytes is not None]
    if not peaks:
        return {"setup": _PREDICTED, "predicted_bytes": predicted, "not_measured": "a host counts no tensors"}
    peak = max(peaks)
    return {"setup": _PREDICTED, "predicted_bytes": predicted, "peak_bytes": peak, "ratio": predicted / peak}


def energy(device: str, short: bool) -> dict[str, Any]:  # noqa: ARG001 - the meter says what it is of
    """The energy counter compared with the integral of power, while the device works."""
    wanted = {"operation": "energy", "seconds": 3.0 if short else 30.0, "interval_seconds": 0.1}
    found = metered(Request("energy", wanted), BackendProbes())
    moments = [
        moment for moment in zip(found["seconds"], found["joules"], found["watts"], strict=True) if None not in moment
    ]
    counted = moments[-1][1] - moments[0][1]
    integral = sum((b[0] - a[0]) * (a[2] + b[2]) / 2 for a, b in pairwise(moments))
    facts = {"subject": found["subject"], "counted_joules": counted, "integrated_joules": integral}
    return {**facts, "ratio": counted / integral, "summary": f"counter over integral {counted / integral:.3f}"}


def golden(backend: str, device: str, short: bool) -> dict[str, Any]:
    """Losses of a framework on the device compared with the golden traces."""
    worst, left_out = dict[str, float](), dict[str, str]()
    for plan in ["state-space"] if short else golden_traces.MAKERS:
        try:
            found = golden_traces.traced(backend, plan, "fp32", device)
        except NotTrainableError as error:
            left_out[plan] = str(error)
        else:
            worst[plan] = golden_traces.worst_difference(found, golden_traces.golden(plan))
    bound, largest = loss_tolerance("fp32"), max(worst.values())
    words = f"losses within {largest:.2g} of the golden traces, of {bound:.2g} that the format allows"
    facts = {"framework": f"{backend} {version(backend)}", "tolerance": bound, "largest_relative_difference": worst}
    return {**facts, "left_out": left_out, "holds": largest <= bound, "summary": words}


def recovered(backend: str, device: str, short: bool) -> dict[str, Any]:
    """Marks after a killed worker with a framework."""
    (case,) = (case for case in recovery.CASES if case.name == "killed, worker respawned")
    # JAX takes one rank for each device; ranks of PyTorch that share one exchange over gloo.
    num_ranks = min(2, torch.cuda.device_count()) if device == "cuda" and backend == "jax" else 2
    stack = recovery.Stack(backend, "transformer", num_ranks, device)
    trials = [recovery.trial(stack, case) for _ in range(1 if short else 5)]
    largest = max(trial["first step"] for trial in trials)
    words = f"first step at most {largest:.2f} s after a kill, {len(trials)} trials"
    return {"case": case.name, "num_ranks": stack.num_ranks, "trials": trials, "summary": words}


DEVICE_SCENARIOS = ("kernel-floors", "energy-counted", "memory-by-factor", "state-sharded")
"""Scenarios whose verdict depends on an accelerator."""


def scenarios(backend: str, device: str, short: bool) -> dict[str, Any]:  # noqa: ARG001 - a stack takes what is there
    """Verdicts of the scenarios that need a device, one trial each."""
    stack = Path(__file__).resolve().parents[1] / "conformance" / "stacks" / f"reference-{backend}.yaml"
    names = DEVICE_SCENARIOS[:1] if short else DEVICE_SCENARIOS
    chosen = [argument for name in names for argument in ("--scenario", name)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "trainspec_conformance", "run", str(stack), "--trials", "1", *chosen]
        ended = subprocess.run([*command, "--report", f"{folder}/report"], capture_output=True, text=True, check=False)
        report = Path(folder, "report", "report.json")
        if not report.exists():
            raise SystemExit((ended.stderr.strip() or f"status {ended.returncode}").splitlines()[-1])
        results = json.loads(report.read_text(encoding="utf-8"))["scenarios"]
    verdicts = {one["scenario"]: {"verdict": one["verdict"], "reason": one.get("reason")} for one in results}
    passed = [name for name, one in verdicts.items() if one["verdict"] == "pass"]
    words = f"{len(passed)} of {len(verdicts)} scenarios pass: " + ", ".join(
        f"{name} {one['verdict']}" for name, one in verdicts.items()
    )
    return {"verdicts": verdicts, "holds": len(passed) == len(verdicts), "summary": words}
