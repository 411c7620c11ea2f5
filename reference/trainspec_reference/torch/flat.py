"""Keeps the parameters of whole replicas in one buffer, and their gradients in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from trainspec_reference.torch.parts import Region

ALIGNMENT = 64
"""Elements between starts of parameters: whole cache lines, so that a kernel treats every parameter alike."""


@dataclass(frozen=True, slots=True)
class Span:
    """Position of a parameter in the buffers."""

    region: Region
    start: int
    stop: int

    def of(self, buffer: torch.Tensor) -> torch.Tensor:
        """The parameter's part of a buffer, in its shape."""
        return buffer[self.start : self.stop].view(self.region.shape)


class FlatBuffers:
    """All parameters of a rank, in the order in which the backward pass ends with them: buckets are then contiguous."""

    def __init__(self, named: dict[str, torch.Tensor], regions: Mapping[str, Region]) -> None:
        """Move the parameters into a buffer."""
        self.spans, length = [], 0
        for name in reversed(named):
            num_elements = named[name].numel()
            self.spans.append(Span(regions[name], length, length + num_elements))
            length += -(-num_elements // ALIGNMENT) * ALIGNMENT
        self.tensors = [named[span.region.name] for span in self.spans]
        self.parameters = torch.zeros(length, dtype=self.tensors[0].dtype, device=self.tensors[0].device)
        for span, tensor in zip(self.spans, self.tensors, strict=True):
            span.of(self.parameters).copy_(tensor.data)
            tensor.data = span.of(self.parameters)

    def renew_gradients(self) -> None:
        """Take a new buffer for the gradient: an exchange that a lost peer left behind may still write to the old."""
        self.gradients = torch.zeros_like(self.parameters)
        for span, tensor in zip(self.spans, self.tensors, strict=True):
            tensor.grad = span.of(self.gradients)


def even_stretches(spans: Sequence[Span], num_owners: int) -> list[Sequence[Span]]:
    """Stretches of neighbours, one for each owner, with about as many elements each."""
    length = spans[-1].stop
    ends = [
        sum(span.start + span.stop <= 2 * length * (owner + 1) / num_owners for span in spans)
        for owner in range(num_owners)
    ]
    return [spans[first:last] for first, last in zip([0, *ends], ends, strict=False)]
