"""Feeds a worker the part of each step's samples that its data rank takes."""

from __future__ import annotations

from dataclasses import replace

from trainspec_reference.common import batch_schedule
from trainspec_reference.common.batch_schedule import BatchSchedule, StepBatch
from trainspec_reference.common.data import Samples
from trainspec_reference.common.job import Job
from trainspec_reference.common.loader import Loaded, Loader, Request
from trainspec_reference.common.order import SampleOrder
from trainspec_reference.common.state import TrainerState


class Feed:
    """Batches of one data rank among so many."""

    def __init__(self, job: Job, data_rank: int, num_data_ranks: int) -> None:
        self._batch, self._data_rank, self._num_data_ranks = job.plan.batch, data_rank, num_data_ranks
        self._num_samples = job.data.num_samples
        self.schedule = BatchSchedule(job.plan.batch, job.model.num_targets_per_sample)
        samples = Samples(job.model, job.data, job.plan.batch.variable_length)
        self.loader = Loader(samples, SampleOrder(job.data.num_samples, job.data.seed, job.data.is_shuffled))

    def shares(self, state: TrainerState) -> tuple[int, ...]:
        """Samples of each data rank in the next step."""
        sequences = self.schedule.at(state).global_sequences
        return batch_schedule.shares(self._batch, sequences, self._num_data_ranks, state.shares)

    def next(self, state: TrainerState) -> Loaded:
        """The samples of the next step; those of the step after it are begun beside it."""
        step = self.schedule.at(state)
        loaded = self.loader.get(self._request(state, step))
        following = replace(
            state,
            num_samples=state.num_samples + step.global_sequences,
            num_tokens=state.num_tokens + loaded.num_targets,
        )
        self.loader.expect(self._request(following, self.schedule.at(following)))
        return loaded

    def held_out(self, state: TrainerState, number: int) -> Loaded:
        """A numbered batch of samples that no epoch holds."""
        request = self._request(state, StepBatch(self.schedule.at(state).global_sequences))
        start = self._num_samples + number * sum(request.shares)
        return self.loader.made(request, range(start, start + sum(request.shares)))

    def _request(self, state: TrainerState, step: StepBatch) -> Request:
        sequences, ranks = step.global_sequences, self._num_data_ranks
        shares = batch_schedule.shares(self._batch, sequences, ranks, state.shares)
        micro = batch_schedule.micro_sequences(self._batch, sequences, ranks)
        return Request(state.num_samples, shares, self._data_rank, micro, step.sequence_length)

    def close(self) -> None:
        """Nothing more is wanted."""
        self.loader.close()
