"""Run the fuzzer: `python -m tests.fuzz --cases 100000`; prints a table and exits with 1 when an outcome is wrong.

Seconds are of a processor, so that a busy machine changes none. Sessions of Spark have a test of their own, which runs
with `make test-long` where there is Java; here the parts of a run are folded as Spark would, in one process.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "conformance"))  # as pytest has it

from tests.fuzz import processes
from tests.fuzz.cases import Outcome, lay_out, run
from tests.fuzz.commands import COMMANDS, case

_BATCH = 50
_BATCHES_OF_A_PROCESS = 40
_MAX_SHOWN = 60
_ADDRESS_SPACE_BYTES = 12 << 30
Results = list[tuple[int, str, Outcome | None]]


@dataclass
class Tally:
    """What came of the cases of one command."""

    codes: Counter[int] = field(default_factory=Counter)
    slowest_seconds: float = 0
    peak_bytes: int = 0
    num_wrong: int = 0

    def add(self, outcome: Outcome) -> None:
        """Count a case."""
        self.codes[outcome.code] += 1
        self.slowest_seconds = max(self.slowest_seconds, outcome.seconds)
        self.peak_bytes = max(self.peak_bytes, outcome.peak_bytes)
        self.num_wrong += bool(outcome.mistakes)


def one(seed: int, number: int, keep: Path | None = None, only: str | None = None) -> tuple[int, str, Outcome | None]:
    """Run the case of a number, of any command or of one; with `keep`, leave the tree of a wrong one there."""
    made = case(seed, number, next((command for command in COMMANDS if command.name == only), None))
    place = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        try:
            lay_out(made, place, random.Random(number))
        except OSError:
            return number, made.command.name, None
        outcome = run(made, place)
        if outcome.mistakes and keep is not None:
            shutil.copytree(place, keep / str(number), symlinks=True, dirs_exist_ok=True, ignore=_fifos)
            words = " ".join(made.arguments).encode("utf-8", "backslashreplace").decode()
            (keep / f"{number}.txt").write_text(f"{words}\n" + "\n".join(outcome.mistakes), "utf-8", "backslashreplace")
        return number, made.command.name, outcome
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _fifos(directory: str, names: list[str]) -> list[str]:
    return [name for name in names if Path(directory, name).is_fifo()]


def _batch(seed: int, keep: Path | None, only: str | None, numbers: range) -> Results:
    return [one(seed, number, keep, only) for number in numbers]


def outcomes(
    seed: int, numbers: range, num_jobs: int, keep: Path | None = None, only: str | None = None
) -> Iterator[tuple[int, str, Outcome]]:
    """Run the cases of a range of numbers; those whose names this system cannot hold are left out."""
    batches = [numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH)]
    work = partial(_batch, seed, keep, only)
    if num_jobs == 1:
        results: Iterable[Results] = map(work, batches)
        yield from _held(results)
        return
    window = num_jobs * _BATCHES_OF_A_PROCESS
    for start in range(0, len(batches), window):
        yield from _held(_apart(seed, work, batches[start : start + window], num_jobs))


def _apart(seed: int, work: Callable[[range], Results], batches: Sequence[range], num_jobs: int) -> Iterator[Results]:
    """Run batches in processes of their own; where one ends early, find the case that ends it."""
    broken = []
    with ProcessPoolExecutor(num_jobs, multiprocessing.get_context("fork"), _settle) as pool:
        for batch, future in [(batch, pool.submit(work, batch)) for batch in batches]:
            try:
                yield future.result()
            except BrokenProcessPool:
                broken.append(batch)
    for numbers in broken:
        if len(broken) > 1:
            yield from _apart(seed, work, [numbers], 1)
        elif len(numbers) > 1:
            middle = len(numbers) // 2
            yield from _apart(seed, work, [numbers[:middle], numbers[middle:]], 1)
        else:
            outcome = Outcome(-1, ("the process ended within the case",), 0, 0)
            yield [(numbers[0], case(seed, numbers[0]).command.name, outcome)]


def _held(results: Iterable[Results]) -> Iterator[tuple[int, str, Outcome]]:
    for batch in results:
        for number, name, outcome in batch:
            if outcome is not None:
                yield number, name, outcome


def _settle() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE_BYTES, _ADDRESS_SPACE_BYTES))
    os.environ["TRAINSPEC_DEBUG"] = ""


def table(tallies: dict[str, Tally]) -> str:
    """The counts of each command, in lines."""
    rows = [
        f"{'command':36} {'cases':>8} {'exit 0':>8} {'1':>7} {'2':>7} {'3':>5} {'wrong':>6} {'slowest s':>9} {'MB':>6}"
    ]
    total = Tally()
    for command in COMMANDS:
        tally = tallies.get(command.name)
        if tally is not None:
            rows.append(_row(command.name, tally))
            total.codes += tally.codes
            total.num_wrong += tally.num_wrong
            total.slowest_seconds = max(total.slowest_seconds, tally.slowest_seconds)
            total.peak_bytes = max(total.peak_bytes, tally.peak_bytes)
    return "\n".join([*rows, _row("all", total)])


def _row(name: str, tally: Tally) -> str:
    codes = tally.codes
    return (
        f"{name:36} {codes.total():8,} {codes[0]:8,} {codes[1]:7,} {codes[2]:7,} {codes[3]:5,} {tally.num_wrong:6,}"
        f" {tally.slowest_seconds:9.1f} {tally.peak_bytes / 1e6:6.0f}"
    )


COLUMNS = ("command", "cases", "exit_0", "exit_1", "exit_2", "exit_3", "wrong", "slowest_seconds", "peak_bytes")


def write_results(tallies: dict[str, Tally], path: Path) -> None:
    """Write the table for programs; seconds are of a processor."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(COLUMNS)
        for name in (command.name for command in COMMANDS if command.name in tallies):
            one = tallies[name]
            codes = [one.codes[code] for code in (0, 1, 2, 3)]
            figures = (f"{one.slowest_seconds:.2f}", one.peak_bytes)
            writer.writerow([name, one.codes.total(), *codes, one.num_wrong, *figures])


def logged(path: Path | None) -> Iterator[tuple[int, str, Outcome]]:
    """The outcomes that a log of an earlier run holds."""
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ()
    for told in map(json.loads, lines):
        if "code" in told:
            outcome = Outcome(told["code"], tuple(told["mistakes"]), told["seconds"], told["peak_bytes"])
            yield told["number"], told["command"], outcome


def main() -> int:
    """Run the cases that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many")
    parser.add_argument("--only", choices=[command.name for command in COMMANDS], help="one command alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    words = "whole processes too: outputs that are full or closed, signals, files that change, --follow"
    parser.add_argument("--processes", type=int, default=0, metavar="NUMBER", help=words)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="directory for the trees of wrong outcomes")
    words = "a line for each case; a run with the same file continues behind its last"
    parser.add_argument("--log", type=Path, metavar="FILE", help=words)
    parser.add_argument("--results", type=Path, metavar="FILE", help="the table as CSV")
    wanted = parser.parse_args()
    if wanted.keep:
        wanted.keep.mkdir(parents=True, exist_ok=True)
    tallies: dict[str, Tally] = defaultdict(Tally)
    start, num_shown = time.monotonic(), 0
    first, end = wanted.first, wanted.first + wanted.cases
    for number, name, outcome in logged(wanted.log):
        tallies[name].add(outcome)
        first = max(first, number + 1)
    numbers = range(min(first, end), end)
    for number, name, outcome in outcomes(wanted.seed, numbers, wanted.jobs, wanted.keep, wanted.only):
        tallies[name].add(outcome)
        if wanted.log:
            with wanted.log.open("a", encoding="ascii") as log:
                log.write(json.dumps({"number": number, "command": name, **asdict(outcome)}) + "\n")
        if outcome.mistakes and num_shown < _MAX_SHOWN:
            num_shown += 1
            print(f"{number} {name}: {outcome.mistakes[0][:700]!a}", flush=True)  # noqa: T201
    print(table(tallies))  # noqa: T201
    if wanted.results:
        write_results(tallies, wanted.results)
    num_run = sum(tally.codes.total() for tally in tallies.values())
    if num_run < wanted.cases:
        print(f"{wanted.cases - num_run:,} not run: names that this system cannot hold")  # noqa: T201
    lines, mistakes = processes.table(wanted.seed, range(wanted.first, wanted.first + wanted.processes))
    print("\n".join(filter(None, (lines, *mistakes))).encode("ascii", "backslashreplace").decode())  # noqa: T201
    print(f"seed {wanted.seed}, {time.monotonic() - start:.0f} s with {wanted.jobs} processes")  # noqa: T201
    return int(bool(mistakes) or any(tally.num_wrong for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
