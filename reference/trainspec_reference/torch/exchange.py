"""Sums gradients over copies of the model, in buckets that overlap with the backward pass."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import zip_longest

import torch
import torch.distributed as dist

from trainspec_reference.common.offers import all_reduce_algorithm
from trainspec_reference.torch.flat import FlatBuffers, Span
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parallel import all_gather_flat, reduce_scatter_flat
from trainspec_reference.torch.state import squared_norm
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
    the host. Otherwise the first rank of each host represents it.
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


DEFAULT_BUCKET_BYTES = 25e6
"""As large as PyTorch's own; the first bucket starts when the last layer's gradients are there."""


@dataclass(slots=True)
class Bucket:
    """Neighbouring parameters whose gradients travel together."""

    number: int
    spans: Sequence[Span]
    gradient: torch.Tensor
    num_missing: int = 0

    @property
    def is_of_experts(self) -> bool:
        """Whether it holds matrices of experts, which share no bucket with other parameters."""
        return self.spans[0].region.is_of_experts


Reduce = Callable[[Bucket, Sum], None]
"""Replaces a bucket's gradient by the sum over data ranks, in place."""


def reduce_whole(bucket: Bucket, total: Sum) -> None:
    """Sum the gradient as it is, in its own format."""
    total(bucket.gradient)


@dataclass(slots=True)
class Turn:
    """State of the step under way."""

    num_micro_batches: int
    loss_scale: float
    measures_noise: bool
    micro_batch: int = -1
    next_bucket: int = 0
    squared_norms: list[torch.Tensor] = field(default_factory=list)
    """Of each micro-batch, loss scale included."""
    tables: list[torch.Tensor] = field(default_factory=list)
    """Of each micro-batch: this stage's part of the gradient of the table that two stages hold."""
    jobs: list[Future[None]] = field(default_factory=list)


class GradientExchange:
    """Watches the backward pass of a model, and sums each bucket over the data ranks as soon as it is complete.

    One thread does all sums of this rank, in the order of the buckets, which is the same on every rank: however the
    algorithm is made of messages, no two of its messages meet those of another bucket.
    """

    def __init__(self, flat: FlatBuffers, groups: Groups, plan: Communication | None, reduce: Reduce) -> None:
        self._flat, self._reduce = flat, reduce
        self._total, self._expert_total = data_sum(groups, plan), sum_of_experts(groups)
        self._overlaps = plan is None or plan.overlap_gradients is not False
        self._table = "token_embedding" if groups.ends is not None else None  # which two stages of a pipeline hold
        self._of_sequences = groups.context.of_sequences
        self.buckets = make_buckets(flat, plan.bucket_bytes if plan and plan.bucket_bytes else DEFAULT_BUCKET_BYTES)
        self._earlier = torch.zeros(0, dtype=flat.gradients.dtype)
        is_on_device = flat.gradients.device.type == "cuda"
        self._stream = torch.cuda.Stream(flat.gradients.device) if is_on_device else None  # type: ignore[no-untyped-call]
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gradient-exchange")
        self._handles = [
            tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, bucket=bucket: self._arrived(bucket)
            )
            for bucket in self.buckets
            for tensor in flat.tensors[flat.spans.index(bucket.spans[0]) :][: len(bucket.spans)]
        ]

    def begin(self, num_micro_batches: int, loss_scale: float, *, measures_noise: bool) -> None:
        """Start a step."""
        self._turn = Turn(num_micro_batches, loss_scale, measures_noise)
        if measures_noise and num_micro_batches > 1:
            self._earlier = torch.zeros_like(self._flat.gradients)

    def next_micro_batch(self) -> None:
        """Say that a backward pass is about to begin."""
        turn = self._turn
        turn.micro_batch, turn.next_bucket = turn.micro_batch + 1, 0
        turn.squared_norms.append(torch.zeros((), dtype=torch.float64, device=self._flat.gradients.device))
        for bucket in self.buckets:
            bucket.num_missing = len(bucket.spans)

    def end_micro_batch(self) -> None:
        """Say that a backward pass has ended; parameters that it left out have no gradient."""
        self._advance(len(self.buckets))

    def wait(self) -> float:
        """Wait for all sums of the step, and return the seconds that it took.

        Raises:
            PeerLostError: a peer is gone.
        """
        self._advance(len(self.buckets))  # a rank without a micro-batch has sent nothing yet
        if self._stream is not None:
            torch.cuda.current_stream().synchronize()
        start = time.perf_counter()
        for job in self._turn.jobs:
            job.result()
        if self._stream is not None:
            self._stream.synchronize()
        return time.perf_counter() - start

    def close(self) -> None:
        """Watch no more; sums that wait for a peer end when their group does."""
        for handle in self._handles:
            handle.remove()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _arrived(self, bucket: Bucket) -> None:
        bucket.num_missing -= 1
        if self._overlaps:
            ready = self._turn.next_bucket
            while ready < len(self.buckets) and not self.buckets[ready].num_missing:
                ready += 1
            self._advance(ready)

    def _advance(self, stop: int) -> None:
        turn = self._turn
        while turn.next_bucket < stop:
            self._complete(self.buckets[turn.next_bucket])
            turn.next_bucket += 1

    def _complete(self, bucket: Bucket) -> None:
        """The gradient of one micro-batch is there; the last one sends the sum of all."""
        turn = self._turn
        if turn.measures_noise and turn.squared_norms:
            turn.squared_norms[-1] += self._squared_norm(bucket)
            if turn.num_micro_batches > 1:
                first, last = bucket.spans[0].start, bucket.spans[-1].stop
                self._earlier[first:last] += bucket.gradient
                bucket.gradient.copy_(self._earlier[first:last]) if self._is_last else bucket.gradient.zero_()
        if self._is_last:
            computed = torch.cuda.current_stream().record_event() if self._stream is not None else None
            turn.jobs.append(self._thread.submit(self._send, bucket, turn.loss_scale, computed))

    def _squared_norm(self, bucket: Bucket) -> torch.Tensor:
        """Of what this rank answers for; a table that another stage adds to is put aside."""
        owned, whole, origin = [], self._of_sequences(bucket.gradient), bucket.spans[0].start
        for span in bucket.spans:
            gradient = whole[span.start - origin : span.stop - origin].view(span.region.shape)
            if span.region.name == self._table:
                self._turn.tables.append(gradient.clone())
            elif span.region.is_owned:
                owned.append(gradient)
        return squared_norm(owned)

    def join_tables(self, total: Sum, *, counts: bool) -> None:
        """Add the norms of the table's gradients, of each micro-batch, once its stages have summed them."""
        if self._turn.tables:
            tables = torch.stack(self._turn.tables)
            total(tables)
            for number, table in enumerate(tables):
                self._turn.squared_norms[number] += squared_norm([table]) * counts

    @property
    def _is_last(self) -> bool:
        return self._turn.micro_batch == self._turn.num_micro_batches - 1

    def _send(self, bucket: Bucket, loss_scale: float, computed: torch.cuda.Event | None) -> None:
        with torch.no_grad(), torch.cuda.stream(self._stream):  # where there is none, the thread alone is apart
            if self._stream is not None and computed is not None:
                self._stream.wait_event(computed)
            if loss_scale != 1.0:
                bucket.gradient.div_(loss_scale)
            self._reduce(bucket, self._expert_total if bucket.is_of_experts else self._total)

    @property
    def squared_norms(self) -> list[float]:
        """Of the gradient of each micro-batch, loss scale removed."""
        return [float(norm) / self._turn.loss_scale**2 for norm in self._turn.squared_norms]


def make_buckets(flat: FlatBuffers, bucket_bytes: float) -> list[Bucket]:
    """Neighbours up to so many bytes, in the order in which their gradients come."""
    buckets: list[Bucket] = []
    spans: list[Span] = []
    size = flat.gradients.element_size()
    for span, following in zip_longest(flat.spans, flat.spans[1:]):
        spans.append(span)
        is_last = following is None or following.region.is_of_experts != span.region.is_of_experts
        if (span.stop - spans[0].start) * size >= bucket_bytes or is_last:
            buckets.append(Bucket(len(buckets), spans, flat.gradients[spans[0].start : span.stop]))
            spans = []
    return buckets
