"""All-to-all messages of experts hide behind other micro-batches where software overlaps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.step_compute import CALIBRATION
from trainspec_validate.performance.costs.step_time import Work, step_time
from trainspec_validate.performance.costs.transformer import Shape

SHAPE = Shape(
    *(32, 4096, 32, 4, 128, 0, 128000),
    num_experts=64,
    num_active_experts=8,
    expert_hidden_size=1536,
    num_expert_layers=32,
)
NETWORKS = {
    "expert": Network(8, domain=Link(450e9, 1e-6), domain_num_ranks=8),
    "data": Network(8, domain=Link(450e9, 1e-6), domain_num_ranks=8),
}


def exposed(num_micro_batches: int, *, overlap: bool, schedule: str = "1f1b") -> float:
    layout = Layout(
        *(8, 1, 1, 1, 8, 1),
        num_micro_batches=num_micro_batches,
        sequence_length=4096,
        schedule=schedule,
    )
    return step_time(Work(SHAPE, layout, 989e12, 0.8, 3.35e12, overlap_expert=overlap), NETWORKS).exposed_seconds[
        "expert"
    ]


def test_messages_of_experts_wait_unless_they_are_overlapped() -> None:
    hidden, waited = exposed(16, overlap=True), exposed(16, overlap=False)
    assert hidden == pytest.approx(waited * CALIBRATION.hidden_communication)


def test_dual_pipe_overlaps_them_by_its_schedule() -> None:
    assert exposed(16, overlap=False, schedule="dual-pipe") == exposed(16, overlap=True)


def test_a_single_micro_batch_has_no_other_to_hide_behind() -> None:
    assert exposed(1, overlap=True) == exposed(1, overlap=False)


def test_a_second_of_computation_hides_one_message() -> None:
    slow = {**NETWORKS, "expert": replace(NETWORKS["expert"], domain=Link(1e9, 1e-6))}
    layout = Layout(*(8, 1, 1, 1, 8, 1), num_micro_batches=4, sequence_length=4096)
    work = Work(SHAPE, layout, 989e12, 0.8, 3.35e12)
    plain, hidden = step_time(work, slow), step_time(replace(work, overlap_expert=True), slow)
    saved = plain.exposed_seconds["expert"] - hidden.exposed_seconds["expert"]
    assert 0 < saved <= plain.compute_seconds * 3 / 4
