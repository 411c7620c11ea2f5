"""Counts the memory of tensors on a host: live tensors, and tensors of the next step."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from trainspec_reference.common.job import Job
from trainspec_reference.torch.models import make_model
from trainspec_reference.torch.models.transformer import Attention
from trainspec_reference.torch.parts import Part
from trainspec_reference.torch.passes import loss_sum

_OF_STATE = 3
"""Copies of the parameters beside their gradient: themselves, and two moments."""


class LiveTensors(TorchDispatchMode):
    """Bytes of all tensors that operations made and that live, and the most there were since the peak was taken."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes, self._num_bytes = 0, 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operation, and count what it makes."""
        found = func(*args, **(kwargs or {}))
        for one in tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self._count(one.untyped_storage())
        return found

    def _count(self, storage: torch.UntypedStorage) -> None:
        name, num_bytes = id(storage), storage.nbytes()
        if name in self._known:
            return

        def freed(_: object) -> None:
            del self._known[name]
            self._num_bytes -= num_bytes

        self._known[name] = weakref.ref(storage, freed)
        self._num_bytes += num_bytes
        self.peak_bytes = max(self.peak_bytes, self._num_bytes)

    def take_peak(self) -> int:
        """The peak, which begins anew."""
        peak, self.peak_bytes = self.peak_bytes, self._num_bytes
        return peak


class _FusedAttention(torch.autograd.Function):
    """What fused attention keeps: its operands, its output, and one number in FP32 for each row of the scores.

    On the device `meta` PyTorch takes the path that keeps all scores, which no accelerator does. Source:
    arXiv:2205.14135, section 3.1.
    """

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """[B, H, T, K] of each operand to [B, H, T, K]."""
        mixed = torch.empty_like(q)
        ctx.save_for_backward(q, k, v, mixed, q.new_empty(q.shape[:-1], dtype=torch.float32))
        return mixed

    @staticmethod
    def backward(ctx: Any, *_gradients: torch.Tensor) -> Any:
        """A gradient for each operand."""
        return tuple(torch.empty_like(operand) for operand in ctx.saved_tensors[:3])


def predicted_bytes(job: Job) -> int:
    """Bytes of all tensors at the largest moment of a training step of one rank that holds the whole model.

    A process takes as much where freed tensors go back to the system. The heap of glibc keeps those of a few MB, with
    holes, and was seen to take 840 MB for 330; MALLOC_MMAP_THRESHOLD_ in the environment bounds what it keeps, and
    costs time for every tensor above it. Source: mallopt(3).
    """
    shape, samples = job.model, job.plan.batch.micro_sequences
    with torch.device("meta"):
        model = make_model(shape, Part())
        for module in model.modules():
            if isinstance(module, Attention):
                module.attend = _FusedAttention.apply
        tokens = torch.zeros((samples, shape.sequence_length), dtype=torch.int64)
        with LiveTensors() as live:
            loss_sum(model(tokens), tokens).backward()  # type: ignore[no-untyped-call]
    state = sum(one.numel() * one.element_size() for one in model.parameters())
    return int(live.peak_bytes + _OF_STATE * state)
