"""Trains a replica whose parameters each data rank holds whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.torch.checkpoint import KINDS, PARAMETERS, Box
from trainspec_reference.torch.compression import Feedback
from trainspec_reference.torch.exchange import GradientExchange, reduce_whole
from trainspec_reference.torch.flat import FlatBuffers, even_stretches
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parts import Part
from trainspec_reference.torch.state import State, squared_norm


class Replica(State):
    """Parameters and gradients in one buffer each, and their exchange with the other data ranks.

    Each of them keeps all moments, or for ZeRO-1 those of a stretch of the buffer, which it updates for all
    (arXiv:1910.02054).
    """

    exchange: GradientExchange

    def __init__(self, job: Job, model: nn.Module, part: Part, weights: Weights) -> None:
        super().__init__(job, model, part, weights)
        self.divides_moments = job.plan.parallelism.sharding == "optimizer"
        self.flat = FlatBuffers(self.tensors, self.regions)
        if not self.divides_moments:
            self.own(self.tensors)
        compression = job.plan.communication.compression if job.plan.communication else None
        if compression is not None and compression.method != "none":
            self.feedback = Feedback(compression, self.flat, lambda: self.num_updates)

    def connect(self, groups: Groups) -> None:
        """Exchange with the data ranks of these groups from now on."""
        self._groups, self._rank = groups, groups.copy
        self._stretches = even_stretches(self.flat.spans, groups.num_copies)
        if self.divides_moments:
            self.own(span.region.name for span in self._stretches[self._rank])
        self.flat.renew_gradients()
        if self.feedback:
            self.feedback.connect(groups)
        reduce = self.feedback.reduce if self.feedback else reduce_whole
        self.exchange = GradientExchange(self.flat, groups, self._job.plan.communication, reduce)

    def disconnect(self) -> None:
        """Exchange no more; parameters and moments stay."""
        self.exchange.close()
        if self.feedback:
            self.feedback.disconnect()
        super().disconnect()

    def squared_norm(self) -> torch.Tensor:
        """Of the parameters that this rank answers for, on the first of the copies.

        Sums the gradient of the table that the first and the last stage both hold first.
        """
        if self._groups.ends is not None:
            table = next(span for span in self.flat.spans if span.region.name == "token_embedding")
            self._sum_over_ends(table.of(self.flat.gradients))
            self.exchange.join_tables(self._sum_over_ends, counts=table.region.is_owned)
        owned = [span.of(self.flat.gradients) for span in self.flat.spans if span.region.is_owned]
        return squared_norm(owned if self._rank == 0 else [])

    def _sum_over_ends(self, tensor: torch.Tensor) -> None:
        with peers_needed():
            dist.all_reduce(tensor, group=self._groups.ends)

    def gradients(self) -> Sequence[torch.Tensor]:
        """All of the gradient."""
        return (self.flat.gradients,)

    def update(self, learning_rate: float, gradient_factor: float) -> None:
        """Apply the optimizer once, and take over what other ranks have updated."""
        if self.feedback:
            self.feedback.commit()
        super().update(learning_rate, gradient_factor)
        if self.divides_moments and self._groups.copies is not None:
            self._spread_parameters(self._groups.copies)

    def _spread_parameters(self, group: dist.ProcessGroup) -> None:
        with peers_needed():
            works = [
                dist.broadcast(
                    self.flat.parameters[spans[0].start : spans[-1].stop], group_src=owner, group=group, async_op=True
                )
                for owner, spans in enumerate(self._stretches)
                if spans
            ]
            for work in works:
                work.wait()

    def discard(self) -> None:
        """Clear the gradient."""
        self.flat.gradients.zero_()

    @property
    def whole_kinds(self) -> Sequence[str]:
        """All, where no rank holds another part of the model, or keeps other moments."""
        if self._groups.part.num_parts > 1:
            return ()
        return (PARAMETERS,) if self.divides_moments else KINDS

    @property
    def held(self) -> Sequence[str]:
        """All parameters of this rank's part."""
        return tuple(self.tensors)

    @property
    def written(self) -> Sequence[str]:
        """Those of an even share, that no other part of the model answers for."""
        return [span.region.name for span in self._stretches[self._rank] if span.region.is_owned]

    def _box(self, name: str, tensor: torch.Tensor) -> Box:
        region, groups = self.regions[name], self._groups
        dividing = groups.experts.group if region.is_of_experts else groups.tensor
        group = dividing if region.shape != region.whole_shape else None
        return Box(tensor, region.whole_shape, region.offsets, group)

    def copied_boxes(self) -> dict[str, Box]:
        """Copies in host memory of what this rank writes, and of what it has not sent yet."""
        return super().copied_boxes() | (self.feedback.copied_boxes() if self.feedback else {})

    def restore(self, directory: Path) -> None:
        """As `State.restore`; residuals, too."""
        super().restore(directory)
        if self.feedback:
            self.feedback.restore(directory)
