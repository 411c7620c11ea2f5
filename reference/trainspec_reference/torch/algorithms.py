"""Sums a gradient over copies of the model: in one call of the library, or inside each host first."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from trainspec_reference.common.offers import all_reduce_algorithm
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parallel import all_gather_flat, reduce_scatter_flat
from trainspec_validate.documents.types.communication import Communication

Sum = Callable[[torch.Tensor], None]
"""Replaces a flat tensor by its sum over the data ranks, in place and alike on all of them."""


def data_sum(groups: Groups, communication: Communication | None) -> Sum:
    """The sum over the data ranks, by what the plan chooses for messages of that size."""

    def run(tensor_N: torch.Tensor) -> None:
        if groups.sharers is None or not tensor_N.numel():
            return
        with peers_needed():
            if all_reduce_algorithm(communication, tensor_N.nbytes) == "hierarchical":
                hierarchical(tensor_N, groups)
            else:
                dist.all_reduce(tensor_N, group=groups.sharers)

    return run


def sum_of_experts(groups: Groups) -> Sum:
    """The sum over the ranks that hold the same experts, in one call: their parameters are of another group."""

    def run(tensor_N: torch.Tensor) -> None:
        if groups.copies is not None:
            with peers_needed():
                dist.all_reduce(tensor_N, group=groups.copies)

    return run


def hierarchical(tensor_N: torch.Tensor, groups: Groups) -> None:
    """Sum inside each host first, so that the fabric carries each byte once per host and not once per rank.

    With as many ranks in each host: reduce-scatter in the host, all-reduce of each piece between hosts, all-gather in
    the host. Otherwise the first rank of each host stands for it.
    """
    if groups.leaders is None and groups.in_host is None:
        dist.all_reduce(tensor_N, group=groups.sharers)
    elif groups.across_hosts is not None and groups.in_host is not None:
        size = dist.get_world_size(groups.in_host)
        padded_P = torch.nn.functional.pad(tensor_N, (0, -tensor_N.numel() % size))
        piece_C = padded_P.new_empty(padded_P.numel() // size)
        reduce_scatter_flat(piece_C, padded_P, group=groups.in_host)
        dist.all_reduce(piece_C, group=groups.across_hosts)
        all_gather_flat(padded_P, piece_C, group=groups.in_host)
        tensor_N.copy_(padded_P[: tensor_N.numel()])
    else:
        _by_leaders(tensor_N, groups)


def _by_leaders(tensor_N: torch.Tensor, groups: Groups) -> None:
    if groups.in_host is not None:
        dist.reduce(tensor_N, group_dst=0, group=groups.in_host)
    if groups.leaders is not None:
        dist.all_reduce(tensor_N, group=groups.leaders)
    if groups.in_host is not None:
        dist.broadcast(tensor_N, group_src=0, group=groups.in_host)
