"""Copies micro-batches to the device from page-locked memory, overlapped with the computation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.data import NOT_COUNTED
from trainspec_reference.common.job import ModelShape
from trainspec_reference.torch.parallel import ContextSplit
from trainspec_validate.documents.types.memory import Memory

Fed = tuple[torch.Tensor, torch.Tensor]
"""Inputs and targets on the device."""


def blank(shape: ModelShape) -> MicroBatch:
    """A micro-batch of one sample that the loss does not count."""
    if shape.family == "convolution":
        image = (1, shape.image_channels, shape.image_size, shape.image_size)
        return MicroBatch(np.zeros(image, np.float32), np.full(1, NOT_COUNTED, np.int64), ())
    text = (1, shape.sequence_length)
    return MicroBatch(np.zeros(text, np.int64), np.full(text, NOT_COUNTED, np.int64), ())


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
