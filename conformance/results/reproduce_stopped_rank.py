"""Shows, without the suite, how long a collective of gloo waits for a process that is stopped.

Hugging Face Trainer, Accelerate, Lightning, DeepSpeed and torchrun all leave this limit as torch.distributed has it.
"""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from tempfile import TemporaryDirectory

import torch
from torch import distributed, multiprocessing

SECONDS = 100.0  # more than the 90 s in which training is to go on again


def rank(number: int, store: str) -> None:
    """Form a group; then one process stops, and the other one adds numbers with it."""
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=number, world_size=2)
    limit: timedelta = distributed.default_pg_timeout
    if number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    print(f"a collective may take {limit.total_seconds():.0f} s", flush=True)  # noqa: T201
    distributed.all_reduce(torch.ones(1))


def main() -> None:
    """Wait for longer than a recovery may take, and look."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as directory:
        processes = [context.Process(target=rank, args=(number, f"{directory}/store")) for number in range(2)]
        for process in processes:
            process.start()
        processes[0].join(SECONDS)
        print(f"after {SECONDS:.0f} s the other process still waits: {processes[0].is_alive()}")  # noqa: T201
        for process in processes:
            process.kill()
            process.join()


if __name__ == "__main__":
    main()
