"""The only place that binds the trainer to the recorder: who records, and what a run declares of itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import trainspec_record
from trainspec_reference.common.backend import Formation
from trainspec_reference.common.job import Job
from trainspec_reference.common.ranks import RankGrid
from trainspec_reference.common.state import TrainerState
from trainspec_validate.costs.layout import Layout
from trainspec_validate.costs.step_time import Convention, model_flops_per_step
from trainspec_validate.derived.plan import shape_of
from trainspec_validate.documents.model import Model

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

Recorder: TypeAlias = "Run | SilentRun"


def begin(job: Job, formation: Formation, documents: Sequence[Path] = ()) -> Recorder:
    """Record this formation as an attempt, where `TRAINSPEC_RUN` is set.

    The recorder of the formation before must have ended. Rank and attempt are told by the environment, as any launcher
    does it.
    """
    host = formation.hosts[formation.rank]
    os.environ.update(
        RANK=str(formation.rank),
        WORLD_SIZE=str(formation.num_ranks),
        LOCAL_RANK=str(formation.hosts[: formation.rank].count(host)),
        TRAINSPEC_ATTEMPT=str(formation.number),
        TRAINSPEC_HOST=host,
    )
    performance, telemetry = job.plan.performance, job.plan.telemetry
    convention = (performance.flops_convention if performance else None) or "6n"
    return trainspec_record.run(
        documents=documents,
        loss_reduction=job.plan.batch.loss_reduction,
        declared=_declared(job, formation),
        flops_per_token=flops_per_token(job.plan.model, convention, job.model.sequence_length),
        peak_flops=performance.peak_flops_per_second if performance else None,
        flops_precision=(performance.peak_format if performance else None) or job.plan.precision.compute,
        flops_convention=convention,
        report_interval_steps=telemetry.step_interval if telemetry else 1,
    )


def flops_per_token(model: Model, convention: str, sequence_length: int) -> float | None:
    """Operations of one token, forward and backward, by a convention; None for what is no transformer.

    Raises:
        ValueError: the convention is not known.
    """
    shape = shape_of(model)
    if shape is None:
        return None
    layout = Layout(sequence_length=sequence_length)
    return model_flops_per_step(shape, layout, cast("Convention", convention)) / sequence_length


def _declared(job: Job, formation: Formation) -> dict[str, Any]:
    place = RankGrid(job.plan.parallelism, formation.num_ranks).place(formation.rank)
    told: dict[str, Any] = {f"train.parallel.{axis}.rank": number for axis, number in place.items()}
    settings = job.plan.batch.noise_scale
    if settings is not None:
        declared = {
            "noise_unit": settings.noise_unit,
            "num_groups": settings.num_groups,
            "estimator": settings.estimator,
            "ema_half_life_steps": settings.ema_half_life_steps,
            "bias_corrected": settings.bias_corrected,
            "tap": settings.tap,
            "parameter_scope": "all",
            "accumulation_format": settings.accumulation_format,
        }
        told.update({f"train.gradient.{name}": value for name, value in declared.items()})
    return told


class StepTimes:
    """Phases of one update of this rank, one after the other."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._open = ExitStack()

    def enter(self, phase: str) -> None:
        """The phase before has ended, and this one begins."""
        self._open.close()
        span: AbstractContextManager[Any] = self._recorder.phase(phase)
        self._open.enter_context(span)

    def end(self) -> None:
        """The last phase has ended."""
        self._open.close()


def log_noise(recorder: Recorder, state: TrainerState) -> None:
    """Averages of signal and noise, where there are any; the noise scale only while the signal is above 0."""
    averages = state.noise
    named = {
        "train.gradient.signal": averages.signal_sq,
        "train.gradient.variance": averages.noise_trace,
        "train.gradient.noise_scale": averages.noise_scale,
    }
    recorder.log({name: value for name, value in named.items() if value is not None})
