"""Serves the rendezvous of each formation from a process apart from all workers."""

from __future__ import annotations

import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

_ANSWER_SECONDS = 30.0
"""Longest wait for a meeting point; the process loads its libraries beside the workers that load theirs."""


class Rendezvous:
    """A process that serves for the whole run; it ends with the controller."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = list(command), dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, unless it runs, or formations do without.

        Raises:
            OSError: the command cannot be run.
        """
        if self._command and (self._process is None or self._process.poll() is not None):
            self.close()
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )

    def serve(self, address: str, num_ranks: int, timeout_seconds: float) -> bool:
        """Have a formation served at `host:port`; whether it is, and not by its rank 0."""
        if not self._command:
            return False
        self.start()
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return False
        try:
            process.stdin.write(f"{address} {num_ranks} {int(max(10, 2 * timeout_seconds))}\n".encode())
            process.stdin.flush()
        except OSError:
            return self._has_failed()
        end = time.monotonic() + _ANSWER_SECONDS
        is_there = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))[0]
        if not is_there or not process.stdout.readline():
            return self._has_failed()
        return True

    def _has_failed(self) -> bool:
        self.close()
        self._command = []
        print("no meeting point apart from the workers: rank 0 serves it", file=sys.stderr)  # noqa: T201 - the answer
        return False

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
