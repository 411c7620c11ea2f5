"""Derives the effects of a number format on a job: its plan, and the tolerance of its losses against fp32."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from trainspec_reference.common.job import Job

from trainspec_validate.documents.types import changed
from trainspec_validate.documents.types.precision import LossScaling

Format = Literal["fp32", "bf16", "fp16"]
UNIT_ROUNDOFF: dict[str, float] = {"fp32": 2.0**-24, "fp16": 2.0**-11, "bf16": 2.0**-8}
"""Largest relative error of one rounding to nearest."""
FP32_LOSS_TOLERANCE = 1e-5


def loss_tolerance(compute: str) -> float:
    """Largest relative difference of a loss from the golden trace, in any of its 100 updates.

    In fp32 backends differ by the order of their sums: some roundings of 6e-8 in each loss, which grow while weights
    drift apart; 3e-6 was seen. In narrower formats every operand is rounded once, and the errors of many entries
    average out: a loss moves by a part of one rounding, of which an eighth was seen.

    Raises:
        KeyError: the format is not one of `UNIT_ROUNDOFF`.
    """
    return max(FP32_LOSS_TOLERANCE, UNIT_ROUNDOFF[compute] if compute != "fp32" else 0.0)


def in_format(job: Job, compute: Format) -> Job:
    """The job with operands and gradients of a format, a master copy and sums in fp32, and a loss scale for fp16."""
    is_narrow = compute != "fp32"
    scaling = LossScaling(mode="dynamic", initial_scale=1024, growth_interval_steps=100) if compute == "fp16" else None
    precision = changed(
        job.plan.precision,
        compute=compute,
        parameters=compute,
        gradients=compute,
        master_parameters="fp32" if is_narrow else None,
        accumulation="fp32",
        reduction="fp32",
        loss_scaling=scaling,
    )
    return replace(job, plan=changed(job.plan, precision=precision))
