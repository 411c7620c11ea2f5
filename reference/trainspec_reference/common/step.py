"""Holds the outcome of one step, and writes it to the stream and to the trace."""

from __future__ import annotations

from dataclasses import dataclass

from trainspec_reference.common.backend import Gradients
from trainspec_reference.common.batch_schedule import StepBatch
from trainspec_reference.common.loader import Loaded
from trainspec_reference.common.ports import Surroundings
from trainspec_reference.common.trace import number
from trainspec_validate.documents.types.trace import StepDone


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank after its gradient is known."""

    batch: StepBatch
    loaded: Loaded
    gradients: Gradients
    learning_rate: float
    loss_scale: float | None
    """That the loss was multiplied with; None where the plan scales no loss."""
    skipped: str | None
    """Why the update is not applied."""

    def log(self, surroundings: Surroundings, clip_norm: float | None) -> None:
        """Tell the recorder, while its step is under way."""
        norm = self.gradients.norm
        surroundings.recorder.log(
            loss=self.gradients.loss,
            learning_rate=self.learning_rate,
            gradient_norm=norm,
            samples=self.batch.global_sequences,
            tokens=self.loaded.num_targets,
            clipped=None if clip_norm is None else int(norm > clip_norm),
            skipped=self.skipped,
        )

    def tell(self, surroundings: Surroundings, num_updates: int) -> None:
        """Tell the trace, with the updates that are completed now."""
        surroundings.trace.tell(
            StepDone,
            rank=surroundings.formation.rank,
            step=num_updates,
            loss=number(self.gradients.loss),
            learning_rate=self.learning_rate,
            sample_ids=self.loaded.sample_ids,
            gradient_norm=number(self.gradients.norm),
            loss_scale=self.loss_scale,
            skipped=self.skipped,
            global_sequences=self.batch.global_sequences,
        )
