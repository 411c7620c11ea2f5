"""Lists the output formats; each is one module, imported on demand."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from trainspec_validate.model.finding import Report
from trainspec_validate.report.options import Options, RuleText
from trainspec_validate.system.neutral import Notation, neutral

__all__ = ["FORMATS", "NOTATIONS", "Options", "RuleText", "render"]

FORMATS: dict[str, str] = {
    "full": "trainspec_validate.report.full",
    "concise": "trainspec_validate.report.concise",
    "json": "trainspec_validate.report.as_json",
    "sarif": "trainspec_validate.report.sarif",
    "github": "trainspec_validate.report.github",
    "gitlab": "trainspec_validate.report.gitlab",
    "junit": "trainspec_validate.report.junit",
    "statistics": "trainspec_validate.report.statistics",
}
"""Format name to the module whose `render(report, options)` writes it."""
NOTATIONS: dict[str, Notation] = {
    "json": "json",
    "sarif": "json",
    "gitlab": "json",
    "junit": "markup",
    "github": "commands",
}
"""How a format writes a letter as a number, where it is no plain text."""


def render(  # noqa: PLR0913
    report: Report,
    format_name: str,
    *,
    color: bool = False,
    hyperlinks: bool = False,
    base: str = "",
    requirements: Mapping[str, RuleText] | None = None,
) -> str:
    """Write the report in one format; the text is empty or ends with a line break."""
    if format_name not in FORMATS:
        raise ValueError(f"unknown format {format_name!r}; known: {', '.join(FORMATS)}")
    options = Options(color=color, hyperlinks=hyperlinks, base=base, requirements=requirements or {})
    text: str = import_module(FORMATS[format_name]).render(report, options)
    return neutral(text, NOTATIONS.get(format_name, "text"), color=color or hyperlinks)
