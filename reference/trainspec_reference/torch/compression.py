"""Compresses gradients before they are sent (cast, low rank or sparse), and keeps the residual."""

# ruff: noqa: N806 - shapes stand in names

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Protocol

import torch
import torch.distributed as dist

from trainspec_reference.torch.algorithms import Sum
from trainspec_reference.torch.exchange import Bucket
from trainspec_reference.torch.flat import FlatState, Span
from trainspec_reference.torch.groups import peers_needed
from trainspec_reference.torch.parallel import all_gather_flat
from trainspec_validate.documents.types.communication import Compression

CAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
MIN_RATE = 2.0
"""A matrix is sent as two factors where that halves its bytes, as PyTorch's own PowerSGD does."""


class Compressor(Protocol):
    """A way to send about the gradient of a bucket."""

    def send(self, bucket: Bucket, total: Sum) -> torch.Tensor:
        """Replace the bucket's gradient by the sum of what all ranks sent, and return what this one did not send.

        Over all ranks, what is returned and the sum together are the sum of the gradients.
        """
        ...

    factors: Mapping[str, torch.Tensor]
    """What it has learnt, by name of the parameter; alike on all ranks."""
    num_sent_bytes: int
    """Of the last bucket's message, places and factors included."""

    def commit(self) -> None:
        """Keep what was learnt in this step."""
        ...


class Cast:
    """16-bit numbers on the wire and sums in the gradient's own format.

    Each rank sums one chunk for all, and keeps what is lost when its sum is cast for the way back.
    """

    def __init__(self, dtype: torch.dtype, group: dist.ProcessGroup) -> None:
        self._dtype, self._group = dtype, group
        self.factors: Mapping[str, torch.Tensor] = {}
        self.num_sent_bytes = 0
        self._rank, self._size = dist.get_rank(group), dist.get_world_size(group)

    def send(self, bucket: Bucket, total: Sum) -> torch.Tensor:  # noqa: ARG002 - the sum is made of other messages
        """Exchange chunks, sum them wide, and exchange the sums."""
        gradient_N = bucket.gradient
        sent_N = gradient_N.to(self._dtype)
        self.num_sent_bytes = sent_N.nbytes
        residual_N = gradient_N - sent_N
        chunk = -(-len(gradient_N) // self._size)
        sent_WC = torch.nn.functional.pad(sent_N, (0, chunk * self._size - len(sent_N))).view(self._size, chunk)
        received_WC = torch.empty_like(sent_WC)
        with peers_needed():
            dist.all_to_all_single(received_WC, sent_WC, group=self._group)
            sum_C = received_WC.to(gradient_N.dtype).sum(0)
            cast_C = sum_C.to(self._dtype)
            all_gather_flat(sent_WC.view(-1), cast_C, group=self._group)
        own = slice(self._rank * chunk, min((self._rank + 1) * chunk, len(gradient_N)))
        residual_N[own] += (sum_C - cast_C)[: len(residual_N[own])]
        gradient_N.copy_(sent_WC.flatten()[: len(gradient_N)])
        return residual_N

    def commit(self) -> None:
        """Nothing is learnt."""


class TopK:
    """The largest entries of each bucket, with their places."""

    def __init__(self, density: float, group: dist.ProcessGroup) -> None:
        self._density, self._group, self._size = density, group, dist.get_world_size(group)
        self.factors: Mapping[str, torch.Tensor] = {}
        self.num_sent_bytes = 0

    def send(self, bucket: Bucket, total: Sum) -> torch.Tensor:  # noqa: ARG002 - sparse sums are made of gathers
        """Gather the entries of all ranks, and add them up in order of rank."""
        gradient_N = bucket.gradient
        num_kept = max(1, round(self._density * len(gradient_N)))
        places_K = gradient_N.abs().topk(num_kept).indices.to(torch.int32)
        values_K = gradient_N[places_K]
        self.num_sent_bytes = places_K.nbytes + values_K.nbytes
        residual_N = gradient_N.clone()
        residual_N[places_K] = 0
        places_WK = places_K.new_empty((self._size * num_kept,))
        values_WK = values_K.new_empty((self._size * num_kept,))
        with peers_needed():
            all_gather_flat(places_WK, places_K, group=self._group)
            all_gather_flat(values_WK, values_K, group=self._group)
        gradient_N.zero_()
        for places, values in zip(places_WK.chunk(self._size), values_WK.chunk(self._size), strict=True):
            gradient_N[places] += values
        return residual_N

    def commit(self) -> None:
        """Nothing is learnt."""


class PowerSgd:
    """Each large matrix as two thin factors, the second of which starts the next step's power iteration.

    Source: arXiv:1905.13727, algorithm 1.
    """

    def __init__(self, rank: int, state: FlatState) -> None:
        self._rank, self._next = rank, dict[str, torch.Tensor]()
        self.num_sent_bytes = 0
        self.factors: Mapping[str, torch.Tensor] = {
            span.region.name: self._start(span, state) for span in state.spans if self._is_thin(span)
        }

    def send(self, bucket: Bucket, total: Sum) -> torch.Tensor:
        """Sum left factors, make them orthonormal, and sum right factors and what is small enough to send whole."""
        start, gradient_N = bucket.spans[0].start, bucket.gradient
        views = {span.region.name: gradient_N[span.start - start : span.stop - start] for span in bucket.spans}
        matrices = {
            span.region.name: views[span.region.name].view(span.region.shape[0], -1)
            for span in bucket.spans
            if span.region.name in self.factors
        }
        left_RM = [matrix @ self.factors[name] for name, matrix in matrices.items()]
        _sum_together(left_RM, total)
        left_RM = [torch.linalg.qr(left).Q for left in left_RM]
        right_CM = [matrix.T @ left for matrix, left in zip(matrices.values(), left_RM, strict=True)]
        residual_N = torch.zeros_like(gradient_N)
        for name, left, right in zip(matrices, left_RM, right_CM, strict=True):
            views[name].sub_((left @ right.T).flatten())
        for span in bucket.spans:
            if span.region.name in matrices:
                residual_N[span.start - start : span.stop - start] = views[span.region.name]
        dense = [view for name, view in views.items() if name not in matrices]
        self.num_sent_bytes = sum(tensor.nbytes for tensor in (*left_RM, *right_CM, *dense))
        _sum_together([*right_CM, *dense], total)
        for name, left, right in zip(matrices, left_RM, right_CM, strict=True):
            matrices[name].copy_(left @ right.T)
            self._next[name] = right
        return residual_N

    def commit(self) -> None:
        """Start the next step from the right factors of this one."""
        for name, factor in self._next.items():
            self.factors[name].copy_(factor)
        self._next.clear()

    def _is_thin(self, span: Span) -> bool:
        rows, columns = span.region.shape[0], (span.stop - span.start) // span.region.shape[0]
        return span.region.has_decay and (rows + columns) * self._rank * MIN_RATE < rows * columns

    def _start(self, span: Span, state: FlatState) -> torch.Tensor:
        """Random numbers that are the same on every rank."""
        columns = (span.stop - span.start) // span.region.shape[0]
        words = hashlib.sha256(span.region.name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(words[:8], "little", signed=True))
        factor = torch.randn(columns, self._rank, generator=generator, dtype=torch.float64)
        return factor.to(state.parameters)


def _sum_together(tensors: list[torch.Tensor], total: Sum) -> None:
    """Sum several tensors in one message, in place."""
    if tensors:
        flat_N = torch.cat([tensor.flatten() for tensor in tensors])
        total(flat_N)
        for tensor, part in zip(tensors, torch.split(flat_N, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))


def make_compressor(plan: Compression, state: FlatState, group: dist.ProcessGroup) -> Compressor:
    """The compressor that a plan asks for.

    Raises:
        ValueError: it is not here, or lacks its parameter.
    """
    if plan.method in CAST:
        return Cast(CAST[plan.method], group)
    if plan.method == "top-k" and plan.density is not None:
        return TopK(plan.density, group)
    if plan.method == "power-sgd" and plan.rank is not None:
        return PowerSgd(plan.rank, state)
    raise ValueError(
        f"compression by {plan.method} is not one of fp16, bf16, power-sgd with a rank, top-k with a density"
    )
