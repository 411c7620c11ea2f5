"""Computes the samples of a step, the share of each data rank, and the learning rate that follows."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from trainspec_reference.common.job import Rates
from trainspec_reference.common.state import TrainerState
from trainspec_validate.documents.types.batch import Batch
from trainspec_validate.performance.costs import batch_schedule, learning_rate
from trainspec_validate.performance.costs.elastic import proportional_shares


@dataclass(frozen=True, slots=True)
class StepBatch:
    """The samples of one step."""

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
        """Batch that the controller wants after this step; None where it does not decide now.

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


def scheduled(rates: Rates, update: int) -> float:
    """Rate of a step by its number, 1 for the first, at the base batch.

    >>> [scheduled(Rates(peak=1.0, warmup_steps=2, decay_steps=4, final_factor=0.1), update) for update in (1, 2, 3, 9)]
    [0.5, 1.0, 0.55, 0.1]
    """
    if update <= rates.warmup_steps:
        return rates.peak * update / rates.warmup_steps
    if rates.decay_steps is None:
        return rates.peak
    done = min(1.0, (update - rates.warmup_steps) / max(1, rates.decay_steps - rates.warmup_steps))
    return rates.peak * (rates.final_factor + (1 - rates.final_factor) * (1 + math.cos(math.pi * done)) / 2)


@dataclass(frozen=True, slots=True)
class LearningRates:
    """The rate of a step of any batch."""

    rates: Rates
    batch: Batch

    @property
    def base_sequences(self) -> int:
        """Batch at which the factor is 1."""
        rule = self.batch.learning_rate
        if rule is not None and rule.base_global_sequences is not None:
            return rule.base_global_sequences
        return self.batch.ramp[0].global_sequences if self.batch.ramp else self.batch.global_sequences

    def at(self, update: int, step: StepBatch, noise_sequences: float | None) -> float:
        """Rate of a step; `noise_sequences` is the noise scale in sequences, None while it is not known.

        An unknown noise counts as none, at which rules that depend on it change nothing.
        """
        return scheduled(self.rates, update) * self.factor(step, noise_sequences)

    def factor(self, step: StepBatch, noise_sequences: float | None) -> float:
        """Rate of a batch over that of the base batch, by the rule of the plan."""
        rule = self.batch.learning_rate
        if rule is None or rule.rule == "none":
            return 1.0
        if rule.rule == "declared":
            return step.learning_rate_factor or 1.0
        noise = (noise_sequences or 0.0) / self.base_sequences
        return learning_rate.factor(rule.rule, step.global_sequences / self.base_sequences, noise)


SLOW_RATIO = 1.5
"""A data rank is a straggler when the median of the others is so many times faster."""
LEAST_CHANGE = 0.1
"""Shares stay as they are while none would change by more than this part of the even share."""


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """New shares, and the slow data rank that made them necessary, if there is one."""

    shares: tuple[int, ...]
    straggler: int | None


class Stopwatch:
    """Samples per second of this rank's own work in the last steps, without waiting for others."""

    def __init__(self, num_steps: int) -> None:
        self._rates: deque[float] = deque(maxlen=num_steps)

    def note(self, num_samples: int, seconds: float) -> None:
        """A step took so long for so many samples."""
        self._rates.append(num_samples / max(seconds, 1e-9))

    def samples_per_second(self) -> float:
        """Median over the last steps; measuring begins anew."""
        found = median(self._rates)
        self._rates.clear()
        return found


def of_data_ranks(samples_per_second: Sequence[float], data_ranks: Sequence[int]) -> tuple[float, ...]:
    """Speed of each data rank: that of its slowest rank, for its ranks wait for each other.

    >>> of_data_ranks([9.0, 8.0, 7.0, 6.0], [0, 0, 1, 1])
    (8.0, 6.0)
    """
    slowest: dict[int, float] = {}
    for speed, rank in zip(samples_per_second, data_ranks, strict=True):
        slowest[rank] = min(speed, slowest.get(rank, speed))
    return tuple(slowest[rank] for rank in sorted(slowest))


def rebalanced(shares: tuple[int, ...], samples_per_second: tuple[float, ...]) -> Rebalanced | None:
    """Shares in proportion to speed, by data rank; None where those of now are near enough.

    >>> rebalanced((8, 8), (100.0, 50.0))
    Rebalanced(shares=(11, 5), straggler=1)
    >>> rebalanced((8, 8), (100.0, 95.0)) is None
    True
    """
    if len(shares) < 2:
        return None
    wanted = fitted(sum(shares), samples_per_second)
    even = sum(shares) / len(shares)
    if max(abs(new - old) for new, old in zip(wanted, shares, strict=True)) <= LEAST_CHANGE * even:
        return None
    slowest, *others = sorted(samples_per_second)
    is_slow = median(others) > SLOW_RATIO * slowest
    return Rebalanced(wanted, samples_per_second.index(slowest) if is_slow else None)
