"""Holds the example that the torch stacks train: a model, its samples, and their mean loss."""

from __future__ import annotations

import torch
from torch import Tensor, distributed, nn

NUM_FEATURES, NUM_HIDDEN = 16, 32


class Samples(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Samples that are pure functions of their numbers."""

    num_features = NUM_FEATURES

    def __init__(self, num_samples: int, seed: int) -> None:
        self._num_samples, self._seed = num_samples, seed

    def __len__(self) -> int:
        return self._num_samples

    def inputs(self, index: int) -> Tensor:
        """Model input from one sample."""
        chance = torch.Generator().manual_seed(self._seed * 1_000_003 + int(index))
        return torch.randn(self.num_features, generator=chance)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        inputs = self.inputs(index)
        return {"inputs": inputs, "targets": torch.sin(3 * inputs[:4]).sum(), "ids": torch.tensor(int(index))}


class Model(nn.Module):
    """A small network that keeps what it saw since the last update, for the trace."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(NUM_FEATURES, NUM_HIDDEN), nn.Tanh(), nn.Dropout(dropout), nn.Linear(NUM_HIDDEN, 1)
        )
        self._losses: list[Tensor] = []
        self._ids: list[int] = []

    def forward(self, inputs: Tensor, targets: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """The mean squared error of a batch."""
        loss = nn.functional.mse_loss(self.layers(inputs).squeeze(-1), targets)
        self._losses.append(loss.detach())
        self._ids += ids.tolist()
        return {"loss": loss}

    def taken(self) -> tuple[float, list[int]]:
        """Mean loss over all ranks, and the samples of this one, since the last time."""
        loss = torch.stack(self._losses).double().mean()
        if distributed.is_initialized() and distributed.get_world_size() > 1:
            distributed.all_reduce(loss)
            loss /= distributed.get_world_size()
        ids = self._ids
        self._losses, self._ids = [], []
        return float(loss), ids
