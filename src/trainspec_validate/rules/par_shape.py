"""Rules on the shape of the model and how it divides over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from trainspec_validate.documents.types import TrainingPlan, changed, is_given
from trainspec_validate.documents.types.model import Model
from trainspec_validate.model.units import billions, number
from trainspec_validate.performance.costs.transformer import Shape, parameters
from trainspec_validate.performance.derived.families import (
    DENSE_LACKS,
    TRANSFORMERS,
    ShapeCount,
    active_hybrid_parameters,
    position_parameters,
    published_counts,
    shape_lacks,
    shared_parameters,
)
from trainspec_validate.performance.derived.plan import shape_of
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._uncounted import not_counted

UNCOUNTED = "gives a shape from which parameters are not counted"
PARAMETER_TOLERANCE = 0.003
"""For biases, norms of queries and keys, and the like, which the shape leaves out."""
MAX_ROUNDING = 0.5
"""A count with one digit can be rounded by half of itself, as 1 trillion is; by more it would say nothing."""
ROUNDED_TO_TENS = 0.02
"""Most of a count that may be rounded off before its last zeros: BERT-large has 340 million for 335.1."""
_MAX_SLIPS = 2
"""Corrections that a message proposes."""
_DENSE_LAYERS = (1, 3, 0, 2)
"""Layers without experts at the start of a mixture, likely ones first: 1 in Kimi K2 and GLM-4.5-Air, 3 in DeepSeek-V3
and GLM-4.5."""
_PATCHES = (14, 16, 32)
"""Patches of ViT; table 1 of arXiv:2010.11929 gives ViT-L 307 million, which is the count with patches of 32."""
EQUAL_SLICES = frozenset(
    {"megatron-lm", "megatron-core", "megatron-bridge", "megatron-deepspeed", "nemo", "gpt-neox", "nanotron"}
)
"""Frameworks whose embedding has as many rows on each tensor rank; XLA and DTensor shard any number of rows."""
ONE_TENSOR_RANK = "the plan has one tensor rank"
HEADS_FACTOR = 4
"""All heads together are 0.5 to 3 times as wide as the hidden size in published models."""
HEADS_FACTOR_OF_OTHERS = 16
"""T5-11B, an encoder with a decoder, has 128 heads of 128 and a width of 1,024: arXiv:1910.10683, section 3.7."""


@rule("TS-PAR-013")
def shape_keys(plan: TrainingPlan) -> Iterator[Violation]:
    """A transformer gives the keys of its shape, and only its own kind's."""
    model = plan.model
    if model.family not in TRANSFORMERS:
        raise NotApplicable(f"the model is of family {model.family}")
    lacking = shape_lacks(model)
    if lacking:
        message = f"the shape of a {model.family} lacks {', '.join(lacking)}"
        yield Violation(
            at(plan, "model", "family"), message, f"give {'them' if len(lacking) > 1 else 'it'}, or set family: other"
        )
    if model.family == "dense-transformer":
        for key in DENSE_LACKS:
            if is_given(getattr(model, key)):
                message = f"{key} is given, but the family is dense-transformer"
                yield Violation(at(plan, "model", key), message, "set family: moe-transformer, or leave it out")


@rule("TS-PAR-014")
def expert_shape(plan: TrainingPlan) -> Iterator[Violation]:
    """The active part of a mixture of experts is a part of it."""
    model, experts = plan.model, plan.model.experts
    if experts is None:
        raise NotApplicable("the model has no experts")
    if experts.num_active_experts > experts.num_experts:
        yield Violation(
            at(plan, "model", "experts", "num_active_experts"),
            f"a token visits {experts.num_active_experts} of {experts.num_experts} experts",
            f"at most {experts.num_experts}",
        )
    if experts.num_layers and model.num_layers and experts.num_layers > model.num_layers:
        yield Violation(
            at(plan, "model", "experts", "num_layers"),
            f"{experts.num_layers} layers have experts, but the model has {model.num_layers} layers",
            f"at most {model.num_layers}",
        )
    if model.num_active_parameters and model.num_active_parameters > model.num_parameters:
        yield Violation(
            at(plan, "model", "num_active_parameters"),
            f"{billions(model.num_active_parameters)} active parameters of {billions(model.num_parameters)}",
            "the active parameters are a part of all",
        )


@rule("TS-PAR-015")
def attention_heads(plan: TrainingPlan) -> Iterator[Violation]:
    """Heads divide the hidden size and the key and value heads, as the attention variant says."""
    model = plan.model
    heads, groups = model.num_attention_heads, model.num_key_value_heads
    if heads is None:
        raise NotApplicable("the model gives no attention heads")
    if model.head_size is None and model.hidden_size and model.hidden_size % heads:
        yield Violation(
            at(plan, "model", "num_attention_heads"),
            f"a hidden size of {model.hidden_size} does not divide over {heads} heads",
            "give head_size where it is not hidden_size divided by the heads",
        )
    if groups and heads % groups:
        yield Violation(
            at(plan, "model", "num_key_value_heads"),
            f"{heads} query heads do not divide over {groups} key and value heads",
            f"choose a divisor of {heads}",
        )
    wanted = {
        "full": (groups in {None, heads}, f"{heads}, as many as query heads"),
        "multi-query": (groups == 1, "1"),
        "latent": (groups in {None, heads}, f"left out, or {heads}: each head has keys and values of its own"),
        "grouped-query": (
            groups is not None and 1 < groups < heads,
            f"more than 1 and less than {heads}, a divisor of it",
        ),
    }
    fits, value = wanted.get(model.attention or "", (True, ""))
    if not fits and groups is None:
        reason = f"has {model.attention} attention and does not give num_key_value_heads"
        raise Unresolved(at(plan, "model", "attention"), reason, f"num_key_value_heads is {value}")
    if not fits:
        yield Violation(
            at(plan, "model", "attention"),
            f"attention is {model.attention}, but num_key_value_heads is {groups} of {heads} query heads",
            f"num_key_value_heads is then {value}",
        )


@rule("TS-PAR-040")
def head_width(plan: TrainingPlan) -> Iterator[Violation]:
    """All heads together are about as wide as the hidden size."""
    model = plan.model
    if not (model.num_attention_heads and model.head_size and model.hidden_size):
        raise NotApplicable("the model gives no size of a head, or nothing to compare it with")
    width = model.num_attention_heads * model.head_size
    most = HEADS_FACTOR_OF_OTHERS if model.family == "other" else HEADS_FACTOR
    if not model.hidden_size / HEADS_FACTOR <= width <= model.hidden_size * most:
        yield Violation(
            at(plan, "model", "head_size"),
            f"{number(model.num_attention_heads)} heads of {number(model.head_size)} are "
            f"{number(width / model.hidden_size)} times as wide as the hidden size of {number(model.hidden_size)}",
            f"a quarter to {most} times is plausible; correct the heads, or their size",
        )


@rule("TS-PAR-016")
def tensor_split(plan: TrainingPlan) -> Iterator[Violation]:
    """Widths that tensor ranks split divide over them."""
    p, model = plan.parallelism, plan.model
    inner = p.tensor if p.expert_tensor is None else p.expert_tensor
    if p.tensor == 1 and inner == 1:
        raise NotApplicable(ONE_TENSOR_RANK)
    parts: list[tuple[tuple[str, ...], int | None, int, str]] = [
        (("num_attention_heads",), model.num_attention_heads, p.tensor, "attention heads"),
        (("ffn_hidden_size",), model.ffn_hidden_size, p.tensor, "feed-forward columns"),
    ]
    if plan.framework is not None and plan.framework.name.casefold() in EQUAL_SLICES:
        parts.append((("vocabulary_size",), model.vocabulary_size, p.tensor, "rows of the vocabulary"))
    if model.state_space:
        parts.append((("state_space", "num_heads"), model.state_space.num_heads, p.tensor, "state-space heads"))
    if model.experts:
        parts.append((("experts", "ffn_hidden_size"), model.experts.ffn_hidden_size, inner, "expert columns"))
    uneven = [part for part in parts if part[1] and part[1] % part[2]]
    if len(uneven) > 1 and inner == p.tensor:
        yield _tensor_degree(plan, [(path, value, words) for path, value, _, words in uneven if value])
        return
    for path, value, degree, words in uneven:
        if value:
            yield Violation(
                at(plan, "model", *path),
                f"{number(value)} {words} do not divide over {degree} tensor ranks",
                f"use a multiple of {degree}, for example {-(-value // degree) * degree}",
                related=((at(plan, "parallelism", "tensor"), f"tensor {degree}"),),
            )


@rule("TS-PAR-051")
def key_value_split(plan: TrainingPlan) -> Iterator[Violation]:
    """Key and value heads are split or copied equally over tensor ranks."""
    p = plan.parallelism
    if p.tensor == 1:
        raise NotApplicable(ONE_TENSOR_RANK)
    groups = require(plan.model.num_key_value_heads, "the model states no key and value heads")
    if groups % p.tensor and p.tensor % groups:
        yield Violation(
            at(plan, "model", "num_key_value_heads"),
            f"{groups} key and value heads neither divide over {p.tensor} tensor ranks nor are copied evenly",
            "let one of the two be a multiple of the other",
        )


def _tensor_degree(plan: TrainingPlan, uneven: list[tuple[tuple[str, ...], int, str]]) -> Violation:
    """One finding on a degree that divides nothing: the degree is the mistake, not the shape."""
    degree = plan.parallelism.tensor
    sizes = [value for _, value, _ in uneven]
    fitting = max(divisor for divisor in range(1, degree + 1) if all(size % divisor == 0 for size in sizes))
    return Violation(
        at(plan, "parallelism", "tensor"),
        f"{' and '.join(f'{number(value)} {words}' for _, value, words in uneven)} do not divide over "
        f"{degree} tensor ranks",
        f"use tensor {fitting}, or another divisor of them",
        related=tuple((at(plan, "model", *path), f"{number(value)} {words}") for path, value, words in uneven),
    )


@rule("TS-PAR-017")
def context_split(plan: TrainingPlan) -> Iterator[Violation]:
    """Sequences divide over the ranks that split them."""
    p = plan.parallelism
    degree = p.context * (p.tensor if p.sequence else 1)
    if degree == 1:
        raise NotApplicable("no ranks split the sequence")
    words = f"context {p.context}" + (f" x tensor {p.tensor}" if p.sequence else "")
    lengths = [(("model", "sequence_length"), plan.model.sequence_length)]
    stages: list[tuple[tuple[str | int, ...], int | None]] = [
        (("batch", "ramp", position, "sequence_length"), stage.sequence_length)
        for position, stage in enumerate(plan.batch.ramp)
    ]
    for path, length in [*lengths, *stages]:
        if length and length % degree:
            yield Violation(
                at(plan, *path),
                f"{length} tokens do not divide over {degree} ranks ({words})",
                f"use a multiple of {degree}, for example {-(-length // degree) * degree}",
            )


@rule("TS-PAR-018")
def causal_balance(plan: TrainingPlan) -> Iterator[Violation]:
    """With causal attention each context rank takes two pieces of the sequence, one from each end."""
    p, length = plan.parallelism, plan.model.sequence_length
    if p.context == 1 or plan.model.family not in TRANSFORMERS or plan.model.attention == "none" or not length:
        raise NotApplicable("no attention is divided over context ranks")
    if plan.model.bidirectional_attention:
        raise NotApplicable("every token attends to all others, which gives equal ranks equal work")
    if length % p.context == 0 and length % (2 * p.context):
        yield Violation(
            at(plan, "model", "sequence_length"),
            f"{length} tokens do not divide into {2 * p.context} pieces, two for each of {p.context} context ranks",
            f"use a multiple of {2 * p.context}",
        )


@rule("TS-PAR-048")
def context_method(plan: TrainingPlan) -> Iterator[Violation]:
    """A plan with several context ranks says how attention sees the whole sequence."""
    p = plan.parallelism
    if p.context == 1 or plan.model.family not in TRANSFORMERS or plan.model.attention == "none":
        raise NotApplicable("no attention is divided over context ranks")
    if p.context_method is None:
        yield Violation(
            at(plan, "parallelism", "context"),
            f"{p.context} context ranks divide each sequence, and the plan does not say how attention sees all of it",
            "add context_method: ring, all-gather, head-parallel or head-parallel-ring",
        )


@rule("TS-PAR-049")
def context_heads(plan: TrainingPlan) -> Iterator[Violation]:
    """With head-parallel attention every context rank has equally many heads."""
    p, heads = plan.parallelism, plan.model.num_attention_heads
    if p.context == 1 or p.context_method != "head-parallel" or heads is None:
        raise NotApplicable("no heads are divided over context ranks")
    split = p.tensor * p.context
    if heads % split:
        yield Violation(
            at(plan, "parallelism", "context_method"),
            f"{heads} attention heads do not divide over tensor {p.tensor} x context {p.context} = {split} ranks",
            f"choose degrees whose product divides {heads}, or another method",
        )


@rule("TS-PAR-019")
def parameter_count(plan: TrainingPlan) -> Iterator[Violation]:
    """The declared parameters are those that the shape has, by one of the conventions of publications."""
    model, counts, given = plan.model, published_counts(plan.model), plan.model.num_parameters
    if not counts:
        raise not_counted(plan, at(plan, "model"), UNCOUNTED)
    shared, place = shared_parameters(model), at(plan, "model", "num_parameters")
    if _fits(given, counts) and not (shared and model.shared_layers):
        return
    if shared and not _outside(given, shared, counts[0].high):
        reason = "has attention and feed-forward layers that may share weights, which are not counted"
        if model.shared_layers:
            raise Uncovered(place, reason)
        raise Unresolved(place, reason, "set shared_layers: false where each layer has weights of its own")
    least = f", or {billions(shared)} or more where layers share weights" if shared else ""
    yield Violation(
        place,
        f"num_parameters is {billions(given)}, but the shape has {_listed(model, counts)}{least}",
        _other_flag(model) or "correct the count, or the layers, widths, heads, gate, experts or vocabulary",
    )


def _fits(given: float, counts: list[ShapeCount]) -> bool:
    return any(not _outside(given, count.low, count.high) for count in counts)


def _listed(model: Model, counts: list[ShapeCount]) -> str:
    """The parameters of a shape by each convention, in words."""
    words = [_counted(model, count) for count in counts]
    return " or ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


def _counted(model: Model, count: ShapeCount) -> str:
    """A range for latent attention, whose ranks are no keys of a plan, and for encoders, which can have a pooler."""
    least = f"{billions(count.low)} to " if model.attention == "latent" and count.low < count.likely else ""
    most = f" to {billions(count.high)}" if model.bidirectional_attention else ""
    return f"{least}{billions(count.likely)}{most} {count.convention}".rstrip()


def _other_flag(model: Model) -> str:
    """A likely slip of the shape, with whose other value the shape has the parameters that are declared."""
    found = [
        f"{key}: {value}, with which the shape has {_counted(other, fitting[0])}"
        for key, value, other in _other_shapes(model)
        if (fitting := [count for count in published_counts(other) if _fits(model.num_parameters, [count])])
    ]
    return f"write {' or '.join(found[:_MAX_SLIPS])}; or correct the count" if found else ""


def _other_shapes(model: Model) -> Iterator[tuple[str, str, Model]]:
    """Key and value of each single slip that is made often, with the model in which it is corrected."""
    for key in ("gated_ffn", "tied_embeddings") if model.family in TRANSFORMERS else ():
        other = not getattr(model, key)
        yield key, str(other).lower(), changed(model, **{key: other})
    if model.family in TRANSFORMERS and model.positions is None:
        yield "positions", "relative", changed(model, positions="relative")
    if model.family == "dense-transformer" and not model.bidirectional_attention:
        yield "bidirectional_attention", "true", changed(model, bidirectional_attention=True)
    image = model.image
    for patch in _PATCHES if image and image.patch_size_pixels else ():
        if image and not image.size_pixels % patch:
            yield "image.patch_size_pixels", str(patch), changed(model, image=changed(image, patch_size_pixels=patch))
    yield from _other_experts(model)


def _other_experts(model: Model) -> Iterator[tuple[str, str, Model]]:
    """Other numbers of shared experts and of layers with experts; a hybrid's feed-forward layers are dense ones."""
    experts, layers = model.experts, model.num_layers
    if experts is not None and model.num_ffn_layers and model.num_ffn_layers >= (experts.num_layers or 0) > 0:
        dense = model.num_ffn_layers - (experts.num_layers or 0)
        yield "num_ffn_layers", str(dense), changed(model, num_ffn_layers=dense)
    if experts is not None and layers is not None:
        for shared in (0, 1, 2):
            if shared != experts.num_shared_experts:
                fields = changed(experts, num_shared_experts=shared)
                yield "experts.num_shared_experts", str(shared), changed(model, experts=fields)
        for dense in _DENSE_LAYERS:
            if 0 < layers - dense != (experts.num_layers or layers) and (model.ffn_hidden_size or not dense):
                fields = changed(experts, num_layers=layers - dense)
                yield "experts.num_layers", str(layers - dense), changed(model, experts=fields)


@rule("TS-PAR-020")
def active_parameters(plan: TrainingPlan) -> Iterator[Violation]:
    """The declared active parameters are those that one token visits, embeddings counted or not."""
    model, shape = plan.model, shape_of(plan.model)
    if model.num_active_parameters is None or model.experts is None:
        raise NotApplicable("the plan gives no active parameters")
    found = _visited_in_hybrid(model) if shape is None else _visited(model, shape)
    if found is None or model.attention in {"linear", "none"}:
        raise not_counted(plan, at(plan, "model"), UNCOUNTED)
    low, high, visited = found
    if _outside(model.num_active_parameters, low, high):
        is_latent = model.attention == "latent"
        left = "with what num_parameters leaves for the latent attention " if is_latent else ""
        whole = "num_parameters, which has no layers for multi-token prediction, " if is_latent else ""
        yield Violation(
            at(plan, "model", "num_active_parameters"),
            f"num_active_parameters is {billions(model.num_active_parameters)}, but {left}a token visits {visited} in "
            "this shape, embeddings included",
            f"correct the count, {whole}or the experts that a token visits",
        )


def _visited_in_hybrid(model: Model) -> tuple[float, float, str] | None:
    """Least and most parameters of a hybrid that a token visits, its tables counted or not, and in words."""
    found = active_hybrid_parameters(model)
    return None if found is None else (*found, billions(found[1]))


def _visited(model: Model, shape: Shape) -> tuple[float, float, str]:
    """Least and most parameters that a token visits, tables of tokens and positions counted or not, and in words.

    Ranks of latent attention are no keys of a plan: it has what all others leave of the declared parameters, within
    their rounding, or anything up to plain projections where these leave nothing for it.
    """
    counted = parameters(shape)
    if model.attention != "latent":
        positions = position_parameters(model)
        if _outside(model.num_parameters, counted.total + positions, counted.total + positions):
            positions = 0
        return counted.active - counted.embeddings, counted.active + positions, billions(counted.active)
    left = model.num_parameters - counted.total + counted.attention
    least, most = counted.active - counted.attention, counted.active
    if 0 < left < counted.attention:
        slack = _rounding(model.num_parameters) + PARAMETER_TOLERANCE * model.num_parameters
        least, most = max(least, least + left - slack), min(most, least + left + slack)
    return least - counted.embeddings, most, f"{billions(least)} to {billions(most)}"


def _rounding(value: float) -> float:
    """One unit of the last digit that a count is written with, or half of one that zeros follow."""
    digits = Decimal(f"{value:.12g}").normalize()
    # Counts are written in thousands, millions, billions: the 0 of 70e9 is a digit like the 2 of 72e9.
    unit = 3 * (digits.adjusted() // 3)
    last = int(digits.as_tuple().exponent)
    to_tens = min(10.0**last / 2, ROUNDED_TO_TENS * value) if len(digits.as_tuple().digits) > 1 else 0.0
    return float(min(max(10.0 ** min(last, unit), to_tens), MAX_ROUNDING * value))


def _outside(value: float, low: float, high: float) -> bool:
    rounding = _rounding(value)
    least, most = low * (1 - PARAMETER_TOLERANCE), high * (1 + PARAMETER_TOLERANCE)
    return value + rounding < least or value - rounding > most
