"""Writes a mixture of experts: a feed-forward network whose tokens each visit a few of its parts."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from trainspec_reference.common.job import ModelShape
from trainspec_reference.torch.models.blocks import empty
from trainspec_reference.torch.parallel import ExpertSplit
from trainspec_reference.torch.parts import Part


class Experts(nn.Module):
    """The router, which every rank holds whole, and the experts of this rank.

    A token visits the experts of the highest probability, which weighs what they answer, so that the router learns from
    one expert as well (arXiv:2101.03961). There is no capacity, and no loss that balances the experts: a loss is the
    same on any number of expert ranks.
    """

    def __init__(self, shape: ModelShape, part: Part) -> None:
        super().__init__()
        self.num_experts, self.num_active = shape.num_experts, shape.num_active_experts
        num_own, hidden, inner = shape.num_experts // part.expert_degree, shape.hidden_size, shape.ffn_hidden_size
        self.router = empty(hidden, shape.num_experts)
        self.expert_up, self.expert_down = empty(num_own, hidden, inner), empty(num_own, inner, hidden)
        self.split = ExpertSplit()

    def forward(self, hidden_BTD: torch.Tensor) -> torch.Tensor:
        """[B, T, D] to [B, T, D]."""
        tokens_ND = hidden_BTD.flatten(0, 1)
        weights_NA, chosen_NA = self._probabilities(tokens_ND).topk(self.num_active)
        visits_S = chosen_NA.flatten()
        order_S = visits_S.argsort(stable=True)
        rows_SD = tokens_ND[order_S // self.num_active]
        answers_SD = self.split.visit(rows_SD, visits_S.bincount(minlength=self.num_experts), self._compute)
        answers_NAD = answers_SD[order_S.argsort()].view(*chosen_NA.shape, -1)
        return (answers_NAD * weights_NA[..., None].to(answers_NAD.dtype)).sum(1).view_as(hidden_BTD)

    def _probabilities(self, tokens_ND: torch.Tensor) -> torch.Tensor:
        """Of each expert for each token, in fp32 at least: close ones decide which expert a token visits."""
        dtype = torch.promote_types(tokens_ND.dtype, torch.float32)
        with torch.autocast(tokens_ND.device.type, enabled=False):
            return torch.softmax(tokens_ND.to(dtype) @ self.router.to(dtype), -1)

    def _compute(self, rows_MD: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        own = zip(torch.split(rows_MD, list(sizes)), self.expert_up, self.expert_down, strict=True)
        return torch.cat([F.gelu(rows_mD @ up, approximate="tanh") @ down for rows_mD, up, down in own])
