"""Decides which formats a run writes, and to which files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainspec_validate.model.suggest import hint
from trainspec_validate.report import FORMATS

AUTOMATIC = "auto"
FOR_PEOPLE = frozenset({"full", "concise", "statistics"})
_BESIDE_OTHERS = "github"
"""Workflow commands are lines of a log; they may share standard output with one other format."""


class OutputError(Exception):
    """The formats that were asked for cannot be written together; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class Output:
    """One format, and the file it goes to; None is standard output."""

    format: str
    file: str | None = None


def outputs(
    wanted: Iterable[str], environment: Mapping[str, str], *, terminal: bool, statistics: bool = False
) -> list[Output]:
    """Outputs for the `--format` arguments, in order; files come on top of what standard output gets.

    Raises:
        OutputError: a format is unknown, or two of them would go to one place.
    """
    asked = [_parse(text) for text in wanted]
    if statistics:
        asked.append(Output("statistics"))
    if all(output.file for output in asked):
        asked.append(Output(AUTOMATIC))
    chosen: list[Output] = []
    for output in asked:
        chosen += _automatic(environment, terminal) if output.format == AUTOMATIC else [output]
    _check(chosen)
    return chosen


def _parse(text: str) -> Output:
    name, equals, file = text.partition("=")
    known = [AUTOMATIC, *FORMATS]
    if name not in known:
        raise OutputError(f"unknown format {name!r}; {hint(name, known)}")
    if equals and not file:
        raise OutputError(f"{text!r} names no file; write {name}=FILE, or {name} alone for standard output")
    if file and name == AUTOMATIC:
        raise OutputError("auto chooses the format of standard output; name a format for a file, such as sarif=FILE")
    return Output(name, None if file in {"", "-"} else file)


def _automatic(environment: Mapping[str, str], terminal: bool) -> Sequence[Output]:
    if environment.get("GITHUB_ACTIONS") == "true":
        return (Output("github"), Output("concise"))
    if environment.get("GITLAB_CI"):
        return (Output("concise"),)
    return (Output("full" if terminal else "concise"),)


def _check(chosen: Sequence[Output]) -> None:
    shared = [output.format for output in chosen if output.file is None and output.format != _BESIDE_OTHERS]
    if len(shared) > 1:
        message = f"{' and '.join(shared)} cannot share standard output; send one to a file"
        raise OutputError(f"{message}, such as {shared[-1]}=FILE")
    files = [output.file for output in chosen if output.file]
    places = [os.path.realpath(file) for file in files]
    twice = next((file for file, place in zip(files, places, strict=True) if places.count(place) > 1), None)
    if twice:
        raise OutputError(f"two formats would be written to {twice}; give each a file of its own")
