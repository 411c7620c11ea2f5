"""PyTorch and JAX train alike: same weights, same samples, losses within a stated tolerance, for all families."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

import jax_tasks as tasks
from jax_crew import CREW
from jax_tasks import FAMILIES, SINGLE, Setup
from torch_crew import Crew

RELATIVE = 1e-5
"""Of a loss in fp32 over 100 steps; measured on the same model: 7e-7 over 50 steps."""
NUM_STEPS = 100


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_both_frameworks_have_the_same_losses(family: str) -> None:
    rates = replace(tasks.RATES, peak=1e-3)
    setup = Setup({"precision": SINGLE}, shape=FAMILIES[family], rates=rates)
    crew = Crew()
    try:
        torch_digest, torch_losses = crew.run(tasks.losses, 1, "torch", setup, NUM_STEPS)[0]
    finally:
        crew.close()
    assert torch_losses[-1] < torch_losses[0]
    for num_ranks in (1, 2):
        jax_digest, jax_losses = CREW.run(tasks.losses, num_ranks, "jax", setup, NUM_STEPS)[0]
        assert jax_losses == pytest.approx(torch_losses, rel=RELATIVE), f"{num_ranks} ranks"
        assert jax_digest == torch_digest
