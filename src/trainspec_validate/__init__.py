"""TrainSpec: validate cluster profiles, training plans and checkpoint policies.

    from trainspec_validate import Severity, validate

    report = validate(["cluster.yaml", "plan.yaml"])
    for finding in report.at_or_above(Severity.ERROR):
        print(finding.path, finding.requirement, finding.message)

`validate` judges documents, streams and checkpoints, `judge_run` what a run wrote; `plan` searches the best plan of a
job, and `export` writes one for a launcher. `trainspec_validate.models` has pydantic models of all kinds of documents.
Nothing here writes a file, prints, or changes a setting of the process.

This module is the public interface; everything else may change with any release.
"""

from __future__ import annotations

from trainspec_validate._version import __version__

TYPE_CHECKING = False  # as in `typing`, which would be loaded before a program can say what an interrupt does
if TYPE_CHECKING:
    from typing import Any

    from trainspec_validate.checking.selection import Selection
    from trainspec_validate.documents.types import CheckpointPolicy, ClusterProfile, TrainingPlan
    from trainspec_validate.model.finding import (
        Coverage,
        DocumentSummary,
        Evidence,
        Finding,
        LeftOut,
        Outcome,
        Related,
        Report,
        Severity,
        Span,
        Suppressed,
        SuppressionKind,
        Unjudged,
        Verdict,
    )
    from trainspec_validate.pipeline.export import Exported, NotExpressible, export, export_formats
    from trainspec_validate.pipeline.inputs import Dumps, Input, InvalidDocumentError, NamedText
    from trainspec_validate.pipeline.planning import NoPlanError, PlannedJob, PlanSearch, plan
    from trainspec_validate.pipeline.runs import judge_run
    from trainspec_validate.pipeline.validation import PartialInputError, validate
    from trainspec_validate.planner.constraints import Constraints
    from trainspec_validate.report import render
    from trainspec_validate.system.boundary import InputError, UnreadableError

__all__ = [
    "CheckpointPolicy",
    "ClusterProfile",
    "Constraints",
    "Coverage",
    "DocumentSummary",
    "Dumps",
    "Evidence",
    "Exported",
    "Finding",
    "Input",
    "InputError",
    "InvalidDocumentError",
    "LeftOut",
    "NamedText",
    "NoPlanError",
    "NotExpressible",
    "Outcome",
    "PartialInputError",
    "PlanSearch",
    "PlannedJob",
    "Related",
    "Report",
    "Selection",
    "Severity",
    "Span",
    "Suppressed",
    "SuppressionKind",
    "TrainingPlan",
    "Unjudged",
    "UnreadableError",
    "Verdict",
    "__version__",
    "export",
    "export_formats",
    "judge_run",
    "plan",
    "render",
    "validate",
]

_HOMES = {
    "CheckpointPolicy": "documents.types",
    "ClusterProfile": "documents.types",
    "Constraints": "planner.constraints",
    "Coverage": "model.finding",
    "DocumentSummary": "model.finding",
    "Dumps": "pipeline.inputs",
    "Evidence": "model.finding",
    "Exported": "pipeline.export",
    "Finding": "model.finding",
    "Input": "pipeline.inputs",
    "InputError": "system.boundary",
    "InvalidDocumentError": "pipeline.inputs",
    "LeftOut": "model.finding",
    "NamedText": "pipeline.inputs",
    "NoPlanError": "pipeline.planning",
    "NotExpressible": "pipeline.export",
    "Outcome": "model.finding",
    "PartialInputError": "pipeline.validation",
    "PlanSearch": "pipeline.planning",
    "PlannedJob": "pipeline.planning",
    "Related": "model.finding",
    "Report": "model.finding",
    "Selection": "checking.selection",
    "Severity": "model.finding",
    "Span": "model.finding",
    "Suppressed": "model.finding",
    "SuppressionKind": "model.finding",
    "TrainingPlan": "documents.types",
    "Unjudged": "model.finding",
    "UnreadableError": "system.boundary",
    "Verdict": "model.finding",
    "export": "pipeline.export",
    "export_formats": "pipeline.export",
    "judge_run": "pipeline.runs",
    "plan": "pipeline.planning",
    "render": "report",
    "validate": "pipeline.validation",
}
"""Module of each public name; it is imported when the name is first used (PEP 562)."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
