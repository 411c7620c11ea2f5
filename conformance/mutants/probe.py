"""Answers a probe as a mutant: `python conformance/mutants/probe.py NAME in.json out.json`.

Ranks that a probe starts import this file anew, so that they are mutated too.
"""

from __future__ import annotations

import sys

from registry import named
from trainspec_conformance.testbed.probe import main

BACKEND = "plain"

if __name__ in {"__main__", "__mp_main__"}:
    named(sys.argv[1]).patch()
if __name__ == "__main__":
    sys.exit(main([BACKEND, *sys.argv[2:]]))
