"""Gain of each feature of a conformant trainer in PyTorch, and of all together, as ratios of one run.

Run with `python benchmarks/trainer.py`; `--short` keeps to seconds. A naive setup loads its input in the loop, writes
attention as the textbook does, exchanges gradients after the backward pass, computes in fp32, and stops while
it saves. Each setup runs in turn, round after round, in the same processes, so that a machine that drifts drifts for
all. Two ranks with one thread each run on the processor; on a device each rank has its own accelerator.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import machine
import trainer_worker
from trainer_setups import SHAPES, Setup, setups
from trainspec_reference.common.backend import Formation

TIMEOUT_SECONDS = 600.0


@dataclass(slots=True)
class Ranks:
    """Processes that run one task after the other, in a formation of its own each."""

    members: list[tuple[BaseProcess, Connection]] = field(default_factory=list)
    number: int = 0

    def run(self, task: Callable[..., Any], hosts: Sequence[str], *arguments: Any) -> list[Any]:
        """Results of the task on each rank."""
        while len(self.members) < len(hosts):
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
            process.start()
            self.members.append((process, ours))
        self.number += 1
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{listener.getsockname()[1]}"
        for rank in range(len(hosts)):
            formation = Formation(self.number, rank, tuple(hosts), address, TIMEOUT_SECONDS)
            self.members[rank][1].send((task, formation, arguments))
        return [self.answer(rank) for rank in range(len(hosts))]

    def answer(self, rank: int) -> Any:
        """Result of one rank; all end where one fails."""
        process, connection = self.members[rank]
        if not connection.poll(TIMEOUT_SECONDS):
            self.close()
            sys.exit(f"rank {rank} does not end")
        try:
            return connection.recv()
        except EOFError:
            self.close()
            sys.exit(f"rank {rank} (process {process.pid}) ended")

    def close(self) -> None:
        """End all processes."""
        for process, connection in self.members:
            connection.close()
            process.kill()
            process.join()
        self.members.clear()


def serve(connection: Connection) -> None:
    """Run tasks until there are no more."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    while True:
        try:
            task, formation, arguments = connection.recv()
        except EOFError:
            return
        connection.send(task(formation, *arguments))


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long each setup runs, on what, and where it may write."""

    device: str
    num_rounds: int
    num_steps: int
    root: Path

    def measured(self, ranks: Ranks, chosen: Sequence[Setup]) -> dict[str, list[trainer_worker.Measured]]:
        """Measurements of each rank for each setup, round after round."""
        found: dict[str, list[trainer_worker.Measured]] = {setup.name: [] for setup in chosen}
        for _ in range(self.num_rounds):
            for setup in chosen:
                arguments = setup, self.device, self.num_steps, self.root
                found[setup.name] += ranks.run(trainer_worker.measure, setup.hosts, *arguments)
        return found


def ingredients(ranks: Ranks, device: str, num_rounds: int, num_steps: int, root: Path) -> None:
    """Print the time of a step of each setup, and how many times as fast as the naive one it is."""
    found = Rounds(device, num_rounds, num_steps, root).measured(ranks, setups())
    print(f"\nStep time: median of {num_rounds} rounds of {num_steps} steps with one save, two ranks")
    naive = statistics.median(run.step_seconds for run in found["naive"])
    for name, runs in found.items():
        seconds = [run.step_seconds for run in runs]
        median, low, high = statistics.median(seconds), min(seconds), max(seconds)
        exposed = statistics.median(run.exposed_seconds for run in runs)
        print(
            f"  {name:24} {median * 1000:8.1f} ms ({low * 1000:.1f} to {high * 1000:.1f})"
            f"  {naive / median:5.2f}x  exchange exposed {exposed * 1000:6.1f} ms"
        )
    stalls = {name: statistics.median(run.stall_seconds for run in runs) for name, runs in found.items()}
    blocking, beside = stalls["naive"], stalls["asynchronous saves"]
    print(f"Stall of a save: blocking {blocking * 1000:.1f} ms, asynchronous {beside * 1000:.1f} ms", end="")
    print(f", {blocking / beside:.1f}x")


def telemetry(ranks: Ranks, device: str, num_rounds: int, num_steps: int, root: Path) -> None:
    """Print the time of a step with the recorder on and off."""
    (setup,) = (setup for setup in setups() if setup.name == "all but bf16")
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for number in range(num_rounds):
        for is_on in (False, True) if number % 2 else (True, False):
            folder = root / f"stream-{number}" if is_on else None
            seconds[is_on] += ranks.run(trainer_worker.recorded, setup.hosts, setup, device, num_steps, folder)
    off, on = (statistics.median(seconds[is_on]) for is_on in (False, True))
    print(f"\nTelemetry: off {off * 1000:.2f} ms, on {on * 1000:.2f} ms a step: {100 * (on / off - 1):+.1f} %", end="")
    spread = 100 * (max(seconds[False]) / min(seconds[False]) - 1)
    print(f" (without it, the slowest round took {spread:.0f} % more than the fastest)")


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="few rounds")
    parser.add_argument("--device", default="cpu", choices=sorted(SHAPES))
    options = parser.parse_args()
    num_rounds, num_steps = (2, 6) if options.short else (7, 20)
    print(machine.describe("torch", "numpy"))
    shape = SHAPES[options.device]
    print(f"{shape.num_layers} layers of {shape.hidden_size}, {shape.sequence_length} tokens, on {options.device}")
    ranks = Ranks()
    with tempfile.TemporaryDirectory() as name:
        try:
            ingredients(ranks, options.device, num_rounds, num_steps, Path(name))
            telemetry(ranks, options.device, num_rounds, num_steps, Path(name))
        finally:
            ranks.close()


if __name__ == "__main__":
    main()
