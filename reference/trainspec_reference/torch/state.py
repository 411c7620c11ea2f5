"""Keeps parameters and moments of a rank by name, as boxes of the global tensors that a checkpoint holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.common.weights import state_digest, tensor_digest
from trainspec_reference.torch.checkpoint import KINDS, UPDATES, Box, host_copy, library
from trainspec_reference.torch.groups import Groups, peers_needed
from trainspec_reference.torch.parts import Part, plain_shape
from trainspec_reference.torch.precision import parameter_dtype

if TYPE_CHECKING:
    from trainspec_reference.torch.compression import Feedback
    from trainspec_reference.torch.passes import Exchange

_WORDS = {4: torch.int32, 8: torch.int64}


class State(ABC):
    """Parameters that a rank holds, and the moments of those that it updates, as PyTorch's optimizer keeps them.

    How data ranks divide them and sum gradients is said by `replica.Replica` and `sharded.ShardedReplica`.
    """

    exchange: Exchange
    _groups: Groups
    feedback: Feedback | None = None

    def __init__(self, job: Job, model: nn.Module, part: Part, weights: Weights) -> None:
        """Take this rank's part of the global parameters."""
        self._job, self._dtype = job, parameter_dtype(job.plan.precision)
        self._everywhere = {name: part.region(name, weights[name].shape) for name in sorted(weights)}
        self.tensors: dict[str, torch.Tensor] = named_parameters(model.to(self._dtype))
        self.regions = {name: self._everywhere[name] for name in self.tensors}
        for name, tensor in self.tensors.items():
            tensor.data.copy_(self.regions[name].cut(weights))

    @abstractmethod
    def connect(self, groups: Groups) -> None:
        """Exchange with the data ranks of these groups from now on."""

    def disconnect(self) -> None:
        """Exchange no more; what a rank holds whole stays."""
        del self.exchange, self._groups

    def own(self, names: Iterable[str]) -> None:
        """Take fresh moments of these parameters, which this rank updates from now on: matrices alone decay."""
        rates, kept = self._job.rates, list(names)
        groups = [
            {
                "params": [self.tensors[name] for name in kept if self.regions[name].has_decay is decays],
                "weight_decay": rates.weight_decay if decays else 0.0,
            }
            for decays in (True, False)
        ]
        self._optimizer = torch.optim.AdamW(groups, betas=(rates.beta1, rates.beta2), eps=rates.epsilon, fused=True)
        for tensor in (self.tensors[name] for name in kept):
            moments = {"exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}
            self._optimizer.state[tensor] = {"step": torch.zeros((), device=tensor.device), **moments}
        self.num_updates = 0

    def set_num_updates(self, num_updates: int) -> None:
        """Set the number of steps that the optimizer's moments hold."""
        self.num_updates = num_updates
        for state in self._optimizer.state.values():
            state["step"].fill_(num_updates)

    @abstractmethod
    def squared_norm(self) -> torch.Tensor:
        """Contribution of this rank to the squared norm of the global gradient, loss scale removed, in float64."""

    @abstractmethod
    def gradients(self) -> Sequence[torch.Tensor]:
        """Tensors of the gradient that this rank holds."""

    def update(self, learning_rate: float, gradient_factor: float) -> None:
        """Apply the optimizer once, with the gradient times a factor, and clear the gradient."""
        if gradient_factor != 1.0:
            for gradient in self.gradients():
                gradient.mul_(gradient_factor)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()
        self.num_updates += 1
        self.discard()

    @abstractmethod
    def discard(self) -> None:
        """Clear the gradient."""

    @property
    @abstractmethod
    def whole_kinds(self) -> Sequence[str]:
        """Kinds of tensor that this rank holds whole."""

    @property
    @abstractmethod
    def held(self) -> Sequence[str]:
        """Names of the parameters of which this rank holds a box."""

    @property
    @abstractmethod
    def written(self) -> Sequence[str]:
        """Names of those whose boxes this rank writes: each box of the model is written by one rank."""

    @abstractmethod
    def _box(self, name: str, tensor: torch.Tensor) -> Box:
        """A parameter, or a moment of it, as a box of the global one."""

    def _boxes(self, names: Iterable[str]) -> Iterator[tuple[str, Box]]:
        for name in names:
            tensor = self.tensors[name]
            moments = self._optimizer.state.get(tensor, {})
            found = (tensor, moments.get("exp_avg"), moments.get("exp_avg_sq"))
            for kind, one in zip(KINDS, found, strict=True):
                if one is not None:
                    yield f"{kind}/{name}", self._box(name, one.detach())

    def copied_boxes(self) -> dict[str, Box]:
        """Copies in host memory of what this rank writes."""
        return {name: replace(box, tensor=host_copy(box.tensor)) for name, box in self._boxes(self.written)}

    def restore(self, directory: Path) -> None:
        """Read what this rank holds.

        Raises:
            CheckpointUnreadableError: the checkpoint is damaged, or of another model.
        """
        boxes = dict(self._boxes(self.held))
        hosted = {name: replace(box, tensor=torch.zeros_like(box.tensor, device="cpu")) for name, box in boxes.items()}
        library().read(hosted, directory)
        for name, box in boxes.items():
            box.tensor.copy_(hosted[name].tensor)

    def share(self, source: int) -> None:
        """Take all state of one rank of the formation; what it has not sent yet is each rank's own, and stays.

        Raises:
            ValueError: no rank holds a whole replica.
        """
        if self.whole_kinds != KINDS:
            raise ValueError("no rank holds a whole replica that others could copy: restore a checkpoint")
        if self._groups.formation.num_ranks == 1:
            return
        learnt = self.feedback.factors.values() if self.feedback else ()
        updates = torch.tensor([self.num_updates], device=self._groups.device)
        tensors = [*(box.tensor for _, box in self._boxes(self.held)), *learnt, updates]
        with peers_needed():
            for work in [dist.broadcast(tensor, src=source, async_op=True) for tensor in tensors]:
                work.wait()
        if self.feedback:
            self.feedback.catch_up(int(updates) - self.num_updates)
        self.set_num_updates(int(updates))

    def digest(self) -> str:
        """State digest, equal on all ranks whose state is; all ranks call it."""
        digests = [tensor_digest(UPDATES, np.array(self.num_updates, np.int64))]
        for kind in KINDS:
            for name, tensor in self.global_tensors(kind):
                digests.append(tensor_digest(f"{kind}/{name}", plain_shape(name, tensor.numpy())))
        return state_digest(digests)

    def global_tensors(self, kind: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Global tensors of a kind by the name of the parameter, in host memory; all ranks call it.

        A tensor that this rank holds whole is its own copy; others are put together from the boxes of all ranks.
        """
        is_whole = kind in self.whole_kinds
        boxes = dict(self._boxes(self.held if is_whole else self.written))
        for name, region in self._everywhere.items():
            box = boxes.get(f"{kind}/{name}")
            yield name, box.tensor.cpu() if is_whole and box else self._assembled(box, region.whole_shape)

    def _assembled(self, box: Box | None, whole_shape: tuple[int, ...]) -> torch.Tensor:
        """A global tensor from the boxes of all ranks: words are summed, so that no bit is rounded away."""
        whole = torch.zeros(whole_shape, dtype=self._dtype, device=self._groups.device)
        if box is not None:
            place = tuple(slice(at, at + size) for at, size in zip(box.offsets, box.tensor.shape, strict=True))
            whole[place] = box.tensor
        self._groups.sum_of(whole.view(_WORDS[self._dtype.itemsize]))
        return whole.cpu()


def named_parameters(model: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters of a model under their global names."""
    return {name.replace(".", "/"): parameter for name, parameter in model.named_parameters()}


def squared_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum of squares of all elements, in float64, as a tensor of no axis."""
    norms = [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]
    return torch.stack(norms).square().sum() if norms else torch.zeros((), dtype=torch.float64)
