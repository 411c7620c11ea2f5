"""Writes the layers that networks of several families share, and what of them the backward pass keeps."""

# ruff: noqa: N803 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

NORM_EPSILON = 1e-5

Keep = Callable[[nn.Module, torch.Tensor], torch.Tensor]
"""Runs a block and decides what of it is kept for the backward pass."""


def keep_all(block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """Keep every activation."""
    result: torch.Tensor = block(hidden)
    return result


def empty(*axes: int) -> nn.Parameter:
    """A parameter that is filled later."""
    return nn.Parameter(torch.empty(axes))


def unshared(parameter: torch.Tensor) -> torch.Tensor:
    """The parameter itself, where a rank applies it to all positions."""
    return parameter


class LayerNorm(nn.Module):
    """Norm over the width, in one kernel."""

    def __init__(self, width: int, shared: Callable[[torch.Tensor], torch.Tensor] = unshared) -> None:
        super().__init__()
        self.scale, self.bias, self.shared = empty(width), empty(width), shared

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        scale, bias = self.shared(self.scale), self.shared(self.bias)
        return F.layer_norm(hidden_BTD, scale.shape, scale, bias, NORM_EPSILON)


Policy = Literal["none", "selective", "full", "offload"]

_DEAR = frozenset({torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.convolution.default})
"""Operations whose results `selective` keeps, since computing them again costs most."""


def keeper(policy: Policy) -> Keep:
    """How blocks run: all kept, all but the products recomputed, all recomputed, or all moved to host memory."""
    match policy:
        case "none":
            return keep_all
        case "full":
            return partial(_recomputed, context_fn=noop_context_fn)
        case "selective":
            return partial(_recomputed, context_fn=partial(create_selective_checkpoint_contexts, _choose))
        case "offload":
            return _offloaded


def _choose(_: Any, operation: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _DEAR else CheckpointPolicy.PREFER_RECOMPUTE


def _recomputed(block: nn.Module, hidden: torch.Tensor, context_fn: Callable[[], Any]) -> torch.Tensor:
    result: torch.Tensor = checkpoint(block, hidden, use_reentrant=False, context_fn=context_fn)
    return result


def _offloaded(block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.save_on_cpu(pin_memory=hidden.is_cuda):
        result: torch.Tensor = block(hidden)
    return result
