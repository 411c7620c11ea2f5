"""Computes the batch that a plan requires at each position of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.performance.derived.plan import stage_tokens, tokens_per_step
from trainspec_validate.telemetry.view.run_view import JobSeries, RunView

TOKENS = "train.token.count{train.token.kind=all}"
ROUNDING = 0.02
"""Share by which a batch on a slope can be rounded to whole micro-batches of all data ranks."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batch of a plan by tokens read: one stage, or those of its ramp."""

    starts: Sequence[float]
    sequences: Sequence[float]
    """Training samples of an update."""
    tokens: Sequence[float] | None
    """Tokens of a step; None where the plan does not say."""
    is_linear: Sequence[bool]

    @property
    def slack(self) -> float:
        """Share by which an optimizer step may differ."""
        return ROUNDING if any(self.is_linear) else 0.0

    def sequences_near(self, positions: Any) -> tuple[Any, Any]:
        """Least and most training samples of steps that end at these positions; of the run where one is unknown."""
        width = max(self.tokens) if self.tokens else 0.0
        known = np.nan_to_num(np.asarray(positions, float))
        near = [self._values(known, self.sequences), self._values(np.maximum(known - width, 0.0), self.sequences)]
        unknown = np.isnan(positions)
        low = np.where(unknown, min(self.sequences), np.minimum(*near))
        return low, np.where(unknown, max(self.sequences), np.maximum(*near))

    def tokens_at(self, positions: Any) -> Any:
        """Tokens of the steps that begin at these positions.

        Raises:
            ValueError: the plan does not say.
        """
        if self.tokens is None:
            raise ValueError("the plan does not say how many tokens an optimizer step has")
        return self._values(np.asarray(positions, float), self.tokens)

    def _values(self, positions: Any, values: Sequence[float]) -> Any:
        starts, known = np.array(self.starts), np.array(values)
        stage = np.maximum(np.searchsorted(starts, positions, side="right") - 1, 0)
        following = np.minimum(stage + 1, len(starts) - 1)
        length = np.where(following > stage, starts[following] - starts[stage], 1.0)
        share = np.where(np.array(self.is_linear)[stage], (positions - starts[stage]) / length, 0.0)
        return known[stage] + (known[following] - known[stage]) * share


def schedule_of(plan: TrainingPlan) -> Schedule:
    """The batch schedule of a plan."""
    ramp = plan.batch.ramp
    if not ramp:
        whole = tokens_per_step(plan)
        return Schedule([0.0], [float(plan.batch.global_sequences)], None if whole is None else [whole], [False])
    tokens = [found for stage in ramp if (found := stage_tokens(plan, stage)) is not None]
    return Schedule(
        starts=[float(stage.from_tokens) for stage in ramp],
        sequences=[float(stage.global_sequences) for stage in ramp],
        tokens=tokens if len(tokens) == len(ramp) else None,
        is_linear=[stage.transition == "linear" for stage in ramp],
    )


@dataclass(frozen=True, slots=True)
class Positions:
    """Tokens that the run had read, by attempt and update."""

    attempt: Any
    step: Any
    tokens: Any

    def along(self, series: JobSeries) -> Any:
        """Tokens read at each value of a series; not a number where no record says so."""
        attempts, steps = np.asarray(series.attempt), np.asarray(series.step)
        numbers, starts = np.unique(attempts, return_index=True)
        bounds = [*starts.tolist(), len(attempts)]
        parts = [self.after(n, steps[i:k]) for n, (i, k) in zip(numbers.tolist(), pairwise(bounds), strict=True)]
        return np.concatenate(parts) if parts else np.empty(0)

    def after(self, attempt: int, steps: Any) -> Any:
        """Tokens read when these steps of an attempt were completed; not a number where no record says so."""
        low, high = np.searchsorted(self.attempt, [attempt, attempt + 1]).tolist()
        wanted, mine = np.asarray(steps), self.step[low:high]
        if low == high:
            return np.full(wanted.shape, np.nan)
        index = np.minimum(np.searchsorted(mine, wanted), high - low - 1)
        return np.where((mine[index] == wanted) & (wanted >= 0), self.tokens[low + index], np.nan)


def positions(run: RunView) -> Positions | None:
    """Tokens read by optimizer step; None where the run does not count them."""
    series = run.job.get(TOKENS)
    if series is None or not len(series):
        return None
    return Positions(np.asarray(series.attempt), np.asarray(series.step), np.asarray(series.value))
