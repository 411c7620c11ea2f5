"""Trains a model of which each data rank holds a share: PyTorch's FSDP2, in boxes of our own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.torch.checkpoint import FIRST_MOMENTS, PARAMETERS, SECOND_MOMENTS, Box, host_copy, library
from trainspec_reference.torch.flat import make_optimizer, set_moments, squared_norm
from trainspec_reference.torch.groups import Groups
from trainspec_reference.torch.parallel import ContextSplit, reduce_scatter_flat
from trainspec_reference.torch.parts import Region


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


class ShardedReplica:
    """Parameters, gradients and moments of one rank's share.

    `gradients` keeps parameters whole between the forward and the backward pass (ZeRO-2), `parameters` gathers them
    for each pass anew (ZeRO-3). Gradients are divided as soon as each pass has them.
    """

    feedback = None

    def __init__(self, job: Job, model: nn.Module, regions: Mapping[str, Region], dtype: torch.dtype) -> None:
        self._job, self._model, self._regions = job, model.to(dtype), regions
        self._whole: Weights = {}
        self.num_updates = 0

    def load(self, weights: Weights) -> None:
        """Remember the global parameters; they are divided when the ranks are known."""
        self._whole = weights

    def connect(self, groups: Groups) -> None:
        """Divide the model among these data ranks.

        Raises:
            RuntimeError: it is divided already; a model of another formation is built anew.
        """
        if isinstance(self._model, FSDPModule):
            raise RuntimeError("a sharded model does not continue in another formation: build it again and restore")
        for name, parameter in self._model.named_parameters():
            parameter.data.copy_(self._regions[name.replace(".", "/")].cut(self._whole))
        self._whole = {}
        self.exchange = ShardedExchange(groups.context)
        group = groups.copies if groups.copies is not None else dist.group.WORLD
        mesh = DeviceMesh.from_group(group, groups.device.type)  # type: ignore[arg-type]
        whole_between_passes = self._job.plan.parallelism.sharding == "gradients"
        children = dict(self._model.named_children())
        blocks = [block for name in ("layers", "blocks") if name in children for block in children[name].children()]
        for module in (*blocks, self._model):
            unit = fully_shard(module, mesh=mesh, reshard_after_forward=not whole_between_passes)
            unit.set_gradient_divide_factor(1.0)  # the loss is divided by the targets of all ranks
            unit.set_force_sum_reduction_for_comms(enable=True)
            unit.set_custom_reduce_scatter(self.exchange)  # type: ignore[arg-type]
        self._tensors = {name.replace(".", "/"): _divided(tensor) for name, tensor in self._model.named_parameters()}
        named = [(self._regions[name], tensor) for name, tensor in self._tensors.items()]
        self._optimizer = make_optimizer(named, self._job.rates)
        for tensor in self._tensors.values():
            set_moments(self._optimizer, tensor, (torch.zeros_like(tensor), torch.zeros_like(tensor)), 0)

    def disconnect(self) -> None:
        """A sharded model cannot continue in another formation."""

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of steps that the optimizer's moments hold."""
        self.num_updates = num_updates
        for state in self._optimizer.state.values():
            state["step"].fill_(num_updates)

    def join_copies(self) -> None:
        """No stage holds a copy."""

    def squared_norm(self) -> torch.Tensor:
        """Contribution of this rank to the squared norm of the global gradient; removes the loss scale first."""
        gradients = list(self._gradients())
        for gradient in gradients:
            gradient.div_(self.exchange.loss_scale)
        return squared_norm(gradients)

    def _gradients(self) -> Iterator[torch.Tensor]:
        """This rank's shares."""
        for tensor in self._tensors.values():
            if tensor.grad is not None:
                yield _divided(tensor.grad).to_local()

    def update(self, learning_rate: float, gradient_factor: float) -> None:
        """Apply the optimizer once, with the gradient times a factor."""
        if gradient_factor != 1.0:
            for gradient in self._gradients():
                gradient.mul_(gradient_factor)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.num_updates += 1
        self.discard()

    def discard(self) -> None:
        """Clear the gradient."""
        self._optimizer.zero_grad()

    def copied_boxes(self) -> dict[str, Box]:
        """Copies in host memory of this rank's shares."""
        return {name: replace(box, tensor=host_copy(box.tensor)) for name, box in self._boxes()}

    def restore(self, directory: Path) -> None:
        """Read this rank's shares.

        Raises:
            CheckpointUnreadableError: the checkpoint is damaged, or of another model.
        """
        boxes = dict(self._boxes())
        hosted = {name: replace(box, tensor=host_copy(box.tensor)) for name, box in boxes.items()}
        library().read(hosted, directory)
        for name, box in boxes.items():
            box.tensor.copy_(hosted[name].tensor)

    def whole_tensors(self) -> Iterator[tuple[str, Box]]:
        """No rank has a whole copy."""
        return iter(())

    def split_tensors(self) -> dict[str, Box]:
        """All shares of this rank."""
        return dict(self._boxes())

    def split_kinds(self) -> tuple[str, ...]:
        """All kinds of tensor."""
        return PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS

    def share(self, source: int) -> None:
        """No rank holds all of the state.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"rank {source} holds a share of the model: restore a checkpoint")

    def _boxes(self) -> Iterator[tuple[str, Box]]:
        for name, tensor in self._tensors.items():
            state = self._optimizer.state[tensor]
            kinds = {PARAMETERS: tensor, FIRST_MOMENTS: state["exp_avg"], SECOND_MOMENTS: state["exp_avg_sq"]}
            for kind, divided in kinds.items():
                share = _divided(divided).to_local().detach()
                if share.numel():
                    yield f"{kind}/{name}", _box(share, tensor)


def _divided(tensor: torch.Tensor) -> DTensor:
    """The same, which FSDP2 has divided, for the checker of types."""
    if not isinstance(tensor, DTensor):
        raise TypeError("FSDP2 has not divided a tensor")
    return tensor


def _box(share: torch.Tensor, tensor: DTensor) -> Box:
    """The rows of a tensor that this rank keeps."""
    mesh = tensor.device_mesh
    first = mesh.get_local_rank() * -(-tensor.shape[0] // mesh.size())
    group = mesh.get_group() if share.shape != tensor.shape else None
    return Box(share, tuple(tensor.shape), (first,) + (0,) * (share.ndim - 1), group)
