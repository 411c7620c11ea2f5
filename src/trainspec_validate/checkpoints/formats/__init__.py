"""Lets the reader of each format add what it says of a checkpoint."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from trainspec_validate.checkpoints.agreement import compare_parts
from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.format_table import FORMATS
from trainspec_validate.checkpoints.large_files import report_pointers
from trainspec_validate.checkpoints.view import Checkpoint

READERS: tuple[Callable[[Checkpoint], None], ...] = tuple(
    importlib.import_module(f"{__name__}.{entry.module}").read for entry in FORMATS
)


def read_all(checkpoint: Checkpoint) -> None:
    """Let every reader look at the checkpoint; what one of them fails at keeps no other from it."""
    for read in READERS:
        with judged(checkpoint, "", f"what the reader {read.__module__.rpartition('.')[2]} takes for its own"):
            read(checkpoint)
    with judged(checkpoint, "", "what its parts count"):
        compare_parts(checkpoint)
    report_pointers(checkpoint)
