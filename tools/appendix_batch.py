"""Writes the page of the batch: gradient noise, time against compute, rates, elastic sizes."""

from __future__ import annotations

from collections.abc import Iterator

from appendix_batch_formulas import NODES, NOISE, OLMO, SIGNAL, SIZES, SPEEDS, batch_formulas, expected_norms, uneven
from appendix_models import batch_cost, critical_batch
from appendix_text import digits, fixed, formulas, page, percent, section, table

from trainspec_validate.performance.costs import batch_schedule, elastic, learning_rate

RATIOS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
GROWTHS = (0.5, 2.0, 4.0, 16.0)
NOISE_OVER_BATCH = (0.5, 8.0)
BATCHES, MICROS = (1024, 1680, 6720), (1, 2, 4, 8)
ACCELERATORS = (64, 60, 56, 48, 40, 32)

INTRODUCTION = """
How noisy the gradient is, what a batch costs in steps and in samples, how the learning rate follows it, and which world
sizes run it. This page is informative: it states no requirement.

Words: B is the batch, G the squared norm of the true gradient (the signal), S the trace of the gradient covariance of
one noise unit (the noise), N = S / G the noise scale. A batch, a noise scale and a critical batch of one call share one
unit.
"""


def trade_offs() -> Iterator[tuple[str, ...]]:
    """Batch over the noise scale, steps and samples over the fewest."""
    for ratio in RATIOS:
        steps, samples = critical_batch.steps_ratio(ratio, 1), critical_batch.samples_ratio(ratio, 1)
        yield digits(ratio), digits(steps), digits(samples)


def rules() -> Iterator[tuple[str, ...]]:
    """Rule, and its factor by growth of the batch, for two noise scales where it depends on them."""
    for rule in learning_rate.RULES[:-1]:
        for noise in NOISE_OVER_BATCH if rule in learning_rate.GAIN_RULES else (None,):
            cells = [digits(float(learning_rate.factor(rule, growth, noise))) for growth in GROWTHS]
            yield rule, "any" if noise is None else digits(noise), *cells


def worlds() -> Iterator[tuple[str, ...]]:
    """The world that each batch runs on when so many accelerators are left: micro-batch x accumulation x world."""
    for available in ACCELERATORS:
        cells = []
        for batch in BATCHES:
            scale = elastic.nearest_scale(batch, MICROS, NODES.value, available)
            if scale is None:
                raise ValueError(f"no world of {available} accelerators for {batch}")
            cells.append(f"{scale.micro_sequences} x {scale.accumulation_steps} x {scale.world_size}")
        yield digits(available), *cells


def ramps() -> Iterator[tuple[str, ...]]:
    """The ramp of OLMO, stage by stage."""
    for total in (168e9, 503e9, 600e9):
        steps = batch_schedule.num_steps(OLMO.value, total)
        yield digits(total / 1e9), digits(steps), percent(batch_cost.steps_saved(OLMO.value, total))


def groups() -> Iterator[tuple[str, ...]]:
    """Group by group: size, expected squared norm."""
    norms, _ = expected_norms()
    for size, norm in zip(SIZES, norms, strict=True):
        yield digits(size), digits(norm, 4)


def _worked_noise() -> list[str]:
    reading, (_, mean) = uneven(), expected_norms()
    found = [fixed(value, 3) for value in (reading.signal_sq, reading.noise_trace, reading.noise_scale or 0.0)]
    return section(
        "Noise of uneven groups",
        f"Four groups of {', '.join(map(str, SIZES))} units; a true gradient of squared norm {digits(SIGNAL)} and a "
        f"noise of {digits(NOISE)} per unit.",
        table(("units of the group", "expected squared norm of its mean"), groups()),
        f"The mean over all {sum(SIZES)} units has the expected squared norm {digits(mean, 4)}. The estimator gives "
        f"back signal {found[0]}, noise {found[1]} and a noise scale of {found[2]} units, so no group size biases it.",
    )


def _elastic() -> list[str]:
    shares = elastic.proportional_shares(64, SPEEDS)
    seconds, even = (elastic.slowest_seconds(each, SPEEDS) for each in (shares, [16] * 4))
    return section(
        "Elastic sizes",
        "Micro-batch x accumulation x world when so many accelerators are left: micro-batches of 1, 2, 4 or 8 "
        "sequences, whole nodes of eight. A batch with more divisors leaves fewer idle.",
        table(("accelerators left", *(f"batch {digits(batch)}" for batch in BATCHES)), worlds()),
        f"A batch of 64 over four workers of which one has half the speed: shares {', '.join(map(str, shares))}; the "
        f"last is done after {digits(seconds)} s in place of {digits(even)} s with even shares, where speed 1 is one "
        "sequence a second.",
    )


def write() -> str:
    """The page of the batch."""
    growths = (f"g = {digits(growth)}" for growth in GROWTHS)
    return page(
        "Batch",
        INTRODUCTION,
        section(
            "Formulas",
            "W groups; m the mean of their squared norms weighted by size, q that of the mean over all; n that of a "
            "small batch b; D the effective dimension of the noise, c its alignment with the signal; g the growth of "
            "the batch.",
            formulas(batch_formulas()),
        ),
        _worked_noise(),
        section(
            "Time against compute",
            "At a fixed batch; at the noise scale itself a run takes twice either.",
            table(("batch / noise scale", "steps / fewest", "samples / fewest"), trade_offs()),
        ),
        section(
            "Learning rate",
            "Factor on the learning rate after the batch has grown by g.",
            table(("rule", "noise / base batch", *growths), rules()),
        ),
        section(
            "Ramp",
            f"OLMo 1B (arXiv:2505.23971): {OLMO.words}.",
            table(("billion tokens", "steps", "saved against the first batch"), ramps()),
        ),
        _elastic(),
    )
