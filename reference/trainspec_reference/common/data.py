"""Makes samples: each a pure function of the seed and its id, in integers that any language has."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.job import Data, ModelShape
from trainspec_reference.common.order import Words, mix

NOT_COUNTED = -1
"""Target of a position that the loss leaves out."""
_NUM_STRIDES = 4
_NOISE_OF_256 = 24
_START, _STRIDE, _NOISE, _TOKEN, _LENGTH, _CLASS, _PATTERN, _PIXEL = range(8)


@dataclass(frozen=True, slots=True)
class Samples:
    """Texts that count upwards in steps of one to four with some noise, or images of noisy patterns."""

    shape: ModelShape
    data: Data
    variable_length: bool = False
    """Whether texts end early; positions after the end have the target -1."""

    def batch(self, sample_ids: Sequence[int], sequence_length: int | None = None) -> MicroBatch:
        """The samples of these ids, in this order; `sequence_length` shortens texts below the model's length."""
        ids_B = np.array(sample_ids, np.uint64)
        if self.shape.family == "convolution":
            inputs_BCHW, classes_B = self._images(ids_B)
            return MicroBatch(inputs_BCHW, classes_B, tuple(sample_ids))
        length = self._length(sequence_length)
        tokens_BS = self._tokens(ids_B, length + 1)
        targets_BT = tokens_BS[:, 1:].copy()
        targets_BT[np.arange(length) >= self._lengths(ids_B, length)[:, None]] = NOT_COUNTED
        return MicroBatch(np.ascontiguousarray(tokens_BS[:, :-1]), targets_BT, tuple(sample_ids))

    def num_targets(self, sample_ids: Sequence[int], sequence_length: int | None = None) -> int:
        """Targets of these samples that the loss counts, without making the samples."""
        if self.shape.family == "convolution":
            return len(sample_ids)
        return int(self._lengths(np.array(sample_ids, np.uint64), self._length(sequence_length)).sum())

    def _length(self, sequence_length: int | None) -> int:
        return min(sequence_length or self.shape.sequence_length, self.shape.sequence_length)

    def _lengths(self, ids_B: Words, length: int) -> npt.NDArray[np.int64]:
        if not self.variable_length:
            return np.full(len(ids_B), length, np.int64)
        shortest = max(1, length // 4)
        spread = np.uint64(length - shortest + 1)
        return (mix(self.data.seed, ids_B, _LENGTH) % spread).astype(np.int64) + shortest

    def _tokens(self, ids_B: Words, num_positions: int) -> npt.NDArray[np.int64]:
        seed, size = self.data.seed, np.uint64(self.shape.vocabulary_size)
        place_S = np.arange(num_positions, dtype=np.uint64)[None, :]
        ids_B1 = ids_B[:, None]
        stride_B1 = mix(seed, ids_B1, _STRIDE) % np.uint64(_NUM_STRIDES) + np.uint64(1)
        counted_BS = mix(seed, ids_B1, _START) % size + stride_B1 * place_S
        is_noise_BS = mix(seed, ids_B1, _NOISE, place_S) % np.uint64(256) < np.uint64(_NOISE_OF_256)
        tokens_BS = np.where(is_noise_BS, mix(seed, ids_B1, _TOKEN, place_S), counted_BS) % size
        return tokens_BS.astype(np.int64)

    def _images(self, ids_B: Words) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        seed, shape = self.data.seed, self.shape
        axes = (len(ids_B), shape.image_channels, shape.image_size, shape.image_size)
        place_P = np.arange(axes[1] * axes[2] * axes[3], dtype=np.uint64)[None, :]
        class_B = mix(seed, ids_B, _CLASS) % np.uint64(shape.vocabulary_size)
        pattern_BP = _centred(mix(seed, class_B[:, None], _PATTERN, place_P))
        noise_BP = _centred(mix(seed, ids_B[:, None], _PIXEL, place_P))
        return (pattern_BP + noise_BP).reshape(axes), class_B.astype(np.int64)


def _centred(words: Words) -> npt.NDArray[np.float32]:
    """Words as numbers of 24 bits between -1 and 1, which float32 holds exactly."""
    return ((words >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) * np.float32(2**-23)
