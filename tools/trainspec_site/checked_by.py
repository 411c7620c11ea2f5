"""Finds the file that checks each requirement: the module of its rule or check, or its scenario."""

from __future__ import annotations

from pathlib import Path

from trainspec_validate.checkpoints.checks import Check as ArtifactCheck
from trainspec_validate.checkpoints.checks import all_checks as artifact_checks
from trainspec_validate.documents.load import load_file
from trainspec_validate.rules import all_rules
from trainspec_validate.telemetry.checks import Check as StreamCheck
from trainspec_validate.telemetry.checks import all_checks as stream_checks


def check_of(identifier: str) -> StreamCheck | ArtifactCheck | None:
    """The check of a stream or a checkpoint that judges by this requirement."""
    return stream_checks().get(identifier) or artifact_checks().get(identifier)


def files(root: Path) -> dict[str, str]:
    """The file of the check of each requirement that a function or a scenario checks, by its id."""
    scenarios = sorted((root / "conformance" / "scenarios").glob("*/scenario.yaml"))
    found = {str(load_file(path).data["requirement"]): path.relative_to(root).as_posix() for path in scenarios}
    for one in (*all_rules().values(), *stream_checks().values(), *artifact_checks().values()):
        found.setdefault(one.requirement, f"src/{one.function.__module__.replace('.', '/')}.py")
    return found
