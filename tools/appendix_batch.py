"""Writes the page of the batch: gradient noise, time against compute, rates, elastic sizes."""

from __future__ import annotations

from collections.abc import Iterator

from appendix_models import batch_cost, critical_batch, elastic_search, noise_statistics
from appendix_text import Formula, Given, digits, fixed, formulas, page, percent, section, table

from trainspec_validate.performance.costs import batch_schedule, elastic, learning_rate

SIZES = (1, 2, 4, 9)
"""Noise units of four groups of unequal size."""
SIGNAL, NOISE = 1.0, 32.0
SPEEDS = (1.0, 1.0, 1.0, 0.5)
OLMO = Given(
    "ramp",
    (batch_schedule.Stage(0, 2**22), batch_schedule.Stage(168e9, 2**23), batch_schedule.Stage(503e9, 2**24)),
    "4, 8 and 16 Mi tokens, from 0, 168 and 503 billion tokens on",
)
READING = Given("reading", noise_statistics.GradientNoise(1, 50, 100), "signal 1, noise 50, batch 100")
READINGS = Given(
    "readings",
    tuple(noise_statistics.GradientNoise(2 + 0.1 * (-1) ** step, 100, 16) for step in range(20)),
    "twenty readings, signal 1.9 and 2.1 in turn, noise 100",
)
NODES = Given("bounds", elastic.Bounds(8, 64, ranks_per_node=8), "8 to 64 accelerators in whole nodes of eight")
WIDE = Given("wide", elastic.Bounds(32, 1500), "32 to 1,500 accelerators")
MCCANDLISH = "arXiv:1812.06162"
BERGSMA = "arXiv:2505.13738"


def constant_noise(_tokens: float) -> float:
    """A noise scale that does not change."""
    return 1000.0


def expected_norms() -> tuple[list[float], float]:
    """Expected squared norms of the group means and of the whole mean: G + S / b, and G + S / B."""
    return [SIGNAL + NOISE / size for size in SIZES], SIGNAL + NOISE / sum(SIZES)


def uneven() -> noise_statistics.GradientNoise:
    """Result of the estimator for these expected norms."""
    norms, mean = expected_norms()
    return noise_statistics.gradient_noise(SIZES, norms, mean)


NORMS, MEAN = expected_norms()
GROUPS = Given("norms", NORMS, "expected squared norms of the groups, see the worked example")
NOISE_FORMULAS = (
    Formula(
        noise_statistics.gradient_noise,
        (
            "G = (W q - m) / (W - 1); S = B (m - q) / (W - 1)",
            "noise units",
            f"{MCCANDLISH}, appendix A.1, for unequal groups",
        ),
        (SIZES, GROUPS, MEAN),
        taking=".noise_scale",
    ),
    Formula(
        noise_statistics.two_batch_noise,
        ("G = (B q - b n) / (B - b); S = (n - q) / (1/b - 1/B)", "noise units", f"{MCCANDLISH}, appendix A.1"),
        (1, 51, 100, 1.5),
        taking=".noise_trace",
    ),
    Formula(noise_statistics.norm_test, ("S / B over the squared norm", "ratio", "arXiv:2402.11215"), (READING, 1.5)),
    Formula(
        noise_statistics.relative_sd_of_noise,
        ("sqrt(2 / (D (W - 1)))", "ratio", "Wishart sum of W - 1 degrees"),
        (8, 2000),
    ),
    Formula(
        noise_statistics.relative_sd_of_signal,
        ("sqrt(4 c N/B + 2 (N/B)^2 W / (D (W - 1)))", "ratio", "variance of Gaussian gradients"),
        (3200, 32, 8, 2000),
    ),
    Formula(
        noise_statistics.steps_to_average,
        ("ceil((deviation / error)^2)", "count", "standard error of a mean"),
        (3.41, 0.1),
    ),
    Formula(
        noise_statistics.student_quantile,
        ("expansion about the normal quantile", "number", "Abramowitz and Stegun, 26.7.5"),
        (0.975, 10),
    ),
    Formula(
        noise_statistics.noise_scale_interval,
        ("Fieller's interval of the ratio of the means", "noise units", "Fieller 1954"),
        (READINGS,),
        taking="[0]",
        printed=(1.0, "at the low end"),
    ),
)


BATCH_FORMULAS = (
    Formula(critical_batch.steps_ratio, ("1 + N / B", "ratio", f"{MCCANDLISH}, section 2.3"), (250, 1000)),
    Formula(critical_batch.samples_ratio, ("1 + B / N", "ratio", f"{MCCANDLISH}, section 2.3"), (250, 1000)),
    Formula(
        critical_batch.samples_for_steps,
        ("(steps / least - 1) (samples / least - 1) = gain", "samples", f"{MCCANDLISH}, equation 2.11"),
        (20000, 10000, 1e7),
    ),
    Formula(
        critical_batch.critical_batch_of_limits,
        ("least samples / least steps", "samples", f"{MCCANDLISH}, equation 2.12"),
        (10000, 1e7),
    ),
    Formula(
        critical_batch.batch_for_samples_ratio,
        ("(ratio - 1) x critical", "batch", "the ratio above"),
        (1.2, 4096),
        printed=(1.0, "sequences"),
    ),
    Formula(
        critical_batch.adaptive_batch,
        ("sqrt(samples a step is worth x N)", "batch", f"{MCCANDLISH}, appendix D"),
        (4000, 1000),
        printed=(1.0, "sequences"),
    ),
    Formula(
        critical_batch.adaptive_gain,
        ("mean(sqrt N)^2 / mean N", "ratio", f"{MCCANDLISH}, appendix D"),
        (Given("noise_scales", [100, 900], "100, then 900, half of the progress each"),),
    ),
    Formula(
        critical_batch.kaplan_critical_batch,
        ("2e8 / loss^4.76", "tokens", "arXiv:2001.08361, section 5.1"),
        (2.5,),
        taking=".tokens",
        printed=(1e6, "million tokens"),
    ),
    Formula(
        critical_batch.zhang_data_critical_batch,
        ("512 x 22.91 (tokens / 1e6)^0.47", "tokens", "arXiv:2410.21676"),
        (3.02e9,),
        taking=".tokens",
        printed=(1e6, "million tokens"),
    ),
    Formula(
        critical_batch.zhang_size_critical_batch,
        ("512 x 621.34 (parameters / 1e6)^0.087", "tokens", "arXiv:2410.21676"),
        (151e6,),
        taking=".tokens",
        printed=(1e6, "million tokens"),
    ),
    Formula(
        critical_batch.bergsma_critical_batch,
        ("measured x (tokens / measured tokens)^0.47", "tokens", BERGSMA),
        (16e9, 1e9, 1e6),
        taking=".tokens",
        printed=(1e6, "million tokens"),
    ),
    Formula(
        critical_batch.bergsma_best_batch,
        ("measured x (tokens / measured tokens)^0.38", "tokens", BERGSMA),
        (16e9, 1e9, 1e6),
        taking=".tokens",
        printed=(1e6, "million tokens"),
    ),
    Formula(
        critical_batch.recommend_batch,
        ("nearest multiple, in ratio, within the bounds", "sequences", "own rule"),
        (3000, 3000, 256, 2048, 128),
        taking=".batch",
    ),
)


SCHEDULE_FORMULAS = (
    Formula(
        batch_schedule.num_steps,
        (
            "sum of tokens / batch; linear from a to b: n ln(b/a) / (b - a)",
            "steps",
            "integral of one over the batch; arXiv:2505.23971 for the ramp",
        ),
        (OLMO, 600e9),
    ),
    Formula(batch_schedule.batch_at, ("linear between two stages", "tokens", "definition"), (OLMO, 200e9)),
    Formula(batch_cost.steps_saved, ("1 - steps x first batch / tokens", "share", "counting"), (OLMO, 655e9)),
    Formula(
        batch_cost.schedule_cost,
        ("progress of a step 1 / (1 + N / B), by midpoints", "steps", f"{MCCANDLISH}, section 2.3"),
        (
            Given("flat", (batch_schedule.Stage(0, 1000.0),), "a batch of 1,000 throughout"),
            1e6,
            Given("noise", constant_noise, "a noise scale of 1,000 throughout"),
        ),
        taking=".least_steps",
    ),
    Formula(
        learning_rate.factor,
        (
            "linear g; square-root sqrt g; adascale (n + 1) / (n / g + 1)",
            "ratio",
            "arXiv:1706.02677; arXiv:1404.5997; arXiv:2007.05105",
        ),
        ("adascale", 4, 8),
    ),
    Formula(
        learning_rate.adascale_gain,
        ("(n + 1) / (n / g + 1), n noise over base batch", "ratio", "arXiv:2007.05105"),
        (4, 8),
    ),
    Formula(learning_rate.factor_bounds, ("1 to g, or to sqrt g", "ratio", "limits of the gain"), ("adascale", 4)),
    Formula(learning_rate.noise_of_factor, ("(gain - 1) / (1 - gain / g)", "ratio", "inverse of the gain"), (3, 4)),
    Formula(
        learning_rate.saturating_rate,
        ("largest / (1 + N / B)^e", "rate", f"{MCCANDLISH}, equation 2.6"),
        (0.5, 1000, 1000),
    ),
    Formula(learning_rate.warmup_samples, ("base x growth", "samples", "arXiv:1901.08256"), (375e6, 4)),
)


MICRO_CHOICES = Given("micros", (8, 12, 16, 17), "8, 12, 16 or 17 sequences")
WORKERS = Given("speeds", SPEEDS, "1, 1, 1, 0.5")
ELASTIC_FORMULAS = (
    Formula(elastic.divisors, ("divisors by prime factors", "count", "arithmetic"), (48, 12)),
    Formula(
        elastic.prime_factors,
        ("trial division", "count", "arithmetic"),
        (720,),
        taking="len",
        printed=(1.0, "primes"),
    ),
    Formula(
        elastic.data_degrees,
        ("degrees d with batch = micro x steps x d", "ranks", "arithmetic"),
        (96, (4, 6), Given("few", elastic.Bounds(1, 16), "1 to 16 accelerators")),
    ),
    Formula(elastic.scales, ("all worlds of the batch", "worlds", "arithmetic"), (1024, (4, 8), NODES), taking="len"),
    Formula(
        elastic.nearest_scale,
        ("largest world within what is left", "ranks", "arithmetic"),
        (1024, (4, 8), NODES, 56),
        taking=".world_size",
    ),
    Formula(
        elastic.proportional_shares,
        ("largest remainder of batch x speed / sum", "sequences", "arithmetic"),
        (64, WORKERS),
    ),
    Formula(elastic.gradient_weights, ("share / sum of shares", "share", "mean over the batch"), ((19, 18, 18, 9),)),
    Formula(elastic.slowest_seconds, ("max(share / speed)", "s", "arithmetic"), ((19, 18, 18, 9), WORKERS)),
    Formula(
        elastic_search.best_batch,
        ("batch with the most world sizes, exact", "sequences", "microsoft/DeepSpeed, deepspeed/elasticity"),
        (10000, MICRO_CHOICES, WIDE),
        taking=".global_sequences",
    ),
)


def batch_formulas() -> list[Formula]:
    """Noise, batch, schedule and elastic sizes, in this order."""
    return [*NOISE_FORMULAS, *BATCH_FORMULAS, *SCHEDULE_FORMULAS, *ELASTIC_FORMULAS]


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
