"""Computes which part of the global parameters a rank holds: its stage, and its slices of matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainspec_reference.common.backend import Weights
from trainspec_reference.torch.parallel import WHOLE, TensorSplit

SPLIT_AXES = {"attention/qkv": 2, "attention/output": 0, "ffn/up": 1, "ffn/down": 0}
"""Axis along which tensor ranks split a matrix of each layer; all other parameters they hold whole.

Queries, keys and values are split by heads, so that matrix has an axis of its own for the three: [D, 3, D].
"""
EXPERT_MATRICES = frozenset({"ffn/expert_up", "ffn/expert_down"})
"""Matrices of all experts of a layer, [E, D, F] and [E, F, D], of which expert ranks hold those of their own."""


@dataclass(frozen=True, slots=True)
class Part:
    """The place of a rank among those that share one copy of the model."""

    stage: int = 0
    num_stages: int = 1
    tensor_rank: int = 0
    tensor_degree: int = 1
    split: TensorSplit = WHOLE
    """How activations pass between the tensor ranks."""
    expert_rank: int = 0
    expert_degree: int = 1

    @property
    def is_first(self) -> bool:
        """Whether the rank holds the embeddings that tokens enter by."""
        return self.stage == 0

    @property
    def is_last(self) -> bool:
        """Whether the rank holds the head and computes the loss."""
        return self.stage == self.num_stages - 1

    @property
    def num_parts(self) -> int:
        """Ranks that share one copy of the model."""
        return self.num_stages * self.tensor_degree * self.expert_degree

    def layers(self, num_layers: int) -> range:
        """Layers of this stage; the first stages take what does not divide."""
        each, more = divmod(num_layers, self.num_stages)
        start = self.stage * each + min(self.stage, more)
        return range(start, start + each + (self.stage < more))

    def region(self, name: str, whole_shape: tuple[int, ...]) -> Region:
        """Position of the rank's piece in a global parameter."""
        shape, axis = _viewed(name, whole_shape), _split_axis(name)
        rank, degree, answers = self.tensor_rank, self.tensor_degree, self.expert_rank == 0
        is_of_experts = _last_words(name) in EXPERT_MATRICES
        if is_of_experts:
            axis, rank, degree, answers = 0, self.expert_rank, self.expert_degree, True
        if axis is None:
            is_copy = self.is_last and not self.is_first and name == "token_embedding"
            return Region(name, shape, (0,) * len(shape), shape, answers and rank == 0 and not is_copy)
        size = shape[axis] // degree
        offsets = tuple(size * rank if at == axis else 0 for at in range(len(shape)))
        return Region(name, shape, offsets, (*shape[:axis], size, *shape[axis + 1 :]), answers, is_of_experts)


@dataclass(frozen=True, slots=True)
class Region:
    """A box of a global parameter."""

    name: str
    whole_shape: tuple[int, ...]
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    is_owned: bool
    """Whether this rank answers for it among those that share a copy of the model: a box held twice counts once."""
    is_of_experts: bool = False
    """Whether expert ranks hold other boxes of it, so that its gradient is summed over fewer ranks than the others."""

    def cut(self, weights: Weights) -> torch.Tensor:
        """The box of the global parameter of that name."""
        whole = np.asarray(weights[self.name]).reshape(self.whole_shape)
        box = tuple(slice(at, at + size) for at, size in zip(self.offsets, self.shape, strict=True))
        return torch.from_numpy(np.ascontiguousarray(whole[box]))

    @property
    def has_decay(self) -> bool:
        """Whether the optimizer decays it: matrices and kernels, not scales and biases."""
        return len(self.whole_shape) > 1


def plain_shape(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A global parameter, or a moment of it, in the shape that all backends know it by."""
    return array.reshape(array.shape[0], -1) if _split_axis(name) is not None else array


def _viewed(name: str, whole_shape: tuple[int, ...]) -> tuple[int, ...]:
    return (whole_shape[0], 3, whole_shape[1] // 3) if name.endswith("attention/qkv") else tuple(whole_shape)


def _split_axis(name: str) -> int | None:
    return SPLIT_AXES.get(_last_words(name))


def _last_words(name: str) -> str:
    return "/".join(name.split("/")[-2:])
