"""Starts torchrun for a task, and records in a trace the messages that its agent logs."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun
from tracing import Trace, read_task

MAX_RESTARTS = 3


class AgentLog(logging.Handler):
    """Turns the lines in which the agent reports a failure and its restart into records."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        """Report a line, where it is about a failure."""
        line = record.getMessage()
        if line.startswith("failed (exitcode:"):
            self._trace.tell("fault", kind="process", rank=int(record.args[1]), reason=line.partition(" (pid")[0])  # type: ignore[index,call-overload,arg-type]
        elif "will restart worker group" in line:
            self._trace.tell("decision", action="restart", reason=line[:200])
            self._trace.attempt += 1


def main(arguments: list[str]) -> int:
    """Run a shim with as many ranks as the task wants, as `torchrun --standalone` does."""
    shim, path = arguments
    task = read_task(path)
    os.environ.pop("TRAINSPEC_RUN", None)  # a recorder that is installed beside the stack would make it another one
    trace = Trace(task["trace_directory"], "agent", task["attempt"])
    handler = AgentLog(trace)
    for name in ("agent.server.api", "multiprocessing.api"):
        logger = logging.getLogger(f"torch.distributed.elastic.{name}")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
    try:
        torchrun(
            [
                "--standalone",
                f"--nproc-per-node={task['job']['num_ranks']}",
                f"--max-restarts={MAX_RESTARTS}",
                str(Path(__file__).with_name(shim)),
                path,
            ]
        )
    except ChildFailedError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the log of the command
        trace.tell("end", reason="fault", step=0)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
