"""Starts a run for the tests of recovery, as a process that they can kill."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import msgspec
from trainspec_conformance.testbed.planted import faults_in, planted
from trainspec_conformance.testbed.worker import WORKER
from trainspec_reference.common.controller import launch
from trainspec_reference.common.run_settings import Assignment, Settings


def main(directory: Path, command: list[str]) -> int:
    """Run the assignment and the settings that lie in a directory."""
    given = directory / "given.json"
    assignment = Assignment.read(given)
    assignment = replace(assignment, job=planted(assignment.job, faults_in(given)))
    told = msgspec.json.decode((directory / "settings.json").read_bytes())
    settings = Settings(
        hosts=tuple(told.pop("hosts")),
        directory=directory,
        checkpoint_directory=assignment.checkpoint_directory,
        trace_directory=assignment.trace_directory,
        **told,
    )
    return launch(assignment, settings, command or WORKER)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
