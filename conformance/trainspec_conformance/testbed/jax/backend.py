"""Lets the JAX backend train with matrices of 8 and 4 bits, which the reference trainer does not offer."""

from __future__ import annotations

from dataclasses import dataclass, fields

import jax
from trainspec_reference.common.job import Job
from trainspec_reference.jax.arithmetic import Formats
from trainspec_reference.jax.backend import JaxBackend

from trainspec_conformance.testbed.jax.narrow import read
from trainspec_conformance.testbed.recipes import refuse_recipe, without_recipe
from trainspec_validate.documents.types.precision import LowPrecisionRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class NarrowFormats(Formats):
    """Formats with a recipe, by which the matrices of layers are narrowed before a product reads them."""

    recipe: LowPrecisionRecipe

    def projected(self, left: jax.Array, matrix: jax.Array) -> jax.Array:
        """As `Formats.projected`."""
        return self.product(left, read(matrix, self.recipe))


class NarrowBackend(JaxBackend):
    """The backend of a job without its recipe, whose state-space layers read their matrices by the recipe."""

    def __init__(self, job: Job) -> None:
        refuse_recipe(job)
        super().__init__(without_recipe(job))
        recipe, formats = job.plan.precision.recipe, self._formats
        if recipe is not None:
            known = {field.name: getattr(formats, field.name) for field in fields(formats)}
            self._formats = NarrowFormats(**known, recipe=recipe)


def make(job: Job) -> NarrowBackend:
    """The backend of a job."""
    return NarrowBackend(job)
