"""The only place that writes GitHub workflow commands, which annotate the lines of a pull request."""

from __future__ import annotations

from trainspec_validate.findings import Finding, Report, Severity
from trainspec_validate.neutral import neutral, printable
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import ordered, relative

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report, options: Options) -> str:
    """One command per finding; nothing when there is none."""
    return "".join(_command(finding, options.base) + "\n" for finding in ordered(report.findings))


def _command(finding: Finding, base: str) -> str:
    properties = {"file": relative(finding.path, base)}
    if span := finding.span:
        properties |= {"line": str(span.line), "col": str(span.column), "endLine": str(span.end_line)}
        if span.end_line == span.line:  # GitHub rejects columns over several lines.
            properties["endColumn"] = str(span.end_column)
    properties["title"] = f"{finding.requirement} {finding.name}"
    written = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    parts = [finding.message, f"help: {finding.help}" if finding.help else "", finding.url]
    message = "\n".join(printable(part) for part in parts if part)
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(neutral(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    escaped = "".join(char if char in "\r\n" else printable(char) for char in text)
    return neutral(_data(escaped).replace(":", "%3A").replace(",", "%2C"))
