"""Lists the formats below 16 bits that PyTorch and JAX round to here, and the models that train with them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainspec_reference.common.job import Job

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.precision import LowPrecisionRecipe


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a format, and how many values share a scale."""

    largest: float
    max_exponent: int
    """Of the largest number."""
    has_power_of_two: bool
    """Whether scales are powers of two, each of one block; else all values have one."""


_E4M3, _E5M2, _E2M1 = (448.0, 8), (57344.0, 15), (6.0, 2)
NUMBERS = {
    "fp8-e4m3": Numbers(*_E4M3, has_power_of_two=False),
    "fp8-e5m2": Numbers(*_E5M2, has_power_of_two=False),
    "mxfp8": Numbers(*_E4M3, has_power_of_two=True),
    "mxfp4": Numbers(*_E2M1, has_power_of_two=True),
}


def block_entries(recipe: LowPrecisionRecipe, num_values: int) -> int:
    """Values in a row that share a scale.

    Raises:
        ValueError: there is no such recipe here, or blocks do not divide the values.
    """
    numbers = NUMBERS.get(recipe.format)
    scaling = "block" if numbers is not None and numbers.has_power_of_two else "current"
    size = recipe.block_size if scaling == "block" else num_values
    if numbers is None or recipe.scaling != scaling or not size:
        raise ValueError(f"{recipe.format} with {recipe.scaling} scaling is not supported")
    if num_values % size:
        raise ValueError(f"{num_values} values are no whole blocks of {size}")
    return size


def refuse_recipe(job: Job) -> None:
    """Let pass jobs without a recipe, and those whose matrices a rank can narrow alone.

    Raises:
        ValueError: the recipe is not supported for this model and plan.
    """
    precision, plan = job.plan.precision, job.plan.parallelism
    if precision.recipe is None:
        return
    if job.model.family != "state-space" or precision.compute != "fp32" or plan.tensor > 1:
        asked = f"a {job.model.family} network in {precision.compute} on {plan.tensor} tensor ranks"
        raise ValueError(f"{precision.recipe.format} is for a state-space network in fp32 on one, not for {asked}")
    block_entries(precision.recipe, job.model.hidden_size**2)


def without_recipe(job: Job) -> Job:
    """The same job in the formats of its plan alone."""
    return replace(job, plan=changed(job.plan, precision=changed(job.plan.precision, recipe=None)))
