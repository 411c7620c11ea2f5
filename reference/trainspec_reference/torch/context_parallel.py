"""Shares the positions of a sequence among context ranks, and lets each attend to all of them."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt
import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812

from trainspec_reference.common.sequences import own_positions, pieces_of
from trainspec_reference.torch.flat_collectives import all_gather_flat, reduce_scatter_flat


@dataclass(frozen=True, slots=True)
class ContextSplit:
    """How context ranks share each sequence; without a group a rank holds all of it.

    Each rank gathers the keys and values of all positions, and each of its two pieces attends to those up to its end.
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
        shares: torch.Tensor = _Gather.apply(torch.stack((k_BHtK, v_BHtK)), self.group)  # type: ignore[no-untyped-call]
        early, late = shares.chunk(2, dim=-2)
        k_BHTK, v_BHTK = torch.cat([*early, *late.flip(0)], dim=-2)
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


class _Gather(torch.autograd.Function):
    """Tensors of all ranks, stacked; the gradient of this rank's is the sum of what all ranks have of it.

    PyTorch's own `context_parallel` divides the attention kernels of accelerators alone: for that of processors it has
    no rule (2.13), and a run has to give the same numbers on both.
    """

    @staticmethod
    def forward(context: Any, own: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        context.group = group
        shares = own.new_empty(dist.get_world_size(group), *own.shape)
        all_gather_flat(shares.view(-1), own.contiguous().flatten(), group=group)
        return shares

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        own = gradient.new_empty(gradient.shape[1:])
        reduce_scatter_flat(own.view(-1), gradient.contiguous().flatten(), group=context.group)
        return own, None
