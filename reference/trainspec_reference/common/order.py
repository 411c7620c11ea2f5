"""Orders samples: a permutation for each epoch, and the id at any position, without a walk."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_NUM_ROUNDS = 6
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Words = npt.NDArray[np.uint64]


def mix(*parts: Words | int) -> Words:
    """Hash of 64-bit words, elementwise over arrays that broadcast: SplitMix64's finaliser after each part.

    Source: https://prng.di.unimi.it/splitmix64.c
    """
    state = np.zeros(1, np.uint64)
    for part in parts:
        word = part if isinstance(part, np.ndarray) else np.array([part], np.uint64)
        state = (state ^ word) + _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """Each epoch visits every sample once, in an order of its own, or in that of the ids.

    A position is the number of samples that the run has consumed before; it alone says what comes next, so a resumed
    run needs no other state. The permutation is a Feistel network that is walked until it stays in range: no table.

    Raises:
        ValueError: there is no sample, or more than fit in 62 bits.
    """

    num_samples: int
    seed: int
    is_shuffled: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.num_samples <= 2**62:
            raise ValueError(f"{self.num_samples} samples, wanted between 1 and 2^62")

    def ids(self, position: int, count: int) -> tuple[int, ...]:
        """Ids of the next `count` samples at a position."""
        found: list[int] = []
        while len(found) < count:
            epoch, offset = divmod(position + len(found), self.num_samples)
            num_taken = min(count - len(found), self.num_samples - offset)
            places = np.arange(offset, offset + num_taken, dtype=np.uint64)
            found.extend((self._permuted(epoch, places) if self.is_shuffled else places).tolist())
        return tuple(found)

    def _permuted(self, epoch: int, places: Words) -> Words:
        walked = self._network(epoch, places)
        outside = walked >= np.uint64(self.num_samples)
        while outside.any():
            walked[outside] = self._network(epoch, walked[outside])
            outside = walked >= np.uint64(self.num_samples)
        return walked

    def _network(self, epoch: int, places: Words) -> Words:
        num_half_bits = max(1, (self.num_samples - 1).bit_length() + 1 >> 1)
        half, mask = np.uint64(num_half_bits), np.uint64((1 << num_half_bits) - 1)
        left, right = places >> half, places & mask
        for number in range(_NUM_ROUNDS):
            left, right = right, left ^ (mix(self.seed, epoch, number, right) & mask)
        return (left << half) | right
