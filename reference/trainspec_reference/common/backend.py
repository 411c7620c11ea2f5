"""Declares the calls on tensors that the trainer needs of a framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from trainspec_reference.common.job import Job

Weights = Mapping[str, npt.NDArray[np.float32]]
"""Global parameters by name, as `common.weights` makes them; the same for every backend."""
BACKENDS = {"torch": "trainspec_reference.torch", "jax": "trainspec_reference.jax"}
"""Packages of the backends that have a short name."""
PROGRAMS_DIRECTORY = "TRAINSPEC_REFERENCE_PROGRAMS"
"""Variable with a directory where a backend that compiles may leave programs for workers that come later."""


@dataclass(frozen=True, slots=True)
class Formation:
    """The workers that train together until one of them is lost; a new one is formed then."""

    number: int
    """0 for the first; it only grows, and is the attempt that records and streams carry."""
    rank: int
    """This worker among `num_ranks`."""
    hosts: tuple[str, ...]
    """Host of each rank, in order; ranks of one host are adjacent."""
    address: str
    """`host:port` at which rank 0 of this formation may listen; no two formations share one."""
    timeout_seconds: float
    """Longest wait of a collective operation for a peer."""

    @property
    def num_ranks(self) -> int:
        """Workers of the formation."""
        return len(self.hosts)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Samples that one data rank computes at once.

    Attributes:
        inputs: int64 [samples, positions] of tokens, or float32 [samples, channels, height, width] of images.
        targets: int64 [samples, positions] or [samples]; -1 is not counted in the loss.
        sample_ids: of each sample, in the order of `inputs`.
    """

    inputs: npt.NDArray[Any]
    targets: npt.NDArray[np.int64]
    sample_ids: tuple[int, ...]

    @property
    def num_targets(self) -> int:
        """Targets that the loss counts."""
        return int((self.targets >= 0).sum())


@dataclass(frozen=True, slots=True)
class Gradients:
    """Properties of the gradient of one step, after all ranks have exchanged theirs."""

    loss: float
    """Mean over all targets of the global batch, loss scale removed."""
    norm: float
    """L2 norm of the global gradient, loss scale removed, before clipping; not finite on overflow."""
    is_finite: bool
    """Whether every entry of the gradient is finite, on every rank alike."""
    group_sizes: tuple[int, ...] = ()
    """Targets of each independent group: data ranks times their micro-batches, in that order; empty if not asked."""
    group_squared_norms: tuple[float, ...] = ()
    """Squared L2 norm of the mean gradient of each group, in float64, before compression; empty if not asked."""
    exposed_seconds: float = 0.0
    """Time that this rank waited for the exchange after its backward pass had ended."""


Snapshot: TypeAlias = object
"""A copy of this rank's state in host memory, that later optimizer steps do not change; `Backend.write` takes it."""


class Backend(Protocol):
    """One framework. Calls come from one thread, but for `write` and `abort`, which may come from another one.

    A call that needs a peer raises `PeerLostError` when the peer is gone, or after the formation's time-out.
    """

    can_rejoin: bool
    """Whether a process can `leave` a formation and `join` the next one; if not, it is started anew."""

    def join(self, formation: Formation) -> None:
        """Form the process groups of the plan: data, tensor, pipeline and context, by host where the plan says so."""
        ...

    def leave(self) -> None:
        """Give the groups up, also when peers are gone; never waits longer than a second."""
        ...

    def abort(self) -> None:
        """End a call that waits for a peer; it then raises `PeerLostError`. Waits for nothing, and may do nothing."""
        ...

    def build(self, weights: Weights) -> None:
        """Take this rank's part of the global parameters, and fresh optimizer state."""
        ...

    def gradients(
        self,
        micro_batches: Sequence[MicroBatch],
        *,
        num_targets: int,
        loss_scale: float,
        measure_noise: bool,
        arrived: Callable[[], None],
    ) -> Gradients:
        """Forward and backward pass over this data rank's micro-batches, and the exchange with all other ranks.

        `num_targets` is of the global batch: each target weighs 1/num_targets, however unevenly ranks share the work.
        `arrived` is called once, when this rank's own computation has ended and it is about to wait for the others.
        """
        ...

    def update(self, learning_rate: float, clip_norm: float | None) -> None:
        """Clip the gradient to the norm, apply the optimizer once, and clear the gradient."""
        ...

    def discard(self) -> None:
        """Clear the gradient without an optimizer step; nothing of the state changes."""
        ...

    def evaluate(self, micro_batches: Sequence[MicroBatch], *, num_targets: int) -> float:
        """Mean loss over all ranks, without a gradient; the state does not change, random state included."""
        ...

    def snapshot(self) -> Snapshot:
        """Copy this rank's parameters, optimizer, random state and residuals to the host; training waits for it."""
        ...

    def write(self, snapshot: Snapshot, directory: Path) -> None:
        """Write a snapshot into the directory in the framework's own format, durable when the call returns.

        All ranks call it with the same directory, which exists and is empty but for what they write. It exchanges
        nothing on the groups that train.
        """
        ...

    def restore(self, directory: Path) -> None:
        """Read this rank's part of a checkpoint, which another number of ranks may have written.

        Raises:
            CheckpointUnreadableError: a file is missing, damaged or of another model; the state is then undefined.
        """
        ...

    def share(self, source: int) -> None:
        """Copy all of the state of rank `source` to the other ranks; only where replicas are whole."""
        ...

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """Global parameters by name, as `build` takes them; all ranks call it."""
        ...

    def digest(self) -> str:
        """`sha256:` digest of the global parameters and optimizer state, by `common.weights`, equal on every rank."""
        ...

    def agree(self, value: float) -> tuple[float, ...]:
        """The value of each rank, in order of rank."""
        ...


class PeerLostError(RuntimeError):
    """A peer of this formation is gone or does not answer."""


class CheckpointUnreadableError(RuntimeError):
    """A checkpoint cannot be loaded; the message names the file and the reason."""


def make(name: str, job: Job) -> Backend:
    """The backend of that name: one of `BACKENDS`, or a package whose module `backend` has a function `make`.

    Raises:
        ValueError: there is no such backend, or it does not have what the job asks for.
    """
    if name not in BACKENDS and "." not in name:
        raise ValueError(f"unknown backend {name!r}: use {' or '.join(BACKENDS)}, or the name of a package")
    found: Backend = import_module(f"{BACKENDS.get(name, name)}.backend").make(job)
    return found
