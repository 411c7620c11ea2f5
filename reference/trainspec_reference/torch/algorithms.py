"""Sums a gradient over copies of the model: by the library, a ring, a tree, or in two levels."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from trainspec_reference.torch.flat_collectives import all_gather_flat, reduce_scatter_flat
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_validate.documents.types.communication import CollectiveChoice, Communication

Sum = Callable[[torch.Tensor], None]
"""Replaces a flat tensor by its sum over the data ranks, in place and alike on all of them."""


class DataSum:
    """The algorithms that a plan chooses for all-reduce over data ranks, by the size of the message.

    Raises:
        ValueError: the plan names an algorithm that is not here.
    """

    def __init__(self, groups: Groups, communication: Communication | None) -> None:
        self._group = groups.sharers
        plan = communication or Communication()
        known: dict[str, Sum] = {
            "automatic": lambda tensor_N: dist.all_reduce(tensor_N, group=groups.sharers),
            "ring": lambda tensor_N: ring(tensor_N, groups.sharers),
            "tree": lambda tensor_N: tree(tensor_N, groups.sharers),
            "hierarchical": lambda tensor_N: hierarchical(tensor_N, groups),
        }
        if groups.is_by_host:
            known |= {name: _by_host(known[name]) for name in ("ring", "tree")}
        chosen = [choice for choice in plan.collectives if choice.operation == "all-reduce" and choice.axis == "data"]
        unknown = {choice.algorithm for choice in chosen} - known.keys()
        if unknown:
            raise ValueError(f"all-reduce by {', '.join(sorted(unknown))} is not one of {', '.join(known)}")
        self._choices: list[tuple[CollectiveChoice, Sum]] = [(choice, known[choice.algorithm]) for choice in chosen]
        self._default = known["hierarchical" if plan.hierarchical_reduction else "automatic"]

    def __call__(self, tensor_N: torch.Tensor) -> None:
        """Sum a contiguous flat tensor over the data ranks, in place."""
        if self._group is None or not tensor_N.numel():
            return
        with peers_needed():
            self._algorithm(tensor_N.nbytes)(tensor_N)

    def _algorithm(self, num_bytes: int) -> Sum:
        for choice, algorithm in self._choices:
            if choice.min_bytes <= num_bytes and (choice.max_bytes is None or num_bytes < choice.max_bytes):
                return algorithm
        return self._default


def sum_of_experts(groups: Groups) -> Sum:
    """The sum over the ranks that hold the same experts, in one call: their parameters are of another group."""

    def run(tensor_N: torch.Tensor) -> None:
        if groups.copies is not None:
            with peers_needed():
                dist.all_reduce(tensor_N, group=groups.copies)

    return run


def _by_host(algorithm: Sum) -> Sum:
    """The algorithm on a copy in the memory of the host."""

    def run(tensor_N: torch.Tensor) -> None:
        held_N = tensor_N.cpu()
        algorithm(held_N)
        tensor_N.copy_(held_N)

    return run


def ring(tensor_N: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """Each chunk goes once round the ring to be summed, and once more to be known: 2 (W - 1) turns of N / W."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    chunks, incoming_C = tensor_N.tensor_split(size), torch.empty_like(tensor_N[: -(-tensor_N.numel() // size)])
    before, after = (rank - 1) % size, (rank + 1) % size
    for turn in range(size - 1):
        own = chunks[(rank - turn - 1) % size]
        _swap(chunks[(rank - turn) % size], after, incoming_C[: own.numel()], before, group)
        own += incoming_C[: own.numel()]
    for turn in range(size - 1):
        _swap(chunks[(rank + 1 - turn) % size], after, chunks[(rank - turn) % size], before, group)


def tree(tensor_N: torch.Tensor, group: dist.ProcessGroup | None) -> None:
    """Pairs at distance 1, 2, 4, ... sum towards rank 0, which then tells the sum the same way back."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    distances = [1 << level for level in range((size - 1).bit_length())]
    incoming_N = torch.empty_like(tensor_N)
    for distance in distances:
        if rank % (2 * distance) == distance:
            dist.send(tensor_N, group=group, group_dst=rank - distance)
        elif rank % (2 * distance) == 0 and rank + distance < size:
            dist.recv(incoming_N, group=group, group_src=rank + distance)
            tensor_N += incoming_N
    for distance in reversed(distances):
        if rank % (2 * distance) == 0 and rank + distance < size:
            dist.send(tensor_N, group=group, group_dst=rank + distance)
        elif rank % (2 * distance) == distance:
            dist.recv(tensor_N, group=group, group_src=rank - distance)


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


def _swap(
    outgoing: torch.Tensor, to: int, incoming: torch.Tensor, source: int, group: dist.ProcessGroup | None
) -> None:
    transfers = [
        dist.P2POp(operation, tensor, group=group, group_peer=peer)
        for operation, tensor, peer in ((dist.isend, outgoing, to), (dist.irecv, incoming, source))
        if tensor.numel()
    ]
    for work in dist.batch_isend_irecv(transfers) if transfers else ():
        work.wait()
