"""Damages the state of the PyTorch backend, for tests."""

from __future__ import annotations

import math
from typing import Any

import torch
from trainspec_reference.torch.backend import TorchBackend
from trainspec_reference.torch.exchange import Bucket, GradientExchange
from trainspec_reference.torch.replica import Replica
from trainspec_reference.torch.state import State


def corrupt(backend: TorchBackend, fault: str) -> None:
    """As `planted.corrupt`; where gradients are sharded, all of this rank's become so."""
    replica, value = backend._built(), math.nan if fault == "nan-gradient" else math.inf
    if fault == "flip-parameter-bit":
        flip_bit(_held(replica))
    elif isinstance(replica, Replica):
        _spoil(replica.exchange, value)
    else:
        _spoil_all(backend, value)


def _held(state: State) -> torch.Tensor:
    """The first parameter of which this rank holds a box."""
    return next(box.tensor for _, box in state._boxes(state.held))


def flip_bit(tensor: torch.Tensor) -> None:
    """Damage the first number of a tensor: the highest bit of its mantissa turns over."""
    is_narrow = tensor.itemsize == 4
    words = tensor.view(torch.int32 if is_narrow else torch.int64).view(-1)
    words[0] ^= 1 << (22 if is_narrow else 51)


def _spoil(exchange: GradientExchange, value: float) -> None:
    """Put a number into the first bucket that is sent."""

    def once(bucket: Bucket, *rest: Any) -> None:
        if "_send" in vars(exchange):
            del exchange._send
            bucket.gradient[0] = value
        exchange._send(bucket, *rest)

    exchange._send = once  # type: ignore[method-assign, assignment]


def _spoil_all(backend: TorchBackend, value: float) -> None:
    """Let the next gradient be that of the loss times a number."""
    passes = backend._passes

    def once(micro_batches: Any, factor: float, exchange: Any) -> torch.Tensor:
        del passes.train
        return passes.train(micro_batches, factor * value, exchange)

    passes.train = once  # type: ignore[method-assign]
