"""Decides which activations a block keeps for its backward pass, by the plan's policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts, noop_context_fn

from trainspec_reference.torch.models.blocks import Keep, keep_all

Policy = Literal["none", "selective", "full", "offload"]

_DEAR = frozenset({torch.ops.aten.mm.default, torch.ops.aten.bmm.default, torch.ops.aten.convolution.default})
"""Operations whose results `selective` keeps, since computing them again costs most."""


def keeper(policy: Policy) -> Keep:
    """How blocks run: all kept, all but the products recomputed, all recomputed, or all moved to host memory."""
    match policy:
        case "none":
            return keep_all
        case "full":
            return partial(_recomputed, context_fn=noop_context_fn)
        case "selective":
            return partial(_recomputed, context_fn=partial(create_selective_checkpoint_contexts, _choose))
        case "offload":
            return _offloaded


def _choose(_: Any, operation: Any, *__: Any, **___: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operation in _DEAR else CheckpointPolicy.PREFER_RECOMPUTE


def _recomputed(block: nn.Module, hidden: torch.Tensor, context_fn: Callable[[], Any]) -> torch.Tensor:
    result: torch.Tensor = checkpoint(block, hidden, use_reentrant=False, context_fn=context_fn)
    return result


def _offloaded(block: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    with torch.autograd.graph.save_on_cpu(pin_memory=hidden.is_cuda):
        result: torch.Tensor = block(hidden)
    return result
