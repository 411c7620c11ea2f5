"""Cost of sealing checkpoints in the background: of a step while a checkpoint is hashed, and of the stall of a save.

Run with `python benchmarks/sealing.py`; `--short` keeps to seconds. The loop computes in Python, so that the thread
that hashes competes with it for the interpreter: the worst case. With `--torch` it trains a network on one thread of
the processor. Saves with and without a seal take turns in one process, so that a machine that drifts drifts for both.
Where others use the machine, the processor time of the thread that trains says more than the wall clock, and the load
average is printed. Nothing is asserted, but a seal that fails ends the run.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent)]

import machine  # noqa: E402
from recorder import STEP_SECONDS, turns_of_a_step, work  # noqa: E402

from trainspec_record.checkpoints import Seal, seal_in_background  # noqa: E402

Step = Callable[[], object]
NUM_FILES = 4
MOST_SECONDS = 600


@dataclass
class Save:
    """Times of one save."""

    stall_seconds: float
    """Time in which training waits: of writing, and of the call that seals."""
    call_seconds: float
    """Of it, the call."""
    step_seconds: float
    """Of a step after it; with a seal, while the files are hashed."""
    busy_seconds: float
    """Of it, the processor time of the thread that trains."""
    num_steps: int
    seal: Seal | None = None


def save(folder: Path, content: bytes, *, is_sealed: bool) -> tuple[float, float, Seal | None]:
    """Write a checkpoint, and seal it or not; the seconds that this took, and the call that seals."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = time.perf_counter()
    for number in range(NUM_FILES):
        with (folder / f"part-{number}").open("wb") as file:
            file.write(content)
    written = time.perf_counter()
    seal = seal_in_background(folder) if is_sealed else None
    end = time.perf_counter()
    return end - begin, end - written, seal


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


def sealed(folder: Path, content: bytes, step: Step) -> Save:
    """Save with a seal, and train on until it is done."""
    stall, call, seal = save(folder, content, is_sealed=True)
    assert seal is not None
    begin, busy, num_steps = time.perf_counter(), time.thread_time(), 0
    while num_steps == 0 or not (seal.manifest or seal.problem):
        step()
        num_steps += 1
        if time.perf_counter() - begin > MOST_SECONDS:
            raise TimeoutError(f"the seal takes more than {MOST_SECONDS} s")
    taken, busy = time.perf_counter() - begin, time.thread_time() - busy
    if not seal.wait(MOST_SECONDS):
        raise RuntimeError(seal.problem)
    return Save(stall, call, taken / num_steps, busy / num_steps, num_steps, seal)


def plain(folder: Path, content: bytes, step: Step, num_steps: int) -> Save:
    """Save without a seal, and train on for as many steps."""
    stall, call, _ = save(folder, content, is_sealed=False)
    begin, busy = time.perf_counter(), time.thread_time()
    for _ in range(num_steps):
        step()
    taken, busy = time.perf_counter() - begin, time.thread_time() - busy
    return Save(stall, call, taken / num_steps, busy / num_steps, num_steps)


def shares(with_it: Sequence[float], without: Sequence[float]) -> str:
    """The median of the differences of pairs in percent, with its standard error."""
    found = [100 * (one / other - 1) for one, other in zip(with_it, without, strict=True)]
    error = 1.2533 * statistics.stdev(found) / len(found) ** 0.5
    return f"{statistics.median(found):+.2f} % +- {error:.2f} %"


def report(pairs: Sequence[tuple[Save, Save]], num_bytes: int) -> None:
    """Print what seals cost."""
    gigabytes = num_bytes / 1e9
    print(f"{gigabytes:.2f} GB in {NUM_FILES} files, {len(pairs)} pairs with and without a seal in turn; medians")
    for title, values in (
        ("stall of a save", [(one.stall_seconds, other.stall_seconds) for one, other in pairs]),
        ("step while it is hashed", [(one.step_seconds, other.step_seconds) for one, other in pairs]),
        ("processor time of a step", [(one.busy_seconds, other.busy_seconds) for one, other in pairs]),
    ):
        with_it, without = zip(*values, strict=True)
        times = " ms without, ".join(f"{statistics.median(column) * 1e3:9.2f}" for column in (without, with_it))
        print(f"  {title:<25} {times} ms with it, {shares(with_it, without)}")
    calls = [one.call_seconds * 1e6 for one, _ in pairs]
    print(f"  the call that seals takes {statistics.median(calls):.0f} us, at most {max(calls):.0f} us, of the stall")
    extra = [(one.busy_seconds - other.busy_seconds) * one.num_steps for one, other in pairs]
    print(f"  a seal takes {statistics.median(extra) * 1e3:.0f} processor ms of training in all, while it is hashed")
    each = [one.seal.processor_seconds / gigabytes for one, _ in pairs if one.seal is not None]
    print(f"  hashing takes {statistics.median(each):.2f} processor s/GB, at low priority on one core")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="fewer and smaller saves")
    parser.add_argument("--torch", action="store_true", help="train a network with PyTorch")
    parser.add_argument("--directory", help="where to write (default: that for temporary files)")
    options = parser.parse_args()
    num_rounds, num_bytes = (3, 1 << 25) if options.short else (20, 1 << 28)
    print(machine.describe("trainspec-validate"))
    content = os.urandom(num_bytes // NUM_FILES)
    step = torch_step() if options.torch else functools.partial(work, turns_of_a_step())
    print("steps of PyTorch" if options.torch else f"steps of about {STEP_SECONDS * 1e3:.0f} ms in Python")
    print(f"load average {os.getloadavg()[0]:.1f} before")
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        folder = Path(place, "step-1")
        num_steps = sealed(folder, content, step).num_steps
        pairs = []
        for number in range(num_rounds):  # each goes first in turn, for a machine may favour the first or the second
            before = plain(folder, content, step, num_steps) if number % 2 else None
            one = sealed(folder, content, step)
            pairs.append((one, before or plain(folder, content, step, one.num_steps)))
            num_steps = one.num_steps
    report(pairs, num_bytes)
    print(f"load average {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
