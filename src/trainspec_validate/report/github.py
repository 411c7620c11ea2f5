"""Writes GitHub workflow commands, which annotate the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.model.finding import Finding, Report, Severity, Unjudged
from trainspec_validate.report import left_out, silenced, unjudged
from trainspec_validate.report.options import Options
from trainspec_validate.report.places import ordered, relative
from trainspec_validate.system.neutral import neutral, printable

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def render(report: Report, options: Options) -> str:
    """A command for each finding, each reason why something was not judged, and what was silenced or left out."""
    commands = [_command(finding, options.base) for finding in ordered(report.findings)]
    commands += [_unjudged(entry, options.base) for entry in unjudged.ordered(report)]
    commands += [f"::notice title=settings::{_text([text])}" for text in left_out.sentences(report)]
    commands += [f"::notice title=silenced::{_text([text])}" for text in silenced.sentences(report)]
    return "".join(f"{command}\n" for command in commands)


def _command(finding: Finding, base: str) -> str:
    parts = [finding.message, f"help: {finding.help}" if finding.help else "", finding.url]
    title = f"{finding.requirement} {finding.name}"
    return f"::{_COMMANDS[finding.severity]} {_place(finding, base, title)}::{_text(parts)}"


def _unjudged(entry: Unjudged, base: str) -> str:
    parts = [unjudged.sentence(entry), unjudged.short_ids(entry.requirements)]
    command = "notice" if entry.recorded or entry.cause == "uncovered" else "warning"
    return f"::{command} {_place(entry, base, unjudged.label(entry))}::{_text(parts)}"


def _place(place: Finding | Unjudged, base: str, title: str) -> str:
    properties = {"file": relative(place.path, base)}
    if span := place.span:
        properties |= {"line": str(span.line), "col": str(span.column), "endLine": str(span.end_line)}
        if span.end_line == span.line:  # GitHub rejects columns over several lines.
            properties["endColumn"] = str(span.end_column)
    properties["title"] = title
    return ",".join(f"{key}={_property(value)}" for key, value in properties.items())


def _text(parts: Iterable[str]) -> str:
    return _data(neutral("\n".join(printable(part) for part in parts if part)))


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    escaped = "".join(char if char in "\r\n" else printable(char) for char in text)
    return neutral(_data(escaped).replace(":", "%3A").replace(",", "%2C"))
