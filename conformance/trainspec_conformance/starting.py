"""Writes the first descriptor and shim of a new stack, and finds the stack of the demonstration."""

from __future__ import annotations

import os
from pathlib import Path

from trainspec_validate.system.atomic import refuse_link, write_all

TEMPLATES = Path(__file__).with_name("templates")
FILES = ("stack.yaml", "shim.py")
DEMO_STACK = TEMPLATES / "demo.yaml"
"""The reference trainer, with the backend that needs no framework."""
DEMO_SCENARIOS = ("null-run", "kill-rank", "truncated-shard", "bad-pointer")
"""Quick scenarios that show a baseline run, a fault, damage and a wrong pointer."""


def write_templates(directory: Path) -> list[Path]:
    """Write a descriptor and a shim that run unchanged; gives their paths.

    Raises:
        OSError: one of them is there already, or the directory is behind a link; nothing was written.
    """
    paths = [directory / name for name in FILES]
    for path in paths:
        refuse_link(path)
        if os.path.lexists(path):
            raise FileExistsError(f"{path} exists already; name another directory")
    write_all({path: (TEMPLATES / path.name).read_bytes() for path in paths}, overwrite=False)
    return paths
