"""Writes the stream of a job: what rank 0 says about all of it."""

from __future__ import annotations

import random
from typing import Any

from .emitter import DROPPED, LAG, Emitter, Stream, text_number
from .incidents import write_incidents
from .learning import Learned, learn
from .shape import FLOPS_PER_TOKEN, PEAK_FLOPS_PER_SECOND, Shape
from .timeline import Attempt, Step, Timeline

FLOPS = {
    "train.flops.convention": "6n",
    "train.flops.per_token": FLOPS_PER_TOKEN,
    "train.flops.peak": PEAK_FLOPS_PER_SECOND,
    "train.flops.precision": "bf16",
}
RECOMPUTED_SHARE = 0.06
LOSS = "{train.loss.name=total}"


def declared(shape: Shape) -> dict[str, Any]:
    """Attributes that hold for all attempts."""
    return {
        **FLOPS,
        "train.loss.reduction": "global-token-mean",
        "train.gradient.noise_unit": "token",
        "train.gradient.num_groups": max(2, shape.num_nodes),
        "train.gradient.group_sizes": [shape.batch_tokens // max(2, shape.num_nodes)],
        "train.gradient.estimator": "size-weighted",
        "train.gradient.ema_half_life_steps": 50.0,
        "train.gradient.bias_corrected": True,
        "train.gradient.tap": "after-unscale-before-clip",
        "train.gradient.parameter_scope": "all",
        "train.gradient.accumulation_format": "fp32",
    }


def job_streams(shape: Shape, timeline: Timeline, policies: list[str]) -> list[Stream]:
    """One stream for each attempt; `policies` are the documents that the run claims to follow."""
    states = learn(shape)
    return [_JobWriter(shape, timeline, attempt, states).write(policies) for attempt in timeline.attempts]


class _JobWriter:
    """Writes one attempt of the job."""

    def __init__(self, shape: Shape, timeline: Timeline, attempt: Attempt, states: list[Learned]) -> None:
        self.shape, self.timeline, self.attempt, self.states = shape, timeline, attempt, states
        begin = attempt.formed if attempt.number else 0.0
        source = random.Random(f"{shape.seed}/job/{attempt.number}")
        self.out = Emitter(shape, "job", attempt.number, begin, source)
        self.out.head = {
            "scopes": ("job", "emitter"),
            "cadence_seconds": {
                "C30": round(shape.rate_interval_seconds, 1),
                "C60": 60.0,
                "C300": max(60.0, shape.gradient_interval_steps * shape.step_seconds),
            },
            "counters_start_us": shape.start_us,
            "declared": declared(shape),
        }
        self.fault = timeline.recovery()

    def write(self, policies: list[str]) -> Stream:
        attempt = self.attempt
        self._counts(attempt.first_begin, attempt.restored_step, {})
        before = attempt.first_begin
        for step in attempt.steps:
            self._step(step, before)
            before = step.end
        self._slow(attempt.end - 0.001, attempt.steps[-1].number)
        write_incidents(self.out, self.timeline, attempt, self.states, policies)
        return self.out.finish()

    def _counts(self, seconds: float, number: int, more: dict[str, Any], **attributes: Any) -> None:
        shape, state = self.shape, self.states[number]
        values: dict[str, Any] = {
            "train.step.count": number,
            "train.step.skipped{train.skip.reason=non_finite}": 0,
            "train.step.skipped{train.skip.reason=overflow}": 0,
            "train.sample.count": number * shape.batch_sequences,
            "train.token.count{train.token.kind=all}": number * shape.batch_tokens,
            "train.token.count{train.token.kind=non_padding}": state.num_filled_tokens,
            "train.gradient.clip.count": state.num_clipped,
            **more,
        }
        if self.fault and self.attempt.number:
            values["train.step.repeated"] = min(number, self.fault.step) - self.attempt.restored_step
        else:
            values["train.step.repeated"] = 0
        if self.out.owes_slow(seconds):
            values.update(self._slow_values(seconds))
        self.out.sample(seconds, values, number, **attributes)

    def _step(self, step: Step, before: float) -> None:
        """Values of one step; `before` is when the one before it ended, or when the attempt could begin."""
        shape, state = self.shape, self.states[step.number]
        evaluated = sum(e.end - e.begin for e in self.attempt.evaluations if before <= e.begin < step.end)
        rate = shape.batch_tokens / (step.end - before - evaluated)
        utilization = rate * FLOPS_PER_TOKEN / (shape.world_size * PEAK_FLOPS_PER_SECOND)
        more = {
            "train.step.duration": text_number(step.duration, 7),
            "train.token.rate": text_number(rate, 8),
            "train.flops.utilization": text_number(utilization, 7),
            "train.flops.hardware_utilization": text_number(utilization * (1 + RECOMPUTED_SHARE), 7),
            "train.learning_rate": text_number(state.learning_rate, 7),
            f"train.loss.mean{LOSS}": text_number(state.loss),
            f"train.loss.max{LOSS}": text_number(state.largest_loss),
            "train.gradient.norm": text_number(state.norm),
        }
        self._counts(step.end, step.number, more, a={"train.step.warmup": step.is_warmup})
        if step.number % shape.gradient_interval_steps == 0:
            self._noise(step, state)

    def _noise(self, step: Step, state: Learned) -> None:
        values = (
            ("train.gradient.variance", state.variance, 0.05),
            ("train.gradient.signal", state.signal, 0.15),
            ("train.gradient.noise_scale", state.noise_scale, 0.2),
        )
        for number, (name, value, spread) in enumerate(values):
            ends = [text_number(value * (1 - spread)), text_number(value * (1 + spread))]
            attributes = {"train.gradient.ci95": ends}
            self.out.sample(step.end + 1e-3 * (number + 1), {name: text_number(value, 7)}, step.number, a=attributes)

    def _slow(self, seconds: float, number: int) -> None:
        self.out.last_slow = seconds
        self.out.sample(seconds, self._slow_values(seconds), number)

    def _slow_values(self, seconds: float) -> dict[str, Any]:
        saves = [save for attempt in self.timeline.attempts for save in attempt.saves if save.commit < seconds]
        times = self.timeline.until(seconds)
        num_active = self.shape.world_size
        return {
            **{
                f"train.goodput.time{{train.time.category={name}}}": round(value, 6)
                for name, value in sorted(times.items())
            },
            "train.world.active": num_active,
            "train.batch.size": self.shape.batch_sequences,
            "train.checkpoint.step": saves[-1].step if saves else 0,
            DROPPED: 0,
            LAG: 0.0,
        }
