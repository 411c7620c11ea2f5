"""Trains a replica whose parameters each data rank holds whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.torch.checkpoint import FIRST_MOMENTS, PARAMETERS, SECOND_MOMENTS, Box, host_copy, library
from trainspec_reference.torch.compression import Feedback
from trainspec_reference.torch.exchange import GradientExchange, reduce_whole
from trainspec_reference.torch.flat import FlatState, Span, boxes_of, even_stretches
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parts import Region


class Replica:
    """Parameters, gradients and moments of one rank, and their exchange with the other data ranks."""

    def __init__(self, job: Job, model: nn.Module, regions: Mapping[str, Region], dtype: torch.dtype) -> None:
        self._job = job
        self.divides_moments = job.plan.parallelism.sharding == "optimizer"
        compression = job.plan.communication.compression if job.plan.communication else None
        self.state = FlatState(model, regions, dtype, torch.device(job.device))
        has_compression = compression is not None and compression.method != "none"
        self.feedback = Feedback(compression, self.state) if compression and has_compression else None

    def load(self, weights: Weights) -> None:
        """Take this rank's part of the global parameters."""
        for span in self.state.spans:
            span.of(self.state.parameters).copy_(span.region.cut(weights))

    def connect(self, groups: Groups) -> None:
        """Exchange with the data ranks of these groups from now on."""
        self._groups = groups
        self._rank, self._num_ranks = groups.copy, groups.num_copies
        if self.divides_moments:
            self.state.own(self._rank, self._num_ranks, self._job.rates)
        elif not hasattr(self.state, "owned"):
            self.state.own(0, 1, self._job.rates)
        self.state.renew_gradients()
        plan = self._job.plan.communication
        if self.feedback:
            self.feedback.connect(groups)
        reduce = self.feedback.reduce if self.feedback else reduce_whole
        self.exchange = GradientExchange(self.state, groups, plan, reduce)

    def disconnect(self) -> None:
        """Exchange no more; parameters and moments stay."""
        self.exchange.close()
        if self.feedback:
            self.feedback.disconnect()
        del self.exchange, self._groups

    def join_copies(self) -> None:
        """Sum the gradient of the table that the first and the last stage both hold."""
        if self._groups.ends is not None:
            table = next(span for span in self.state.spans if span.region.name == "token_embedding")
            self._sum_over_ends(table.of(self.state.gradients))
            self.exchange.join_tables(self._sum_over_ends, counts=table.region.is_owned)

    def _sum_over_ends(self, tensor: torch.Tensor) -> None:
        with peers_needed():
            dist.all_reduce(tensor, group=self._groups.ends)

    def squared_norm(self) -> torch.Tensor:
        """Contribution of this rank to the squared norm of the global gradient."""
        return self.state.squared_norm() if self._rank == 0 else torch.zeros((), dtype=torch.float64)

    def update(self, learning_rate: float, gradient_factor: float) -> None:
        """Apply the optimizer once, with the gradient times a factor."""
        if self.feedback:
            self.feedback.commit()
        self.state.update(learning_rate, gradient_factor)
        self.state.gradients.zero_()
        if self.divides_moments and self._num_ranks > 1:
            self._spread_parameters()

    def _spread_parameters(self) -> None:
        works = []
        with peers_needed():
            for owner in range(self._num_ranks):
                start, stop = self.state.bounds(owner)
                if start < stop:
                    stretch = self.state.parameters[start:stop]
                    works.append(dist.broadcast(stretch, group_src=owner, group=self._groups.copies, async_op=True))
            for work in works:
                work.wait()

    @property
    def num_updates(self) -> int:
        """Optimizer steps that the moments hold."""
        return self.state.num_updates

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of steps that the optimizer's moments hold."""
        self.state.set_num_updates(num_updates)

    def discard(self) -> None:
        """Clear the gradient."""
        self.state.gradients.zero_()

    def copied_boxes(self) -> dict[str, Box]:
        """Copies in host memory of what this rank writes: an even share of the parameters, and their moments."""
        state = self.state
        first, last = even_stretches(state.spans, self._num_ranks)[self._rank]
        if first == last:
            return self.feedback.copied_boxes() if self.feedback else {}
        start, stop = state.spans[first].start, state.spans[last - 1].stop
        buffers = {
            PARAMETERS: host_copy(state.parameters[start:stop]),
            FIRST_MOMENTS: host_copy(state.first_moments[start - state.origin : stop - state.origin]),
            SECOND_MOMENTS: host_copy(state.second_moments[start - state.origin : stop - state.origin]),
        }
        spans = self._answered(state.spans[first:last])
        boxes = {name: box for kind, buffer in buffers.items() for name, box in self._boxes(kind, buffer, start, spans)}
        return boxes | (self.feedback.copied_boxes() if self.feedback else {})

    def restore(self, directory: Path) -> None:
        """Read all parameters, and the moments that this rank keeps.

        Raises:
            CheckpointUnreadableError: the checkpoint is damaged, or of another model.
        """
        state = self.state
        targets = [
            (PARAMETERS, state.parameters, 0, state.spans),
            (FIRST_MOMENTS, state.first_moments, state.origin, state.owned),
            (SECOND_MOMENTS, state.second_moments, state.origin, state.owned),
        ]
        hosted = [(torch.empty_like(buffer, device="cpu"), *target) for target in targets for buffer in target[1:2]]
        boxes = {
            name: box
            for empty, kind, _, origin, spans in hosted
            for name, box in self._boxes(kind, empty.zero_(), origin, spans)
        }
        library().read(boxes, directory)
        for filled, _, buffer, _, _ in hosted:
            buffer.copy_(filled)
        if self.feedback:
            self.feedback.restore(directory)

    def whole_tensors(self) -> Iterator[tuple[str, Box]]:
        """State that is replicated on each rank of the formation."""
        if self._is_split:
            return
        yield from self._parameters()
        if not self.divides_moments:
            yield from self._moments()

    def split_tensors(self) -> dict[str, Box]:
        """State that is split over ranks: the boxes that this rank writes."""
        boxes: dict[str, Box] = {}
        if self._is_split and not self._rank:
            boxes |= self._parameters()
        if self.divides_moments or (self._is_split and not self._rank):
            boxes |= self._moments()
        return boxes

    def split_kinds(self) -> tuple[str, ...]:
        """Kinds of tensor that are split."""
        if self._is_split:
            return (PARAMETERS, FIRST_MOMENTS, SECOND_MOMENTS)
        return (FIRST_MOMENTS, SECOND_MOMENTS) if self.divides_moments else ()

    @property
    def _is_split(self) -> bool:
        return self._groups.part.num_parts > 1

    def _parameters(self) -> Iterator[tuple[str, Box]]:
        yield from self._boxes(PARAMETERS, self.state.parameters, 0, self._answered(self.state.spans))

    def _moments(self) -> Iterator[tuple[str, Box]]:
        spans = self._answered(self.state.owned)
        yield from self._boxes(FIRST_MOMENTS, self.state.first_moments, self.state.origin, spans)
        yield from self._boxes(SECOND_MOMENTS, self.state.second_moments, self.state.origin, spans)

    def _boxes(self, kind: str, buffer: torch.Tensor, origin: int, spans: Sequence[Span]) -> Iterator[tuple[str, Box]]:
        return boxes_of(kind, buffer, origin, spans, self._groups)

    @staticmethod
    def _answered(spans: Sequence[Span]) -> list[Span]:
        return [span for span in spans if span.region.is_owned]

    def share(self, source: int) -> None:
        """Take all state of one rank of the formation; what it has not sent yet is each rank's own, and stays.

        Raises:
            ValueError: no rank holds a whole replica.
        """
        if self.divides_moments or self._is_split:
            raise ValueError("no rank holds a whole replica that others could copy: restore a checkpoint")
        if self._groups.formation.num_ranks == 1:
            return
        state, learnt = self.state, self.feedback.factors.values() if self.feedback else ()
        updates = torch.tensor([state.num_updates], dtype=torch.int64, device=state.parameters.device)
        with peers_needed():
            for tensor in (state.parameters, state.first_moments, state.second_moments, *learnt, updates):
                dist.broadcast(tensor, src=source)
        if self.feedback:
            self.feedback.catch_up(int(updates) - state.num_updates)
        state.set_num_updates(int(updates))
