"""Prepares batches ahead of time, in parallel with the step before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from trainspec_reference.common.backend import MicroBatch
from trainspec_reference.common.data import Samples
from trainspec_reference.common.order import SampleOrder


@dataclass(frozen=True, slots=True)
class Request:
    """What one data rank takes of one step."""

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


class Loader:
    """Makes the batch that is expected next in a thread, and any other batch when it is asked for."""

    def __init__(self, samples: Samples, order: SampleOrder) -> None:
        self.samples, self._order = samples, order
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader")
        self._expected: tuple[Request, Future[Loaded]] | None = None

    def expect(self, request: Request) -> None:
        """Begin to make a batch."""
        self._expected = request, self._thread.submit(self.made, request)

    def get(self, request: Request) -> Loaded:
        """The batch, which is there at once where it was expected in time."""
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == request:
            return expected[1].result()
        return self.made(request)

    def made(self, request: Request, sample_ids: Sequence[int] = ()) -> Loaded:
        """The batch, made now; of these samples, where they are named."""
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
