"""Derives the time of an optimizer step from whichever speed a plan states, for rules of several chapters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.model import Model
from trainspec_validate.documents.types.plan import Performance
from trainspec_validate.model.catalog import accelerators
from trainspec_validate.performance.costs import transformer
from trainspec_validate.performance.costs.transformer import Shape
from trainspec_validate.performance.derived.groups import candidates, is_open, most_together
from trainspec_validate.performance.derived.plan import (
    compute_formats,
    node_groups,
    num_ranks,
    shape_of,
    tokens_per_step,
)
from trainspec_validate.performance.derived.trained import num_trained

HARDWARE_CONVENTION = "megatron-2021-hardware"
TRANSFORMERS = frozenset({"dense-transformer", "moe-transformer"})
BY_PARAMETERS = TRANSFORMERS | {"state-space", "hybrid"}
"""Families whose tokens each visit all active parameters but those of tables, once or more often."""
_FLOPS_SLACK = 0.02
"""Relative difference of two counts of operations by one convention."""
_UTILISATION_SLACK = 0.01
"""Absolute rounding of a utilisation: whole per cents."""
_PLAIN_ATTENTION = frozenset({"full", "grouped-query", "multi-query"})
_RECOMPUTED = 4 / 3
"""Operations with everything recomputed over those without: four passes instead of three."""
_FORWARD_ONLY = 1 / 3
"""Operations of a token where no parameter is trained, over those with all of them."""
_ALSO_ON = {"fp32": ("tf32",), "fp8-e4m3": ("fp8",), "fp8-e5m2": ("fp8",), "mxfp8": ("fp8",)}
"""Formats whose peak rate bounds products that are declared in another."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Least and most seconds of an optimizer step at the full batch, and the key that they follow from."""

    key: str
    low: float
    high: float

    @property
    def seconds(self) -> float | None:
        """The time, where the stated speed gives one number."""
        return self.low if self.low == self.high else None

    def apart(self, other: StepTime, tolerance: float) -> bool:
        """True where no time within both agrees."""
        return self.low * (1 - tolerance) > other.high or self.high * (1 + tolerance) < other.low


def step_time(plan: TrainingPlan) -> StepTime | None:
    """The time of a step by the most direct speed that a plan states; None without one."""
    return next(step_times(plan), None)


def step_times(plan: TrainingPlan) -> Iterator[StepTime]:
    """The time of a step by each speed that a plan states, the most direct first."""
    performance = plan.performance
    if performance is None:
        return
    ranks, tokens = plan.parallelism.num_accelerators, tokens_per_step(plan)
    if performance.step_seconds:
        yield StepTime("step_seconds", performance.step_seconds, performance.step_seconds)
    if performance.tokens_per_second and tokens:
        step = tokens / performance.tokens_per_second
        yield StepTime("tokens_per_second", step, step)
    if performance.tokens_per_second_per_accelerator and tokens:
        step = tokens / ranks / performance.tokens_per_second_per_accelerator
        yield StepTime("tokens_per_second_per_accelerator", step, step)
    if performance.samples_per_second:
        step = plan.batch.global_sequences / performance.samples_per_second
        yield StepTime("samples_per_second", step, step)
    operations = flops_per_step(plan)
    if operations is None:
        return
    for key, slow, fast in _rates(performance, ranks):
        yield StepTime(key, operations[0] / fast, operations[1] / slow)


def _rates(performance: Performance, num_ranks: int) -> Iterator[tuple[str, float, float]]:
    """Least and most operations per second of the job, by each key that states them."""
    each, total = performance.model_flops_per_second_per_accelerator, performance.model_flops_per_second
    if each:
        yield "model_flops_per_second_per_accelerator", each * num_ranks, each * num_ranks
    if total:
        yield "model_flops_per_second", total, total
    hardware = performance.flops_convention == HARDWARE_CONVENTION
    key = "hardware_flops_utilisation" if hardware else "model_flops_utilisation"
    share, peak = getattr(performance, key), performance.peak_flops_per_second
    if share and peak and share > _UTILISATION_SLACK:
        job = peak * num_ranks
        yield key, job * (share - _UTILISATION_SLACK), job * (share + _UTILISATION_SLACK)


def flops_per_step(plan: TrainingPlan) -> tuple[float, float] | None:
    """Least and most operations of an optimizer step in the convention of the plan; None where they are not known."""
    performance, tokens = plan.performance, tokens_per_step(plan)
    if performance and performance.flops_per_token and tokens:
        return performance.flops_per_token * tokens, performance.flops_per_token * tokens
    if performance and performance.flops_per_sample:
        flops = performance.flops_per_sample * plan.batch.global_sequences
        return flops, flops
    each = flops_bounds(plan.model, performance.flops_convention if performance else None)
    if each is None or tokens is None or plan.model.family not in TRANSFORMERS:
        return None
    frozen = num_trained(plan) < plan.model.num_parameters
    low = each[0] * (1 - _FLOPS_SLACK) * (_FORWARD_ONLY if frozen else 1)
    return low * tokens, each[1] * (1 + _FLOPS_SLACK) * tokens


def least_flops_per_second(plan: TrainingPlan) -> float | None:
    """Operations per second that a rank does at least at the stated speed; None where they are not known.

    Counted are the products with parameters, forward and backward, or what the plan states of a token, whichever is
    more.
    """
    step, operations = step_time(plan), least_flops_per_step(plan)
    return operations / step.high / plan.parallelism.num_accelerators if step and operations else None


def least_flops_per_step(plan: TrainingPlan) -> float | None:
    """Operations of all ranks in an optimizer step, at least; None where they are not known."""
    model, performance, tokens, found = plan.model, plan.performance, tokens_per_step(plan), []
    if performance and performance.flops_per_sample and model.family not in BY_PARAMETERS:
        return performance.flops_per_sample * plan.batch.global_sequences
    if performance and performance.flops_per_token and tokens:
        share = _executed_share(model, performance.flops_convention)
        found.append(performance.flops_per_token * tokens * share)
    bounds = flops_bounds(model, None) if model.family in BY_PARAMETERS else None
    if bounds and tokens:
        found.append(max(bounds[0], _products_per_token(model)) * tokens)
    trained = _FORWARD_ONLY if num_trained(plan) < model.num_parameters else 1
    return max(found) * trained if found else None


def most_flops_per_second(plan: TrainingPlan) -> float | None:
    """Operations per second that a rank does at most at the stated speed, attention counted in full."""
    step, least = step_time(plan), least_flops_per_step(plan)
    if step is None or least is None:
        return None
    most = (most_flops_per_token(plan) or 0.0) * (tokens_per_step(plan) or 0.0)
    return max(least, most) / step.high / plan.parallelism.num_accelerators


def most_flops_per_token(plan: TrainingPlan) -> float | None:
    """Operations of a token by the convention that counts most, recomputation left out; None without a full shape."""
    model = plan.model
    stated = plan.performance.flops_per_token if plan.performance else None
    if shape_of(model) is None or model.sequence_length is None or model.attention in {"linear", "none"}:
        return stated
    bounds = flops_bounds(model, None)
    found = [value for value in (stated, bounds and bounds[1]) if value]
    return max(found) if found else None


def _products_per_token(model: Model) -> float:
    """Operations of a token with the parameters of a model that is no transformer; 0 where tables are not known."""
    visited = visited_parameters(model)
    if model.family in TRANSFORMERS or visited is None or not (model.vocabulary_size and model.hidden_size):
        return 0.0
    return 6 * (visited - (0 if model.tied_embeddings else model.vocabulary_size * model.hidden_size))


def stated_flops_per_second(plan: TrainingPlan) -> tuple[str, float] | None:
    """The key of a stated rate of operations, and how many of these a rank does at least; None where none is stated.

    A convention may count the masked half of attention, or tables, which no product visits.
    """
    performance = plan.performance
    rates = performance and list(_rates(performance, plan.parallelism.num_accelerators))
    found = next((rate for rate in rates or () if not rate[0].endswith("_utilisation")), None)
    if performance is None or found is None:
        return None
    key, rate, _ = found
    share = _executed_share(plan.model, performance.flops_convention)
    share *= _FORWARD_ONLY if num_trained(plan) < plan.model.num_parameters else 1
    return key, rate / plan.parallelism.num_accelerators * share


def _executed_share(model: Model, convention: str | None) -> float:
    """Least operations of a token over those that a convention counts: half, where no shape is known."""
    if model.family == "cnn":
        return 1.0
    shape, counted, least = shape_of(model), flops_bounds(model, convention), flops_bounds(model, None)
    if shape is None or counted is None or least is None or model.attention not in _PLAIN_ATTENTION:
        return 0.5
    masked = transformer.attention_flops_per_token(shape, model.sequence_length or 0, causal=True)
    if convention == HARDWARE_CONVENTION:
        return 1 - _RECOMPUTED * masked / counted[1]
    return min(1.0, (least[0] + masked) / counted[1])


def peak_of_rank(plan: TrainingPlan, cluster: ClusterProfile) -> float | None:
    """The most operations per second of the job's mean rank, by dense peaks in the number format of its products.

    A job that spans node groups has the ranks of the fastest ones, as far as they have room. Where layers are
    split evenly, the ranks in the slowest group hold up the others. None where a peak is not known.
    """
    formats = {*compute_formats(plan.precision), plan.precision.compute}
    formats |= {more for name in formats for more in _ALSO_ON.get(name, ())}
    wanted, offers = plan.parallelism.num_accelerators, []
    for group in _used(plan, cluster):
        known = accelerators().get(group.accelerator.model)
        rates = dict(known.peak_flops_per_second) if known else {}
        rates |= {rate.format: rate.flops_per_second for rate in group.accelerator.peak_rates}
        found = [rates[name] for name in formats if name in rates]
        if not found:
            return None
        offers.append((max(found) / group.accelerator.num_ranks_per_accelerator, num_ranks((group,))))
    if not offers:
        return None
    mean, share = most_together(offers, wanted) / wanted, _least_share(plan)
    return min(mean, _slowest(offers, wanted) / share) if share else mean


def _slowest(offers: list[tuple[float, int]], num_ranks: int) -> float:
    """The peak in the slowest group that the ranks need where the fastest are filled first."""
    left = num_ranks
    for peak, room in sorted(offers, reverse=True):
        left -= room
        if left <= 0:
            return peak
    return min(offers)[0]


def _least_share(plan: TrainingPlan) -> float | None:
    """The work of the rank with the least of it over the mean; None where layers are not split evenly.

    Replicas have equal samples, so only stages differ: one computes the output layer too.
    """
    parallelism, shape = plan.parallelism, shape_of(plan.model)
    if plan.model.experts:  # tokens choose their experts, and with them their ranks
        return None
    if parallelism.pipeline == 1:
        return 1.0
    stages = parallelism.pipeline * parallelism.num_virtual_stages
    if parallelism.stage_layers or shape is None or shape.num_layers % stages:
        return None
    counted = plan.model.num_parameters - (0 if plan.model.tied_embeddings else shape.embedding_parameters)
    return max(0.0, 1 - shape.embedding_parameters / counted) or None


def _used(plan: TrainingPlan, cluster: ClusterProfile) -> tuple[NodeGroup, ...]:
    """The node groups with room for the whole job; all where none has it, or those of the name that the plan gives."""
    if is_open(plan, cluster) and not (found := candidates(plan, cluster)).together:
        return tuple(nodes.group for nodes in found.groups)
    return node_groups(plan, cluster)


def flops_bounds(model: Model, convention: str | None) -> tuple[float, float] | None:
    """Least and most operations per token in a convention, or in any of them; equal where it gives one number."""
    shape = shape_of(model)
    if shape is None or model.sequence_length is None or model.attention in {"linear", "none"}:
        return _loose_bounds(model)
    counted = transformer.parameters(shape)
    num_parameters = counted.active if model.experts else model.num_parameters
    full = transformer.attention_flops_per_token(shape, model.sequence_length, causal=False)
    table = 0 if model.tied_embeddings else shape.embedding_parameters
    if num_parameters <= table:
        return None
    formulas: dict[str, Callable[[], float]] = {
        "6n": lambda: transformer.model_flops_per_token(num_parameters, 0),
        "6n-full-attention": lambda: transformer.model_flops_per_token(num_parameters, full),
        "palm": lambda: transformer.model_flops_per_token(num_parameters, full),
        "6n-causal-attention": lambda: transformer.model_flops_per_token(num_parameters, full / 2, table),
        "megatron-2022-model": lambda: transformer.megatron_2022_flops_per_token(shape, model.sequence_length or 0),
        HARDWARE_CONVENTION: lambda: transformer.megatron_2021_flops_per_token(shape, model.sequence_length or 0),
    }
    # Each layer for multi-token prediction is counted by some, with the output layer that it shares.
    mtp = 6 * (model.num_mtp_layers * (counted.active / shape.num_layers + table + 2 * shape.hidden_size**2))
    least = 6 * (num_parameters - table - (counted.attention if model.attention == "latent" else 0))
    if convention is None:
        return least, max(formula() for name, formula in formulas.items() if name != HARDWARE_CONVENTION) + mtp
    if convention not in formulas:
        return _framework_bounds(model, shape, num_parameters, full)
    exact = formulas[convention]()
    if model.num_mtp_layers:
        return 6 * (num_parameters - table - counted.attention), exact + mtp
    if model.attention in {"latent", "sliding-window"} and convention != "6n":
        return 6 * (num_parameters - table - counted.attention), exact
    return exact, exact


def _framework_bounds(model: Model, shape: Shape, num_parameters: float, full: float) -> tuple[float, float]:
    """Least and most operations per token as frameworks count them.

    Of plain transformers the least is without tables, or by matrices of 12 times the squared width for each layer, as
    Megatron counted until 2024; the most recomputes everything.
    """
    most = transformer.model_flops_per_token(num_parameters, full)
    tables = shape.embedding_parameters * (1 if model.tied_embeddings else 2)
    if model.experts or model.num_mtp_layers or model.attention not in _PLAIN_ATTENTION:
        return 3 * (num_parameters - (0 if model.tied_embeddings else shape.embedding_parameters)), 2 * most
    old = 72 * shape.num_layers * shape.hidden_size**2
    return min(6 * max(0.0, num_parameters - tables), old), _RECOMPUTED * max(most, old + full) + 6 * tables


def visited_parameters(model: Model) -> float | None:
    """Parameters that one token uses, tables included; None for a mixture of experts that does not state them."""
    mixture = model.experts or model.family == "moe-transformer"
    return model.num_active_parameters or (None if mixture else model.num_parameters)


def _loose_bounds(model: Model) -> tuple[float, float] | None:
    """Half to four times `6N` where no shape is known; nothing for networks that reuse their weights."""
    num_parameters = visited_parameters(model)
    if model.family in {"cnn", "vision-transformer"} or num_parameters is None:
        return None
    return 3 * num_parameters, 24 * num_parameters
