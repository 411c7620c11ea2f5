"""Every backend follows the golden traces."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import golden_traces
import pytest

ROOT = Path(__file__).parents[2]
FORMATS = ("fp32", "bf16", "fp16")
QUICK = [("plain", "state-space", each) for each in FORMATS] + [("torch", "state-space", "fp32")]
SLOW = [
    *(("torch", "transformer", each) for each in FORMATS),
    ("torch", "convolution", "fp32"),
    *(("torch", "experts", each) for each in ("fp32", "bf16")),
    *(("jax", plan, "fp32") for plan in ("transformer", "convolution", "state-space")),
    *(("jax", "state-space", each) for each in ("bf16", "fp16")),
]


def _checked(backend: str, plan: str, number_format: str) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own, for frameworks keep what one run has set."""
    if backend != "plain" and importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    command = [sys.executable, "tools/golden_traces.py", "--check", backend, plan, "--format", number_format]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "plan", "number_format"), QUICK)
def test_backend_follows_the_golden_trace(backend: str, plan: str, number_format: str) -> None:
    done = _checked(backend, plan, number_format)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize(("backend", "plan", "number_format"), SLOW)
def test_larger_model_follows_the_golden_trace(backend: str, plan: str, number_format: str) -> None:
    done = _checked(backend, plan, number_format)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("plan", sorted(golden_traces.MAKERS))
def test_golden_traces_learn(plan: str) -> None:
    losses = golden_traces.golden(plan)["losses"]
    assert len(losses) == golden_traces.NUM_STEPS
    assert losses[-1] < losses[0] - 0.3


def test_a_difference_is_told() -> None:
    kept = golden_traces.golden("state-space")
    losses = [*kept["losses"][:-1], kept["losses"][-1] * (1 + 2e-5)]
    assert golden_traces.worst_difference({**kept, "losses": losses}, kept) == pytest.approx(2e-5, rel=1e-6)
    with pytest.raises(ValueError, match="samples differ"):
        golden_traces.worst_difference({**kept, "sample_ids_sha256": ""}, kept)
    rates = [rate * 1.001 for rate in kept["learning_rates"]]
    with pytest.raises(ValueError, match="rates differ"):
        golden_traces.worst_difference({**kept, "learning_rates": rates}, kept)
