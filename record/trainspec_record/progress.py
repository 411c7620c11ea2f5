"""Counts what a job has done: optimizer steps, samples, tokens, and their rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SKIPPED = "train.step.skipped{train.skip.reason=%s}"
SAMPLES = "train.sample.count"
TOKENS = "train.token.count{train.token.kind=all}"
FILLED_TOKENS = "train.token.count{train.token.kind=non_padding}"
CLIPPED = "train.gradient.clip.count"
COUNTED = {"samples": SAMPLES, "tokens": TOKENS, "non_padding_tokens": FILLED_TOKENS, "clipped": CLIPPED}
"""Words of `log` that count up with the step, and the counters that they grow."""
GAUGES = {
    "loss": "train.loss.mean{train.loss.name=total}",
    "largest_loss": "train.loss.max{train.loss.name=total}",
    "learning_rate": "train.learning_rate",
    "gradient_norm": "train.gradient.norm",
}
"""Words of `log` for values of the update."""
RATE_SECONDS = 10.0
"""Least time between two rates; a window holds one step at least."""


class Progress:
    """Counters of a job since the start of the run."""

    def __init__(self, largest_step: int, num_repeated: int, interval: int) -> None:
        self.step = 0
        """Optimizer steps completed."""
        self.largest_step = largest_step
        """The largest number of a step that the run has completed."""
        self.num_repeated = num_repeated
        self.batch_size: float | None = None
        self.counters: dict[str, float] = {SKIPPED % reason: 0 for reason in ("overflow", "non_finite", "policy")}
        self._interval = interval
        self._durations_us = 0
        self._num_durations = 0
        self._rate_us: int | None = None
        self._rate_tokens = 0.0
        self._evaluated_us = 0

    def restored(self, step: int, counters: Mapping[str, float]) -> None:
        """The job continues from an optimizer step; counters keep their values."""
        self.step = step
        self.counters.update(counters)

    def begin(self, now_us: int, evaluated_us: int) -> None:
        """The first step begins."""
        self._rate_us, self._evaluated_us = now_us, evaluated_us
        self._rate_tokens = self.counters.get(TOKENS, 0.0)

    @property
    def is_replay(self) -> bool:
        """Whether the step that is next was completed before."""
        return self.step < self.largest_step

    def skip(self, reason: str) -> dict[str, Any]:
        """An optimizer step was computed and not applied; what is to be written."""
        name = SKIPPED % reason
        self.counters[name] = self.counters.get(name, 0) + 1
        return {"train.step.count": self.step, **self.counters}

    def miss(self, num_steps: int) -> None:
        """Optimizer steps were completed of which nothing is recorded."""
        self.num_repeated += max(0, min(num_steps, self.largest_step - self.step))
        self.step += num_steps

    def complete(self, duration_us: int, counted: Mapping[str, float]) -> dict[str, Any] | None:
        """An optimizer step was completed; what is to be written, None between two reports."""
        self.num_repeated += self.is_replay
        self.step += 1
        self.largest_step = max(self.largest_step, self.step)
        for name, value in counted.items():
            self.counters[name] = self.counters.get(name, 0) + value
        self.batch_size = counted.get(SAMPLES, self.batch_size)
        self._durations_us += duration_us
        self._num_durations += 1
        return None if self.step % self._interval else self.report()

    def report(self) -> dict[str, Any] | None:
        """Counters, and the mean time of the steps since the report before; None where there was no update."""
        if not self._num_durations:
            return None
        seconds = self._durations_us / self._num_durations / 1e6
        self._durations_us = self._num_durations = 0
        return {"train.step.count": self.step, "train.step.duration": seconds, **self.counters}

    def rate(self, now_us: int, evaluated_us: int) -> float | None:
        """Tokens per second since the rate before; None where the window is short, or no one counts tokens."""
        if self._rate_us is None or TOKENS not in self.counters:
            return None
        passed_us = now_us - self._rate_us
        if passed_us < RATE_SECONDS * 1e6 or passed_us <= evaluated_us - self._evaluated_us:
            return None
        seconds = (passed_us - (evaluated_us - self._evaluated_us)) / 1e6
        grown = self.counters[TOKENS] - self._rate_tokens
        self.begin(now_us, evaluated_us)
        return grown / seconds
