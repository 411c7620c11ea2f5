"""Lets the PyTorch backend train with matrices of 8 and 4 bits, which the reference trainer does not offer."""

from __future__ import annotations

from trainspec_reference.common.backend import Weights
from trainspec_reference.common.job import Job
from trainspec_reference.torch.backend import TorchBackend
from trainspec_reference.torch.models.state_space import StateSpaceModel

from trainspec_conformance.testbed.recipes import refuse_recipe, without_recipe
from trainspec_conformance.testbed.torch.narrow import reader


class NarrowBackend(TorchBackend):
    """The backend of a job without its recipe, whose state-space layers read their matrices by the recipe."""

    def __init__(self, job: Job) -> None:
        refuse_recipe(job)
        self._recipe = job.plan.precision.recipe
        super().__init__(without_recipe(job))

    def build(self, weights: Weights) -> None:
        """As `Backend.build`."""
        super().build(weights)
        if isinstance(self._model, StateSpaceModel):
            for block in self._model.layers.values():
                block.read = reader(self._recipe)  # type: ignore[assignment]


def make(job: Job) -> NarrowBackend:
    """The backend of a job."""
    return NarrowBackend(job)
