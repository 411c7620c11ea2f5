"""Computes the state digest of a formation, whatever its ranks hold of each tensor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

import numpy as np
import torch

from trainspec_reference.common.weights import state_digest, tensor_digest
from trainspec_reference.torch.checkpoint import UPDATES, Box
from trainspec_reference.torch.groups import Groups
from trainspec_reference.torch.parts import plain_shape

_WORDS = {4: torch.int32, 8: torch.int64}


class Digested(Protocol):
    """The state of a rank, as far as a digest needs it."""

    @property
    def num_updates(self) -> int:
        """Updates that the moments hold."""
        ...

    def whole_tensors(self) -> Iterable[tuple[str, Box]]:
        """What every rank of the formation has a whole copy of."""
        ...

    def split_tensors(self) -> Mapping[str, Box]:
        """Of what no rank need hold whole: the boxes that this rank, and no other, answers for."""
        ...

    def split_kinds(self) -> tuple[str, ...]:
        """What kinds of tensor are split."""
        ...


def digest(state: Digested, shapes: Mapping[str, tuple[int, ...]], groups: Groups, dtype: torch.dtype) -> str:
    """State digest, of whole tensors from this rank's own copies, and of split ones from the boxes of all ranks.

    `shapes` are those of all global parameters, in the same order on every rank.
    """
    digests = [tensor_digest(UPDATES, np.array(state.num_updates, np.int64))]
    digests += [_one(name, box.tensor) for name, box in state.whole_tensors()]
    for kind in state.split_kinds():
        for name, tensor in global_tensors(kind, state, shapes, groups, dtype):
            digests.append(_one(f"{kind}/{name}", tensor))
    return state_digest(digests)


def global_tensors(
    kind: str, state: Digested, shapes: Mapping[str, tuple[int, ...]], groups: Groups, dtype: torch.dtype
) -> Iterator[tuple[str, torch.Tensor]]:
    """Global tensors of a kind, by the name of the parameter, in host memory; all ranks call it."""
    if kind not in state.split_kinds():
        for name, box in state.whole_tensors():
            if name.startswith(f"{kind}/"):
                yield name.removeprefix(f"{kind}/"), box.tensor.detach().cpu()
        return
    boxes = state.split_tensors()
    for name, shape in shapes.items():
        yield name, assembled(boxes.get(f"{kind}/{name}"), shape, groups, dtype).cpu()


def assembled(box: Box | None, whole_shape: tuple[int, ...], groups: Groups, dtype: torch.dtype) -> torch.Tensor:
    """A global tensor, on every rank, from the boxes of all ranks: words are summed, so that no bit is rounded away."""
    whole = torch.zeros(whole_shape, dtype=dtype, device=groups.device)
    if box is not None:
        place = tuple(slice(at, at + size) for at, size in zip(box.offsets, box.tensor.shape, strict=True))
        whole[place] = box.tensor
    groups.sum_of(whole.view(_WORDS[dtype.itemsize]))
    return whole


def _one(name: str, tensor: torch.Tensor) -> str:
    return tensor_digest(name, plain_shape(name, tensor.detach().cpu().numpy()))
