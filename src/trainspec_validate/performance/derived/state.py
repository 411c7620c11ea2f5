"""Derives the least bytes of model state that a rank of a plan holds."""

from __future__ import annotations

from dataclasses import replace

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.performance.costs.memory import (
    FORMAT_BYTES,
    ModelState,
    model_state,
    sharded_bytes_per_parameter,
)
from trainspec_validate.performance.derived.optimizer import optimizer_state
from trainspec_validate.performance.derived.trained import num_trained, trained_of

STAGES = {"none": 0, "optimizer": 1, "gradients": 2, "parameters": 3}


def offloaded_share(plan: TrainingPlan, what: str, target: str | None = None) -> float:
    """Share of a class of tensor that leaves the device, to one target or to any."""
    entries = plan.memory.offload if plan.memory else ()
    return sum(o.fraction for o in entries if o.what == what and target in (None, o.target))


def state_with(plan: TrainingPlan, gradients: str) -> ModelState:
    """The state that a plan's formats and optimizer imply when gradients are kept in a given format."""
    p = plan.precision
    state = model_state(p.parameters, p.master_parameters, gradients, "fp32", 0)
    return replace(state, moments=optimizer_state(plan.optimizer, p, plan.model, num_trained(plan)).num_bytes)


def least_state(plan: TrainingPlan) -> ModelState:
    """The smallest state that the formats of a plan allow."""
    p = plan.precision
    gradients = min((p.gradients, p.accumulation or p.gradients), key=FORMAT_BYTES.__getitem__)
    state = state_with(plan, gradients)
    held_once = p.master_parameters == p.parameters or plan.parallelism.sharding == "parameters"
    weights = 0 if p.master_parameters and held_once else state.weights
    return ModelState(weights, state.master, state.gradients, state.moments)


def state_bytes_per_rank(plan: TrainingPlan, *, offloaded_to: str | None = None) -> float:
    """Least bytes of model state on the fullest rank, or with `offloaded_to` those that it keeps there.

    A bound from below: every parameter is taken to be split as far as any is, and only trained ones have
    gradients.
    """
    state, degrees, parameters = least_state(plan), plan.parallelism, trained_of(plan)
    trained = parameters.num_trained
    weights = state.weights + parameters.frozen_bytes * parameters.num_frozen / trained
    kept = {
        "parameters": _kept(plan, "parameters", offloaded_to),
        "gradients": _kept(plan, "gradients", offloaded_to),
        "optimizer": _kept(plan, "optimizer", offloaded_to),
    }
    held = ModelState(
        weights=weights * kept["parameters"],
        master=state.master * kept["optimizer"],
        gradients=state.gradients * kept["gradients"],
        moments=state.moments * kept["optimizer"],
    )
    split = degrees.tensor
    if plan.model.experts:
        split = max(split, degrees.expert * (degrees.expert_tensor or degrees.tensor))
    split = min(split * degrees.pipeline, degrees.num_accelerators)
    shards = degrees.sharding_degree or degrees.data * degrees.context
    shards = max(1, min(shards, degrees.num_accelerators // split))
    return sharded_bytes_per_parameter(held, STAGES[degrees.sharding], shards) * trained / split


def _kept(plan: TrainingPlan, what: str, offloaded_to: str | None) -> float:
    if offloaded_to is not None:
        return min(1.0, offloaded_share(plan, what, offloaded_to))
    return max(0.0, 1 - offloaded_share(plan, what))
