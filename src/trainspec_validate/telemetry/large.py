"""The only place that folds runs that are too large to be held: in stretches, on several processes, in order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from trainspec_validate.documents.stream import Head
from trainspec_validate.telemetry import jit
from trainspec_validate.telemetry.digest import Digest
from trainspec_validate.telemetry.merge import HeadUnknownError, merge
from trainspec_validate.telemetry.reader import NATIVE, RunFile, Stretch, batches, have_order, leading_heads
from trainspec_validate.telemetry.spill import sorted_digest

_TASTE_BYTES = 200_000
_LEAST_BYTES = 64_000_000
"""A stretch below this is not worth a process of its own."""


def large_digest(files: Sequence[RunFile], num_workers: int | None) -> Digest:
    """The digest of a run, folded stretch by stretch; one that turns out not to be in order is sorted first."""
    if not have_order(files):
        return sorted_digest(files)
    shares = with_heads(split(ordered(files), num_workers or _processors()), files)
    try:
        digest = _folded(shares)
    except HeadUnknownError:
        return sorted_digest(files)
    return sorted_digest(files) if digest.is_unsorted else digest


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ordered(files: Sequence[RunFile]) -> list[RunFile]:
    """Files in an order in which each writer's records follow each other: by attempt, time of the head, and name."""

    def key(file: RunFile) -> tuple[int, int, str]:
        return (file.head.att, file.head.time_us, file.name) if file.head else (0, 0, file.name)

    return sorted(files, key=key)


def split(files: Sequence[RunFile], num_workers: int, least_bytes: int = 0) -> Iterator[list[Stretch]]:
    """Shares of about the same number of bytes, each of neighbouring stretches."""
    total = sum(file.num_bytes for file in files)
    num = max(1, min(num_workers, total // (least_bytes or _LEAST_BYTES)))
    share: list[Stretch] = []
    room = target = -(-total // num)
    for file in files:
        if file.format == "parquet" and len(files) < num_workers:
            yield from _row_groups(file, num_workers)
            continue
        start = 0
        can_split = file.format == NATIVE and not file.is_compressed and file.head is not None
        heads = leading_heads(file.path) if can_split and file.num_bytes > room else ()
        while can_split and file.num_bytes - start > room:
            share.append(Stretch(file, start, start + room, heads if start else ()))
            yield share
            start, share, room = start + room, [], target
        share.append(Stretch(file, start, None, heads if start else ()))
        room -= file.num_bytes - start
        if room <= 0:
            yield share
            share, room = [], target
    if share:
        yield share


def _row_groups(file: RunFile, num_workers: int) -> Iterator[list[Stretch]]:
    """Shares of the row groups of a Parquet file."""
    from trainspec_validate.streams.parquet import num_row_groups  # noqa: PLC0415
    from trainspec_validate.telemetry.arrow import leading_heads as parquet_heads  # noqa: PLC0415

    num = num_row_groups(file.path)
    shares = max(1, min(num_workers, num, 10 * file.num_bytes // _LEAST_BYTES))
    heads = parquet_heads(file.path) if shares > 1 else ()
    ends = [num * (part + 1) // shares for part in range(shares)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield [Stretch(file, start, end, heads if start else ())]


def with_heads(shares: Iterable[Sequence[Stretch]], files: Sequence[RunFile]) -> list[list[Stretch]]:
    """The shares, with the heads of all other files beside files that have none."""
    if all(file.head for file in files):
        return [list(share) for share in shares]
    heads = heads_of(files)
    return [[each if each.file.head else replace(each, heads=heads) for each in share] for share in shares]


def heads_of(files: Sequence[RunFile]) -> tuple[Head, ...]:
    """The heads that all files begin with."""
    ours = (file for file in files if file.head is not None)
    found = ((file.head,) if file.format != NATIVE else leading_heads(file.path) for file in ours)
    return tuple(head for heads in found for head in heads if head is not None)


def fold_share(share: Sequence[Stretch]) -> Digest:
    """The digest of neighbouring stretches."""
    jit.compile_loops()
    digest = Digest()
    for stretch in share:
        for batch in batches(stretch, digest):
            digest.add(batch)
    return digest


def _warm_up(stretch: Stretch) -> None:
    """Load or compile the loops before the processes are started, so that they begin with them."""
    if stretch.file.format == NATIVE:
        fold_share([Stretch(stretch.file, 0, _TASTE_BYTES)])
    else:
        jit.compile_loops()


def _folded(shares: Sequence[Sequence[Stretch]]) -> Digest:
    if len(shares) == 1:
        return fold_share(shares[0])
    _warm_up(shares[0][0])
    with ProcessPoolExecutor(len(shares)) as pool:
        first, *others = pool.map(fold_share, shares)
    for later in others:
        merge(first, later)
    return first
