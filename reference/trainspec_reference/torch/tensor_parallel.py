"""The only place that sums over tensor ranks: activations on the way forward, their gradients on the way back."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def enter_split(hidden: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The same tensor, before matrices that are split by columns; its gradient is the sum of all ranks' gradients."""
    return hidden if group is None else _Enter.apply(hidden, group)  # type: ignore[no-untyped-call]


def leave_split(hidden: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The sum of all ranks' tensors, after matrices that are split by rows; its gradient goes to each rank whole."""
    return hidden if group is None else _Leave.apply(hidden, group)  # type: ignore[no-untyped-call]


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        return hidden.view_as(hidden)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        total = gradient.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=context.group)
        return total, None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.set_materialize_grads(False)
        total = hidden.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None
