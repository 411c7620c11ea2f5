"""Numbers of 8 and 4 bits of all backends: the same for the same values, and read by the same networks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from trainspec_conformance.testbed import probe_runs
from trainspec_conformance.testbed.plain import narrow as plain
from trainspec_conformance.testbed.recipes import refuse_recipe
from trainspec_conformance.testbed.rehearsal import only_rank
from trainspec_reference.common.backend import make
from trainspec_reference.common.job import Job, Rates

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.precision import LowPrecisionRecipe

RECIPES = [
    LowPrecisionRecipe(format="fp8-e4m3", scaling="current"),
    LowPrecisionRecipe(format="fp8-e5m2", scaling="current"),
    LowPrecisionRecipe(format="mxfp8", scaling="block", block_size=32),
    LowPrecisionRecipe(format="mxfp4", scaling="block", block_size=32),
]


NARROW = {"torch": "trainspec_conformance.testbed.torch", "jax": "trainspec_conformance.testbed.jax"}
"""Backends that train with a recipe; the trainers refuse it."""


def values() -> Any:
    """A block of zeros, ties of each format with their neighbours, and values of all magnitudes."""
    chance = np.random.default_rng(0)
    ties = np.arange(1, 1025, dtype=np.float32) * np.float32(448 / 1024)
    wide = chance.standard_normal(16384) * 2.0 ** chance.uniform(-30, 30, 16384)
    near = [np.nextafter(ties, np.float32(end)) for end in (-np.inf, np.inf)]
    return np.concatenate([np.zeros(32), ties, *near, wide]).astype(np.float32)


def narrowed(backend: str, recipe: LowPrecisionRecipe) -> tuple[Any, Any]:
    if backend == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        from trainspec_conformance.testbed.torch import narrow as of_torch

        found, scales = of_torch.narrowed(torch.tensor(values()), recipe)
        return found.numpy(), scales.numpy()
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    from trainspec_conformance.testbed.jax import narrow as of_jax

    found, scales = jax.jit(of_jax.narrowed, static_argnums=1)(jax.numpy.asarray(values()), recipe)
    return np.asarray(found), np.asarray(scales)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.format)
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_frameworks_round_as_the_arithmetic_of_doubles_does(backend: str, recipe: LowPrecisionRecipe) -> None:
    wanted, wanted_scales = plain.narrowed(values(), recipe)
    found, scales = narrowed(backend, recipe)
    assert scales == pytest.approx(wanted_scales, rel=2.0**-23)
    np.testing.assert_allclose(found, wanted, rtol=2.0**-22, atol=0)


def job(recipe: LowPrecisionRecipe | None = RECIPES[3], **shape: Any) -> Job:
    found = probe_runs._job(replace(probe_runs._SHAPE, **shape), Rates(), num_steps=1)
    return replace(found, plan=changed(found.plan, precision=changed(found.plan.precision, recipe=recipe)))


def losses(backend: str, recipe: LowPrecisionRecipe | None) -> list[float]:
    """Of a state-space network in thirty steps."""
    pytest.importorskip("jax", reason="JAX is not installed")
    import jax_tasks as tasks
    from jax_crew import CREW
    from torch_crew import Crew

    precision = {**tasks.SINGLE, "recipe": None if recipe is None else msgspec.to_builtins(recipe)}
    setup = tasks.Setup({"precision": precision}, shape=tasks.STATE_SPACE)
    if backend == "jax":
        return list(CREW.run(tasks.losses, 1, NARROW[backend], setup, 30)[0][1])
    if backend == "plain":
        return tasks.losses(only_rank(), backend, setup, 30)[1]
    crew = Crew()
    try:
        return list(crew.run(tasks.losses, 1, NARROW[backend], setup, 30)[0][1])
    finally:
        crew.close()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_networks_read_narrow_matrices_and_train_wide_ones(backend: str) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    recipe = RECIPES[3]
    wanted, wide = losses("plain", recipe), losses("plain", None)
    assert losses(backend, recipe) == pytest.approx(wanted, rel=1e-5)
    assert wanted != pytest.approx(wide, rel=1e-4)
    assert wanted[-1] < 0.9 * wanted[0]


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_a_trainer_refuses_a_recipe_that_it_would_not_follow(backend: str) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    with pytest.raises(ValueError, match="products in mxfp4 are not offered"):
        make(backend, job())


def test_what_a_rank_cannot_narrow_alone_is_refused() -> None:
    refuse_recipe(job())
    refuse_recipe(job(None, family="transformer"))
    with pytest.raises(ValueError, match="mxfp4 is for a state-space network"):
        refuse_recipe(job(family="transformer"))
    with pytest.raises(ValueError, match="nvfp4 with block scaling is not supported"):
        refuse_recipe(job(LowPrecisionRecipe(format="nvfp4", scaling="block", block_size=16)))
    with pytest.raises(ValueError, match="mxfp8 with current scaling"):
        refuse_recipe(job(LowPrecisionRecipe(format="mxfp8", scaling="current")))
    with pytest.raises(ValueError, match="no whole blocks of 100"):
        refuse_recipe(job(msgspec.structs.replace(RECIPES[3], block_size=100)))
