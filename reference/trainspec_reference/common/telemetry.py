"""Binds the trainer to the recorder: which process records, and what a run declares of itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import trainspec_record
from trainspec_record.identity import VISIBLE
from trainspec_record.noise.meter import NoiseMeter, NoiseSettings
from trainspec_reference.common.backend import Formation
from trainspec_reference.common.batch_schedule import shares
from trainspec_reference.common.job import Job
from trainspec_reference.common.ranks import RankGrid
from trainspec_validate.documents.types.model import Model
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.model_flops import Convention, model_flops_per_step
from trainspec_validate.performance.derived.plan import shape_of

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.silent import SilentRun

Recorder: TypeAlias = "Run | SilentRun"


def begin(job: Job, formation: Formation, documents: Sequence[Path] = ()) -> Recorder:
    """Record this formation as an attempt, where `TRAINSPEC_RUN` is set.

    The recorder of the formation before must have ended. The environment gives rank and attempt, as any launcher
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
    if job.device == "cpu":  # accelerators of the host are not of this run
        os.environ.update(dict.fromkeys(VISIBLE, ""))
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
    """Operations of one token, forward and backward, by a convention.

    Of what is no transformer `6n` is known, which counts parameters alone; None for other conventions.

    Raises:
        ValueError: the convention is not known.
    """
    shape = shape_of(model)
    if shape is None:
        return 6 * (model.num_active_parameters or model.num_parameters) if convention == "6n" else None
    layout = Layout(sequence_length=sequence_length)
    return model_flops_per_step(shape, layout, cast("Convention", convention)) / sequence_length


def _declared(job: Job, formation: Formation) -> dict[str, Any]:
    grid = RankGrid(job.plan.parallelism, formation.num_ranks)
    settings = _noise_settings(job, grid.degrees["data"])
    of_noise = settings.declared if settings is not None else {}
    return of_noise | {f"train.parallel.{axis}.rank": number for axis, number in grid.place(formation.rank).items()}


class StepTimes:
    """Phases of one step of this rank, one after the other."""

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


def noise_log(job: Job, num_data_ranks: int, recorder: Recorder) -> NoiseMeter | None:
    """Writes the gradient noise of a run, averaged and with intervals; each attempt begins its averages anew."""
    settings = _noise_settings(job, num_data_ranks)
    return NoiseMeter(settings, recorder) if settings is not None else None


def _noise_settings(job: Job, num_data_ranks: int) -> NoiseSettings | None:
    """How noise is estimated; the sizes of groups are those of the first step, with texts of full length."""
    plan = job.plan.batch
    if plan.noise_scale is None:
        return None
    unit, micro = plan.noise_scale.noise_unit, plan.micro_sequences
    per_sample = {"token": float(job.model.num_targets_per_sample), "sequence": 1.0, "micro-batch": 1 / micro}[unit]
    groups = [
        min(micro, share - start)
        for share in shares(plan, plan.global_sequences, num_data_ranks)
        for start in range(0, share, micro)
    ]
    return NoiseSettings(
        noise_unit=unit,
        group_sizes=[round(size * per_sample) for size in groups],
        half_life_steps=plan.noise_scale.ema_half_life_steps,
        every=(job.plan.telemetry.gradient_interval_steps if job.plan.telemetry else None) or 1,
        loss_reduction=plan.loss_reduction,
    )
