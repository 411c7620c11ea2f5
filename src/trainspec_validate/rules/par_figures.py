"""Rules on performance figures: speeds, operations, utilisation and durations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.hardware import Accelerator, NodeGroup
from trainspec_validate.documents.types.plan import Performance
from trainspec_validate.model import catalog
from trainspec_validate.model.units import flops, flops_per_second, number, percent, seconds
from trainspec_validate.performance.derived.plan import batch_range, node_groups, tokens_per_step
from trainspec_validate.performance.derived.speed import HARDWARE_CONVENTION, StepTime, flops_bounds, step_times
from trainspec_validate.performance.derived.trained import num_trained
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._groups import ask_group
from trainspec_validate.rules._uncounted import COMPLETE

TOLERANCE = {"predicted": 0.01, "measured": 0.01, "published": 0.03}
"""Relative difference of two figures that agree; published ones are rounded to two or three digits."""
UTILISATION_TOLERANCE = {"predicted": 0.005, "measured": 0.005, "published": 0.01}
"""Absolute difference of two utilisations that agree; published ones are whole per cents."""
FLOPS_TOLERANCE = 0.02
RECOMPUTE_BOUND = 4 / 3
"""Operations with everything recomputed over operations without: four passes instead of three."""


def _performance(plan: TrainingPlan) -> Performance:
    return require(plan.performance, "the plan gives no performance figures")


class _Printed(NamedTuple):
    """A figure with the least and the most that it may have been before it was printed."""

    low: float
    value: float
    high: float

    def times(self, other: _Printed | float) -> _Printed:
        """The product with another figure, or with a count."""
        factors = other if isinstance(other, _Printed) else (other, other, other)
        return _Printed(*(one * factor for one, factor in zip(self, factors, strict=True)))

    def differs(self, other: _Printed, tolerance: float) -> bool:
        """Whether no numbers of the two agree."""
        low, high = sorted((self, other))
        return low.high < high.low and _differ(low.high, high.low, tolerance)


def _printed(value: float, kind: str) -> _Printed:
    """A rate as stated; a published one may have been rounded, or cut off, at the last digit that is printed.

    Zeros before the decimal point count as digits.

    >>> _printed(13.0, "published"), _printed(13.0, "measured")
    (_Printed(low=12.5, value=13.0, high=14.0), _Printed(low=13.0, value=13.0, high=13.0))
    """
    exponent = int(Decimal(repr(value)).normalize().as_tuple().exponent)
    unit = 10.0 ** min(exponent, 0) if kind == "published" else 0.0
    return _Printed(value - unit / 2, value, value + unit)


def _exact(value: float) -> _Printed:
    return _Printed(value, value, value)


def _differ(first: float, second: float, tolerance: float) -> bool:
    return abs(first - second) > tolerance * max(abs(first), abs(second))


def _flops_per_accelerator(performance: Performance, num_ranks: int) -> float | None:
    """Model operations per second and rank: as given, else from the aggregate, else from tokens."""
    if performance.model_flops_per_second_per_accelerator:
        return performance.model_flops_per_second_per_accelerator
    if performance.model_flops_per_second:
        return performance.model_flops_per_second / num_ranks
    tokens = _tokens_per_second(performance, num_ranks)
    if tokens and performance.flops_per_token:
        return tokens / num_ranks * performance.flops_per_token
    if performance.samples_per_second and performance.flops_per_sample:
        return performance.samples_per_second / num_ranks * performance.flops_per_sample
    return None


def _tokens_per_second(performance: Performance, num_ranks: int) -> float | None:
    if performance.tokens_per_second:
        return performance.tokens_per_second
    each = performance.tokens_per_second_per_accelerator
    return each * num_ranks if each else None


@rule("TS-PAR-022")
def performance_source(plan: TrainingPlan) -> Iterator[Violation]:
    """Published figures say where they were published."""
    performance = _performance(plan)
    if performance.kind != "published":
        raise NotApplicable("the figures are not published ones")
    if not performance.sources and not plan.metadata.sources:
        message = "the figures are published, but no source is given"
        yield Violation(
            at(plan, "performance", "kind"),
            message,
            "add the page or paper under `performance.sources` or `metadata.sources`",
        )


@rule("TS-PAR-023")
def throughput(plan: TrainingPlan) -> Iterator[Violation]:
    """Tokens per second, step time, tokens per step and ranks fit together."""
    performance, ranks = _performance(plan), plan.parallelism.num_accelerators
    each, total = performance.tokens_per_second_per_accelerator, performance.tokens_per_second
    pairs = list(_products(plan))
    if not (each and total) and not pairs:
        raise NotApplicable("the plan gives no two figures of its throughput")
    tolerance = TOLERANCE[performance.kind]
    if (each and total) and _printed(each, performance.kind).times(ranks).differs(
        _printed(total, performance.kind), tolerance
    ):
        yield Violation(
            at(plan, "performance", "tokens_per_second_per_accelerator"),
            f"{number(each)} tokens/s x {number(ranks)} ranks is {number(each * ranks)} tokens/s, "
            f"but the job does {number(total)}",
            f"{number(total)} tokens/s are {number(total / ranks)} for each rank",
        )
    apart = [pair for pair in pairs if pair.value.differs(pair.full, tolerance)]
    wrong = [pair for pair in apart if not pair.fits_a_stage(tolerance)]
    for pair in wrong:
        yield Violation(at(plan, "performance", pair.key), pair.message, pair.help)
    if apart and not wrong:
        raise _of_no_stage(plan, apart[0].key)


@dataclass(frozen=True, slots=True)
class _Product:
    """A figure that two speeds give, the one at the full batch, and the range of the latter along the ramp."""

    key: str
    value: _Printed
    full: _Printed
    shares: tuple[float, float]
    message: str
    help: str

    def fits_a_stage(self, tolerance: float) -> bool:
        """True for a value of some batch of the job."""
        low, high = self.shares
        least, most = low * self.full.low * (1 - tolerance), high * self.full.high * (1 + tolerance)
        return least <= self.value.high and self.value.low <= most


def _of_no_stage(plan: TrainingPlan, key: str) -> Unresolved:
    """Two figures that agree at a smaller batch, or at one between those of the plan."""
    reason = "gives figures that do not agree at its full batch, but may at another one of the job"
    return Unresolved(at(plan, "performance", key), reason, "state the speeds at the full batch")


def _products(plan: TrainingPlan) -> Iterator[_Product]:
    """Pairs of speeds that give samples or tokens of a step, or of a second."""
    performance, batches = _performance(plan), batch_range(plan)
    figures, tokens = _figures(performance, plan.parallelism.num_accelerators), tokens_per_step(plan)
    speed, samples, step = figures["speed"], figures["samples"], figures["step"]
    sequences = plan.batch.global_sequences
    if samples and step:
        message = (
            f"{number(samples.value)} samples/s for {seconds(step.value)} are {number(samples.value * step.value)} "
            f"samples, but a step has {number(sequences)}"
        )
        remedy = f"at that speed a step takes {seconds(sequences / samples.value)}"
        yield _Product("step_seconds", samples.times(step), _exact(sequences), batches.sequences, message, remedy)
    if speed and tokens and step:
        message = (
            f"{number(speed.value)} tokens/s for {seconds(step.value)} are {number(speed.value * step.value)} tokens, "
            f"but a step has {number(tokens)}"
        )
        remedy = f"at that speed a step takes {seconds(tokens / speed.value)}"
        yield _Product("step_seconds", speed.times(step), _exact(tokens), batches.tokens, message, remedy)
    if speed and tokens and samples and not step:
        each = tokens / sequences
        message = (
            f"{number(samples.value)} samples/s of {number(each)} tokens are {number(samples.value * each)} "
            f"tokens/s, but the job does {number(speed.value)}"
        )
        remedy = f"{number(speed.value)} tokens/s are {number(speed.value / each)} samples/s"
        full = samples.times(each)
        yield _Product("samples_per_second", speed, full, batches.tokens_per_sequence, message, remedy)


def _figures(performance: Performance, num_ranks: int) -> dict[str, _Printed | None]:
    """The speeds of the whole job that are stated, in tokens, in samples and by the time of a step."""
    kind, total = performance.kind, performance.tokens_per_second
    each, samples, step = (
        performance.tokens_per_second_per_accelerator,
        performance.samples_per_second,
        performance.step_seconds,
    )
    by_rank = _printed(each, kind).times(num_ranks) if each else None
    return {
        "speed": _printed(total, kind) if total else by_rank,
        "samples": _printed(samples, kind) if samples else None,
        "step": _exact(step) if step else None,
    }


@rule("TS-PAR-024")
def model_flops(plan: TrainingPlan) -> Iterator[Violation]:
    """Operations per second, per rank and per token fit together."""
    performance, ranks = _performance(plan), plan.parallelism.num_accelerators
    each, total = performance.model_flops_per_second_per_accelerator, performance.model_flops_per_second
    speed = _tokens_per_second(performance, ranks)
    per_token = performance.flops_per_token
    rate = each or (total / ranks if total else None)
    unit, key = "token", "flops_per_token"
    if performance.samples_per_second and performance.flops_per_sample:
        speed, per_token = performance.samples_per_second, performance.flops_per_sample
        unit, key = "sample", "flops_per_sample"
    tolerance = TOLERANCE[performance.kind]
    pair = None if speed and per_token else _two_speeds(plan, _RATES)
    if not (each and total) and not (rate and speed and per_token) and not pair:
        raise NotApplicable("the plan gives no two figures of its operations")
    if each and total and _differ(each * ranks, total, tolerance):
        yield Violation(
            at(plan, "performance", "model_flops_per_second"),
            f"{flops_per_second(each)} x {number(ranks)} ranks is {flops_per_second(each * ranks)}, "
            f"but the job does {flops_per_second(total)}",
            f"{flops_per_second(total)} are {flops_per_second(total / ranks)} for each rank",
        )
    if rate and speed and per_token and _differ(speed / ranks * per_token, rate, tolerance):
        product = speed / ranks * per_token
        yield Violation(
            at(plan, "performance", key),
            f"{number(speed / ranks)} {unit}s/s x {flops(per_token)} is {flops_per_second(product)}, "
            f"but each rank does {flops_per_second(rate)}",
            f"at that speed a {unit} takes {flops(rate * ranks / speed)}",
        )
    if pair:
        yield from _contradiction(plan, *pair)


_RATES = ("model_flops_per_second_per_accelerator", "model_flops_per_second")


def _two_speeds(plan: TrainingPlan, keys: tuple[str, ...]) -> tuple[StepTime, StepTime] | None:
    """The time of a step by operations stated under one of the keys, and by a speed in steps, tokens or samples."""
    times = list(step_times(plan))
    by_flops = next((time for time in times if time.key in keys), None)
    by_steps = next((time for time in times if "flops" not in time.key), None)
    return (by_flops, by_steps) if by_flops and by_steps else None


def _contradiction(plan: TrainingPlan, by_flops: StepTime, by_steps: StepTime) -> Iterator[Violation]:
    """Operations per second that take another step than the other speed of the plan, by every count of them."""
    performance = _performance(plan)
    tolerance = TOLERANCE[performance.kind]
    if not by_flops.apart(by_steps, tolerance):
        return
    batches = batch_range(plan)
    scaled = {"step_seconds": batches.tokens, "samples_per_second": batches.tokens_per_sequence}
    least, most = scaled.get(by_steps.key, (1.0, 1.0))
    if not replace(by_flops, low=by_flops.low * least, high=by_flops.high * most).apart(by_steps, tolerance):
        raise _of_no_stage(plan, by_flops.key)
    yield Violation(
        at(plan, "performance", by_flops.key),
        f"by {by_flops.key} a step takes {seconds(by_flops.low)} to {seconds(by_flops.high)}, "
        f"but {seconds(by_steps.low)} by {by_steps.key}",
        "correct one of the two, or state flops_per_token with its convention",
    )


@rule("TS-PAR-025")
def flops_per_token(plan: TrainingPlan) -> Iterator[Violation]:
    """The operations of one token are those that the declared convention counts."""
    performance, model = _performance(plan), plan.model
    given, convention = performance.flops_per_token, performance.flops_convention
    if given is None or convention is None:
        raise NotApplicable("the plan gives no operations per token with their convention")
    if num_trained(plan) < model.num_parameters:
        reason = "trains some of its parameters, and no convention of flops_per_token covers that"
        raise Uncovered(at(plan, "performance", "flops_convention"), reason)
    bounds = flops_bounds(model, convention)
    if bounds is None:
        reason = "gives a shape from which the operations of a token are not counted"
        if model.family in {"cnn", "vision-transformer"}:
            raise Uncovered(at(plan, "model"), reason)
        raise Unresolved(at(plan, "model"), reason, COMPLETE)
    low, high = bounds
    if given < low * (1 - FLOPS_TOLERANCE) or given > high * (1 + FLOPS_TOLERANCE):
        wanted = flops(low) if low == high else f"between {flops(low)} and {flops(high)}"
        yield Violation(
            at(plan, "performance", "flops_per_token"),
            f"flops_per_token is {flops(given)}, but {convention} counts {wanted}",
            "correct the figure, or name the convention that it was counted in",
        )


@rule("TS-PAR-026")
def utilisation_basis(plan: TrainingPlan) -> Iterator[Violation]:
    """A utilisation says how operations are counted and which peak it refers to."""
    performance = _performance(plan)
    keys = ("model_flops_utilisation", "hardware_flops_utilisation")
    given = require([key for key in keys if getattr(performance, key) is not None], "the plan gives no utilisation")
    wanted = ("flops_convention", "peak_flops_per_second", "peak_format")
    lacking = [key for key in wanted if getattr(performance, key) is None]
    if lacking and performance.kind == "published":
        reason = f"gives a published utilisation without {', '.join(lacking)}"
        raise Unresolved(at(plan, "performance", given[0]), reason, "add what the publication says")
    if lacking:
        yield Violation(
            at(plan, "performance", given[0]),
            f"a utilisation of {percent(getattr(performance, given[0]))} without {', '.join(lacking)}",
            "say how operations are counted, and which peak of which number format is 100 %",
        )


@rule("TS-PAR-027")
def peak_rate(plan: TrainingPlan, cluster: ClusterProfile) -> Iterator[Violation]:
    """The peak is the accelerator's dense peak for that number format."""
    performance = _performance(plan)
    given, number_format = performance.peak_flops_per_second, performance.peak_format
    if given is None:
        raise NotApplicable("the plan gives no peak")
    if number_format is None:
        reason = "gives a peak without its number format"
        raise Unresolved(at(plan, "performance", "peak_flops_per_second"), reason, "add peak_format")
    ask_group(plan, cluster, whole_job=True)
    groups = node_groups(plan, cluster)
    peaks = _by_rank(groups, [_peak(group.accelerator, number_format) for group in groups])
    if not peaks:
        reason = f"gives a {number_format} peak, which neither the cluster nor the catalog has of the accelerator"
        raise Unresolved(at(plan, "performance", "peak_format"), reason, "state peak_rates of the accelerator")
    if all(_differ(given, peak, TOLERANCE["measured"]) for peak in peaks):
        known = " or ".join(flops_per_second(peak) for peak in sorted(peaks))
        yield Violation(
            at(plan, "performance", "peak_flops_per_second"),
            f"the {number_format} peak is {flops_per_second(given)} here, but {known} in the cluster",
            _peak_help(
                given, peaks, _by_rank(groups, [_published(group.accelerator, number_format) for group in groups])
            ),
            related=((at(cluster, "node_groups"), "accelerators of the job"),),
        )


def _by_rank(groups: Sequence[NodeGroup], peaks: Sequence[float | None]) -> set[float]:
    """Peaks of one rank, of the groups whose accelerator has one."""
    pairs = zip(groups, peaks, strict=True)
    return {peak / group.accelerator.num_ranks_per_accelerator for group, peak in pairs if peak}


def _peak_help(given: float, peaks: set[float], published: set[float]) -> str:
    """Which of two figures is likely the wrong one."""
    if any(not _differ(given, peak, TOLERANCE["measured"]) for peak in published):
        return f"the catalog has {flops_per_second(given)} as well: correct `peak_rates` of the cluster"
    if any(not _differ(given, 2 * peak, TOLERANCE["measured"]) for peak in peaks):
        return "the larger figure is the one for structured sparsity"
    return f"use {' or '.join(flops_per_second(peak) for peak in sorted(peaks))}"


def _published(accelerator: Accelerator, number_format: str) -> float | None:
    """Dense peak of one accelerator in the catalog."""
    known = catalog.accelerators().get(accelerator.model)
    return _of_format(known.peak_flops_per_second if known else {}, number_format)


def _peak(accelerator: Accelerator, number_format: str) -> float | None:
    """Dense peak of one accelerator, from the cluster, else the catalog; `fp8` stands for its kinds."""
    known = catalog.accelerators().get(accelerator.model)
    own: dict[str, float] = {peak.format: peak.flops_per_second for peak in accelerator.peak_rates}
    return _of_format({**(known.peak_flops_per_second if known else {}), **own}, number_format)


def _of_format(peaks: Mapping[str, float], number_format: str) -> float | None:
    eight_bit = number_format in {"fp8-e4m3", "fp8-e5m2", "mxfp8"}
    return peaks.get(number_format) or (peaks.get("fp8") if eight_bit else None)


@rule("TS-PAR-028")
def utilisation(plan: TrainingPlan) -> Iterator[Violation]:
    """The model utilisation is the model's operations per second over the peak."""
    performance, ranks = _performance(plan), plan.parallelism.num_accelerators
    hardware = performance.flops_convention == HARDWARE_CONVENTION
    key = "hardware_flops_utilisation" if hardware else "model_flops_utilisation"
    given, peak = getattr(performance, key), performance.peak_flops_per_second
    rate = _flops_per_accelerator(performance, ranks)
    if rate is None and (pair := _two_speeds(plan, (key,))):
        yield from _contradiction(plan, *pair)
        return
    if given is None or peak is None or rate is None:
        raise NotApplicable("the plan gives no utilisation with its operations and peak")
    if abs(rate / peak - given) > UTILISATION_TOLERANCE[performance.kind]:
        yield Violation(
            at(plan, "performance", key),
            f"{flops_per_second(rate)} of {flops_per_second(peak)} are {percent(rate / peak)}, "
            f"but the utilisation is {percent(given)}",
            f"{percent(given)} of that peak are {flops_per_second(given * peak)} for each rank",
        )


@rule("TS-PAR-050")
def model_convention(plan: TrainingPlan) -> Iterator[Violation]:
    """A model utilisation leaves recomputation out."""
    performance = _performance(plan)
    model = performance.model_flops_utilisation
    if model is None or performance.flops_convention is None:
        raise NotApplicable("the plan gives no model utilisation, or no convention")
    if performance.flops_convention == HARDWARE_CONVENTION:
        yield Violation(
            at(plan, "performance", "model_flops_utilisation"),
            f"{HARDWARE_CONVENTION} counts recomputation, so {percent(model)} is no model utilisation",
            "give it as hardware_flops_utilisation",
        )


@rule("TS-PAR-029")
def hardware_utilisation(plan: TrainingPlan) -> Iterator[Violation]:
    """Hardware utilisation is at least model utilisation."""
    model, hardware, slack = _both_utilisations(plan)
    if hardware < model - slack:
        yield Violation(
            at(plan, "performance", "hardware_flops_utilisation"),
            f"hardware utilisation {percent(hardware)} is below model utilisation {percent(model)}",
            "operations done include those of the model",
        )


@rule("TS-PAR-053")
def recomputed_utilisation(plan: TrainingPlan) -> Iterator[Violation]:
    """Hardware utilisation exceeds model utilisation by what one recomputation of every layer adds, at most."""
    model, hardware, slack = _both_utilisations(plan)
    if hardware > model * RECOMPUTE_BOUND + slack:
        yield Violation(
            at(plan, "performance", "hardware_flops_utilisation"),
            f"hardware utilisation {percent(hardware)} is {hardware / model:.2f} times model utilisation",
            f"recomputing everything once gives at most {percent(model * RECOMPUTE_BOUND)}",
        )


def _both_utilisations(plan: TrainingPlan) -> tuple[float, float, float]:
    """Model and hardware utilisation, and how far rounding moves them."""
    performance = _performance(plan)
    model, hardware = performance.model_flops_utilisation, performance.hardware_flops_utilisation
    if model is None or hardware is None or performance.flops_convention == HARDWARE_CONVENTION:
        raise NotApplicable("the plan does not give both utilisations")
    return model, hardware, UTILISATION_TOLERANCE[performance.kind]
