"""Makes the initial weights, the same numbers for every framework, and digests of global tensors."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from trainspec_reference.common.job import ModelShape

NORMAL_SCALE = 0.02
"""Standard deviation of embeddings and projections."""
MAX_DECAY_LOGIT = 4.0
"""Slowest state of a state-space layer forgets sigmoid(-4), under two per cent, of itself at each position."""


def initial_weights(shape: ModelShape, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Global parameters by name, sorted; each a function of the seed, its name and its shape alone.

    Raises:
        ValueError: the shape cannot be built, such as heads that do not divide the hidden size.
    """
    families = {"transformer": _transformer, "convolution": _convolution, "state-space": _state_space}
    return {name: _draw(name, axes, scale, seed) for name, axes, scale in sorted(families[shape.family](shape))}


_Parameter = tuple[str, tuple[int, ...], float | str]
"""Name, axes, and the standard deviation, or the word for what the entries are."""


def _transformer(shape: ModelShape) -> Iterator[_Parameter]:
    hidden, inner = shape.hidden_size, shape.ffn_hidden_size
    if hidden % shape.num_heads:
        raise ValueError(f"{shape.num_heads} heads do not divide a hidden size of {hidden}")
    yield "token_embedding", (shape.vocabulary_size, hidden), NORMAL_SCALE
    yield "position_embedding", (shape.sequence_length, hidden), NORMAL_SCALE
    for layer in range(shape.num_layers):
        prefix = f"layers/{layer}"
        yield from _norm(f"{prefix}/attention_norm", hidden)
        yield f"{prefix}/attention/qkv", (hidden, 3 * hidden), NORMAL_SCALE
        yield f"{prefix}/attention/output", (hidden, hidden), NORMAL_SCALE
        yield from _norm(f"{prefix}/ffn_norm", hidden)
        if num_experts := shape.num_experts:
            yield f"{prefix}/ffn/router", (hidden, num_experts), NORMAL_SCALE
            yield f"{prefix}/ffn/expert_up", (num_experts, hidden, inner), NORMAL_SCALE
            yield f"{prefix}/ffn/expert_down", (num_experts, inner, hidden), NORMAL_SCALE
        else:
            yield f"{prefix}/ffn/up", (hidden, inner), NORMAL_SCALE
            yield f"{prefix}/ffn/down", (inner, hidden), NORMAL_SCALE
    yield from _norm("final_norm", hidden)


def _convolution(shape: ModelShape) -> Iterator[_Parameter]:
    hidden, channels = shape.hidden_size, shape.image_channels
    if hidden % num_norm_groups(hidden):
        raise ValueError(f"a hidden size of {hidden} has no even groups for its norms")
    yield "stem/kernel", (3, 3, channels, hidden), 1 / math.sqrt(9 * channels)
    yield "stem/bias", (hidden,), "zeros"
    for block in range(shape.num_layers):
        prefix = f"blocks/{block}"
        yield from _norm(f"{prefix}/norm", hidden)
        for convolution in ("conv1", "conv2"):
            yield f"{prefix}/{convolution}/kernel", (3, 3, hidden, hidden), 1 / math.sqrt(9 * hidden)
    yield "head/kernel", (hidden, shape.vocabulary_size), 1 / math.sqrt(hidden)
    yield "head/bias", (shape.vocabulary_size,), "zeros"


def _state_space(shape: ModelShape) -> Iterator[_Parameter]:
    hidden = shape.hidden_size
    yield "token_embedding", (shape.vocabulary_size, hidden), NORMAL_SCALE
    for layer in range(shape.num_layers):
        prefix = f"layers/{layer}"
        yield from _norm(f"{prefix}/norm", hidden)
        yield f"{prefix}/in_proj", (hidden, 2 * hidden), NORMAL_SCALE
        yield f"{prefix}/decay", (hidden,), "decays"
        yield f"{prefix}/input_gain", (hidden,), "ones"
        yield f"{prefix}/output_gain", (hidden,), "ones"
        yield f"{prefix}/out_proj", (hidden, hidden), NORMAL_SCALE


def num_norm_groups(hidden_size: int) -> int:
    """Groups of a group norm: eight, or the most below it that divide the width.

    >>> num_norm_groups(64), num_norm_groups(12)
    (8, 6)
    """
    return next(groups for groups in range(8, 0, -1) if hidden_size % groups == 0)


def _norm(prefix: str, hidden: int) -> Iterator[_Parameter]:
    yield f"{prefix}/scale", (hidden,), "ones"
    yield f"{prefix}/bias", (hidden,), "zeros"


def _draw(name: str, axes: tuple[int, ...], scale: float | str, seed: int) -> npt.NDArray[np.float32]:
    match scale:
        case "ones":
            return np.ones(axes, np.float32)
        case "zeros":
            return np.zeros(axes, np.float32)
        case "decays":
            return np.linspace(0, MAX_DECAY_LOGIT, axes[0], dtype=np.float32)
        case _:
            return (float(scale) * _normal(name, math.prod(axes), seed)).reshape(axes).astype(np.float32)


def _normal(name: str, count: int, seed: int) -> npt.NDArray[np.float64]:
    """Standard normal numbers by Box and Muller from raw Philox words, whose order NumPy promises for all versions.

    Source: https://numpy.org/neps/nep-0019-rng-policy.html
    """
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "little")
    words = np.random.Philox(key=key).random_raw(2 * count)
    uniform = ((words >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2 * np.log(uniform[:count]))
    return np.asarray(radius * np.cos(2 * np.pi * uniform[count:]))


def tensor_digest(name: str, array: npt.NDArray[Any], dtype: str | None = None) -> str:
    """SHA-256 over name, dtype, shape, and the bytes of a global tensor in row-major, little-endian order.

    `dtype` names a format that NumPy has no word for, such as `bfloat16`, whose bytes the array holds.
    """
    ordered = np.asarray(array, order="C")
    little = ordered.astype(ordered.dtype.newbyteorder("<"), copy=False)
    head = f"{name}\n{dtype or ordered.dtype.name}\n{','.join(map(str, ordered.shape))}\n"
    found = hashlib.sha256(head.encode())
    found.update(little.reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def state_digest(tensor_digests: Iterable[str]) -> str:
    """`sha256:` and SHA-256 over the sorted digests of all tensors of the state."""
    return "sha256:" + hashlib.sha256("\n".join(sorted(tensor_digests)).encode()).hexdigest()
