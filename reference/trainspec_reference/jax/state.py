"""Holds the state that a rank trains (parameters, moments, random key, residuals) as blocks, and applies AdamW."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job, Rates
from trainspec_reference.jax.arithmetic import Formats
from trainspec_reference.jax.layout import Layout
from trainspec_reference.jax.mesh import Ranks

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class State:
    """Blocks of one rank. W is 1 without sharding; a shard has S entries."""

    parameters: jax.Array
    """[W, S], or [S] where parameters themselves are sharded."""
    first: jax.Array
    """First moment [S]."""
    second: jax.Array
    """Second moment [S]."""
    count: jax.Array
    """Optimizer steps applied."""
    key: jax.Array
    """Random key of the run, equal on every rank: each folds its own number in, and each step makes a new one."""
    residual: jax.Array
    """Error-feedback residuals [W * S]; one zero without error feedback."""
    basis: jax.Array
    """Right factors of PowerSGD, equal on every rank."""

    def arrays(self) -> Arrays:
        """Copies in host memory."""
        return {field.name: np.array(getattr(self, field.name)[0]) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class StateMaker:
    """Makes the blocks of a rank from whole parameters and moments."""

    job: Job
    layout: Layout
    formats: Formats
    ranks: Ranks
    shares_parameters: bool
    residual_size: int
    first_basis: npt.NDArray[np.float32]

    @property
    def row(self) -> int:
        """The row of the matrix that this rank owns."""
        return self.ranks.copy if self.layout.num_shards > 1 else 0

    def fresh(self, weights: Weights) -> State:
        """State before the first update."""
        matrix_ws = self.layout.join(self.layout.local(weights, self.ranks.part), np)
        nothing_s = np.zeros(self.layout.width, np.float32)
        key = np.array([self.job.seed >> 32 & 0xFFFFFFFF, self.job.seed & 0xFFFFFFFF], np.uint32)
        return self.blocks(
            {
                "parameters": matrix_ws[self.row] if self.shares_parameters else matrix_ws,
                "first": nothing_s,
                "second": nothing_s,
                "count": np.zeros((), np.int32),
                "key": key,
                "residual": np.zeros(max(1, self.residual_size), np.float32),
                "basis": self.first_basis,
            }
        )

    def from_whole(self, whole: dict[str, Arrays], others: Arrays) -> State:
        """State from whole `parameters`, `first` and `second` by name; the other blocks as they are."""
        rows = {}
        for kind, tensors in whole.items():
            matrix_ws = self.layout.join(self.layout.local(tensors, self.ranks.part), np)
            is_row = kind != "parameters" or self.shares_parameters
            rows[kind] = matrix_ws[self.row] if is_row else matrix_ws
        return self.blocks({**rows, **others})

    def blocks(self, arrays: Arrays) -> State:
        """State from this rank's own arrays."""
        formats = {"parameters": self.formats.parameters, "first": self.formats.optimizer}
        formats |= {"second": self.formats.optimizer, "residual": self.formats.wide, "basis": self.formats.wide}
        own = self.ranks.everyone.own
        return State(**{name: own(value.astype(formats.get(name, value.dtype))) for name, value in arrays.items()})

    def decayed(self) -> Any:
        """Entries of this rank's row that weight decay applies to: those of parameters of two axes or more."""
        shapes, layout = self.layout.shapes, self.layout
        marks = {name: np.full(shape, len(shape) > 1) for name, shape in shapes.items()}
        matrix_ws = layout.join(layout.local(marks, self.ranks.part), np)
        return self.ranks.everyone.own(matrix_ws[self.row])

    def weights_in_norm(self) -> Any:
        """Weight of each entry [W, S] in a sum over the parts of the model: an even share where several hold it."""
        layout, shapes = self.layout, self.layout.shapes
        marks = {name: np.full(shape, 1 / layout.num_holders(name)) for name, shape in shapes.items()}
        matrix_ws = layout.join(layout.local(marks, self.ranks.part), np)
        return self.ranks.everyone.own(matrix_ws.astype(self.formats.wide))


class Trained(NamedTuple):
    """State that a step changes: parameters, first and second moment, and the count of updates."""

    parameters: Any
    first: Any
    second: Any
    count: Any


class Rate(NamedTuple):
    """Learning rate, and the factor that clipping multiplies the gradient with."""

    learning: Any
    clip_factor: Any


def adamw(rates: Rates, formats: Formats) -> Callable[[Trained, Any, Any, Rate], Trained]:
    """One step of any part of the parameters, since AdamW works entry by entry.

    The function takes what is trained, the gradient, the mask of entries that decay, and the rate.
    """
    adam, wide = optax.scale_by_adam(rates.beta1, rates.beta2, rates.epsilon), formats.wide

    def update(held: Trained, gradient_S: Any, is_decayed_S: Any, rate: Rate) -> Trained:
        before = optax.ScaleByAdamState(held.count, held.first.astype(wide), held.second.astype(wide))
        direction_S, after = adam.update(gradient_S.astype(wide) * rate.clip_factor, before)
        decay_S = jnp.where(is_decayed_S, 1 - rate.learning * rates.weight_decay, 1)
        parameters_S = held.parameters.astype(wide) * decay_S - rate.learning * direction_S
        moments = after.mu.astype(formats.optimizer), after.nu.astype(formats.optimizer)
        return Trained(parameters_S.astype(formats.parameters), *moments, after.count)

    return update
