"""Folds runs that exceed the memory: in stretches, on several processes, in order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trainspec_validate.documents.types.stream import Head
from trainspec_validate.system import threads
from trainspec_validate.system.process import die_quietly, interrupts_held
from trainspec_validate.telemetry.decode.reader import batches, have_order, leading_heads
from trainspec_validate.telemetry.decode.run_file import NATIVE, RunFile, Stretch
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.jobs import parts_of
from trainspec_validate.telemetry.fold.merge import HeadUnknownError, merge
from trainspec_validate.telemetry.fold.spill import sorted_digest
from trainspec_validate.telemetry.kernels import jit
from trainspec_validate.telemetry.kernels.layout import SERIES

_TASTE_BYTES = 200_000
_LEAST_BYTES = 64_000_000
"""A stretch below this is not worth a process of its own."""
_MOST_SHARED_HEADS = 20_000
"""A file that begins with more heads is read by one process, for each would hold them all."""
_NUM_OWN_THREADS = 2
"""Threads of this process that hand work to others."""
_OF_JOBS = ".jobs"
_SERIES_AT_ONCE = 100_000
"""Series of a share that are merged at once."""


def large_digest(files: Sequence[RunFile], num_workers: int | None) -> Digest:
    """The digest of a run, folded stretch by stretch; one that turns out not to be in order is sorted first."""
    if not have_order(files):
        return sorted_digest(files)
    shares = with_heads(split(ordered(files), _num_processes(files, num_workers or threads.num_processors())), files)
    with suppress(HeadUnknownError):
        digest = _folded(shares)
        if not digest.is_unsorted:
            return digest
        del digest  # before there is another one
    return sorted_digest(files)


def _num_processes(files: Sequence[RunFile], wanted: int) -> int:
    """Processes that may read the files at once: what they unpack is bounded over all of them."""
    if threads.num_affordable(_NUM_OWN_THREADS) < _NUM_OWN_THREADS:
        wanted = 1
    for file in files:
        if wanted > 1 and file.format == "parquet":
            from trainspec_validate.telemetry.formats.parquet import most_processes  # noqa: PLC0415

            with file.reading():
                wanted = min(wanted, most_processes(file.path))
    return wanted


def ordered(files: Sequence[RunFile]) -> list[RunFile]:
    """Files in an order in which each writer's records follow each other: by attempt, time of the head, and name."""

    def key(file: RunFile) -> tuple[int, int, str]:
        return (file.head.att, file.head.time_us, file.name) if file.head else (0, 0, file.name)

    return sorted(files, key=key)


def split(files: Sequence[RunFile], num_workers: int, least_bytes: int = 0) -> Iterator[list[Stretch]]:
    """Shares of about the same number of bytes, each of neighbouring stretches."""
    total = sum(file.text_bytes for file in files)
    num = max(1, min(num_workers, total // (least_bytes or _LEAST_BYTES)))
    share: list[Stretch] = []
    room = target = -(-total // num)
    for file in files:
        start = 0
        with file.reading():
            size, unit = _places(file) if file.text_bytes > room else (1, file.text_bytes)
            heads = _heads_before(file) if size > 1 else ()
            if len(heads) > _MOST_SHARED_HEADS:
                size, unit, heads = 1, file.text_bytes, ()
        while (size - start) * unit > room and (step := max(1, round(room / unit))) < size - start:
            share.append(Stretch(file, start, start + step, heads if start else ()))
            yield share
            start, share, room = start + step, [], room + target - step * unit
        share.append(Stretch(file, start, None, heads if start else ()))
        room -= (size - start) * unit
        if room <= 0:
            yield share
            share, room = [], target
    if share:
        yield share


def _places(file: RunFile) -> tuple[int, int]:
    """Number of places at which a file can begin to be read, and how much lies between two of them."""
    if file.format == "parquet":
        from trainspec_validate.telemetry.formats.parquet import num_row_groups  # noqa: PLC0415

        num = max(1, num_row_groups(file.path))
        return num, file.text_bytes // num
    can_split = file.format == NATIVE and not file.is_compressed and file.head is not None
    return (file.num_bytes, 1) if can_split else (1, file.text_bytes)


def _heads_before(file: RunFile) -> tuple[Head, ...]:
    """The heads that a file begins with, for stretches behind them."""
    if file.format == "parquet":
        from trainspec_validate.telemetry.decode.arrow import leading_heads as parquet_heads  # noqa: PLC0415

        return parquet_heads(file.path)
    return leading_heads(file.path)


def with_heads(shares: Iterable[Sequence[Stretch]], files: Sequence[RunFile]) -> list[list[Stretch]]:
    """The shares, with the heads of all other files for files that have none."""
    if all(file.head for file in files):
        return [list(share) for share in shares]
    heads = heads_of(files)
    return [[each if each.file.head else replace(each, heads=heads) for each in share] for share in shares]


def heads_of(files: Sequence[RunFile]) -> tuple[Head, ...]:
    """The heads that all files begin with."""
    found: list[Head] = []
    for file in files:
        if file.head is not None:
            with file.reading():
                found += (file.head,) if file.format != NATIVE else leading_heads(file.path)
    return tuple(found)


def fold_share(share: Sequence[Stretch]) -> Digest:
    """The digest of neighbouring stretches."""
    jit.compile_loops()
    digest = Digest()
    for stretch in share:
        for batch in batches(stretch, digest.names, digest.facts(stretch.file.number), in_columns=True):
            digest.add(batch)
    return digest


def _warm_up(stretch: Stretch) -> None:
    """Load or compile the loops before the processes are started, so that they begin with them."""
    if stretch.file.format == NATIVE:
        fold_share([Stretch(stretch.file, 0, _TASTE_BYTES)])
    elif stretch.file.format == "parquet":
        fold_share([Stretch(stretch.file, 0, 1)])
    else:
        jit.compile_loops()


def _folded(shares: Sequence[Sequence[Stretch]]) -> Digest:
    """The digest of all shares; tables of series come back through files, so that they are never there twice."""
    if len(shares) == 1:
        return fold_share(shares[0])
    _warm_up(shares[0][0])
    with tempfile.TemporaryDirectory(prefix="trainspec-") as directory:
        paths = [Path(directory, str(number)) for number in range(len(shares))]
        with _workers(len(shares)) as pool:
            with interrupts_held():  # until the workers can die without a traceback
                found = pool.map(_fold_aside, shares, paths)
            first, *others = found
        first.rows = np.fromfile(paths[0], SERIES)
        first.jobs.take_back(_job_values(paths[0]))
        paths[0].unlink()
        for later, path in zip(others, paths[1:], strict=True):
            merge(first, later, _parts(path), _job_values(path))
            path.unlink()
    return first


@contextmanager
def _workers(number: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end, at once and in silence, when this one is told to."""
    with ProcessPoolExecutor(number, initializer=die_quietly) as pool:
        try:
            yield pool
        except BaseException:
            for process in [*(pool._processes or {}).values()]:
                process.kill()
            raise


def _fold_aside(share: Sequence[Stretch], path: Path) -> Digest:
    """The digest of a share without its series and values of the job, which are in files."""
    digest = fold_share(share)
    with path.with_suffix(_OF_JOBS).open("wb") as file:
        digest.jobs.move_to(file)
    digest.rows[: digest.num_rows].tofile(path)
    digest.rows = np.zeros(0, SERIES)
    return digest


def _parts(path: Path) -> Iterator[Any]:
    """The series in a file, some at a time."""
    with path.open("rb") as file:
        while len(part := np.fromfile(file, SERIES, _SERIES_AT_ONCE)):
            yield part


def _job_values(path: Path) -> Iterator[Any]:
    """The values of the job beside a file of series, some at a time."""
    values = path.with_suffix(_OF_JOBS)
    with values.open("rb") as file:
        yield from parts_of(file)
    values.unlink()
