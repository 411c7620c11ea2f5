"""Measures gradient noise in JAX: squares inside of the mapped function, before ranks add up."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from trainspec_record.guard import never_raises
from trainspec_record.noise.estimate import Norms
from trainspec_record.noise.meter import NoiseMeter

SYNC_EVERY = 16
"""Readings after which the device is waited for."""


class Groups(NamedTuple):
    """Groups of one step on one device, within a traced function.

    A gradient is that of the mean loss of its group, without a loss scale and before clipping.
    """

    total: Any
    """Gradients, each times the units of its group."""
    squares: Any
    """Squared norms, each times the units of its group."""
    num_units: Any
    num_groups: Any

    @classmethod
    def none(cls, gradient_like: Any) -> Groups:
        """No group yet; of the shape of a gradient."""
        total = jax.tree.map(jnp.zeros_like, gradient_like)
        zero = jnp.sum(jax.tree.leaves(total)[0]).astype(_format())  # differs between the same devices as gradients
        return cls(total, zero, zero, zero)

    def add(self, gradient: Any, num_units: Any) -> Groups:
        """With the mean gradient of one more group, such as a micro-batch within `jax.lax.scan`."""
        units = jnp.asarray(num_units, _format())
        return Groups(
            jax.tree.map(lambda total, each: total + units.astype(each.dtype) * each, self.total, gradient),
            self.squares + units * squared_norm(gradient),
            self.num_units + units,
            self.num_groups + 1,
        )

    def finish(self, axis_name: Any = None) -> tuple[Any, Any]:
        """The mean gradient of the step, and the sums for `JaxNoise.update`; over the devices of an axis, if any."""
        sums = jnp.stack([self.squares, self.num_units, self.num_groups])
        total = self.total
        if axis_name is not None:
            total, sums = jax.lax.psum((total, sums), axis_name)
        mean = jax.tree.map(lambda each: each / sums[1].astype(each.dtype), total)
        return mean, jnp.concatenate([sums, squared_norm(mean)[None]])


def mean_and_sums(gradient: Any, num_units: Any, axis_name: Any) -> tuple[Any, Any]:
    """The mean over devices of an axis, each of which is a group, and the sums for `JaxNoise.update`.

    Within `jax.shard_map` the gradient by parameters that are the same everywhere is summed over devices already; to
    take that of one device, mark them first: `jax.lax.pcast(parameters, axis_name, to="varying")`.
    """
    return Groups.none(gradient).add(gradient, num_units).finish(axis_name)


def squared_norm(tree: Any) -> Any:
    """Squared norm over all leaves, in 64 bits where they are switched on, else in 32."""
    leaves = [jnp.sum(jnp.square(leaf.astype(_format()))) for leaf in jax.tree.leaves(tree)]
    return sum(leaves, start=jnp.zeros((), _format()))


def accumulation_format() -> str:
    """The format of sums, for `NoiseSettings`."""
    return "fp64" if _format() == jnp.float64 else "fp32"


def _format() -> Any:
    return jnp.result_type(float)


class JaxNoise:
    """Takes the sums of steps to a meter, and waits for the device only now and then."""

    def __init__(self, meter: NoiseMeter, *, sync_every: int = SYNC_EVERY) -> None:
        self._meter, self._sync_every = meter, sync_every
        self._sums: list[Any] = []
        self._number = 0

    @never_raises(None)
    def update(self, sums: Any) -> None:
        """Sums of one step, which may still be computed."""
        is_measured = self._meter.is_on and self._number % self._meter.settings.every == 0
        self._number += 1
        if is_measured:
            self._sums.append(sums)
            if len(self._sums) >= self._sync_every:
                self.flush()

    @never_raises(None)
    def flush(self) -> None:
        """Give the meter what waits, and wait for the device."""
        taken, self._sums = self._sums, []
        for squares, units, groups, square_of_mean in (each.tolist() for each in jax.device_get(taken)):
            self._meter.add(Norms(groups, units, squares / units, square_of_mean))
