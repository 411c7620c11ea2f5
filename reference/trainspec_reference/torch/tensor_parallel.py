"""Passes activations between tensor ranks: whole on each rank, or split along the sequence."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from trainspec_reference.torch.flat_collectives import all_gather_flat, reduce_scatter_flat


@dataclass(frozen=True, slots=True)
class TensorSplit:
    """How the tensor ranks share the activations of a layer; without a group all functions give what they take.

    Between the matrices that are split each rank holds all positions, or by sequence its own even range of them, in
    which norms, dropout and residuals are then computed (arXiv:2205.05198).
    """

    group: dist.ProcessGroup | None = None
    by_sequence: bool = False

    def enter(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """All positions, before matrices that are split by columns; gradients are summed over ranks on the way back."""
        if self.group is None:
            return hidden_BTD
        if self.by_sequence:
            return _Gather.apply(hidden_BTD, self.group, True)  # type: ignore[no-untyped-call, no-any-return]
        return _SumBack.apply(hidden_BTD, self.group)  # type: ignore[no-untyped-call, no-any-return]

    def leave(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """The sum of all ranks' tensors, after matrices that are split by rows; by sequence, its own range of it."""
        if self.group is None:
            return hidden_BTD
        if self.by_sequence:
            return _Keep.apply(hidden_BTD, self.group, True)  # type: ignore[no-untyped-call, no-any-return]
        return _Sum.apply(hidden_BTD, self.group)  # type: ignore[no-untyped-call, no-any-return]

    def begin(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """This rank's range of positions; what does not divide is padded at the end, where no position looks."""
        if self.group is None or not self.by_sequence:
            return hidden_BTD
        padded_BTD = F.pad(hidden_BTD, (0, 0, 0, -hidden_BTD.shape[1] % dist.get_world_size(self.group)))
        return _Keep.apply(padded_BTD, self.group, False)  # type: ignore[no-untyped-call, no-any-return]

    def end(self, hidden_BTD: torch.Tensor, length: int) -> torch.Tensor:
        """All positions but the padding; each rank goes on with the same."""
        if self.group is None or not self.by_sequence:
            return hidden_BTD
        whole_BTD = _Gather.apply(hidden_BTD, self.group, False)  # type: ignore[no-untyped-call]
        return whole_BTD[:, :length]  # type: ignore[no-any-return]

    def shared(self, parameter: torch.Tensor) -> torch.Tensor:
        """A parameter that every rank applies to its own range: its gradient is the sum over all ranges."""
        if self.group is None or not self.by_sequence:
            return parameter
        return _SumBack.apply(parameter, self.group)  # type: ignore[no-untyped-call, no-any-return]


WHOLE = TensorSplit()
"""Every rank holds all of a layer."""


class _SumBack(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=context.group)
        return total, None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.set_materialize_grads(False)
        total = hidden.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class _Gather(torch.autograd.Function):
    """All ranges; the gradient of this rank's range is the sum over ranks, or what this rank has of it."""

    @staticmethod
    def forward(context: Any, own: torch.Tensor, group: dist.ProcessGroup, sums_back: bool) -> torch.Tensor:
        context.group, context.sums_back = group, sums_back
        return _gathered(own, group)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _kept(gradient, context.group, sums=context.sums_back), None, None


class _Keep(torch.autograd.Function):
    """This rank's range, of the sum over ranks or of its own tensor."""

    @staticmethod
    def forward(context: Any, whole: torch.Tensor, group: dist.ProcessGroup, sums: bool) -> torch.Tensor:
        context.group = group
        return _kept(whole, group, sums=sums)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _gathered(gradient, context.group), None, None


def _gathered(own_BtD: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    ranges_RBtD = own_BtD.new_empty(dist.get_world_size(group), *own_BtD.shape)
    all_gather_flat(ranges_RBtD.view(-1), own_BtD.contiguous().flatten(), group=group)
    return ranges_RBtD.movedim(0, 1).flatten(1, 2)


def _kept(whole_BTD: torch.Tensor, group: dist.ProcessGroup, *, sums: bool) -> torch.Tensor:
    ranges = whole_BTD.chunk(dist.get_world_size(group), dim=1)
    if not sums:
        return ranges[dist.get_rank(group)].contiguous()
    ranges_RBtD = torch.stack(ranges)
    own_BtD = torch.empty_like(ranges_RBtD[0], memory_format=torch.contiguous_format)
    reduce_scatter_flat(own_BtD.view(-1), ranges_RBtD.view(-1), group=group)
    return own_BtD
