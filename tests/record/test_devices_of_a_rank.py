"""A JAX process with several devices counts as so many ranks of a plan, and utilisation is that of all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainspec_validate.pipeline.validation import validate

from .recorded import SOURCE, records, values

pytest.importorskip("jax")

NUM_DEVICES, COST, PEAK = 4, 1e4, 4e9
SCRIPT = f"""
import time
from trainspec_record import progress
from trainspec_record.adapters.jax import Loop, begin

progress.RATE_SECONDS = 0.02
with begin(flops_per_token={COST}, peak_flops={PEAK}, loss_reduction="global-token-mean") as run, Loop(run) as loop:
    for number in range(8):
        with loop.step(number):
            time.sleep(0.01)
            loop.log(loss=2.0, learning_rate=0.1, gradient_norm=1.0, samples=4, tokens=512)
"""
PLAN = """apiVersion: trainspec/v1
kind: TrainingPlan
metadata: {{name: small}}
model: {{name: small, family: other, num_parameters: 1000, vocabulary_size: 100, sequence_length: 128}}
parallelism: {{num_accelerators: {num}, data: {num}}}
batch: {{global_sequences: {num}, micro_sequences: 1, accumulation_steps: 1}}
precision: {{compute: bf16, parameters: fp32, gradients: fp32, reduction: fp32}}
job: {{num_steps: 8}}
"""


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("devices") / "r-1"
    flags = f"--xla_force_host_platform_device_count={NUM_DEVICES}"
    settings = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "PYTHONPATH": SOURCE, "TRAINSPEC_RUN": str(folder)}
    subprocess.run([sys.executable, "-c", SCRIPT], env={**os.environ, **settings}, check=True, timeout=120)
    return folder


def test_utilisation_is_that_of_all_devices(stream: Path) -> None:
    job = stream / "job.0.jsonl"
    assert records(job)[0]["declared"]["train.rank.num_devices"] == NUM_DEVICES
    rates, shares = values(job, "train.token.rate"), values(job, "train.flops.utilization")
    assert rates
    assert shares == pytest.approx([rate * COST / (PEAK * NUM_DEVICES) for rate in rates[-len(shares) :]])


@pytest.mark.parametrize(("num_planned", "num"), [(4, 0), (1, 1)])
def test_a_plan_counts_devices(stream: Path, tmp_path: Path, num_planned: int, num: int) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.format(num=num_planned), encoding="utf-8")
    found = validate([plan, stream]).findings
    assert sum(one.requirement == "TS-TEL-066" for one in found) == num
    assert not [one for one in found if one.requirement == "TS-TEL-039"]
