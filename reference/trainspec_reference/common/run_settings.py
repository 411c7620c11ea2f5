"""Declares how a run is started, what a worker is assigned, and the ways in which a run ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from trainspec_reference.common.decisions import Way
from trainspec_reference.common.job import Job
from trainspec_validate.system.atomic import write_atomically


@dataclass(frozen=True, slots=True)
class Assignment:
    """Settings that the controller passes to each worker, as a file in JSON."""

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


COMPLETED, IN_USE, CRASH_LOOP, PREEMPTED, NOTHING_RESTORABLE, STOPPED_BY_PLAN = 0, 2, 10, 11, 12, 13
"""Exit statuses of a run."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is started."""

    hosts: tuple[str, ...]
    """Host that each rank represents; ranks of one host are adjacent."""
    directory: Path
    """Of the run."""
    checkpoint_directory: Path
    trace_directory: Path | None = None
    run: str = "run"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    first_attempt: int = 0
    """Least number of the first formation."""
    way: Way | None = None
    """Reaction to lost workers; None for the policy's."""
    num_standby: int = 0
    """Standby workers, with all libraries loaded."""

    @property
    def programs_directory(self) -> Path:
        """Where workers of this start leave compiled programs for those that replace them."""
        return self.directory / ".programs"


class RunEnd(Exception):  # noqa: N818 - an end need not be an error
    """The run ends.

    Attributes:
        reason: word of a trace's `end`.
        status: exit status.
        step: optimizer steps that are completed.
        digest: of the state at the end.
    """

    def __init__(
        self,
        reason: Literal["completed", "crash-loop", "preempted", "fault"],
        status: int,
        step: int,
        digest: str | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.status, self.step, self.digest = reason, status, step, digest
