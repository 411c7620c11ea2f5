"""Computes the model state that one rank holds, sharded and gathered."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.memory_overheads import Overheads
from trainspec_validate.performance.costs.stage_memory import RankParameters, Stage
from trainspec_validate.performance.costs.step_traffic import gradient_reductions


@dataclass(frozen=True, slots=True)
class RankState:
    """Bytes of model state on one rank."""

    weights: float
    gradients: float
    optimizer: float


def _gathered(
    part: RankParameters, stage: Stage, tables: float, layout: Layout, overheads: Overheads
) -> tuple[float, float]:
    """Bytes of the weights and of the gradients that are whole on a rank although they are sharded."""
    expert_layer = part.expert_layer + part.experts
    if overheads.gathers_matrices:
        largest = _larger(stage, part.dense_matrix, part.expert_matrix)
    else:
        largest = _larger(stage, part.dense_layer, expert_layer)
    if overheads.gathers_matrices:
        tables = min(tables, part.table)
    gradients = overheads.gathered_gradient_bytes * max(largest, tables)
    if overheads.stage_stays_gathered:
        layers = stage.num_dense_layers * part.dense_layer + stage.num_expert_layers * expert_layer
        # With no more micro-batches than ranks, a chunk has ended all its backward passes before the next begins.
        one_by_one = layout.schedule == "interleaved-1f1b" and layout.num_micro_batches <= layout.pipeline
        adding_up = (layers + tables) / (layout.num_virtual_stages if one_by_one else 1)
        gradients += overheads.accumulated_gradient_bytes * adding_up
    else:
        layers = overheads.gathered_units * largest
    if overheads.tables_stay_gathered or overheads.stage_stays_gathered:
        return overheads.gathered_weight_bytes * layers + overheads.gathered_table_bytes * tables, gradients
    units = 1.0 if overheads.gathers_matrices else overheads.gathered_units  # the next unit of a table is a layer's
    one_table = units * overheads.gathered_table_bytes * tables
    return max(overheads.gathered_weight_bytes * layers, one_table), gradients


def _larger(stage: Stage, dense: float, expert: float) -> float:
    """The larger of a dense and an expert layer, of those that a stage has."""
    return max(dense if stage.num_dense_layers else 0.0, expert if stage.num_expert_layers else 0.0)


def _adding_up(layout: Layout) -> float:
    """Share of a stage whose gradients are whole while micro-batches add up: the chunk at work and the one before.

    See `step_traffic.gradient_reductions`; where each micro-batch is reduced by itself, none adds up.
    """
    if layout.sharding_stage != 2 or gradient_reductions(layout) == layout.num_micro_batches:
        return 0.0
    return 2 / layout.num_virtual_stages


def rank_state(
    part: RankParameters, stage: Stage, layout: Layout, state: ModelState, overheads: Overheads
) -> RankState:
    """Bytes of weights, gradients and optimizer on one rank of a pipeline stage.

    Sharding follows arXiv:1910.02054, Table 1: the optimizer from stage 1, gradients from 2, weights
    from 3. Copies of an expert share the state of that expert, all data and context ranks that of the rest
    (NVIDIA/Megatron-LM@d98e8a64, distributed optimizer: 6 + 12 / (data x context) bytes with fp32 gradients).
    At stage 3 the units at work are gathered: arXiv:2304.11277, the sum of `psi / F` and the largest
    `psi`. At stage 2 of an interleaved pipeline two chunks hold whole gradients. Of what waits on the host, the largest
    unit is on the device while it is at work (deepspeedai/DeepSpeed@ea78ab68:deepspeed/runtime/zero/stage3.py,
    `estimate_zero3_model_states_mem_needs`). A 7.5e9 model of equal layers on 64 ranks at stage 1, 31.4 GB in that
    table:

    >>> part, stage = RankParameters(75e6, 0.0, 0.0, 0.0, 0.0), Stage(100, 0, 1, 1, 2)
    >>> adam = ModelState(weights=2, master=4, gradients=2, moments=8)
    >>> held = rank_state(part, stage, Layout(data=64, sharding_stage=1), adam, Overheads())
    >>> (held.weights + held.gradients + held.optimizer) / 1e9
    31.40625
    """
    tables = stage.num_tables * part.table + stage.output_tables * part.final_norm
    dense = stage.num_dense_layers * part.dense_layer + stage.num_expert_layers * part.expert_layer + tables
    experts = stage.num_expert_layers * part.experts
    expert_shards = layout.num_expert_copies * (layout.sharding_degree or layout.data) / layout.data
    sharded = dense / layout.num_shards + experts / max(1.0, expert_shards)
    whole, zero = dense + experts, layout.sharding_stage
    weights = state.weights * (whole if zero < 3 else sharded)
    gradients = state.gradients * (whole if zero < 2 else min(whole, sharded + _adding_up(layout) * whole))
    optimizer = state.optimizer * (whole if zero < 1 else sharded) * (1 - overheads.offloaded_optimizer)
    at_work = max(tables, _larger(stage, part.dense_layer, part.expert_layer + part.experts)) if zero < 3 else 0.0
    weights -= overheads.offloaded_parameters * max(0.0, weights - state.weights * at_work)
    gradients -= overheads.offloaded_gradients * max(0.0, gradients - state.gradients * at_work)
    if zero < 3:
        return RankState(weights + overheads.cached_copy_bytes * whole, gradients, optimizer)
    more_weights, more_gradients = _gathered(part, stage, tables, layout, overheads)
    return RankState(weights + more_weights, gradients + more_gradients, optimizer)
