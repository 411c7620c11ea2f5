"""Plain loops of PyTorch are predicted by the bytes that each operation moves and keeps."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from benchmarks import score_memory, training_sets
from trainspec_validate.performance.costs.activations import ActivationPolicy, layer_bytes
from trainspec_validate.performance.costs.eager import eager_layer_bytes, eager_layer_traffic
from trainspec_validate.performance.costs.kernel_traffic import layer_traffic
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.memory_overheads import Overheads
from trainspec_validate.performance.costs.rank_memory import rank_memory
from trainspec_validate.performance.costs.software import DEFAULT, software_of
from trainspec_validate.performance.costs.transformer import Shape
from trainspec_validate.performance.forecast.outlook import eager_bytes

RUNS = [run for run in training_sets.load()[0] if run.dataset == "plain_pytorch"]
GPT2 = Shape(24, 1024, 16, 16, 64, 4096, 50257, tied_embeddings=True)
LLAMA = Shape(32, 4096, 32, 8, 128, 14336, 128256, gated_ffn=True)
EAGER = software_of("pytorch")


def test_measured_steps_are_predicted_where_the_loop_is_named_and_not_otherwise() -> None:
    assert len(RUNS) == 6
    errors = [abs(run.predicted() / run.seconds - 1) for run in RUNS]
    assert fmean(errors) == pytest.approx(0.095, abs=0.003)
    assert max(errors) < 0.17
    assert all(run.predicted(named=False) < 0.86 * run.seconds for run in RUNS)


def test_measured_memory_is_predicted() -> None:
    cells = [cell for _, cell in score_memory.plain_cells()]
    assert len(cells) == 6
    assert score_memory.mean(cells) == pytest.approx(0.066, abs=0.003)
    assert score_memory.worst(cells) < 0.1


@pytest.mark.parametrize("shape", [GPT2, LLAMA])
@pytest.mark.parametrize("wide", [2, 4])
def test_operations_by_themselves_move_and_keep_more_than_fused_ones(shape: Shape, wide: int) -> None:
    for tensor in (1, 2, 8):
        found, fused = eager_layer_traffic(shape, wide, tensor), layer_traffic(shape, tensor)
        assert found.forward > fused.forward
        assert found.backward > fused.backward
    layout = Layout(sequence_length=1)
    assert eager_layer_bytes(shape, wide) > layer_bytes(shape, layout, ActivationPolicy("none", dropout=True))


def test_numbers_between_layers_of_fp32_cost_more_than_those_of_16_bits() -> None:
    for shape in (GPT2, LLAMA):
        narrow, wide = eager_layer_traffic(shape, 2), eager_layer_traffic(shape, 4)
        assert narrow.forward < wide.forward
        assert narrow.backward < wide.backward
        assert eager_layer_bytes(shape, 2) < eager_layer_bytes(shape, 4)


def test_what_is_kept_of_a_checkpointed_layer_is_its_input() -> None:
    layout = Layout(sequence_length=1)
    for wide in (2, 4):
        assert layer_bytes(GPT2, layout, ActivationPolicy("full", eager_bytes=wide)) == wide * GPT2.hidden_size


def test_no_count_holds_for_mixtures_of_experts_or_products_that_are_not_of_16_bits() -> None:
    model = next(run.prediction.model for run in RUNS)
    assert eager_bytes(model, EAGER) == 4
    assert eager_bytes(model, DEFAULT) == 0
    assert eager_bytes(replace(model, compute_formats=("fp32",)), EAGER) == 0
    assert eager_bytes(replace(model, compute_formats=("fp8", "bf16")), EAGER) == 0
    experts = replace(model.shape, num_experts=8, num_active_experts=2, expert_hidden_size=64, num_expert_layers=1)
    assert eager_bytes(replace(model, shape=experts), EAGER) == 0
    halves = ModelState(weights=2, master=4, gradients=4, moments=8)
    assert eager_bytes(replace(model, state=halves), EAGER) == 2


def test_the_step_of_the_optimizer_has_one_moment_twice_and_no_activations() -> None:
    state, layout = ModelState(weights=2, master=0, gradients=2, moments=4), Layout(sequence_length=1)
    policy = ActivationPolicy("full", eager_bytes=2)
    found = rank_memory(LLAMA, layout, state, policy, Overheads(gradients_come_late=True, optimizer_copies=1.0))
    assert found.activations == found.logits == 0
    assert found.optimizer == pytest.approx(3 * found.weights)
    assert found.gradients == pytest.approx(found.weights)
    without = rank_memory(LLAMA, layout, state, policy, Overheads(gradients_come_late=True))
    assert without.total < found.total
