"""Makes samples, orders them, and feeds each data rank its part of a step."""

# ruff: noqa: N803, N806 - shapes stand in names

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from trainspec_reference.common import batch_schedule
from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.batch_schedule import BatchSchedule, StepBatch
from trainspec_reference.common.job import Data, Job, ModelShape
from trainspec_reference.common.state import TrainerState

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


def uncounted(shape: ModelShape, num_samples: int) -> MicroBatch:
    """A micro-batch that the loss does not count, where all ranks have to take part in a pass."""
    if shape.family == "convolution":
        axes = (num_samples, shape.image_channels, shape.image_size, shape.image_size)
        return MicroBatch(np.zeros(axes, np.float32), np.full(num_samples, NOT_COUNTED, np.int64), ())
    tokens = np.zeros((num_samples, shape.sequence_length), np.int64)
    return MicroBatch(tokens, np.full_like(tokens, NOT_COUNTED), ())


def _centred(words: Words) -> npt.NDArray[np.float32]:
    """Words as numbers of 24 bits between -1 and 1, which float32 holds exactly."""
    return ((words >> np.uint64(40)).astype(np.float32) - np.float32(2**23)) * np.float32(2**-23)


@dataclass(frozen=True, slots=True)
class Request:
    """The part of one step that one DP rank processes."""

    position: int
    """Samples that the run has consumed before the step."""
    shares: tuple[int, ...]
    """Samples of each data rank, which take them in order of rank."""
    data_rank: int
    micro_sequences: int
    sequence_length: int | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The part of a step's samples that one data rank computes."""

    micro_batches: tuple[MicroBatch, ...]
    num_targets: int
    """Of the global batch."""

    @property
    def sample_ids(self) -> tuple[int, ...]:
        """Ids of the samples of this data rank, in order."""
        return tuple(sample_id for batch in self.micro_batches for sample_id in batch.sample_ids)


class Feed:
    """Makes the batches of one data rank among so many, the one that is expected next in a thread."""

    def __init__(self, job: Job, data_rank: int, num_data_ranks: int) -> None:
        self._batch, self._data_rank, self._num_data_ranks = job.plan.batch, data_rank, num_data_ranks
        self.schedule = BatchSchedule(job.plan.batch, job.model.num_targets_per_sample)
        self.samples = Samples(job.model, job.data, job.plan.batch.variable_length)
        self._order = SampleOrder(job.data.num_samples, job.data.seed, job.data.is_shuffled)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._expected: tuple[Request, Future[Loaded]] | None = None

    def shares(self, state: TrainerState) -> tuple[int, ...]:
        """Samples of each data rank in the next step."""
        sequences = self.schedule.at(state).global_sequences
        return batch_schedule.shares(self._batch, sequences, self._num_data_ranks, state.shares)

    def next(self, state: TrainerState) -> Loaded:
        """The samples of the next step; the samples of the step after it are prepared concurrently."""
        step = self.schedule.at(state)
        request, expected = self._request(state, step), self._expected
        loaded = expected[1].result() if expected and expected[0] == request else self.made(request)
        following = replace(
            state,
            num_samples=state.num_samples + step.global_sequences,
            num_tokens=state.num_tokens + loaded.num_targets,
        )
        request = self._request(following, self.schedule.at(following))
        self._expected = request, self._thread.submit(self.made, request)
        return loaded

    def held_out(self, state: TrainerState, number: int) -> Loaded:
        """A numbered batch of samples that no epoch holds."""
        request = self._request(state, StepBatch(self.schedule.at(state).global_sequences))
        start = self._order.num_samples + number * sum(request.shares)
        return self.made(request, range(start, start + sum(request.shares)))

    def _request(self, state: TrainerState, step: StepBatch) -> Request:
        sequences, ranks = step.global_sequences, self._num_data_ranks
        shares = batch_schedule.shares(self._batch, sequences, ranks, state.shares)
        micro = batch_schedule.micro_sequences(self._batch, sequences, ranks)
        return Request(state.num_samples, shares, self._data_rank, micro, step.sequence_length)

    def made(self, request: Request, sample_ids: Sequence[int] = ()) -> Loaded:
        """A batch, made now; of these samples, where they are named."""
        if self.samples.data.delay_seconds:
            time.sleep(self.samples.data.delay_seconds)
        ids = sample_ids or self._order.ids(request.position, sum(request.shares))
        begin = sum(request.shares[: request.data_rank])
        mine = ids[begin : begin + request.shares[request.data_rank]]
        length, micro = request.sequence_length, request.micro_sequences
        parts = (mine[start : start + micro] for start in range(0, len(mine), micro))
        batches = tuple(self.samples.batch(part, length) for part in parts)
        return Loaded(batches, self.samples.num_targets(ids, length))

    def close(self) -> None:
        """End the thread, once it has made what it is making."""
        self._thread.shutdown(wait=False, cancel_futures=True)
