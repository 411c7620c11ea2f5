"""Feeds micro-batches to the device, and runs their passes: of one stage, or of its part of a pipeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from torch import nn

from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.data import NOT_COUNTED
from trainspec_reference.common.job import Job
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parallel import ContextSplit
from trainspec_reference.torch.precision import computing, parameter_dtype
from trainspec_validate.documents.types.memory import Memory

if TYPE_CHECKING:
    from trainspec_reference.torch.exchange import GradientExchange
    from trainspec_reference.torch.sharded import ShardedExchange

Exchange: TypeAlias = "GradientExchange | ShardedExchange"
"""Listener for the begin and the end of backward passes."""

Fed = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets on the device."""


class Feed:
    """Copies as many micro-batches ahead as the plan says. On the host's own processor nothing is copied at all."""

    def __init__(self, device: torch.device, dtype: torch.dtype, memory: Memory | None, context: ContextSplit) -> None:
        plan = memory or Memory(activation_policy="none")
        self._device, self._dtype, self._context = device, dtype, context
        self._depth = plan.prefetch_depth if plan.prefetch_depth is not None else 2
        self._is_pinned = plan.pinned_input is not False
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, micro_batches: Sequence[MicroBatch]) -> Iterator[Fed]:
        """Inputs and targets of each micro-batch, in order."""
        ahead: deque[Fed] = deque()
        for micro_batch in micro_batches:
            ahead.append(self._fetch(micro_batch))
            if len(ahead) > self._depth:
                yield self._arrived(ahead.popleft())
        while ahead:
            yield self._arrived(ahead.popleft())

    def _fetch(self, micro_batch: MicroBatch) -> Fed:
        inputs = torch.from_numpy(self._context.fed(micro_batch.inputs))
        targets = torch.from_numpy(self._context.fed(micro_batch.targets, NOT_COUNTED))
        if inputs.is_floating_point():
            inputs = inputs.to(self._dtype)
        if self._stream is None:
            return inputs, targets
        if self._is_pinned:
            inputs, targets = inputs.pin_memory(), targets.pin_memory()
        with torch.cuda.stream(self._stream):
            fed = [tensor.to(self._device, non_blocking=self._is_pinned) for tensor in (inputs, targets)]
        return fed[0], fed[1]

    def _arrived(self, fed: Fed) -> Fed:
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
            for tensor in fed:
                tensor.record_stream(torch.cuda.current_stream(self._device))
        return fed


@dataclass(frozen=True, slots=True)
class InFlight:
    """A micro-batch between its two passes on this stage."""

    entered: torch.Tensor
    left: torch.Tensor
    """Hidden states for the next stage, or the sum of losses on the last one."""


class Passes:
    """The schedule of one rank: GPipe runs all forward passes first, 1F1B as few as fill the stages behind it.

    Without a pipeline both come down to one forward and one backward pass after the other. A stage sends its output
    and posts its next receive in one batch: two stages that each send first would deadlock, as NCCL buffers
    little. Source: arXiv:2104.04473, section 4.
    """

    def __init__(self, job: Job, model: nn.Module, groups: Groups) -> None:
        self._model, self._part, self._group = model, groups.part, groups.pipeline
        self._precision, self._device, self._width = job.plan.precision, groups.device, job.model.hidden_size
        self._dtype = parameter_dtype(job.plan.precision)
        self._feed = Feed(groups.device, self._dtype, job.plan.memory, groups.context)
        self._is_gpipe = job.plan.parallelism.schedule == "gpipe"
        self._is_by_host = groups.is_by_host
        self._outgoing: list[dist.P2POp] = []
        self._sent: list[dist.Work] = []

    def train(self, micro_batches: Sequence[MicroBatch], factor: float, exchange: Exchange) -> torch.Tensor:
        """Sum of the losses, in float64; gradients are those of the sum times `factor`."""
        total, flying = torch.zeros((), dtype=torch.float64, device=self._device), deque[InFlight]()
        num_ahead = len(micro_batches) if self._is_gpipe else self._part.num_stages - 1 - self._part.stage
        with peers_needed():
            for fed in self._feed(micro_batches):
                flying.append(self._forward(fed))
                if self._part.is_last:
                    total += flying[-1].left.detach().double()
                if len(flying) > num_ahead:
                    self._backward(flying.popleft(), factor, exchange)
                else:
                    self._push()
            while flying:
                self._push()
                self._backward(flying.popleft(), factor, exchange)
            self._finish_sending()
        return total

    def evaluate(self, micro_batches: Sequence[MicroBatch]) -> torch.Tensor:
        """Sum of the losses, in float64, without gradients."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)
        with peers_needed(), torch.no_grad():
            for fed in self._feed(micro_batches):
                left = self._forward(fed).left
                self._push()
                if self._part.is_last:
                    total += left.double()
            self._finish_sending()
        return total

    def _forward(self, fed: Fed) -> InFlight:
        inputs, targets = fed
        if not self._part.is_first:
            inputs = torch.empty(*inputs.shape, self._width, dtype=self._dtype, device=self._device)
            self._receive(inputs, self._part.stage - 1)
            inputs.requires_grad_(torch.is_grad_enabled())
        with computing(self._precision, self._device):
            left = self._model(inputs)
        if self._part.is_last:
            return InFlight(inputs, loss_sum(left, targets))
        self._send(left.detach().contiguous(), self._part.stage + 1)
        return InFlight(inputs, left)

    def _backward(self, flight: InFlight, factor: float, exchange: Exchange) -> None:
        exchange.next_micro_batch()
        if self._part.is_last:
            (flight.left * factor).backward()  # type: ignore[no-untyped-call]
        else:
            gradient = torch.empty_like(flight.left, memory_format=torch.contiguous_format)
            self._receive(gradient, self._part.stage + 1)
            flight.left.backward(gradient)  # type: ignore[no-untyped-call]
        if not self._part.is_first:
            entered_gradient = flight.entered.grad
            if entered_gradient is None:
                raise RuntimeError("a stage did not use what it received")
            self._send(entered_gradient.contiguous(), self._part.stage - 1)
        exchange.end_micro_batch()

    def _send(self, tensor: torch.Tensor, stage: int) -> None:
        sent = tensor.cpu() if self._is_by_host else tensor
        self._outgoing.append(dist.P2POp(dist.isend, sent, group=self._group, group_peer=stage))

    def _receive(self, tensor: torch.Tensor, stage: int) -> None:
        received = torch.empty_like(tensor, device="cpu") if self._is_by_host else tensor
        self._transfer(dist.P2POp(dist.irecv, received, group=self._group, group_peer=stage)).wait()
        if received is not tensor:
            tensor.copy_(received)

    def _transfer(self, *incoming: dist.P2POp) -> dist.Work:
        """Begin all transfers that wait; gives the work of the last one, or of all, as the library has it."""
        transfers = [*self._outgoing, *incoming]
        self._outgoing = []
        *sent, last = dist.batch_isend_irecv(transfers)
        self._sent += sent
        return last

    def _push(self) -> None:
        """Begin to send what waits for nothing."""
        if self._outgoing:
            self._sent.append(self._transfer())

    def _finish_sending(self) -> None:
        self._push()
        for work in self._sent:
            work.wait()
        self._sent.clear()


def loss_sum(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Sum of the losses of all counted targets, in fp32 at least."""
    wide = logits if logits.dtype is torch.float64 else logits.float()
    return F.cross_entropy(wide.flatten(0, -2), targets.flatten(), ignore_index=NOT_COUNTED, reduction="sum")
