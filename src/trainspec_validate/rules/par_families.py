"""Rules on models that are not language transformers: the keys of their family, and operations of a sample."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import TrainingPlan, is_given
from trainspec_validate.model.units import flops, number
from trainspec_validate.performance.costs.model_families import vision_flops_per_sample
from trainspec_validate.performance.derived.families import FAMILIES, vision_shape
from trainspec_validate.rules import NotApplicable, Uncovered, Unresolved, Violation, at, require, rule
from trainspec_validate.rules._uncounted import COMPLETE

KEY_WORDS = {
    "state_space": "state_space.num_layers",
    "num_attention_layers": "num_attention_layers",
    "num_ffn_layers": "num_ffn_layers",
}
SAMPLE_TOLERANCE = 0.02


@rule("TS-PAR-036")
def family_keys(plan: TrainingPlan) -> Iterator[Violation]:
    """Keys of one family are not given for another, and layers of a hybrid are layers of the model."""
    model = plan.model
    given = [key for key in FAMILIES if is_given(getattr(model, key))]
    if not given:
        raise NotApplicable(f"the plan gives no keys beyond those of {model.family}")
    for key in given:
        if model.family not in FAMILIES[key]:
            yield Violation(
                at(plan, "model", key),
                f"{key} is given, but the family is {model.family}",
                f"remove it, or set family: {FAMILIES[key][0]}",
            )
    image = model.image
    if image and image.patch_size_pixels and image.size_pixels % image.patch_size_pixels:
        yield Violation(
            at(plan, "model", "image", "patch_size_pixels"),
            f"{number(image.size_pixels)} pixels do not divide into patches of {number(image.patch_size_pixels)}",
            "use a patch size that divides the image",
        )
    yield from _heads(plan)
    parts = {
        "state_space": model.state_space.num_layers if model.state_space else None,
        "num_attention_layers": model.num_attention_layers,
        "num_ffn_layers": model.num_ffn_layers,
    }
    for key, count in parts.items():
        if count is not None and model.num_layers is not None and count > model.num_layers:
            yield Violation(
                at(plan, "model", key),
                f"{KEY_WORDS[key]} is {number(count)}, but the model has {number(model.num_layers)} layers",
                f"at most {number(model.num_layers)}",
            )
    yield from _empty_layers(plan)


def _empty_layers(plan: TrainingPlan) -> Iterator[Violation]:
    """Layers of a hybrid that would be of no kind; a layer of several kinds counts for each of them."""
    model, space = plan.model, plan.model.state_space
    if model.family != "hybrid" or model.num_layers is None or space is None or space.num_layers is None:
        return
    experts = model.experts.num_layers if model.experts else 0
    if model.num_attention_layers is None or model.num_ffn_layers is None or experts is None:
        return
    counts = {
        "state_space.num_layers": space.num_layers,
        "num_attention_layers": model.num_attention_layers,
        "num_ffn_layers": model.num_ffn_layers,
    }
    if experts:
        counts["experts.num_layers"] = experts
    total = sum(counts.values())
    if total < model.num_layers:
        words = " + ".join(f"{key} {number(count)}" for key, count in counts.items())
        yield Violation(
            at(plan, "model", "num_layers"),
            f"num_layers is {number(model.num_layers)}, but {words} is {number(total)}, so some layers are of no kind",
            f"correct one of the counts, or set num_layers to {number(total)} or fewer",
        )


def _heads(plan: TrainingPlan) -> Iterator[Violation]:
    """Heads of Mamba-2 and of a gated delta net divide the inner channels, and groups the heads."""
    space, hidden = plan.model.state_space, plan.model.hidden_size
    if space is None or space.kind not in {"mamba-2", "gated-delta-net"}:
        return
    inner, heads = space.inner_size or (2 * hidden if hidden else None), space.num_heads
    if inner and heads and inner % heads:
        yield Violation(
            at(plan, "model", "state_space", "num_heads"),
            f"{number(inner)} inner channels do not divide into {number(heads)} heads",
            "use a number of heads that divides inner_size, which is twice the hidden size unless it is given",
        )
    if heads and heads % space.num_groups:
        yield Violation(
            at(plan, "model", "state_space", "num_groups"),
            f"{number(heads)} heads do not divide into {number(space.num_groups)} groups",
            "use a number of groups that divides the heads",
        )


@rule("TS-PAR-037")
def sample_flops(plan: TrainingPlan) -> Iterator[Violation]:
    """Operations of one sample are those of the shape."""
    performance, shape = plan.performance, vision_shape(plan.model)
    given = require(performance.flops_per_sample if performance else None, "the plan states no operations of a sample")
    if shape is None or plan.num_parameters_trained or plan.lora:
        what = "gives a shape" if shape is None else "trains a part of a model"
        reason = f"{what} of which the operations of a sample are not counted"
        place = at(plan, "performance", "flops_per_sample")
        if shape is None and plan.model.family == "vision-transformer":
            raise Unresolved(place, reason, COMPLETE)
        raise Uncovered(place, reason)
    counted = vision_flops_per_sample(shape)
    if abs(given - counted) > SAMPLE_TOLERANCE * counted:
        yield Violation(
            at(plan, "performance", "flops_per_sample"),
            f"flops_per_sample is {flops(given)}, but the shape has {flops(counted)}",
            "count two operations for each multiply-add, forward once and backward twice",
        )
