"""Lays ranks out as a mesh, and runs a function of one rank's blocks on all of them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from trainspec_reference.common.backend import Formation
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.jax.layout import Part
from trainspec_validate.documents.types.parallelism import Parallelism

CONTEXT_AXIS: Literal["context"] = "context"
"""Ranks that share each sequence."""
LOCAL_AXES = ("local", CONTEXT_AXIS)
COPY_AXES = ("host", *LOCAL_AXES)
"""Ranks that hold the same parameters: hosts, then data ranks of one host, then their context ranks."""
PIPELINE_AXIS: Literal["pipeline"] = "pipeline"
"""Stages of a pipeline."""
TENSOR_AXIS: Literal["tensor"] = "tensor"
PART_AXES = (PIPELINE_AXIS, TENSOR_AXIS)
"""Ranks that hold one replica of the model together, each a part of it."""
AXES = (*COPY_AXES, *PART_AXES)


class Group:
    """Ranks that run one program together; each holds block number 0 of arrays whose first axis is the ranks."""

    def __init__(self, devices: Any, own: jax.Device) -> None:
        self.mesh = Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))
        self._own = own
        self._sharding = NamedSharding(self.mesh, PartitionSpec(AXES))

    @staticmethod
    def run(program: Any, blocks: Any) -> Any:
        """Run a compiled function on its blocks."""
        return program(*blocks)

    def own(self, value: Any) -> Any:
        """A value of this rank alone, as its block."""
        return jax.device_put(np.asarray(value)[None], self._own)

    def program(self, body: Callable[..., Any], donated: tuple[int, ...] = ()) -> Callable[..., Any]:
        """The body, which takes and gives values of one rank, as a function of blocks; collectives go over the mesh."""

        def blocks(*values: Any) -> Any:
            plain = jax.tree.map(lambda block: block[0], values)
            return jax.tree.map(lambda value: value[None], body(*plain))

        spec = PartitionSpec(AXES)
        mapped = jax.shard_map(blocks, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False)
        compiled = jax.jit(mapped, donate_argnums=donated)

        def run(*values: Any) -> Any:
            found = self.run(compiled, jax.tree.map(self._together, values))
            return jax.tree.map(lambda array: array.addressable_data(0), found)

        return run

    def _together(self, block: jax.Array) -> jax.Array:
        shape = (self.mesh.size, *block.shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self._sharding, [block])


class Ranks:
    """All ranks of a formation: this one's numbers, and the groups that it is in."""

    def __init__(self, formation: Formation, parallelism: Parallelism) -> None:
        self.rank, self.num_ranks = formation.rank, formation.num_ranks
        self.grid = grid = RankGrid(parallelism, formation.num_ranks)
        place = grid.place(formation.rank)
        self.data_rank, self.num_data = place["data"], grid.degrees["data"]
        self.part = self.part_of(formation.rank)
        self.num_stages, self.num_tensor = grid.degrees["pipeline"], grid.degrees["tensor"]
        self.context_rank, self.num_context = place["context"], grid.degrees["context"]
        self.num_copies = self.num_data * self.num_context
        by_data = sorted(grid.groups(CONTEXT_AXIS, *PART_AXES), key=lambda group: grid.place(group[0])["data"])
        self.first_of_data = [group[0] for group in by_data]
        hosts = ranks_of_hosts([formation.hosts[group[0]] for group in by_data])
        by_part = [sorted(group, key=self._place_in_replica) for group in by_data]
        sizes = self.num_context, self.num_stages, self.num_tensor
        self._order = np.array(by_part).reshape(*hosts, *sizes)
        devices = self._devices()
        own = jax.local_devices()[0]
        self.everyone = Group(devices[self._order], own)
        self.replica = Group(devices[np.array(by_part[self.data_rank]).reshape(1, 1, *sizes)], own)
        self.alone = Group(np.array(own).reshape(1, 1, 1, 1, 1), own)

    @property
    def num_parts(self) -> int:
        """Ranks that hold the model together."""
        return self.num_stages * self.num_tensor

    @property
    def copy(self) -> int:
        """Number of this rank among those that hold the same parameters."""
        return self.copy_of(self.rank)

    def copy_of(self, rank: int) -> int:
        """Number of a rank among those that hold the same parameters."""
        place = self.grid.place(rank)
        return place["data"] * self.num_context + place["context"]

    def part_of(self, rank: int) -> Part:
        """The part of the model that a rank computes with."""
        place = self.grid.place(rank)
        return Part(place["tensor"], place["pipeline"])

    def _place_in_replica(self, rank: int) -> tuple[int, int, int]:
        part = self.part_of(rank)
        return self.copy_of(rank), part.stage, part.tensor

    def by_rank(self, values: Any) -> Any:
        """Values in the order of ranks, from those in the order of the mesh."""
        found = np.empty_like(values)
        found[self._order.reshape(-1)] = values
        return found

    def _devices(self) -> Any:
        # One accelerator of each process: a rank is one accelerator.
        if self.num_ranks == 1:
            return np.array(jax.local_devices()[:1])
        first = {device.process_index: device for device in reversed(jax.devices())}
        return np.array([first[rank] for rank in range(self.num_ranks)])


def ranks_of_hosts(hosts: list[str]) -> tuple[int, int]:
    """Hosts and data ranks of each, from the host of each data rank; one host where they differ in size.

    >>> ranks_of_hosts(["a", "a", "b", "b"]), ranks_of_hosts(["a", "a", "b"])
    ((2, 2), (1, 3))
    """
    sizes = [len(list(members)) for _, members in groupby(hosts)]
    return (len(sizes), sizes[0]) if len(set(sizes)) == 1 else (1, len(hosts))
