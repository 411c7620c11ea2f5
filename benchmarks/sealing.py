"""Cost of sealing checkpoints in the background: of a step while a checkpoint is hashed, and of the stall of a save.

Run with `python benchmarks/sealing.py`; `--short` keeps to seconds. The loop computes in Python, so that the thread
that hashes competes with it for the interpreter: the worst case. With `--torch` it trains a network on one thread of
the processor, and with `--busy` another program works on each core, so that hashing has none for itself. Steps while a
seal runs and as many without take turns: a seal is so small that a machine that drifts drifts for both. Medians are of
the differences of neighbors. Where others use the machine, the processor time of the thread that trains says more than
the wall clock, and the load average is printed. Nothing is asserted, but a seal that fails ends the run.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import machine  # noqa: E402
from recorder import STEP_SECONDS, turns_of_a_step, work  # noqa: E402

from trainspec_record.checkpoints import Seal, seal_in_background  # noqa: E402

Step = Callable[[], object]
NUM_FILES = 4
MOST_SECONDS = 600
LEAST_PAIRS = 3
NORMAL = 1.4826
"""Standard deviation of a normal distribution, by its median absolute deviation."""


@dataclass
class Save:
    """Times of one save, in which training waits."""

    stall_seconds: float
    """Of writing, and of the call that seals."""
    call_seconds: float
    """Of it, the call."""


@dataclass
class Steps:
    """Times of a step: the mean of some in a row."""

    wall_seconds: float
    busy_seconds: float
    """Processor time of the thread that trains."""


def save(folder: Path, content: bytes, *, is_sealed: bool) -> Save:
    """Write a checkpoint, and seal it or not."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = time.perf_counter()
    for number in range(NUM_FILES):
        with (folder / f"part-{number}").open("wb") as file:
            file.write(content)
    written = time.perf_counter()
    seal = seal_in_background(folder) if is_sealed else None
    end = time.perf_counter()
    if seal is not None:
        done(seal)
    return Save(end - begin, end - written)


def done(seal: Seal) -> Seal:
    """A seal, once its manifest is written."""
    if not seal.wait(MOST_SECONDS):
        raise RuntimeError(seal.problem or f"the seal takes more than {MOST_SECONDS} s")
    return seal


def torch_step() -> Step:
    """A step of AdamW over a network of 6.3 million parameters, on one thread."""
    import torch  # noqa: PLC0415 - with --torch alone

    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.GELU())]
    net, batch = torch.nn.Sequential(*layers), torch.randn(64, 1024)
    optimizer = torch.optim.AdamW(net.parameters())

    def step() -> None:
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()

    step()
    return step


def trained(step: Step, num_steps: int, seal: Seal | None = None) -> tuple[Steps, int]:
    """Train on for some steps, or until a seal is done; the times of a step, and how many there were."""
    begin, busy, count = time.perf_counter(), time.thread_time(), 0
    while count < num_steps or not (seal is None or seal.manifest or seal.problem):
        step()
        count += 1
        if time.perf_counter() - begin > MOST_SECONDS:
            raise TimeoutError(f"a seal, or its steps, take more than {MOST_SECONDS} s")
    wall, busy = time.perf_counter() - begin, time.thread_time() - busy
    return Steps(wall / count, busy / count), count


def step_pairs(folder: Path, step: Step, seconds: float) -> tuple[list[tuple[Steps, Steps]], list[Seal]]:
    """Steps while a checkpoint is hashed, each with as many without next to them, for some seconds."""
    end, num_steps = time.monotonic() + seconds, 1
    pairs: list[tuple[Steps, Steps]] = []
    seals: list[Seal] = []
    while time.monotonic() < end or len(pairs) < LEAST_PAIRS:
        before = None if len(pairs) % 2 else trained(step, num_steps)[0]  # each goes first in turn
        seals.append(seal_in_background(folder))
        with_it, num_steps = trained(step, 1, seals[-1])
        done(seals[-1])
        pairs.append((with_it, before or trained(step, num_steps)[0]))
    return pairs, seals


def shares(with_it: Sequence[float], without: Sequence[float]) -> str:
    """The median of the differences of pairs in percent, with its standard error from the absolute deviations."""
    found = [100 * (one / other - 1) for one, other in zip(with_it, without, strict=True)]
    middle = statistics.median(found)
    error = 1.2533 * NORMAL * statistics.median(abs(one - middle) for one in found) / len(found) ** 0.5
    return f"{middle:+.2f} % +- {error:.2f} %"


def row(title: str, with_it: Sequence[float], without: Sequence[float]) -> str:
    """One line: medians without and with a seal, and their difference."""
    times = " ms without, ".join(f"{statistics.median(column) * 1e3:9.2f}" for column in (without, with_it))
    return f"  {title:<25} {times} ms with it, {shares(with_it, without)}"


@contextmanager
def others(number: int) -> Iterator[None]:
    """So many other programs that compute without a pause."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def report_stall(folder: Path, num_rounds: int, num_bytes: int) -> None:
    """Print what seals cost of the stall of a save."""
    content = os.urandom(num_bytes // NUM_FILES)
    pairs = []
    for number in range(num_rounds):
        before = save(folder, content, is_sealed=False) if number % 2 else None
        one = save(folder, content, is_sealed=True)
        pairs.append((one, before or save(folder, content, is_sealed=False)))
    print(f"{num_bytes / 1e9:.2f} GB in {NUM_FILES} files, {num_rounds} pairs with and without a seal in turn; medians")
    print(
        row("stall of a save", *zip(*((one.stall_seconds, other.stall_seconds) for one, other in pairs), strict=True))
    )
    calls = [one.call_seconds * 1e6 for one, _ in pairs]
    print(f"  the call that seals takes {statistics.median(calls):.0f} us, at most {max(calls):.0f} us, of the stall")


def report_steps(folder: Path, step: Step, seconds: float, num_bytes: int) -> None:
    """Print what seals cost of steps while they hash."""
    save(folder, os.urandom(num_bytes // NUM_FILES), is_sealed=False)
    pairs, seals = step_pairs(folder, step, seconds)
    print(
        f"{num_bytes / 1e6:.1f} MB in {NUM_FILES} files, {len(pairs)} pairs of steps with and without a seal; medians"
    )
    walls = zip(*((one.wall_seconds, other.wall_seconds) for one, other in pairs), strict=True)
    print(row("step while it is hashed", *walls))
    busy = zip(*((one.busy_seconds, other.busy_seconds) for one, other in pairs), strict=True)
    print(row("processor time of a step", *busy))
    each = statistics.median(seal.processor_seconds for seal in seals) / num_bytes
    rate = num_bytes / statistics.median(seal.seconds for seal in seals)
    print(f"  hashing takes {each * 1e9:.2f} processor s/GB, {rate / 1e6:.0f} MB/s meanwhile")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer and smaller saves")
    parser.add_argument("--torch", action="store_true", help="train a network with PyTorch")
    parser.add_argument("--busy", action="store_true", help="keep each core busy with another program")
    parser.add_argument("--directory", help="where to write (default: that for temporary files)")
    options = parser.parse_args()
    num_rounds, num_bytes, seconds = (3, 1 << 25, 2) if options.short else (20, 1 << 28, 60)
    print(machine.describe("trainspec-validate"))
    step = torch_step() if options.torch else functools.partial(work, turns_of_a_step())
    print("steps of PyTorch" if options.torch else f"steps of about {STEP_SECONDS * 1e3:.0f} ms in Python")
    print(f"load average {os.getloadavg()[0]:.1f} before")
    num_others = (os.cpu_count() or 1) if options.busy else 0
    with tempfile.TemporaryDirectory(dir=options.directory) as place, others(num_others):
        if num_others:
            print(f"{num_others} other programs compute without a pause")
        else:
            report_stall(Path(place, "step-1"), num_rounds, num_bytes)
        report_steps(Path(place, "step-2"), step, seconds, 1 << 25)
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
