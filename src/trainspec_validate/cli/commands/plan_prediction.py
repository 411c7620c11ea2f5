"""Shows what is predicted of a plan that is given, by the models that a search compares plans with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import files, tables
from trainspec_validate.cli.commands.plan_report import accuracy
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.model.finding import Severity
from trainspec_validate.model.units import bytes_, number, seconds
from trainspec_validate.performance.costs.step_errors import NO_RUN
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.gaps import gaps
from trainspec_validate.performance.forecast.predict import Prediction, predict
from trainspec_validate.pipeline.engine import Member
from trainspec_validate.pipeline.references import other_cluster

if TYPE_CHECKING:
    from trainspec_validate.documents.types import ClusterProfile, TrainingPlan

_BAND = "  eight of ten"
_NO_FORMULA = "no formula for this schedule"


@dataclass(frozen=True, slots=True)
class Note:
    """A finding on a plan that was predicted."""

    severity: Severity
    message: str


def show(cluster: str, plan: str, style: str, *, force: bool) -> int:
    """Print step time, memory and their bands for a plan on a cluster, and give the exit code.

    Raises:
        Failure: a document has errors, the plan is for another cluster, or one lacks what a prediction needs.
    """
    profile: ClusterProfile = files.document(cluster, "ClusterProfile", allow_errors=force)  # type: ignore[assignment]
    given: TrainingPlan = files.document(plan, "TrainingPlan", allow_errors=force)  # type: ignore[assignment]
    other = other_cluster(Member(plan, given), Member(cluster, profile))
    if other and not force:
        raise Failure(f"{plan}: {other}; change that, or continue with --force")
    try:
        found = predict(given, profile)
    except Unpredictable as error:
        raise Failure(f"{plan}: {error}") from error
    large = too_large(found)
    notes = [*([Note(Severity.WARNING, other)] if other else []), *([large] if large else [])]
    left_out = [] if found.untimed else list(gaps(given.model))
    if style == "json":
        terminal.emit(
            json.dumps({**_json(found, notes), "notes": left_out}, indent=2, ensure_ascii=False) + "\n", "json"
        )
    else:
        tables.show(("", given.metadata.name), _rows(found), frozenset({1}))
        terminal.tell(f"step time: not predicted: {found.untimed}" if found.untimed else accuracy(found.outlook))
        for words in left_out:
            terminal.tell(words)
    for note in notes:
        terminal.tell(f"{note.severity.value}: {note.message}")
    return terminal.FINDINGS if large and large.severity is Severity.ERROR else terminal.OK


def too_large(found: Prediction) -> Note | None:
    """That a plan is predicted to need more memory than a rank has, or that one run in ten would."""
    if found.memory is None or found.memory[1].high_total <= found.machine.memory_bytes:
        return None
    (stage, memory), capacity = found.memory, found.machine.memory_bytes
    if memory.total > capacity:
        needed = f"a rank of stage {stage} is predicted to need {bytes_(memory.total)}"
        return Note(Severity.ERROR, f"the plan does not fit: {needed}, and has {bytes_(capacity)}")
    needed = f"one measured run in ten needed {bytes_(memory.high_total)} or more where this is predicted"
    return Note(Severity.WARNING, f"the plan may not fit: {needed}, and a rank has {bytes_(capacity)}")


def _rows(found: Prediction) -> list[tuple[str, str]]:
    return [*([] if found.untimed else _time_rows(found)), *_memory_rows(found)]


def _time_rows(found: Prediction) -> list[tuple[str, str]]:
    step, outlook = found.outlook.step, found.outlook
    low, high = outlook.low_seconds, outlook.high_seconds
    return [
        ("step", seconds(float(f"{step.seconds:.3g}"))),
        (_BAND, f"{_short(low)} to {_short(high)}" if low and high else NO_RUN),
        ("tokens per second", number(round(outlook.tokens_per_second))),
        ("MFU", f"{outlook.utilisation:.1%}"),
        ("exposed", f"{outlook.exposed_share:.1%}"),
        ("idle", f"{step.bubble_seconds / step.seconds:.1%}"),
    ]


def _memory_rows(found: Prediction) -> list[tuple[str, str]]:
    if found.memory is None:
        return [("memory", _NO_FORMULA)]
    memory, capacity = found.memory[1], found.machine.memory_bytes
    return [
        ("memory", f"{bytes_(memory.total)}, {memory.total / capacity:.0%} of a rank"),
        (_BAND, f"{bytes_(memory.low_total)} to {bytes_(memory.high_total)}"),
    ]


def _short(value: float) -> str:
    return seconds(float(f"{value:.3g}"))


def _json(found: Prediction, notes: list[Note]) -> dict[str, Any]:
    stage, memory = found.memory or (None, None)
    return {
        **({"step_seconds": None, "not_predicted": found.untimed} if found.untimed else _time_json(found)),
        "findings": [{"severity": note.severity.value, "message": note.message} for note in notes],
        "memory_capacity_bytes": found.machine.memory_bytes,
        "memory_bytes": {**asdict(memory), "total": memory.total, "stage": stage} if memory else None,
        "memory_band_bytes": {"low": memory.low_total, "high": memory.high_total} if memory else None,
    }


def _time_json(found: Prediction) -> dict[str, Any]:
    step, outlook = found.outlook.step, found.outlook
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
    }
