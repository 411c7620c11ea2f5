"""The prediction of one step: tokens, optimizer bytes, and shares that follow from its parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.planner_makers import make
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import ModelState
from trainspec_validate.performance.costs.software import Software
from trainspec_validate.performance.forecast.outlook import (
    Settings,
    memory_of_stage,
    outlook,
    planned_collectives,
    work_of,
)

GOAL = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16).goal
LAYOUT = Layout(data=4, tensor=4, sequence_parallel=True, micro_sequences=2, num_micro_batches=8, sequence_length=4096)
SETTINGS = Settings()


def test_a_step_takes_in_its_tokens() -> None:
    found = outlook(GOAL.model, GOAL.machine, LAYOUT, SETTINGS)
    assert found.tokens_per_second * found.step.seconds == pytest.approx(4 * 2 * 8 * 4096)
    assert found.peak_flops_per_second == pytest.approx(989e12, rel=0.001)
    assert found.exposed_share * found.step.seconds == pytest.approx(sum(found.step.exposed_seconds.values()))
    assert 0 < found.exposed_share < 1


@pytest.mark.parametrize(
    ("state", "moved"),
    [
        # A master copy and two moments in fp32: gradient 4 read, 12 read and written, weight 2 written.
        (ModelState(weights=2, master=4, gradients=4, moments=8), 4 + 2 * 12 + 2),
        # No master copy: the weight itself is read and written.
        (ModelState(weights=4, master=0, gradients=4, moments=8), 4 + 2 * 8 + 2 * 4),
    ],
)
def test_the_optimizer_moves_its_state_twice(state: ModelState, moved: float) -> None:
    work = work_of(replace(GOAL.model, state=state), GOAL.machine, LAYOUT, SETTINGS)
    assert work.optimizer_bytes_per_parameter == moved


def test_settings_reach_the_step() -> None:
    def seconds(settings: Settings) -> float:
        return outlook(GOAL.model, GOAL.machine, LAYOUT, settings).step.seconds

    usual = seconds(SETTINGS)
    assert seconds(replace(SETTINGS, data_stall_seconds=0.5)) == pytest.approx(usual + 0.5)
    assert seconds(replace(SETTINGS, recompute="full")) > usual
    assert seconds(replace(SETTINGS, overlap_gradients=False)) > usual
    assert seconds(replace(SETTINGS, software=Software(overlap_tensor=True))) < usual
    assert seconds(replace(SETTINGS, rank_order="alphabetical")) >= usual


def test_what_is_offloaded_leaves_the_device() -> None:
    whole = memory_of_stage(GOAL.model, LAYOUT, SETTINGS)[1]
    half = memory_of_stage(GOAL.model, LAYOUT, replace(SETTINGS, offloaded_optimizer=0.5))[1]
    assert half.optimizer == pytest.approx(whole.optimizer / 2)
    kept = memory_of_stage(GOAL.model, LAYOUT, replace(SETTINGS, offloaded_activations=1.0))[1]
    assert kept.activations < whole.activations


def test_every_axis_that_talks_has_its_collectives() -> None:
    sent = planned_collectives(GOAL.model, GOAL.machine, LAYOUT, SETTINGS)
    assert {item.transfer.axis: item.network.num_ranks for item in sent} == {"tensor": 4, "data": 4}
    for item in sent:
        assert item.estimate.seconds > 0


def test_experts_that_no_rank_splits_are_reduced_over_all_copies() -> None:
    goal = make("coreweave-gb200", "qwen3-30b-a3b", num_ranks=16).goal
    layout = Layout(data=16, sequence_length=4096)
    sent = planned_collectives(goal.model, goal.machine, layout, SETTINGS)
    assert {item.transfer.axis: item.network.num_ranks for item in sent} == {"data": 16, "expert-data": 16}
    held = sum(item.transfer.message_bytes * item.transfer.count for item in sent)
    assert held == pytest.approx(4 * goal.model.num_parameters, rel=0.01)


@pytest.mark.parametrize(
    ("accelerator", "kernel", "generation"),
    [
        ("nvidia-h100-sxm", "flash-3", "hopper"),
        ("nvidia-b200-sxm", "flash-3", "hopper"),
        ("nvidia-gb300", "flash-3", "hopper"),
        ("nvidia-a100-sxm-80gb", "flash-2", "ampere"),
        ("amd-mi300x", "flash-2", "hopper"),
        ("amd-mi250x", "flash-2", "ampere"),
        ("google-tpu-v4", "flash-2", "ampere"),
        ("google-tpu-v6e", "flash-2", "hopper"),
    ],
)
def test_attention_is_that_of_the_generation(accelerator: str, kernel: str, generation: str) -> None:
    work = work_of(GOAL.model, replace(GOAL.machine, accelerator=accelerator), LAYOUT, SETTINGS)
    assert (work.attention_kernel, work.generation) == (kernel, generation)
