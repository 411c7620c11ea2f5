"""Trains a model of which each data rank holds a share: PyTorch's FSDP2, in boxes of our own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.torch.checkpoint import Box
from trainspec_reference.torch.groups import Groups
from trainspec_reference.torch.parallel import ContextSplit, reduce_scatter_flat
from trainspec_reference.torch.parts import Part
from trainspec_reference.torch.state import State, named_parameters, squared_norm


class ShardedExchange:
    """FSDP2's reduce-scatter of whole gradients, which notes their norm, and the time where the processor does it."""

    def __init__(self, context: ContextSplit) -> None:
        self._context = context
        self._seconds, self._measures_noise, self.loss_scale = 0.0, False, 1.0
        self._squared_norms: list[torch.Tensor] = []

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A buffer for one exchange."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Sum whole gradients of all ranks, of which each keeps its share."""
        if self._measures_noise:
            self._squared_norms[-1] = squared_norm([self._context.of_sequences(input_tensor)]) + self._squared_norms[-1]
        start = time.perf_counter()
        work: dist.Work | None = reduce_scatter_flat(output_tensor, input_tensor, group=group, op=op, async_op=async_op)
        self._seconds += time.perf_counter() - start
        return work

    def begin(self, _: int, loss_scale: float, *, measures_noise: bool) -> None:
        """Start a step."""
        self._seconds, self._measures_noise, self.loss_scale = 0.0, measures_noise, loss_scale
        self._squared_norms = []

    def next_micro_batch(self) -> None:
        """A backward pass is about to begin."""
        self._squared_norms.append(torch.zeros((), dtype=torch.float64))

    def end_micro_batch(self) -> None:
        """FSDP2 has waited for its last exchange."""

    def wait(self) -> float:
        """Seconds that the processor spent in exchanges; a device overlaps them with the pass."""
        return self._seconds

    @property
    def squared_norms(self) -> list[float]:
        """Of the gradient of each micro-batch, loss scale removed."""
        return [float(norm) / self.loss_scale**2 for norm in self._squared_norms]


class ShardedReplica(State):
    """Parameters, gradients and moments of one rank's share.

    `gradients` keeps parameters whole between the forward and the backward pass (ZeRO-2), `parameters` gathers them
    for each pass anew (ZeRO-3). Gradients are divided as soon as each pass has them. It ends with its formation.
    """

    exchange: ShardedExchange

    def __init__(self, job: Job, model: nn.Module, part: Part, weights: Weights) -> None:
        super().__init__(job, model, part, weights)
        self._model = model

    def connect(self, groups: Groups) -> None:
        """Divide the model among these data ranks."""
        self._groups, self.exchange = groups, ShardedExchange(groups.context)
        mesh = DeviceMesh.from_group(groups.copies, groups.device.type)  # type: ignore[arg-type]
        whole_between_passes = self._job.plan.parallelism.sharding == "gradients"
        children = dict(self._model.named_children())
        blocks = [block for name in ("layers", "blocks") if name in children for block in children[name].children()]
        for module in (*blocks, self._model):
            unit = fully_shard(module, mesh=mesh, reshard_after_forward=not whole_between_passes)
            unit.set_gradient_divide_factor(1.0)  # the loss is divided by the targets of all ranks
            unit.set_force_sum_reduction_for_comms(enable=True)
            unit.set_custom_reduce_scatter(self.exchange)  # type: ignore[arg-type]
        self.tensors = named_parameters(self._model)
        self.own(self.tensors)

    def squared_norm(self) -> torch.Tensor:
        """Of this rank's share; removes the loss scale first."""
        for gradient in self.gradients():
            gradient.div_(self.exchange.loss_scale)
        return squared_norm(self.gradients())

    def gradients(self) -> Sequence[torch.Tensor]:
        """This rank's shares."""
        return [_divided(tensor.grad).to_local() for tensor in self.tensors.values() if tensor.grad is not None]

    def discard(self) -> None:
        """Clear the gradient."""
        self._optimizer.zero_grad()

    @property
    def whole_kinds(self) -> Sequence[str]:
        """No rank has a whole copy."""
        return ()

    @property
    def held(self) -> Sequence[str]:
        """Those of which a row is this rank's."""
        return [name for name, tensor in self.tensors.items() if _divided(tensor).to_local().numel()]

    @property
    def written(self) -> Sequence[str]:
        """All that this rank holds."""
        return self.held

    def _box(self, name: str, tensor: torch.Tensor) -> Box:
        """The rows of a tensor that this rank keeps."""
        divided = _divided(tensor)
        share, shape, mesh = divided.to_local(), self.regions[name].whole_shape, divided.device_mesh
        first = mesh.get_local_rank() * -(-shape[0] // mesh.size())
        group = mesh.get_group() if share.shape != shape else None
        return Box(share, shape, (first,) + (0,) * (share.ndim - 1), group)


def _divided(tensor: torch.Tensor) -> DTensor:
    """The same, which FSDP2 has divided, for the checker of types."""
    if not isinstance(tensor, DTensor):
        raise TypeError("FSDP2 has not divided a tensor")
    return tensor
