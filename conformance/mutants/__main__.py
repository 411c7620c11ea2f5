"""Starts a mutant: `python conformance/mutants NAME TASK.json`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
from registry import named
from trainspec_conformance.testbed.conform import run

from trainspec_validate.documents.types.conformance import Task

WORKER = Path(__file__).with_name("worker.py")
BACKEND = "plain"


def main(name: str, path: str) -> int:
    """Train as the task says, with a defect; gives the exit status."""
    one = named(name)
    one.patch()
    task = msgspec.json.decode(Path(path).read_bytes(), type=Task)
    return run(BACKEND, one.task(task), (sys.executable, os.fspath(WORKER), name))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
