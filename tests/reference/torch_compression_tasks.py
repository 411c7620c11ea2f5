"""What the tests of compression in PyTorch let each rank do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch_tasks import Setup, train
from trainspec_reference.common.backend import Formation
from trainspec_reference.torch.backend import TorchBackend
from trainspec_reference.torch.exchange import GradientExchange


def conservation(formation: Formation, setup: Setup, num_steps: int) -> tuple[float, float, float]:
    """Relative error of sum of gradients = sum of applied + residuals, norm of the residuals, and of the applied."""
    backend = setup.backend(formation)
    replica = backend._built()
    exchange, feedback = replica.exchange, replica.feedback
    assert isinstance(exchange, GradientExchange)
    assert feedback is not None
    own, applied = (torch.zeros_like(replica.flat.parameters, dtype=torch.float64) for _ in range(2))
    reduce = exchange._reduce

    def note(bucket: Any, total: Any) -> None:
        own[bucket.spans[0].start : bucket.spans[-1].stop] += bucket.gradient
        reduce(bucket, total)

    exchange._reduce = note
    for step in range(num_steps):
        batches, num_targets = setup.batches(step % 4, formation.rank, formation.num_ranks)
        backend.gradients(batches[:1], num_targets=num_targets, loss_scale=1.0, measure_noise=False, arrived=int)
        applied += replica.flat.gradients
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


def residual_of(backend: TorchBackend) -> torch.Tensor:
    """A copy of what this rank has not sent."""
    feedback = backend._built().feedback
    assert feedback is not None
    return feedback.residual.clone()


def compute(backend: TorchBackend, setup: Setup, step: int) -> None:
    """Exchange the gradient of a step."""
    place, degrees = backend._joined().place, backend._joined().grid.degrees
    batches, num_targets = setup.batches(step, place["data"], degrees["data"])
    backend.gradients(batches, num_targets=num_targets, loss_scale=1.0, measure_noise=False, arrived=int)


def after_a_loss(formation: Formation, setup: Setup) -> Any:
    """Residuals around a share: rank 0 keeps, rank 1 had not applied the last step, rank 2 is a new process."""
    backend = setup.backend(formation)
    train(backend, setup, range(2))
    before = residual_of(backend)
    compute(backend, setup, 2)
    feedback = backend._built().feedback
    assert feedback is not None
    wanted = feedback._pending.clone()
    if formation.rank == 1:
        backend.discard()
    else:
        backend.update(1e-3, None)
    if formation.rank == 2:
        backend.build(setup.weights())
        wanted.zero_()
    backend.share(0)
    found = residual_of(backend)
    factors = [factor.tolist() for factor in feedback.factors.values()] if formation.rank < 2 else None
    kept = torch.equal(found, wanted), float((found - before).norm()), float(found.norm())
    digest = backend.digest()
    backend.leave()
    return *kept, digest, factors


def alone_after_three(formation: Formation, setup: Setup, directory: Path) -> tuple[float, float, float]:
    """What three had not sent goes along with the first gradient of one: its norm, the error's, and the rest's."""
    backend = setup.backend(formation)
    backend.restore(directory)
    replica, unsent = backend._built(), residual_of(backend)
    assert replica.feedback is not None
    replica.feedback.forget()
    compute(backend, setup, 3)
    own = replica.flat.gradients.clone()
    backend.restore(directory)
    compute(backend, setup, 3)
    error = float((replica.flat.gradients - own - unsent).norm())
    backend.update(1e-3, None)
    left = float(residual_of(backend).norm())
    backend.leave()
    return float(unsent.norm()), error, left
