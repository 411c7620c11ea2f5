"""Compresses gradients before they are sent (cast, low rank or sparse), and keeps what was not sent."""

# ruff: noqa: N806 - shapes stand in names

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import torch
import torch.distributed as dist

from trainspec_reference.common.backend import CheckpointUnreadableError
from trainspec_reference.torch.checkpoint import Box, host_copy, library
from trainspec_reference.torch.exchange import Bucket, Sum
from trainspec_reference.torch.flat import FlatBuffers, Span
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parallel import all_gather_flat
from trainspec_validate.documents.types.communication import Compression

CAST = {"fp16": torch.float16, "bf16": torch.bfloat16}
MIN_RATE = 2.0
"""A matrix is sent as two factors where that halves its bytes, as PyTorch's own PowerSGD does."""


class Compressor:
    """A way to send about the gradient of a bucket."""

    factors: Mapping[str, torch.Tensor] = MappingProxyType({})
    """State of the compressor, by name of the parameter; equal on all ranks."""
    num_sent_bytes = 0
    """Of the last bucket's message, places and factors included."""

    def send(self, bucket: Bucket, total: Sum) -> torch.Tensor:
        """Replace the bucket's gradient by the sum of what all ranks sent, and return what this one did not send.

        Over all ranks, what is returned and the sum together are the sum of the gradients.
        """
        raise NotImplementedError

    def commit(self) -> None:
        """Keep what was learnt in this step."""


class Cast(Compressor):
    """16-bit numbers on the wire and sums in the gradient's own format.

    Each rank sums one chunk for all, and keeps what is lost when its sum is cast for the way back.
    """

    def __init__(self, dtype: torch.dtype, group: dist.ProcessGroup) -> None:
        self._dtype, self._group = dtype, group
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


class TopK(Compressor):
    """The largest entries of each bucket, with their places."""

    def __init__(self, density: float, group: dist.ProcessGroup) -> None:
        self._density, self._group, self._size = density, group, dist.get_world_size(group)

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


class PowerSgd(Compressor):
    """Each large matrix as two thin factors, the second of which starts the next step's power iteration.

    Source: arXiv:1905.13727, algorithm 1.
    """

    def __init__(self, rank: int, flat: FlatBuffers) -> None:
        self._rank, self._next = rank, dict[str, torch.Tensor]()
        self.factors: Mapping[str, torch.Tensor] = {
            span.region.name: self._start(span, flat.parameters) for span in flat.spans if self._is_thin(span)
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

    def _start(self, span: Span, like: torch.Tensor) -> torch.Tensor:
        """Random numbers that are the same on every rank."""
        columns = (span.stop - span.start) // span.region.shape[0]
        words = hashlib.sha256(span.region.name.encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(words[:8], "little", signed=True))
        factor = torch.randn(columns, self._rank, generator=generator, dtype=torch.float64)
        return factor.to(like)


def _sum_together(tensors: list[torch.Tensor], total: Sum) -> None:
    """Sum several tensors in one message, in place."""
    if tensors:
        flat_N = torch.cat([tensor.flatten() for tensor in tensors])
        total(flat_N)
        for tensor, part in zip(tensors, torch.split(flat_N, [tensor.numel() for tensor in tensors]), strict=True):
            tensor.copy_(part.view(tensor.shape))


def make_compressor(plan: Compression, flat: FlatBuffers, group: dist.ProcessGroup) -> Compressor:
    """The compressor that a plan asks for.

    Raises:
        ValueError: it is not here, or lacks its parameter.
    """
    if plan.method in CAST:
        return Cast(CAST[plan.method], group)
    if plan.method == "top-k" and plan.density is not None:
        return TopK(plan.density, group)
    if plan.method == "power-sgd" and plan.rank is not None:
        return PowerSgd(plan.rank, flat)
    raise ValueError(
        f"compression by {plan.method} is not one of fp16, bf16, power-sgd with a rank, top-k with a density"
    )


RESIDUAL, FACTOR = "compression/residual", "compression/factor"


class Feedback:
    """The exchange of buckets through a compressor, with error feedback where the plan has it.

    The residual is added to the gradient of the next step; a step that is discarded leaves it unchanged.
    """

    def __init__(self, plan: Compression, flat: FlatBuffers, num_updates: Callable[[], int]) -> None:
        """`num_updates` tells how many optimizer steps were applied."""
        self._plan, self._flat, self._num_updates = plan, flat, num_updates
        self.residual, self._pending = (torch.zeros_like(flat.parameters) for _ in range(2))
        self._rank, self._num_ranks = 0, 0
        self._num_pending = 0
        """Entries of `_pending` that are of the step that was sent last."""
        self.compressor: Compressor | None = None
        self._learnt: Mapping[str, torch.Tensor] = {}

    def connect(self, groups: Groups) -> None:
        """Continue with these DP ranks; where their number changes, each keeps its residual, unless the plan resets.

        Raises:
            ValueError: the plan refuses another number of ranks, or its compressor is not here.
        """
        if groups.grid.num_ranks != groups.num_copies:
            raise ValueError("compression requires ranks that hold the whole model")
        self._rank, num_ranks = groups.copy, groups.num_copies
        if self._num_ranks not in (0, num_ranks):
            if self._plan.residual_on_resize == "refuse":
                raise ValueError(f"the plan refuses {num_ranks} data ranks for the residuals of {self._num_ranks}")
            if self._plan.residual_on_resize == "reset":
                self.forget()
        factors = self.factors
        self._num_ranks = num_ranks
        self.compressor = make_compressor(self._plan, self._flat, groups.copies) if groups.copies else None
        for name, factor in self.factors.items():
            factor.copy_(factors.get(name, factor))

    def disconnect(self) -> None:
        """Send no more; what was learnt stays."""
        self._learnt, self.compressor = self.factors, None

    def reduce(self, bucket: Bucket, total: Sum) -> None:
        """Replace the bucket's gradient by the sum of what all ranks sent, or by the sum before the first such step."""
        place = slice(bucket.spans[0].start, bucket.spans[-1].stop)
        if self._plan.error_feedback:
            bucket.gradient.add_(self.residual[place])
        self._num_pending *= bucket.number > 0
        if self.compressor is not None and self._has_begun:
            kept: torch.Tensor | float = self.compressor.send(bucket, total)
        else:  # what was left of a compressed step goes along
            total(bucket.gradient)
            kept = 0.0
        if self._plan.error_feedback:
            self._pending[place] = kept
            self._num_pending += place.stop - place.start

    def commit(self) -> None:
        """The step is applied: what it did not send waits for the next one."""
        if self._plan.error_feedback:
            self.residual, self._pending, self._num_pending = self._pending, self.residual, 0
        if self.compressor is not None:
            self.compressor.commit()

    def forget(self) -> None:
        """Nothing is left to be sent."""
        self.residual.zero_()
        self._num_pending = 0

    def catch_up(self, num_updates: int) -> None:
        """The state of another rank, with so many optimizer steps more, is taken over.

        Where it is one, all ranks have what this one sent last; of what was not sent whole, the rest is not known.
        """
        if num_updates == 1 and self._num_pending == len(self._pending):
            self.commit()
        elif num_updates:
            self.forget()

    def copied_boxes(self) -> dict[str, Box]:
        """Copies of this rank's residual, and of what all ranks have learnt alike from the first of them."""
        boxes = self._boxes(self._rank, host_copy(self.residual)) if self._plan.error_feedback else {}
        if self._rank == 0:
            boxes |= {f"{FACTOR}/{name}": Box.whole(host_copy(factor)) for name, factor in self.factors.items()}
        return boxes

    def restore(self, directory: Path) -> None:
        """Read residuals and factors; those of another number of ranks are treated as the plan says.

        Raises:
            CheckpointUnreadableError: the checkpoint is damaged, or the plan refuses the number of ranks.
        """
        names = library().names_in(directory)
        writers = sorted({int(name.split("/")[2]) for name in names if name.startswith(f"{RESIDUAL}/")})
        self.forget()
        for writer in self._inherited(writers, directory):
            found = torch.zeros_like(self.residual, device="cpu")
            library().read(self._boxes(writer, found), directory)
            self.residual += found.to(self.residual.device)
        found_factors = {
            f"{FACTOR}/{name}": factor for name, factor in self.factors.items() if f"{FACTOR}/{name}" in names
        }
        hosted = {name: Box.whole(torch.zeros_like(factor, device="cpu")) for name, factor in found_factors.items()}
        library().read(hosted, directory)
        for name, factor in found_factors.items():
            factor.copy_(hosted[name].tensor)

    def _boxes(self, writer: int, residual: torch.Tensor) -> dict[str, Box]:
        return {f"{RESIDUAL}/{writer}/{span.region.name}": Box.whole(span.of(residual)) for span in self._flat.spans}

    def _inherited(self, writers: list[int], directory: Path) -> Iterator[int]:
        """Ranks of the checkpoint whose residual this rank takes over."""
        if not writers or not self._plan.error_feedback:
            return
        if len(writers) == self._num_ranks:
            yield self._rank
        elif self._plan.residual_on_resize == "refuse":
            raise CheckpointUnreadableError(
                f"{directory}: the plan refuses {self._num_ranks} data ranks for the residuals of {len(writers)}"
            )
        elif self._plan.residual_on_resize != "reset":
            yield from (writer for writer in writers if writer % self._num_ranks == self._rank)

    @property
    def factors(self) -> Mapping[str, torch.Tensor]:
        """State of the compressor, equal on all ranks."""
        return self.compressor.factors if self.compressor else self._learnt

    @property
    def _has_begun(self) -> bool:
        return self._num_updates() + 1 >= (self._plan.start_step or 0)
