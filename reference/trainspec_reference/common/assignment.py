"""Declares the assignment of a worker, as a file that the controller writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from trainspec_reference.common.job import Job
from trainspec_validate.system.atomic import write_atomically


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the controller gives each worker, as a file in JSON."""

    backend: str
    job: Job
    checkpoint_directory: Path
    trace_directory: Path | None
    documents: tuple[Path, ...] = ()
    """Files of the plan and the policy, for the recorder."""

    def write(self, path: Path) -> None:
        """Write it.

        Raises:
            OSError: it cannot be written.
        """
        write_atomically(path, msgspec.json.encode(self, enc_hook=str))

    @staticmethod
    def read(path: Path) -> Assignment:
        """Read it.

        Raises:
            OSError: it cannot be read.
            ValueError: it holds something else.
        """
        return msgspec.json.decode(path.read_bytes(), type=Assignment, dec_hook=lambda kind, text: kind(text))
