"""TrainSpec: validate cluster profiles, training plans and checkpoint policies.

    from trainspec_validate import Severity, validate

    report = validate(["cluster.yaml", "plan.yaml"])
    for finding in report.at_or_above(Severity.ERROR):
        print(finding.path, finding.requirement, finding.message)

This module is the public interface; everything else may change with any release.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainspec_validate._version import __version__

if TYPE_CHECKING:
    from trainspec_validate.checking.selection import Selection
    from trainspec_validate.model.finding import Finding, Report, Severity
    from trainspec_validate.pipeline.validation import validate
    from trainspec_validate.system.boundary import InputError

__all__ = ["Finding", "InputError", "Report", "Selection", "Severity", "__version__", "validate"]

_HOMES = {
    "Finding": "model.finding",
    "InputError": "system.boundary",
    "Report": "model.finding",
    "Selection": "checking.selection",
    "Severity": "model.finding",
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
