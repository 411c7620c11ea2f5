"""Sums a gradient by messages of our own, round a ring and up a tree, to be measured against the library's."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import torch
import torch.distributed as dist


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
    """Pairs at distance 1, 2, 4, ... sum towards rank 0, which then returns the sum along the same path."""
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
