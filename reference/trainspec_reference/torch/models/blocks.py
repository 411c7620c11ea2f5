"""Writes the layers that networks of several families share."""

# ruff: noqa: N803 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

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
