"""Lays named parameters out in one vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class FlatParameters:
    """Parameters one after the other, in order of name."""

    vector: Array
    shapes: Mapping[str, tuple[int, ...]]

    @staticmethod
    def of(weights: Mapping[str, Array]) -> FlatParameters:
        """A copy of these weights."""
        names = sorted(weights)
        vector = np.concatenate([np.asarray(weights[name], np.float32).ravel() for name in names])
        return FlatParameters(vector, {name: weights[name].shape for name in names})

    @property
    def named(self) -> dict[str, Array]:
        """Each parameter as a view of the vector."""
        return self.views(self.vector)

    def views(self, vector: Array) -> dict[str, Array]:
        """Each part of a vector of the same layout, in the shape of its parameter."""
        found, offset = {}, 0
        for name, shape in self.shapes.items():
            size = int(np.prod(shape, dtype=np.int64))
            found[name] = vector[offset : offset + size].reshape(shape)
            offset += size
        return found

    def flattened(self, values: Mapping[str, Array]) -> Array:
        """Values of all parameters in one vector of this layout."""
        return np.concatenate([values[name].ravel() for name in self.shapes])

    @property
    def decays(self) -> Array:
        """1 for each entry of a parameter of two axes or more, which weight decay is for, and 0 for others."""
        parts = [np.full(int(np.prod(s, dtype=np.int64)), len(s) >= 2, np.float32) for s in self.shapes.values()]
        return np.concatenate(parts)
