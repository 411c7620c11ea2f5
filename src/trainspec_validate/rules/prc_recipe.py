"""Judges low-precision recipes and the state that scaling leaves in checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.documents.types import CheckpointPolicy, TrainingPlan
from trainspec_validate.documents.types.checkpoint import StateItem
from trainspec_validate.documents.types.precision import LowPrecisionRecipe
from trainspec_validate.rules import NotApplicable, Place, Violation, at, at_key, require, rule

BLOCK_SIZES = {"fp8-block": 128, "mxfp8": 32, "mxfp4": 32, "nvfp4": 16}
FOUR_BITS = ("nvfp4", "mxfp4")
RECIPE = ("precision", "recipe")
_BLOCKED = dict.fromkeys(("fp8-e4m3", "fp8-hybrid"), "write format: fp8-block, or set scaling to delayed or current")
"""What to write for a format of one scale per tensor with block scaling, which DeepSeek-V3 has for E4M3."""


def _recipe(plan: TrainingPlan) -> LowPrecisionRecipe:
    return require(plan.precision.recipe, "the plan has no low-precision recipe")


@rule("TS-PRC-012")
def recipe_complete(plan: TrainingPlan) -> Iterator[Violation]:
    """A recipe says everything that its results depend on; only delayed scaling has a history that can be lost."""
    recipe = _recipe(plan)
    wanted = ["scaling"]
    wanted += ["block_size"] if recipe.scaling == "block" or recipe.format in BLOCK_SIZES else []
    wanted += ["amax_history_steps", "amax_scope", "scaling_state_checkpointed"] if recipe.scaling == "delayed" else []
    lacking = [key for key in wanted if getattr(recipe, key) is None]
    lacking += [] if recipe.high_precision_layers else ["high_precision_layers"]
    if lacking:
        yield Violation(
            at_key(plan, *RECIPE),
            f"the {recipe.format} recipe lacks {', '.join(lacking)}",
            f"add {', '.join(lacking)}",
        )


@rule("TS-PRC-013")
def recipe_layout(plan: TrainingPlan) -> Iterator[Violation]:
    """Scaling and block size are those of the format."""
    recipe = _recipe(plan)
    size = BLOCK_SIZES.get(recipe.format)
    if recipe.format == "fp8-e5m2":
        yield Violation(
            at(plan, *RECIPE, "format"),
            "fp8-e5m2 alone leaves two bits for the fraction of activations and weights",
            "use fp8-hybrid, which keeps E5M2 for gradients",
        )
    if recipe.scaling is not None and (recipe.scaling == "block") != (size is not None):
        right = "set scaling to block" if size else "set scaling to delayed or current"
        if recipe.scaling == "block":
            right = _BLOCKED.get(recipe.format, right)
        yield Violation(
            at(plan, *RECIPE, "scaling"),
            f"{recipe.format} with {recipe.scaling} scaling is not a format that exists",
            right,
        )
    if recipe.block_size is not None and recipe.block_size != size:
        owes = f"{recipe.format} " + (f"shares a scale over {size} elements" if size else "has no blocks")
        yield Violation(
            at(plan, *RECIPE, "block_size"),
            f"block_size is {recipe.block_size}, but {owes}",
            f"set block_size to {size}" if size else "leave block_size out",
        )
    if recipe.scaling == "delayed" and recipe.scaling_state_checkpointed is False:
        scope = "each rank's own" if recipe.amax_scope == "rank" else "the"
        yield Violation(
            at(plan, *RECIPE, "scaling_state_checkpointed"),
            f"a resumed run loses {scope} history of largest magnitudes",
            "save the scaling state and set scaling_state_checkpointed to true",
        )


@rule("TS-PRC-014")
def gradient_rounding(plan: TrainingPlan) -> Iterator[Violation]:
    """Gradients in four bits are rounded stochastically."""
    recipe = _recipe(plan)
    if recipe.format not in FOUR_BITS:
        raise NotApplicable(f"{recipe.format} has more than four bits")
    if recipe.gradient_rounding != "stochastic":
        place = at(plan, *RECIPE, "gradient_rounding") if recipe.gradient_rounding else at_key(plan, *RECIPE)
        yield Violation(
            place,
            f"{recipe.format} gradients are rounded to nearest, which biases small ones to zero",
            "set gradient_rounding to stochastic",
        )


@rule("TS-PRC-015")
def scaler_saved(plan: TrainingPlan, checkpoint: CheckpointPolicy) -> Iterator[Violation]:
    """The policy saves the scaling state that the plan has."""
    recipe, scaling = plan.precision.recipe, plan.precision.loss_scaling
    wanted: dict[StateItem, tuple[Place, str]] = {}
    if scaling and scaling.mode == "dynamic":
        place = at(plan, "precision", "loss_scaling", "mode")
        wanted["gradient-scaler"] = (place, "the loss scale is dynamic")
    if recipe and recipe.scaling_state_checkpointed:
        place = at(plan, *RECIPE, "scaling_state_checkpointed")
        wanted["low-precision-scales"] = (place, "the plan says that they are saved")
    if not wanted:
        raise NotApplicable("the plan has no scaling state")
    kept = {*checkpoint.state.items, *(omitted.item for omitted in checkpoint.state.omitted)}
    for item, related in wanted.items():
        if item not in kept:
            yield Violation(
                at(checkpoint, "state", "items"),
                f"the checkpoint lacks {item}, but {related[1]}",
                f"add {item} to items, or to omitted with the reason",
                related=(related,),
            )
