"""Starts a worker of a mutant."""

from __future__ import annotations

import sys

from registry import named
from trainspec_conformance.testbed import worker

if __name__ == "__main__":
    named(sys.argv[1]).patch()
    worker.main(sys.argv[2:])
