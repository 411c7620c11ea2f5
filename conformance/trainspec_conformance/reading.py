"""Reads the documents of the suite, finds its scenarios, and says where a document is wrong."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from trainspec_validate.documents.kind import KindFailure, kind_of
from trainspec_validate.documents.load import LoadError, Source, load_file
from trainspec_validate.documents.schema import failures
from trainspec_validate.documents.types import SIDE_KINDS, Record, part
from trainspec_validate.documents.types.conformance_report import ConformanceReport
from trainspec_validate.documents.types.scenario import Scenario
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.requirements import load_index

REPORT = "report.json"
"""Name of a report in its directory."""
Kind = TypeVar("Kind", bound=Record)


class DocumentError(Exception):
    """A document cannot be used; the text has file, line, what is wrong and what would be right."""

    def __init__(self, path: str, line: int, message: str, remedy: str = "") -> None:
        super().__init__(f"{path}:{line}: {message}" + (f"; {remedy}" if remedy else ""))


def read(path: Path, kind: type[Kind]) -> Kind:
    """The document in a YAML or JSON file.

    Raises:
        DocumentError: it cannot be read, is of another kind, or its schema refuses it.
    """
    name = next(name for name, model in SIDE_KINDS.items() if model is kind)
    try:
        source = load_file(path, path.as_posix())
    except LoadError as error:
        raise DocumentError(path.as_posix(), error.span.line if error.span else 1, error.message, error.help) from error
    found = kind_of(source.data)
    if isinstance(found, KindFailure):
        raise DocumentError(source.path, _line(source, found.pointer), found.message, found.help)
    if found != name:
        raise DocumentError(source.path, 1, f"this is a {found}, not a {name}")
    for failure in failures(name, source.data):
        key = next((f"{step}: " for step in reversed(failure.pointer) if isinstance(step, str)), "")
        line = _line(source, failure.pointer, key=failure.key)
        raise DocumentError(source.path, line, key + failure.message, failure.help or "")
    try:
        return part(kind, source.data)
    except msgspec.ValidationError as error:
        raise DocumentError(source.path, 1, str(error)) from error


def wrong(path: Path, pointer: Pointer, message: str, remedy: str = "") -> DocumentError:
    """The error about one value of a document that was read before."""
    return DocumentError(path.as_posix(), _line(load_file(path, path.as_posix()), pointer), message, remedy)


def _line(source: Source, pointer: Pointer, *, key: bool = False) -> int:
    return source.locate([(pointer, key)])[pointer, key].line


DIRECTORIES = (Path(__file__).parent / "scenarios", Path(__file__).parents[1] / "scenarios")
"""In a wheel they are inside the package, in a clone next to it."""


@cache
def all_scenarios() -> dict[str, Scenario]:
    """Every scenario by its name, in the order of their requirements.

    Raises:
        DocumentError: one cannot be read, or its directory has another name than it.
    """
    directory = next(path for path in DIRECTORIES if path.is_dir())
    found = [read(path, Scenario) for path in sorted(directory.glob("*/scenario.yaml"))]
    return {one.metadata.name: one for one in sorted(found, key=lambda one: one.requirement)}


@cache
def present_names() -> dict[str, str]:
    """The present name of each scenario that was renamed, by each former name of its requirement."""
    known = all_scenarios()
    renamed = (one for one in load_index().by_id.values() if one.name in known)
    return {former: one.name for one in renamed for former in one.former_names}


def report_below(directory: Path) -> ConformanceReport:
    """The report in a directory, with scenarios by the names that it gives them.

    Raises:
        DocumentError: it cannot be read, or is a link, which may lead out of the directory.
    """
    path = directory / REPORT
    if path.is_symlink():
        raise DocumentError(path.as_posix(), 1, "this is a link", "give the directory that holds the report itself")
    return read(path, ConformanceReport)


def with_present_names(report: ConformanceReport) -> ConformanceReport:
    """A report of any version of the suite, with scenarios named as in this version."""
    scenarios = tuple(
        msgspec.structs.replace(one, scenario=present_names().get(one.scenario, one.scenario))
        for one in report.scenarios
    )
    return msgspec.structs.replace(report, scenarios=scenarios)
