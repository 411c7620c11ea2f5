"""Shows what is predicted of a plan that is given, by the models that a search compares plans with."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import files, tables
from trainspec_validate.cli.commands.plan_report import accuracy
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.model.units import bytes_, number, seconds
from trainspec_validate.performance.costs.step_errors import NO_RUN
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.predict import Prediction, predict

if TYPE_CHECKING:
    from trainspec_validate.documents.types import ClusterProfile, TrainingPlan

_BAND = "  eight of ten"
_NO_FORMULA = "no formula for this schedule"


def show(cluster: str, plan: str, style: str, *, force: bool) -> None:
    """Print step time, memory and their bands for a plan on a cluster.

    Raises:
        Failure: a document has errors, or lacks what a prediction needs.
    """
    profile: ClusterProfile = files.document(cluster, "ClusterProfile", allow_errors=force)  # type: ignore[assignment]
    given: TrainingPlan = files.document(plan, "TrainingPlan", allow_errors=force)  # type: ignore[assignment]
    try:
        found = predict(given, profile)
    except Unpredictable as error:
        raise Failure(f"{plan}: {error}") from error
    if style == "json":
        terminal.emit(json.dumps(_json(found), indent=2, ensure_ascii=False) + "\n", "json")
        return
    tables.show(("", given.metadata.name), _rows(found), frozenset({1}))
    for note in (accuracy(found.outlook), *too_large(found)):
        terminal.tell(note)


def too_large(found: Prediction) -> list[str]:
    """That a plan is predicted to need more memory than a rank has, or may."""
    if found.memory is None or found.memory[1].high_total <= found.machine.memory_bytes:
        return []
    memory, capacity = found.memory[1], found.machine.memory_bytes
    verdict = "is predicted not to fit" if memory.low_total > capacity else "may not fit"
    return [f"the plan {verdict}: a rank has {bytes_(capacity)}; measure its peak first"]


def _rows(found: Prediction) -> list[tuple[str, str]]:
    step, outlook = found.outlook.step, found.outlook
    low, high = outlook.low_seconds, outlook.high_seconds
    rows = [
        ("step", seconds(float(f"{step.seconds:.3g}"))),
        (_BAND, f"{_short(low)} to {_short(high)}" if low and high else NO_RUN),
        ("tokens per second", number(round(outlook.tokens_per_second))),
        ("MFU", f"{outlook.utilisation:.1%}"),
        ("exposed", f"{outlook.exposed_share:.1%}"),
        ("idle", f"{step.bubble_seconds / step.seconds:.1%}"),
    ]
    if found.memory is None:
        return [*rows, ("memory", _NO_FORMULA)]
    memory, capacity = found.memory[1], found.machine.memory_bytes
    return [
        *rows,
        ("memory", f"{bytes_(memory.total)}, {memory.total / capacity:.0%} of a rank"),
        (_BAND, f"{bytes_(memory.low_total)} to {bytes_(memory.high_total)}"),
    ]


def _short(value: float) -> str:
    return seconds(float(f"{value:.3g}"))


def _json(found: Prediction) -> dict[str, Any]:
    step, outlook = found.outlook.step, found.outlook
    stage, memory = found.memory or (None, None)
    return {
        "step_seconds": step.seconds,
        "low_seconds": outlook.low_seconds,
        "high_seconds": outlook.high_seconds,
        "family": outlook.family,
        "framework_named": outlook.framework_named,
        "tokens_per_second": outlook.tokens_per_second,
        "model_flops_utilisation": outlook.utilisation,
        "compute_seconds": step.compute_seconds,
        "bubble_seconds": step.bubble_seconds,
        "exposed_seconds": dict(step.exposed_seconds),
        "memory_capacity_bytes": found.machine.memory_bytes,
        "memory_bytes": {**asdict(memory), "total": memory.total, "stage": stage} if memory else None,
        "memory_band_bytes": {"low": memory.low_total, "high": memory.high_total} if memory else None,
    }
