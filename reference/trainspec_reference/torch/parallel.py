"""Passes activations between the ranks that share a replica: of tensors, of sequences, and of experts."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch.distributed.nn.functional import all_to_all_single

from trainspec_reference.common.ranks import own_positions, pieces_of

all_gather_flat = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter_flat = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
"""Under the names of PyTorch 2.13, or those before it."""


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
        """All positions but the padding; the result is the same on each rank."""
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


@dataclass(frozen=True, slots=True)
class ContextSplit:
    """How context ranks share each sequence; without a group a rank holds all of it.

    Each rank gathers the keys and values of all positions, and each of its two pieces attends to those up to its end.
    PyTorch's own `context_parallel` divides the attention kernels of accelerators alone: for that of processors it has
    no rule (2.13), and a run has to give the same numbers on both.
    """

    group: dist.ProcessGroup | None = None
    rank: int = 0
    degree: int = 1
    num_divisions: int = 1
    """Tensor ranks that divide the positions of each context rank once more, by sequence."""

    def fed(self, whole_BT: npt.NDArray[Any], filler: int = 0) -> npt.NDArray[Any]:
        """This rank's positions of tokens or targets."""
        if self.degree == 1:
            return whole_BT
        return own_positions(whole_BT, self.rank, self.degree, filler, self.num_divisions)

    def rows(self, table_TD: torch.Tensor, length: int) -> torch.Tensor:
        """Rows [length, D] of a table of positions, for as many positions as this rank holds."""
        if self.degree == 1:
            return table_TD[:length]
        missing = max(0, length * self.degree - len(table_TD))
        pieces = F.pad(table_TD[: length * self.degree], (0, 0, 0, missing)).chunk(2 * self.degree)
        return torch.cat([pieces[number] for number in self._numbers])

    def prepare(self, length: int) -> None:
        """Make the masks for so many own positions: none can be made while a policy records the operations."""
        for number in self._numbers if self.degree > 1 else ():
            _mask(length // 2, length // 2 * (number + 1))

    def attend(self, q_BHtK: torch.Tensor, k_BHtK: torch.Tensor, v_BHtK: torch.Tensor) -> torch.Tensor:
        """Causal attention of this rank's positions to those of all ranks, of which there are several."""
        whole_STK = _Gather.apply(torch.stack((k_BHtK, v_BHtK)).flatten(0, 2), self.group, True)  # type: ignore[no-untyped-call]
        early, late = whole_STK.view(len(whole_STK), self.degree, -1, whole_STK.shape[-1]).chunk(2, dim=2)
        in_order = torch.cat([early, late.flip(1)], dim=1)
        k_BHTK, v_BHTK = in_order.view(2, *k_BHtK.shape[:2], -1, k_BHtK.shape[-1])
        mixed = []
        for number, q_BHCK in zip(self._numbers, q_BHtK.chunk(2, dim=-2), strict=True):
            size, seen = q_BHCK.shape[-2], q_BHCK.shape[-2] * (number + 1)
            k_BHSK, v_BHSK, mask = k_BHTK[..., :seen, :], v_BHTK[..., :seen, :], _mask(size, seen)
            mixed.append(F.scaled_dot_product_attention(q_BHCK, k_BHSK, v_BHSK, mask))
        return torch.cat(mixed, dim=-2)

    def of_sequences(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient of whole sequences, from those of each rank's positions; this rank's own stays as it is."""
        if self.group is None:
            return gradient
        whole = gradient.clone()
        dist.all_reduce(whole, group=self.group)
        return whole

    @property
    def _numbers(self) -> tuple[int, int]:
        return pieces_of(self.rank, self.degree)


@functools.cache
def _mask(num_queries: int, num_keys: int) -> torch.Tensor:
    """Each query sees the keys up to its own, of which the last query has the last one."""
    from torch.nn.attention.bias import causal_lower_right  # noqa: PLC0415 - it takes a second to load

    return causal_lower_right(num_queries, num_keys)


Compute = Callable[[torch.Tensor, Sequence[int]], torch.Tensor]
"""Takes rows in the order of the experts of this rank, and how many each has; gives a row for each."""


@dataclass(frozen=True, slots=True)
class ExpertSplit:
    """Where the experts are; without a group this rank holds all of them."""

    group: dist.ProcessGroup | None = None

    def visit(self, rows_SD: torch.Tensor, counts_E: torch.Tensor, compute: Compute) -> torch.Tensor:
        """Output of the experts for the rows, which are in their order; a row goes to the rank of its expert and back.

        No row is dropped, however many an expert has: a loss does not depend on the number of ranks.
        """
        if self.group is None:
            return compute(rows_SD, counts_E.tolist())
        sent_RL = counts_E.view(dist.get_world_size(self.group), -1)
        received_RL = torch.empty_like(sent_RL)
        dist.all_to_all_single(received_RL, sent_RL, group=self.group)
        sent, received = sent_RL.sum(1).tolist(), received_RL.sum(1).tolist()
        rows_MD = _exchanged(rows_SD, self.group, sent, received)
        # Rows of each rank are in the order of experts; each expert takes the rows of all ranks together.
        num_ranks, num_experts = received_RL.shape
        experts_M = torch.arange(num_experts, device=rows_SD.device).repeat(num_ranks)
        order_M = experts_M.repeat_interleave(received_RL.flatten()).argsort(stable=True)
        answers_MD = compute(rows_MD[order_M], received_RL.sum(0).tolist())[order_M.argsort()]
        return _exchanged(answers_MD, self.group, received, sent)


def _exchanged(rows: torch.Tensor, group: dist.ProcessGroup, sent: list[int], received: list[int]) -> torch.Tensor:
    """Rows to other ranks and from them; gradients take the way back."""
    found = rows.new_empty(sum(received), *rows.shape[1:])
    answer: torch.Tensor = all_to_all_single(found, rows.contiguous(), received, sent, group=group)  # type: ignore[no-untyped-call]
    return answer
