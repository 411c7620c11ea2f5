"""Writes the state-space network: a gated diagonal linear recurrence in each layer."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from trainspec_reference.common.job import ModelShape
from trainspec_reference.torch.models.blocks import Keep, LayerNorm, empty, keep_all, unshared
from trainspec_reference.torch.parts import Part


def recurrence(values_BTD: torch.Tensor, decay_D: torch.Tensor) -> torch.Tensor:
    """States s_t = a s_(t-1) + x_t of all positions, in log2(T) passes that each double the reach."""
    states_BTD, factor_D, reach = values_BTD, decay_D, 1
    while reach < values_BTD.shape[1]:
        earlier_BTD = F.pad(states_BTD[:, :-reach], (0, 0, reach, 0))
        states_BTD = states_BTD + factor_D * earlier_BTD
        factor_D, reach = factor_D * factor_D, 2 * reach
    return states_BTD


class StateSpaceBlock(nn.Module):
    """One recurrence behind a norm, with a gate, with a residual connection."""

    def __init__(self, shape: ModelShape) -> None:
        super().__init__()
        width, self.dropout = shape.hidden_size, shape.dropout
        self.norm = LayerNorm(width)
        self.in_proj, self.out_proj = empty(width, 2 * width), empty(width, width)
        self.decay, self.input_gain, self.output_gain = empty(width), empty(width), empty(width)
        self.read: Callable[[torch.Tensor], torch.Tensor] = unshared

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        value_BTD, gate_BTD = (self.norm(hidden_BTD) @ self.read(self.in_proj)).chunk(2, dim=-1)
        states_BTD = recurrence(self.input_gain * value_BTD, torch.sigmoid(self.decay))
        branch_BTD = (self.output_gain * states_BTD * F.silu(gate_BTD)) @ self.read(self.out_proj)
        return hidden_BTD + F.dropout(branch_BTD, self.dropout, self.training)


class StateSpaceModel(nn.Module):
    """Tokens to logits through recurrences, with one table for input and output."""

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        self.part, self.keep = part, keep_all
        if part.is_first or part.is_last:
            self.token_embedding = empty(shape.vocabulary_size, shape.hidden_size)
        self.layers = nn.ModuleDict({str(at): StateSpaceBlock(shape) for at in part.layers(shape.num_layers)})

    keep: Keep

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Tokens [B, T], or the hidden [B, T, D] of the stage before, to logits [B, T, V], or hidden [B, T, D]."""
        hidden_BTD = F.embedding(inputs, self.token_embedding) if self.part.is_first else inputs
        for block in self.layers.values():
            hidden_BTD = self.keep(block, hidden_BTD)
        return F.linear(hidden_BTD, self.token_embedding) if self.part.is_last else hidden_BTD
