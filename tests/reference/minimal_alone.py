"""Runs the job of a task on one rank of a minimal stack, in the process of its launcher.

`python minimal_alone.py FRAMEWORK TASK`: what starts the processes of ranks is replaced, and nothing else.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "reference" / "minimal"))


def torch_alone(module: Any) -> None:
    """The agent of torchrun starts no process."""
    import torch.distributed as dist
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

    def launch(config: Any, program: str) -> Callable[..., None]:
        def start(script: str, path: str, attempt: str, *checkpoint: str) -> None:
            with socket.create_server(("127.0.0.1", 0)) as free:
                place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
            os.environ.update({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", **place})
            try:
                module.main(path, attempt, *checkpoint)
            except ValueError:
                dist.destroy_process_group()
                failure = ProcessFailure(local_rank=0, pid=os.getpid(), exitcode=1, error_file="")
                raise ChildFailedError(script, {0: failure}) from None

        return start

    module.elastic_launch = launch


class Rank:
    """In place of a process: the rank runs when it is started."""

    def __init__(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.exitcode: int | None = None
        self._target, self._args = target, args

    def start(self) -> None:
        try:
            self._target(*self._args)
            self.exitcode = 0
        except SystemExit as end:
            self.exitcode = int(str(end.code))

    def kill(self) -> None:
        """It has ended."""

    join = terminate = kill


class Context:
    """In place of what makes processes."""

    Process = Rank

    @staticmethod
    def Array(code: str, size: int, *, lock: bool) -> list[float]:  # noqa: N802
        return [0.0] * size


def jax_alone(module: Any) -> None:
    """No process is spawned, and JAX starts once for all attempts."""
    import jax

    initialize, made = jax.distributed.initialize, list[tuple[Any, ...]]()

    def once(*place: Any) -> None:
        if not made:
            made.append(place)
            initialize(*place)

    jax.distributed.initialize = once
    module.multiprocessing.get_context = lambda method: Context
    module.os._exit = sys.exit


if __name__ == "__main__":
    stack = importlib.import_module(f"minimal_{sys.argv[1]}")
    {"torch": torch_alone, "jax": jax_alone}[sys.argv[1]](stack)
    status = stack.launch(stack.read_task(sys.argv[2])) if sys.argv[1] == "jax" else stack.launch(sys.argv[2])
    sys.stdout.flush()
    sys.exit(status)
