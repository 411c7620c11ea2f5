"""Tests the suite on stacks whose code it can change: a backend in NumPy, tasks, probes and floors for the trainers.

The reference trainers do not know it. The suite does not either: it starts stacks by their descriptors alone.
"""

from __future__ import annotations

PLAIN = "trainspec_conformance.testbed.plain"
"""Name of the backend in NumPy for the reference trainers."""


def backend_named(name: str) -> str:
    """The name that the reference trainers know a backend by: `plain` is short for the backend in NumPy."""
    return PLAIN if name == "plain" else name
