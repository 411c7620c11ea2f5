"""Computes the number of samples of a step, and the share of each data rank."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from trainspec_reference.common.state import TrainerState
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.performance.costs import batch_schedule
from trainspec_validate.performance.costs.elastic import proportional_shares


@dataclass(frozen=True, slots=True)
class StepBatch:
    """What one step takes."""

    global_sequences: int
    sequence_length: int | None = None
    """Of this stage of the ramp; None means the model's."""
    learning_rate_factor: float | None = None
    """As the ramp declares it."""


@dataclass(frozen=True, slots=True)
class BatchSchedule:
    """The batch as a function of the state: chosen by the controller, by tokens seen, or fixed."""

    batch: Batch
    sequence_length: int
    """Of the model, to turn noise units into sequences."""

    def at(self, state: TrainerState) -> StepBatch:
        """The batch of the next step."""
        plan = self.batch
        if plan.controller is not None and state.global_sequences is not None:
            return StepBatch(state.global_sequences)
        passed = [stage for stage in plan.ramp if stage.from_tokens <= state.num_tokens]
        if not passed:
            return StepBatch(plan.global_sequences)
        stage = passed[-1]
        sequences = stage.global_sequences
        if stage.transition == "linear":
            sequences = self._whole(self._grown(state.num_tokens), sequences)
        return StepBatch(sequences, stage.sequence_length, stage.learning_rate_factor)

    def _grown(self, num_tokens: int) -> float:
        stages = [
            batch_schedule.Stage(stage.from_tokens, stage.global_sequences, stage.transition == "linear")
            for stage in self.batch.ramp
        ]
        return batch_schedule.batch_at(stages, num_tokens)

    def _whole(self, sequences: float, least: int) -> int:
        """Rounded down to whole micro-batches, so that it is the same for any number of workers."""
        micro = self.batch.micro_sequences
        return max(least, int(sequences) // micro * micro)

    def decided(self, state: TrainerState) -> int | None:
        """Batch that the controller wants after this update; None where it does not decide now.

        It follows the noise scale, at which a step is worth half as much as one without noise (arXiv:1812.06162),
        within the bounds and the growth of the plan.
        """
        controller, settings = self.batch.controller, self.batch.noise_scale
        noise_scale = state.noise.noise_scale
        if controller is None or settings is None or state.step % controller.interval_steps or noise_scale is None:
            return None
        now = state.global_sequences or self.at(state).global_sequences
        wanted = noise_scale * self._sequences_of_unit(settings.noise_unit)
        growth = controller.max_growth_factor or controller.max_global_sequences
        wanted = min(max(wanted, now / growth), now * growth)
        low, high = controller.min_global_sequences, controller.max_global_sequences
        return min(max(self._whole(min(wanted, high), low), low), high)

    def _sequences_of_unit(self, unit: str) -> float:
        sequences = {
            "token": 1 / self.sequence_length,
            "sequence": 1.0,
            "micro-batch": float(self.batch.micro_sequences),
        }
        return sequences[unit]


def micro_sequences(batch: Batch, global_sequences: int, num_data_ranks: int) -> int:
    """Samples that a data rank computes at once: the largest that fits in memory and divides its share."""
    allowed = batch.elastic.micro_sequences if batch.elastic is not None else ()
    fitting = [micro for micro in allowed if global_sequences % (micro * num_data_ranks) == 0]
    return max(fitting, default=batch.micro_sequences)


def shares(batch: Batch, global_sequences: int, num_data_ranks: int, measured: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Samples of each data rank; their sum is exactly the batch.

    Those that speeds gave count first, then those that the plan declares, where they are of so many ranks; else all
    take the same, in whole micro-batches where that is possible.

    Raises:
        ValueError: there are fewer samples than ranks.
    """
    declared = tuple(share.sequences_per_rank for share in batch.worker_shares for _ in range(share.num_data_ranks))
    for known in (measured, declared):
        if len(known) == num_data_ranks:
            return known if sum(known) == global_sequences else fitted(global_sequences, known)
    micro = micro_sequences(batch, global_sequences, num_data_ranks)
    whole = global_sequences % micro == 0 and global_sequences // micro >= num_data_ranks
    return tuple(proportional_shares(global_sequences, [1.0] * num_data_ranks, micro if whole else 1))


def fitted(global_sequences: int, speeds: tuple[float, ...]) -> tuple[int, ...]:
    """Samples of each worker in proportion to its speed; a very slow one still gets a sample.

    >>> fitted(16, (1.0, 1.0, 1.0, 0.5)), fitted(8, (1.0, 1e-9))
    ((5, 5, 4, 2), (7, 1))

    Raises:
        ValueError: there are fewer samples than workers.
    """
    if global_sequences < len(speeds):
        raise ValueError(f"{global_sequences} samples for {len(speeds)} workers: each needs one at least")
    exact, starved = [Fraction(speed) for speed in speeds], set[int]()
    while True:
        fed = [worker for worker in range(len(exact)) if worker not in starved]
        num_left, total = global_sequences - len(starved), sum(exact[worker] for worker in fed)
        too_slow = {worker for worker in fed if exact[worker] * num_left < total}
        if not too_slow:
            break
        starved |= too_slow
    found = dict.fromkeys(starved, 1)
    found.update(zip(fed, proportional_shares(num_left, [speeds[worker] for worker in fed]), strict=True))
    return tuple(found[worker] for worker in range(len(speeds)))
