"""Computes the most that gradient compression can save: bytes on the wire, time of a step."""

from __future__ import annotations

from math import log2


def quantised_ratio(dense_bits: float, wire_bits: float, scale_bits: float = 0, block_size: int = 1) -> float:
    """Dense bytes over bytes sent when each entry becomes `wire_bits` and each block of entries adds a scale.

    Four bits with a 16-bit scale per 128 entries are 4.125 bits, so 16-bit gradients shrink by

    >>> round(quantised_ratio(16, 4, 16, 128), 2)
    3.88

    Raises:
        ValueError: a width or the block size is not positive.
    """
    if min(dense_bits, wire_bits) <= 0 or scale_bits < 0 or block_size < 1:
        raise ValueError("widths and the block size must be positive")
    return dense_bits / (wire_bits + scale_bits / block_size)


def sparse_ratio(density: float, dense_bits: float, index_bits: float) -> float:
    """Dense bytes over bytes sent when a share of the entries is sent at dense width, each with an index.

    One per cent of 16-bit entries with 32-bit indices saves a factor of 33, not 100:

    >>> round(sparse_ratio(0.01, 16, 32), 1)
    33.3

    Raises:
        ValueError: the density is not in (0, 1], or a width is negative.
    """
    if not 0 < density <= 1 or dense_bits <= 0 or index_bits < 0:
        raise ValueError("the density is in (0, 1] and widths are positive")
    return dense_bits / (density * (dense_bits + index_bits))


def least_index_bits(density: float) -> float:
    """Bits that name one sent entry at the least, by the entropy of which entries are sent.

    No code of a random choice of one per cent of the entries does with fewer than

    >>> round(least_index_bits(0.01), 2)
    8.08

    Raises:
        ValueError: the density is not in (0, 1].
    """
    if not 0 < density <= 1:
        raise ValueError("the density is in (0, 1]")
    if density == 1:
        return 0.0
    return (-density * log2(density) - (1 - density) * log2(1 - density)) / density


def low_rank_ratio(rows: int, columns: int, rank: int) -> float:
    """Entries of a matrix over entries of its two factors (PowerSGD, arXiv:1905.13727).

    >>> round(low_rank_ratio(8192, 28672, 4))
    1593

    Raises:
        ValueError: a size is below 1.
    """
    if min(rows, columns, rank) < 1:
        raise ValueError("rows, columns and rank are at least 1")
    return rows * columns / ((rows + columns) * rank)


def most_speedup(exposed_before: float, exposed_after: float = 0.0) -> float:
    """Dense step time over compressed step time when only exposed communication shrinks (Amdahl).

    The computation keeps its time, so (1 - before) of the dense step is (1 - after) of the compressed one.
    A job that waits for a fifth of its step gains a quarter at most:

    >>> most_speedup(0.2)
    1.25

    Raises:
        ValueError: a fraction is outside [0, 1).
    """
    if not 0 <= exposed_before < 1 or not 0 <= exposed_after < 1:
        raise ValueError("exposed fractions are in [0, 1)")
    return (1 - exposed_after) / (1 - exposed_before)
