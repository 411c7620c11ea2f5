"""Keeps parameters, gradients and moments in one buffer each, where replicas are whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from trainspec_reference.common.job import Rates
from trainspec_reference.torch.checkpoint import Box
from trainspec_reference.torch.groups import Groups
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


class FlatState:
    """All parameters of a rank, in the order in which the backward pass ends with them: buckets are then contiguous.

    Each of `owners` ranks keeps moments of the parameters of one stretch of the buffer and updates them: all of them
    by one owner where replicas are whole, and a share by each data rank for ZeRO-1 (arXiv:1910.02054).
    """

    def __init__(
        self, model: nn.Module, regions: Mapping[str, Region], dtype: torch.dtype, device: torch.device
    ) -> None:
        named = {name.replace(".", "/"): parameter for name, parameter in model.named_parameters()}
        self.spans, length = [], 0
        for name in reversed(named):
            num_elements = named[name].numel()
            self.spans.append(Span(regions[name], length, length + num_elements))
            length += -(-num_elements // ALIGNMENT) * ALIGNMENT
        self.parameters = torch.zeros(length, dtype=dtype, device=device)
        self.num_updates = 0
        self.tensors = [named[span.region.name] for span in self.spans]
        for span, tensor in zip(self.spans, self.tensors, strict=True):
            tensor.data = span.of(self.parameters)

    def renew_gradients(self) -> None:
        """Take a new buffer for the gradient: an exchange that a lost peer left behind may still write to the old."""
        self.gradients = torch.zeros_like(self.parameters)
        for span, tensor in zip(self.spans, self.tensors, strict=True):
            tensor.grad = span.of(self.gradients)

    def own(self, owner: int, num_owners: int, rates: Rates) -> None:
        """Take fresh moments of the parameters of one owner."""
        self.stretches = even_stretches(self.spans, num_owners)
        first, last = self.stretches[owner]
        self.owned = self.spans[first:last]
        start, stop = self.bounds(owner)
        self.origin = start
        self.first_moments, self.second_moments = (torch.zeros_like(self.parameters[start:stop]) for _ in range(2))
        named = zip((span.region for span in self.owned), self.tensors[first:last], strict=True)
        self.optimizer = make_optimizer(list(named), rates)
        self.set_num_updates(0)

    def moments(self, span: Span) -> tuple[torch.Tensor, torch.Tensor]:
        """First and second moments of an owned parameter."""
        start, stop = span.start - self.origin, span.stop - self.origin
        shape = span.region.shape
        return self.first_moments[start:stop].view(shape), self.second_moments[start:stop].view(shape)

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of steps that the optimizer's moments hold."""
        self.num_updates = num_updates
        by_name = dict(zip((span.region.name for span in self.spans), self.tensors, strict=True))
        for span in self.owned:
            set_moments(self.optimizer, by_name[span.region.name], self.moments(span), num_updates)

    def bounds(self, owner: int) -> tuple[int, int]:
        """First element, and the one after the last, of an owner's stretch."""
        first, last = self.stretches[owner]
        if first == last:
            return 0, 0
        return self.spans[first].start, self.spans[last - 1].stop

    def squared_norm(self) -> torch.Tensor:
        """Of the gradient of the parameters that this rank answers for, in float64."""
        return squared_norm([span.of(self.gradients) for span in self.spans if span.region.is_owned])

    def update(self, learning_rate: float, gradient_factor: float) -> None:
        """Apply the optimizer once, to the parameters that this rank owns."""
        if gradient_factor != 1.0:
            self.gradients.mul_(gradient_factor)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.owned:
            self.optimizer.step()
        self.num_updates += 1


def make_optimizer(named: Sequence[tuple[Region, torch.Tensor]], rates: Rates) -> torch.optim.AdamW:
    """AdamW in one kernel, with weight decay on matrices and kernels alone."""
    groups = [
        {
            "params": [tensor for region, tensor in named if region.has_decay is decays],
            "weight_decay": rates.weight_decay if decays else 0.0,
        }
        for decays in (True, False)
    ]
    filled = [group for group in groups if group["params"]] or groups[:1]
    return torch.optim.AdamW(filled, betas=(rates.beta1, rates.beta2), eps=rates.epsilon, fused=True)


def set_moments(
    optimizer: torch.optim.AdamW, tensor: torch.Tensor, moments: tuple[torch.Tensor, torch.Tensor], num_updates: int
) -> None:
    """Let the optimizer keep a parameter's moments in these tensors, after so many updates."""
    step = torch.tensor(float(num_updates), device=tensor.device)
    optimizer.state[tensor] = {"step": step, "exp_avg": moments[0], "exp_avg_sq": moments[1]}


def even_stretches(spans: Sequence[Span], num_owners: int) -> list[tuple[int, int]]:
    """Stretches of neighbours with about as many elements each, as (first, one after the last)."""
    length = spans[-1].stop
    ends = [
        sum(span.start + span.stop <= 2 * length * (owner + 1) / num_owners for span in spans)
        for owner in range(num_owners)
    ]
    return list(zip([0, *ends], ends, strict=False))


def squared_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum of squares of all elements, in float64, as a tensor of no axis."""
    norms = [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]
    return torch.stack(norms).square().sum() if norms else torch.zeros((), dtype=torch.float64)


def boxes_of(
    kind: str, buffer: torch.Tensor, origin: int, spans: Sequence[Span], groups: Groups
) -> Iterator[tuple[str, Box]]:
    """Boxes of a buffer that begins at `origin`, named after a kind of state and the parameter."""
    for span in spans:
        region, piece = span.region, buffer[span.start - origin : span.stop - origin].view(span.region.shape)
        dividing = groups.experts.group if region.is_of_experts else groups.tensor
        group = dividing if region.shape != region.whole_shape else None
        yield f"{kind}/{region.name}", Box(piece, region.whole_shape, region.offsets, group)
