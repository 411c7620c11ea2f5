"""Lists the formats of a report next to `report.json`; each is one module."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.neutral import Notation, neutral

FORMATS: dict[str, str] = {
    "report.html": "trainspec_conformance.formats.page",
    "junit.xml": "trainspec_conformance.formats.junit",
    "ctrf.json": "trainspec_conformance.formats.ctrf",
    "report.sarif": "trainspec_conformance.formats.sarif",
    "badge.svg": "trainspec_conformance.formats.badge",
    "statement.json": "trainspec_conformance.formats.statement",
}
"""Name of the file to the module whose `render(report)` gives its text."""
_NOTATIONS: dict[str, Notation] = {
    **dict.fromkeys((".html", ".svg", ".xml"), "markup"),
    **dict.fromkeys((".json", ".sarif"), "json"),
}


def write_all(report: ConformanceReport, directory: Path) -> None:
    """Write every form of a report into its directory; each can be printed into the log of a job."""
    for name, module in FORMATS.items():
        text: str = import_module(module).render(report)
        write_atomically(directory / name, neutral(text, _NOTATIONS[Path(name).suffix]))
