"""Shows, without the suite, that a save of Orbax that fails on one process stops all of them."""

from __future__ import annotations

import multiprocessing
import resource
import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import jax
import numpy as np
import orbax.checkpoint as ocp

SECONDS = 100.0  # more than the 90 s in which training is to go on again


def process(number: int, port: int, directory: str) -> None:
    """Save twice; before the second time the first process may make no file longer, as on a full disk."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, number)
    manager = ocp.CheckpointManager(
        Path(directory), options=ocp.CheckpointManagerOptions(enable_async_checkpointing=False)
    )
    for step in (1, 2):
        try:
            manager.save(step, args=ocp.args.StandardSave({"weights": np.ones(4096)}))
            print(f"process {number} has saved step {step}", flush=True)  # noqa: T201
        except OSError as error:
            print(f"process {number} raises {type(error).__name__}: {error}", flush=True)  # noqa: T201
            raise
        if number == 0:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def main() -> None:
    """Wait for longer than a recovery may take, and look."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        processes = [context.Process(target=process, args=(number, port, directory)) for number in range(2)]
        for one in processes:
            one.start()
        processes[0].join(SECONDS)
        print(f"after {SECONDS:.0f} s processes still run: {[one.is_alive() for one in processes]}")  # noqa: T201
        for one in processes:
            one.kill()
            one.join()


if __name__ == "__main__":
    main()
