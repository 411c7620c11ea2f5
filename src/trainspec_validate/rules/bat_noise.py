"""Rules on how gradient noise is estimated."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.documents.types.batch import NoiseScale
from trainspec_validate.model.units import base, number
from trainspec_validate.rules import NotApplicable, Violation, at, require, rule

MAX_HALF_LIFE_SHARE = 0.1
"""Half-life of the averages over the steps of the job."""


def _noise(plan: TrainingPlan) -> NoiseScale:
    return require(plan.batch.noise_scale, "the plan does not estimate gradient noise")


@rule("TS-BAT-023")
def noise_measurement_point(plan: TrainingPlan) -> Iterator[Violation]:
    """Gradients are read after the loss scale is taken out and before anything bends them."""
    noise = _noise(plan)
    if noise.tap != "after-unscale-before-clip":
        yield Violation(
            at(plan, "batch", "noise_scale", "tap"),
            f"gradients are read {noise.tap}, where they are not those of the loss",
            "read them at after-unscale-before-clip",
        )


@rule("TS-BAT-024")
def noise_groups(plan: TrainingPlan) -> Iterator[Violation]:
    """Noise shows between two groups at least, and groups are whole micro-batches."""
    noise, data, steps = _noise(plan), plan.parallelism.data, plan.batch.accumulation_steps
    place = at(plan, "batch", "noise_scale", "num_groups")
    if noise.num_groups < 2:
        yield Violation(place, "one group has nothing to differ from", "keep micro-batches or ranks apart: 2 or more")
    elif (data * steps) % noise.num_groups:
        yield Violation(
            place,
            f"{noise.num_groups} groups do not divide the {number(data * steps)} micro-batches of a step "
            f"(data {data} x accumulation {steps})",
            f"use {data} (ranks), {steps} (accumulated micro-batches) or {data * steps} (both)",
        )


@rule("TS-BAT-025")
def noise_weights(plan: TrainingPlan) -> Iterator[Violation]:
    """Groups of unequal size are weighted by size."""
    noise, b = _noise(plan), plan.batch
    unequal = len({share.sequences_per_rank for share in b.worker_shares}) > 1
    by_length = b.variable_length and noise.noise_unit == "token"
    if noise.group_sizes == "equal" and (unequal or by_length):
        why = "ranks take unequal shares" if unequal else "sequences vary in length and the unit is the token"
        yield Violation(
            at(plan, "batch", "noise_scale", "group_sizes"),
            f"group sizes are declared equal, but {why}",
            "set group_sizes: uneven and estimator: size-weighted",
        )
    if noise.group_sizes == "uneven" and noise.estimator != "size-weighted":
        yield Violation(
            at(plan, "batch", "noise_scale", "estimator"),
            "groups are uneven, but their norms are averaged as equals",
            "set estimator: size-weighted",
        )


@rule("TS-BAT-026")
def noise_ratio(plan: TrainingPlan) -> Iterator[Violation]:
    """The noise scale is a ratio of averages."""
    if _noise(plan).ratio_of != "averages":
        yield Violation(
            at(plan, "batch", "noise_scale", "ratio_of"),
            "the noise scale is an average of ratios",
            "average noise and signal first, then divide: ratio_of: averages",
        )


@rule("TS-BAT-027")
def noise_format(plan: TrainingPlan) -> Iterator[Violation]:
    """Squared norms are added up in 32 bits or more."""
    noise = _noise(plan)
    if noise.accumulation_format not in {"fp32", "fp64"}:
        yield Violation(
            at(plan, "batch", "noise_scale", "accumulation_format"),
            f"squared norms are added up in {noise.accumulation_format}",
            "use fp32 or fp64",
        )


@rule("TS-BAT-028")
def noise_half_life(plan: TrainingPlan) -> Iterator[Violation]:
    """Averages follow the run instead of spanning it."""
    noise, job = _noise(plan), plan.job
    if job is None or job.num_steps is None:
        raise NotApplicable("the plan does not give the steps of the job")
    most = MAX_HALF_LIFE_SHARE * job.num_steps
    if noise.ema_half_life_steps > most:
        yield Violation(
            at(plan, "batch", "noise_scale", "ema_half_life_steps"),
            f"a half-life of {number(noise.ema_half_life_steps)} steps spans much of a job of "
            f"{number(job.num_steps)} steps",
            f"use at most {base(most)} steps",
        )
