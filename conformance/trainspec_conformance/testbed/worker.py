"""Starts a worker of the reference trainers that does the damage which its job has planted."""

from __future__ import annotations

import sys
from pathlib import Path

from trainspec_reference.common import worker

from trainspec_conformance.testbed.planted import faults_in, with_faults

WORKER = (sys.executable, "-m", "trainspec_conformance.testbed.worker")
"""Command of such a worker; the file of its assignment follows."""


def main(arguments: list[str]) -> None:
    """As `worker.main`."""
    worker.Trainer = with_faults(faults_in(Path(arguments[0])))  # type: ignore[attr-defined]
    worker.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
