"""Reads the committed reports of stacks, by the directory of each stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from trainspec_conformance.reading import with_present_names

from trainspec_validate.documents.types.conformance_report import ConformanceReport, ScenarioReport


def by_stack(directory: Path) -> dict[str, list[ConformanceReport]]:
    """All reports of each stack, from the oldest to the newest."""
    folders = sorted(path for path in directory.iterdir() if path.is_dir())
    return {
        folder.name: sorted(map(_read, sorted(folder.glob("report*.json"))), key=lambda one: one.created)
        for folder in folders
    }


def by_scenario(reports: Sequence[ConformanceReport]) -> dict[str, list[ScenarioReport]]:
    """Results of a scenario in each report, in the order in which the reports name them."""
    found: dict[str, list[ScenarioReport]] = {}
    for report in reports:
        for one in report.scenarios:
            found.setdefault(one.scenario, []).append(one)
    return found


def circumstances(reports: Sequence[ConformanceReport]) -> tuple[str, ...]:
    """On what a stack ran: one sentence for each machine and set of versions."""
    return tuple(dict.fromkeys(f"{_of_one(report)}." for report in reports))


def table(head: Mapping[str, str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table of Markdown; the head gives the rule below each title."""
    lines = [list(head), *rows]
    cells = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines]
    return [f"| {cells[0]} |", f"|{'|'.join(head.values())}|", *(f"| {text} |" for text in cells[1:])]


def _of_one(report: ConformanceReport) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    machine = f"{report.machine.num_processors} processors ({report.machine.processor})"
    return f"{versions} on {machine}" if versions else f"Suite {report.suite_version} on {machine}"


def _read(path: Path) -> ConformanceReport:
    return with_present_names(msgspec.json.decode(path.read_bytes(), type=ConformanceReport))
