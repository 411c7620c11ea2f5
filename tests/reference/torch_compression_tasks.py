"""What the tests of compression in PyTorch let each rank do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_tasks import Setup, train
from trainspec_reference.common.backend import Formation


def conservation(formation: Formation, setup: Setup, num_steps: int) -> tuple[float, float, float]:
    """Relative error of sum of gradients = sum of applied + residuals, norm of the residuals, and of the applied."""
    backend = setup.backend(formation)
    replica = backend._built()
    wire, feedback = replica.exchange._wire, replica.feedback
    assert feedback is not None
    own, applied = (torch.zeros_like(replica.state.parameters, dtype=torch.float64) for _ in range(2))
    reduce = wire.reduce

    def note(bucket: Any, total: Any) -> None:
        own[bucket.spans[0].start : bucket.spans[-1].stop] += bucket.gradient
        reduce(bucket, total)

    wire.reduce = note
    for step in range(num_steps):
        batches, num_targets = setup.batches(step % 4, formation.rank, formation.num_ranks)
        backend.gradients(batches[:1], num_targets=num_targets, loss_scale=1.0, measure_noise=False, arrived=int)
        applied += replica.state.gradients
        backend.update(1e-3, None)
    residual = feedback.residual.double()
    sums = backend._joined().sum_of(torch.stack([own, residual]))
    backend.leave()
    error = (sums[0] - applied - sums[1]).norm() / sums[0].norm()
    return float(error), float(sums[1].norm()), float(applied.norm())


def residual_around_discard(formation: Formation, setup: Setup) -> tuple[float, float]:
    """Norm of the residual around a step that is discarded."""
    backend = setup.backend(formation)
    train(backend, setup, range(2))
    feedback = backend._built().feedback
    assert feedback is not None
    before = float(feedback.residual.norm())
    batches, num_targets = setup.batches(2, formation.rank, formation.num_ranks)
    backend.gradients(batches, num_targets=num_targets, loss_scale=1.0, measure_noise=False, arrived=int)
    backend.discard()
    after = float(feedback.residual.norm())
    backend.leave()
    return before, after


def residual_sum(formation: Formation, setup: Setup, directory: Path) -> float:
    """Norm of the sum of all ranks' residuals after a restore."""
    backend = setup.backend(formation)
    backend.restore(directory)
    feedback = backend._built().feedback
    assert feedback is not None
    total = backend._joined().sum_of(feedback.residual.clone())
    backend.leave()
    return float(total.norm())
