"""Device memory of a rank against published tables and measured jobs, and what must hold for any job."""

from __future__ import annotations

import doctest
from dataclasses import astuple, replace
from statistics import quantiles

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import score_memory
from tests.costs.test_activations import EXPERTS, GPT3, LLAMA, POLICIES, shapes
from trainspec_validate.performance.costs import memory_overheads, rank_memory, rank_state, stage_memory
from trainspec_validate.performance.costs.activations import ActivationPolicy, layer_bytes
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState, model_state, sharded_bytes_per_parameter
from trainspec_validate.performance.costs.rank_memory import GIB, HIGH_FACTOR, LOW_FACTOR, Overheads, RankMemory, peak
from trainspec_validate.performance.costs.stage_memory import (
    FOLDED,
    RELATIVE_ACTIVATIONS,
    in_flight,
    rank_parameters,
    stages,
)
from trainspec_validate.performance.costs.transformer import Shape, parameters

ADAM = model_state("bf16", "fp32", "fp32", "fp32")
BARE = Overheads(0, 0, 0, gathered_units=0, gathered_table_bytes=0, gathered_gradient_bytes=0)
NO_ACTIVATIONS = ActivationPolicy("full", bytes_per_number=0, loss_bytes_per_logit=0)
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "dual-pipe", *RELATIVE_ACTIVATIONS)


@pytest.mark.parametrize(("module", "least"), [(rank_memory, 5), (rank_state, 3), (stage_memory, 9)])
def test_examples(module: object, least: int) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted >= least
    assert result.failed == 0


# Published tables


def test_the_zero_table_within_half_a_percent_or_as_printed() -> None:
    cells = score_memory.zero_cells()
    assert len(cells) == 54
    inexact = [cell for cell in cells if not cell.is_exact]
    # 0.12 GB is printed for 0.117; every other cell is within 0.5 %.
    assert [cell.cell.published for cell in inexact] == [0.12]
    assert all(cell.is_rounded for cell in inexact)


def test_measured_runs_are_predicted_without_their_own_table() -> None:
    points = score_memory.measured()
    assert len(points) == 20
    for cells in (
        score_memory.by_table(points),
        score_memory.by_row(points),
        score_memory.with_default(points),
    ):
        beyond = [(cell.name, f"{cell.error:+.1%}") for cell in cells if abs(cell.error) > 0.15]
        assert beyond == []
        assert score_memory.mean(cells) < 0.05


def test_what_more_shards_save_needs_no_overhead() -> None:
    cells = score_memory.differences()
    assert [round(cell.published, 1) for cell in cells] == [15.4, 15.0, 15.0]
    assert [round(cell.predicted, 1) for cell in cells] == [14.0, 14.0, 14.0]
    assert score_memory.worst(cells) < 0.15


def test_frozen_and_quantized_weights() -> None:
    tuned = score_memory.measured(adapters=True)
    assert len(tuned) == 4
    for point in tuned:
        assert point.tensors_gib == pytest.approx(point.measured_gib, rel=0.15)


# Model state


def state_bytes(memory: RankMemory) -> float:
    return memory.weights + memory.gradients + memory.optimizer


@pytest.mark.parametrize("shape", [GPT3, LLAMA, EXPERTS, replace(LLAMA, tied_embeddings=True)])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_all_stages_together_hold_the_model_once(shape: Shape, pipeline: int) -> None:
    layout = Layout(pipeline=pipeline, num_micro_batches=8)
    weights = sum(
        rank_memory.rank_memory(shape, layout, ADAM, NO_ACTIVATIONS, BARE, stage).weights for stage in range(pipeline)
    )
    # The last stage of a pipeline holds its own copy of a table that serves twice.
    again = shape.embedding_parameters if shape.tied_embeddings and pipeline > 1 else 0
    assert weights == pytest.approx(2 * (parameters(shape).total + again), rel=1e-12)


def test_latent_attention_counts_what_it_has() -> None:
    """A rank that holds everything holds the parameters of the model."""
    latent = replace(EXPERTS, latent_parameters=EXPERTS.hidden_size * 1000.0)
    part = stage_memory.rank_parameters(latent, 1, 1, 1)
    whole = latent.num_expert_layers * (part.expert_layer + part.experts) + part.final_norm + 2 * part.table
    whole += (latent.num_layers - latent.num_expert_layers) * part.dense_layer
    assert whole == pytest.approx(parameters(latent).total)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_dense_state_is_that_of_the_published_formula(zero: int) -> None:
    layout = Layout(data=32, context=2, sharding_stage=zero)
    memory = peak(LLAMA, layout, ADAM, NO_ACTIVATIONS, replace(BARE, gathered_weight_bytes=0))[1]
    expected = sharded_bytes_per_parameter(ADAM, zero, 64) * parameters(LLAMA).total
    assert state_bytes(memory) == pytest.approx(expected, rel=1e-12)
    assert memory.optimizer == pytest.approx(12 * parameters(LLAMA).total / (64 if zero else 1))


def test_experts_share_their_optimizer_over_their_own_copies() -> None:
    layout = Layout(data=16, expert=8, sharding_stage=1)
    memory = peak(EXPERTS, layout, ADAM, NO_ACTIVATIONS, BARE)[1]
    experts = 23 * 64 * 3 * 2048 * 1408
    rest = parameters(EXPERTS).total - experts
    assert memory.weights == pytest.approx(2 * (rest + experts / 8), rel=1e-12)
    assert memory.optimizer == pytest.approx(12 * (rest / 16 + experts / 8 / 2), rel=1e-12)


def test_one_expert_of_one_costs_its_router_alone() -> None:
    dense = replace(EXPERTS, num_experts=0, num_active_experts=0, num_shared_experts=0, ffn_hidden_size=1408)
    dense = replace(dense, num_expert_layers=0)
    single = replace(dense, num_experts=1, num_active_experts=1, expert_hidden_size=1408, num_expert_layers=24)
    layout, policy = Layout(data=4, sharding_stage=1, sequence_length=512), ActivationPolicy("none")
    one, other = (peak(shape, layout, ADAM, policy, BARE)[1] for shape in (single, dense))
    assert one.activations == other.activations
    assert state_bytes(one) - state_bytes(other) == pytest.approx((6 + 12 / 4) * 24 * 2048)


def test_xla_gathers_matrices_and_has_gradients_late() -> None:
    layout, full = Layout(data=64, sharding_stage=3, sequence_length=4096), ActivationPolicy("full")
    units = replace(memory_overheads.XLA, gathers_matrices=False)
    assert (
        peak(LLAMA, layout, ADAM, full, memory_overheads.XLA)[1].total < peak(LLAMA, layout, ADAM, full, units)[1].total
    )
    matrix = peak(LLAMA, layout, ADAM, full, memory_overheads.XLA)[1]
    assert matrix.weights == pytest.approx(2 * parameters(LLAMA).total / 64 + 2 * 4096 * 128256)
    long = replace(layout, sequence_length=65536)
    late = peak(LLAMA, long, ADAM, full, memory_overheads.XLA)[1]
    assert (late.gradients, late.logits > 0) == (0, True)
    several = peak(LLAMA, replace(long, num_micro_batches=2), ADAM, full, memory_overheads.XLA)[1]
    assert several.gradients > 4 * parameters(LLAMA).total / 64


def test_products_that_xla_keeps() -> None:
    """Input of the layer, queries, keys, values, result of attention, gate and up; the third wide product is not."""
    kept = layer_bytes(LLAMA, Layout(sequence_length=1024), ActivationPolicy("products"))
    assert kept == 2 * 1024 * (2 * 4096 + 4096 + 2 * 1024 + 2 * 14336)
    assert kept < layer_bytes(LLAMA, Layout(sequence_length=1024), ActivationPolicy("none"))


def test_a_gathered_unit_by_hand() -> None:
    layer, table = rank_parameters(LLAMA, 1, 1, 1).dense_layer, 4096 * 128256
    layout = Layout(data=8, sharding_stage=3)
    total = parameters(LLAMA).total
    fp32 = model_state("fp32", None, "fp32", "fp32")
    staying = peak(LLAMA, layout, fp32, NO_ACTIVATIONS)[1]
    assert staying.weights == pytest.approx(4 * total / 8 + 2 * (2 * layer + 2 * table + 4096))
    assert staying.gradients == pytest.approx(4 * total / 8 + 2 * (2 * table + 4096))
    # arXiv:2304.11277: the sum of psi / F, and the largest psi once, or twice where the next is prefetched.
    for units in (1, 2):
        overheads = Overheads(gathered_units=units, tables_stay_gathered=False)
        leaving = peak(LLAMA, layout, fp32, NO_ACTIVATIONS, overheads)[1]
        assert leaving.weights == pytest.approx(4 * total / 8 + 2 * units * (2 * table + 4096))
    whole = Overheads(stage_stays_gathered=True, gathered_weight_bytes=1)
    kept = peak(LLAMA, layout, fp32, NO_ACTIVATIONS, whole)[1]
    assert kept.weights == pytest.approx(4 * total / 8 + total + 2 * table + 4096)
    assert kept.gradients == pytest.approx(4 * total / 8 + 4 * total + 2 * (2 * table + 4096))


def test_copies_and_offloading() -> None:
    layout, policy = Layout(sequence_length=4096), ActivationPolicy("none", loss_bytes_per_logit=0)
    plain = peak(LLAMA, layout, ADAM, policy)[1]
    cached = peak(LLAMA, layout, ADAM, policy, Overheads(cached_copy_bytes=2))[1]
    assert cached.weights - plain.weights == pytest.approx(2 * parameters(LLAMA).total)
    moved = peak(LLAMA, layout, ADAM, policy, Overheads(offloaded_optimizer=0.75, offloaded_activations=0.5))[1]
    assert moved.optimizer == plain.optimizer / 4
    # Half of 32 layers waits on the host, but for the half of the layer whose backward runs.
    assert plain.activations - moved.activations == pytest.approx(15.5 * layer_bytes(LLAMA, layout, policy))
    away = peak(LLAMA, layout, ADAM, policy, Overheads(offloaded_parameters=1, offloaded_gradients=1))[1]
    tables = 2 * LLAMA.vocabulary_size * LLAMA.hidden_size + LLAMA.hidden_size
    assert away.weights == ADAM.weights * tables  # the largest unit is at work
    assert away.gradients == ADAM.gradients * tables
    inputs = replace(policy, recompute="full")
    moved, plain = (
        peak(LLAMA, layout, ADAM, inputs, Overheads(offloaded_activations=share))[1].activations for share in (1, 0)
    )
    assert plain - moved == pytest.approx(31 * layer_bytes(LLAMA, layout, inputs))


# Pipelines


@pytest.mark.parametrize("pipeline", [1, 2, 4, 8, 32])
def test_the_first_stage_holds_all_layers_however_many_stages(pipeline: int) -> None:
    layout = Layout(pipeline=pipeline, num_micro_batches=64, sequence_length=4096)
    policy = ActivationPolicy("none")
    held = stages(LLAMA, pipeline)[0].num_dense_layers
    assert in_flight(layout, 0) * held * layer_bytes(LLAMA, layout, policy) == 32 * layer_bytes(LLAMA, layout, policy)


def test_in_flight_by_schedule() -> None:
    def of(schedule: str, stage: int, chunks: int = 1, micro_batches: int = 64) -> float:
        layout = Layout(pipeline=8, schedule=schedule, num_virtual_stages=chunks, num_micro_batches=micro_batches)
        return in_flight(layout, stage)

    assert [of("1f1b", stage) for stage in (0, 3, 7)] == [8, 5, 1]
    assert [of("1f1b", stage, micro_batches=4) for stage in (0, 3, 7)] == [4, 4, 1]
    assert of("gpipe", 7) == 64
    # Chunks at the start: (v - 1) p + 2 (p - i) - 1, never more than all of them.
    assert [of("interleaved-1f1b", stage, 2) for stage in (0, 7)] == [(8 + 15) / 2, (8 + 1) / 2]
    assert of("interleaved-1f1b", 0, 2, micro_batches=8) == 8
    assert of("dual-pipe", 3) == 9 / 2
    assert [of(name, 5) for name in ("zero-bubble", "zero-bubble-2p", "v-half", "v-min")] == [8, 16, 4, 8 / 3]


def test_which_layers_a_stage_holds() -> None:
    def layers(*arguments: object) -> list[tuple[int, ...]]:
        return [astuple(stage) for stage in stages(replace(LLAMA, num_layers=10), *arguments)]  # type: ignore[arg-type]

    assert layers(4) == [(3, 0, 1, 0, 1), (3, 0, 0, 0, 0), (2, 0, 0, 0, 0), (2, 0, 0, 1, 1)]
    assert layers(2, 1, (3, 7)) == [(3, 0, 1, 0, 1), (7, 0, 0, 1, 1)]
    assert layers(2, 2, (1, 2, 3, 4)) == [(4, 0, 1, 0, 1), (6, 0, 0, 1, 1)]
    assert layers(2, 1, (1, 2, 3, 4), "v-half") == [(5, 0, 1, 1, 2), (5, 0, 0, 0, 0)]
    assert layers(2, 1, (3, 7), "dual-pipe") == [(10, 0, 1, 1, 2), (10, 0, 1, 1, 2)]
    # Layers without experts come first.
    assert [stage.num_dense_layers for stage in stages(EXPERTS, 4)] == [1, 0, 0, 0]
    assert [stage.num_expert_layers for stage in stages(EXPERTS, 4, 2)] == [5, 6, 6, 6]


def test_outputs_that_wait_for_the_end_of_the_step() -> None:
    layout = Layout(pipeline=4, num_micro_batches=8, sequence_length=1024)
    policy, keeping = ActivationPolicy("full"), Overheads(keeps_stage_outputs=True)
    for stage, each in ((0, 2 * 2 * 1024 * 4096), (3, 2 * 1024 * 128256)):
        plain, kept = (
            rank_memory.rank_memory(LLAMA, layout, ADAM, policy, overheads, stage)
            for overheads in (Overheads(), keeping)
        )
        assert kept.activations - plain.activations == pytest.approx(8 * each)


def test_gradients_of_chunks_that_end_one_by_one() -> None:
    layout = Layout(data=8, pipeline=4, sharding_stage=3, schedule="interleaved-1f1b", num_virtual_stages=2)
    overheads = replace(BARE, stage_stays_gathered=True)
    few, many = (
        rank_memory.rank_memory(
            LLAMA, replace(layout, num_micro_batches=count), ADAM, NO_ACTIVATIONS, overheads, 1
        ).gradients
        for count in (4, 8)
    )
    whole = 8 * rank_parameters(LLAMA, 1, 1, 1).dense_layer
    assert many == pytest.approx(4 * whole / 8 + 4 * whole)
    assert few == pytest.approx(4 * whole / 8 + 4 * whole / 2)


@pytest.mark.parametrize(
    ("layout", "stage", "message"),
    [
        (Layout(pipeline=4), 4, "stage 4 is not one of 0 to 3"),
        (Layout(pipeline=4), -1, "stage -1"),
        (Layout(pipeline=2, stage_layers=(16, 15)), 0, r"\(16, 15\) are not 2 counts that add up to 32"),
        (Layout(pipeline=2, stage_layers=(8, 8, 16)), 0, "are not 2 counts"),
        (Layout(pipeline=2, schedule="other"), 0, "'other' has no formula .* gpipe, 1f1b"),
    ],
)
def test_refuses_a_layout(layout: Layout, stage: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rank_memory.rank_memory(LLAMA, layout, ADAM, ActivationPolicy(), Overheads(), stage)


@pytest.mark.parametrize(
    "changes", [{"fragmentation": -0.1}, {"offloaded_optimizer": 1.5}, {"offloaded_gradients": 1.5}]
)
def test_refuses_an_overhead(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="negative, or an offloaded share exceeds 1"):
        replace(memory_overheads.Overheads(), **changes)


# What holds for any job


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    schedule = draw(st.sampled_from(SCHEDULES))
    expert = draw(st.sampled_from([1, 2, 4]))
    return Layout(
        data=expert * draw(st.sampled_from([1, 2, 8])),
        tensor=draw(st.sampled_from([1, 2, 4])),
        pipeline=draw(st.sampled_from([1, 2, 4])),
        context=draw(st.sampled_from([1, 2])),
        expert=expert,
        sequence_parallel=draw(st.booleans()),
        schedule=schedule,
        num_virtual_stages=2 if schedule in FOLDED or schedule == "interleaved-1f1b" else 1,
        sharding_stage=draw(st.integers(0, 3)),
        micro_sequences=draw(st.integers(1, 4)),
        num_micro_batches=draw(st.integers(1, 32)),
        sequence_length=draw(st.sampled_from([512, 4096])),
    )


STATES = st.builds(ModelState, *[st.sampled_from([0.0, 1.0, 2.0, 4.0])] * 3, moments=st.sampled_from([2.0, 8.0]))
OVERHEADS = st.builds(
    Overheads,
    fragmentation=st.floats(0, 0.3),
    gathered_units=st.integers(0, 3),
    tables_stay_gathered=st.booleans(),
    stage_stays_gathered=st.booleans(),
    keeps_stage_outputs=st.booleans(),
    cached_copy_bytes=st.sampled_from([0.0, 2.0]),
    offloaded_parameters=st.floats(0, 1),
    offloaded_gradients=st.floats(0, 1),
    offloaded_activations=st.floats(0, 1),
)
ROUNDING = 1 + 1e-9


@given(shapes(), layouts(), STATES, POLICIES, OVERHEADS)
def test_the_peak_is_the_fullest_of_all_stages(
    shape: Shape, layout: Layout, state: ModelState, policy: ActivationPolicy, overheads: Overheads
) -> None:
    stage, fullest = peak(shape, layout, state, policy, overheads)
    every = [
        rank_memory.rank_memory(shape, layout, state, policy, overheads, index) for index in range(layout.pipeline)
    ]
    assert every[stage] == fullest
    assert fullest.total == max(memory.total for memory in every)
    for memory in every:
        classes = astuple(memory)
        assert min(classes) >= 0
        assert memory.total == pytest.approx(sum(classes), rel=1e-12)
        assert memory.total - memory.allocator == pytest.approx(memory.context + memory.communication)


@given(shapes(), layouts(), STATES, POLICIES, OVERHEADS)
def test_more_shards_never_need_more(
    shape: Shape, layout: Layout, state: ModelState, policy: ActivationPolicy, overheads: Overheads
) -> None:
    few = peak(shape, layout, state, policy, overheads)[1]
    many = peak(shape, replace(layout, data=2 * layout.data), state, policy, overheads)[1]
    assert many.allocator <= few.allocator * ROUNDING
    stage_by_stage = [
        peak(shape, replace(layout, sharding_stage=zero), state, policy, overheads)[1].total for zero in (0, 1, 2)
    ]
    assert stage_by_stage == sorted(stage_by_stage, reverse=True)


@given(shapes(), layouts(), STATES, POLICIES, OVERHEADS)
def test_more_tensor_ranks_never_need_more(
    shape: Shape, layout: Layout, state: ModelState, policy: ActivationPolicy, overheads: Overheads
) -> None:
    # What waits on the host no longer shrinks, so it could not make room for the gathered sequence.
    overheads = replace(overheads, offloaded_activations=0.0)
    few = peak(shape, layout, state, policy, overheads)[1]
    many = peak(shape, replace(layout, tensor=2 * layout.tensor), state, policy, overheads)[1]
    assert many.allocator <= few.allocator * ROUNDING


@given(shapes(), layouts(), STATES, POLICIES, OVERHEADS)
def test_recomputing_more_never_needs_more(
    shape: Shape, layout: Layout, state: ModelState, policy: ActivationPolicy, overheads: Overheads
) -> None:
    overheads = replace(overheads, offloaded_activations=0.0)
    full, selective, none = (
        peak(shape, layout, state, replace(policy, recompute=name), overheads)[1].total
        for name in ("full", "selective", "none")
    )
    assert full <= selective * ROUNDING
    assert selective <= none * ROUNDING


def test_the_context_is_outside_the_allocator() -> None:
    alone = peak(LLAMA, Layout(), ADAM, ActivationPolicy())[1]
    together = peak(LLAMA, Layout(data=2), ADAM, ActivationPolicy())[1]
    assert alone.communication == 0
    assert together.communication == 1.45 * GIB
    assert together.total - together.allocator == pytest.approx((1.45 + 0.92) * GIB)


def test_the_band_is_that_of_held_out_tables() -> None:
    ratios = sorted(1 / (1 + cell.error) for cell in score_memory.by_table(score_memory.measured()))
    tenths = quantiles(ratios, n=10, method="inclusive")
    assert tenths[0] == pytest.approx(LOW_FACTOR, abs=0.015)
    assert tenths[-1] == pytest.approx(HIGH_FACTOR, abs=0.015)
