"""Folds a run on Apache Spark: the same stretches, the same folds, the same merge."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from trainspec_validate.system.boundary import TogetherUnreadableError, UnreadableError
from trainspec_validate.system.budget import OverLimitError
from trainspec_validate.telemetry.decode.reader import have_order
from trainspec_validate.telemetry.decode.run_file import RunFile, Stretch
from trainspec_validate.telemetry.fold.digest import Digest
from trainspec_validate.telemetry.fold.large import fold_share, heads_of, ordered, split, with_heads
from trainspec_validate.telemetry.fold.merge import HeadUnknownError, merge
from trainspec_validate.telemetry.kernels import jit

Part = tuple[int, int, Digest]
"""Numbers of the first and the last share that a digest holds, and the digest."""
Parts = list[Part] | Exception
"""Result of some shares: their parts, or why one of them cannot be folded. Spark would report it as its own failure."""
_OF_INPUT = (HeadUnknownError, OverLimitError, UnreadableError)
_SHARE_BYTES = 256_000_000


def spark_digest(files: Sequence[RunFile], num_shares: int | None = None) -> Digest:
    """The digest of a run, folded by the Spark session of this process, or a local one where there is none.

    Raises:
        OverLimitError: the files together pass a limit.
        TogetherUnreadableError: Spark is not installed, or the records of a writer are in no order.
        UnreadableError: a file cannot be read.
    """
    jit.compile_loops()  # for merging
    context = _context()
    num = num_shares or max(context.defaultParallelism, sum(file.num_bytes for file in files) // _SHARE_BYTES)
    files = [replace(file, path=file.path.absolute()) for file in files]  # workers have a directory of their own
    try:
        digest = _folded(context, with_heads(split(ordered(files), num, least_bytes=1), files))
    except HeadUnknownError:
        heads = heads_of(files)
        digest = _folded(context, [[Stretch(file, heads=heads)] for file in ordered(files)])
    if digest.is_unsorted or not have_order(files):
        raise TogetherUnreadableError(
            "records of one writer are not in order", "sort the files, or use the local engine"
        )
    return digest


def _context() -> Any:
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra, and slow to load
    except ImportError:
        raise TogetherUnreadableError("Spark is not installed", "pip install 'trainspec-validate[spark]'") from None
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a local session would take any python3
    session = SparkSession.builder.appName("trainspec-validate").getOrCreate()
    return session.sparkContext


def _folded(context: Any, shares: list[list[Stretch]]) -> Digest:
    """Fold each share where Spark puts it, and merge neighbours as a tree."""
    parts = context.parallelize(list(enumerate(shares)), len(shares)).map(_fold_numbered)
    found: Parts = parts.treeReduce(neighbours)
    if isinstance(found, Exception):
        raise found
    if len(found) != 1:
        raise RuntimeError(f"{len(found)} parts of {len(shares)} shares were not merged")
    return found[0][2]


def _fold_numbered(item: tuple[int, list[Stretch]]) -> Parts:
    number, share = item
    try:
        return [(number, number, fold_share(share))]
    except _OF_INPUT as error:
        return error


def neighbours(some: Parts, others: Parts) -> Parts:
    """All parts of both, those that follow each other merged; associative.

    A share that cannot be folded is the result; one that lacks a head gives way to one that cannot be read at all.
    """
    if isinstance(some, Exception):
        return others if isinstance(others, Exception) and isinstance(some, HeadUnknownError) else some
    if isinstance(others, Exception):
        return others
    try:
        return _merged([*some, *others])
    except _OF_INPUT as error:
        return error


def _merged(parts: Iterable[Part]) -> list[Part]:
    found: list[Part] = []
    for first, last, digest in sorted(parts, key=lambda part: part[0]):
        if found and found[-1][1] + 1 == first:
            merge(found[-1][2], digest)
            found[-1] = (found[-1][0], last, found[-1][2])
        else:
            found.append((first, last, digest))
    return found
