"""Explains a requirement to a person: its text, its reason, and its check."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from textwrap import TextWrapper, indent
from typing import Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.lookup import complete_requirement, requirement
from trainspec_validate.model.requirements import Example, Index, Requirement, load_index

_WRAPPER = TextWrapper(100, break_on_hyphens=False, break_long_words=False)
GROUNDS = {
    "arithmetic": "arithmetic",
    "identity": "identity",
    "integrity": "safety and integrity",
    "practice": "practice of independent implementations",
}
_CHECKS = {
    "load": "while files are read, before anything about their content",
    "schema": "by the published JSON Schema, so any JSON Schema validator sees it too",
    "rule": "by a rule over one document, or over documents that belong together",
    "stream": "on the metric stream that a run writes",
    "artifact": "on the files of a checkpoint",
    "runtime": "by a scenario of the conformance suite",
    "manual": "by a person, with the checklist",
}


@click.command(epilog="Example: trainspec explain TS-PAR-001 world-size")
@click.argument("words", nargs=-1, required=True, metavar="ID|NAME...", shell_complete=complete_requirement)
@click.option(
    "style", "--format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)
def command(words: tuple[str, ...], style: str) -> None:
    """Explain what a requirement says, why, and how it is checked.

    A requirement is named by its id (TS-PAR-001) or by its name (world-size).
    """
    index = load_index()
    found = list(dict.fromkeys(requirement(word, index) for word in words))
    if style == "json":
        data = [as_plain(entry, index) for entry in found]
        terminal.emit(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "json")
        return
    bold = terminal.use_color("auto") and terminal.is_terminal(sys.stdout)
    terminal.emit("\n\n".join("\n".join(_page(entry, index, bold=bold)) for entry in found) + "\n", color=bold)


def as_plain(entry: Requirement, index: Index) -> dict[str, Any]:
    """Everything about a requirement, for programs."""
    return {**asdict(entry), "area": entry.area, "severity": entry.severity.value, "url": index.url(entry)}


def _page(entry: Requirement, index: Index, *, bold: bool) -> Iterator[str]:
    yield _strong(f"{entry.id}  {entry.name}", bold=bold)
    yield entry.title
    ground = f" · on the ground of {GROUNDS[entry.ground]}" if entry.ground else ""
    yield f"{entry.level} ({entry.severity}){ground} · profile {entry.profile} · since {entry.since}"
    if entry.former_names:
        yield f"Before: {', '.join(entry.former_names)}"
    yield ""
    for paragraph in (entry.statement, *filter(None, entry.details.split("\n\n"))):
        for line in paragraph.split("\n"):
            yield from _WRAPPER.wrap(line)
        yield ""
    yield from _WRAPPER.wrap(f"Why: {entry.why}")
    for title, examples in (("Bad", entry.bad), ("Good", entry.good)):
        for example in examples:
            yield ""
            yield _strong(f"{title}, {example.file}:", bold=bold)
            yield _excerpt(example)
    if entry.checklist:
        yield ""
        yield from _WRAPPER.wrap(f"Checklist: {entry.checklist}")
    yield ""
    yield from _WRAPPER.wrap(f"Checked {_CHECKS[entry.check]}.")
    yield index.url(entry)


def _excerpt(example: Example) -> str:
    lines = (line if len(line) <= 400 else f"{line[:397]}..." for line in example.text.rstrip("\n").split("\n"))
    return indent("\n".join(lines), "  ")


def _strong(text: str, *, bold: bool) -> str:
    return f"\x1b[1m{text}\x1b[0m" if bold else text
