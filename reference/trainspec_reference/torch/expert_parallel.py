"""Exchanges tokens among expert ranks, each of which holds a share of the experts of each layer."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

Compute = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
"""Takes rows in the order of the experts of this rank, and how many each has; gives a row for each."""


@dataclass(frozen=True, slots=True)
class ExpertSplit:
    """Where the experts are; without a group this rank holds all of them."""

    group: dist.ProcessGroup | None = None

    def visit(self, rows_SD: torch.Tensor, counts_E: torch.Tensor, compute: Compute) -> torch.Tensor:
        """What the experts make of the rows, which are in their order; a row goes to the rank of its expert and back.

        No row is dropped, however many an expert has: a loss does not depend on the number of ranks.
        """
        if self.group is None:
            return compute(rows_SD, counts_E.tolist())
        sent_RL = counts_E.view(dist.get_world_size(self.group), -1)
        received_RL = torch.empty_like(sent_RL)
        dist.all_to_all_single(received_RL, sent_RL, group=self.group)
        sent, received = sent_RL.sum(1).tolist(), received_RL.sum(1).tolist()
        rows_MD = _AllToAll.apply(rows_SD, self.group, sent, received)  # type: ignore[no-untyped-call]
        # Rows of each rank are in the order of experts; each expert takes the rows of all ranks together.
        num_ranks, num_experts = received_RL.shape
        experts_M = torch.arange(num_experts, device=rows_SD.device).repeat(num_ranks)
        order_M = experts_M.repeat_interleave(received_RL.flatten()).argsort(stable=True)
        answers_MD = compute(rows_MD[order_M], received_RL.sum(0).tolist())[order_M.argsort()]
        return _AllToAll.apply(answers_MD, self.group, received, sent)  # type: ignore[no-untyped-call, no-any-return]


class _AllToAll(torch.autograd.Function):
    """Rows to other ranks and from them; gradients take the way back."""

    @staticmethod
    def forward(
        context: Any, rows: torch.Tensor, group: dist.ProcessGroup, sent: list[int], received: list[int]
    ) -> torch.Tensor:
        context.group, context.sent, context.received = group, sent, received
        return _exchanged(rows, group, sent, received)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _exchanged(gradient, context.group, context.received, context.sent), None, None, None


def _exchanged(rows: torch.Tensor, group: dist.ProcessGroup, sent: list[int], received: list[int]) -> torch.Tensor:
    found = rows.new_empty(sum(received), *rows.shape[1:])
    dist.all_to_all_single(found, rows.contiguous(), received, sent, group=group)
    return found
