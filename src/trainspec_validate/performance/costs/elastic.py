"""Finds the world sizes of an elastic job, and shares a batch over unequal workers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MAX_SEQUENCES = 10**12
"""Largest batch that is factored, so that trial division takes at most a million steps."""


@dataclass(frozen=True, slots=True)
class Scale:
    """One way to run a batch: micro * accumulation * data is the batch."""

    world_size: int
    data: int
    micro_sequences: int
    accumulation_steps: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which world sizes are allowed; every field is a count.

    Raises:
        ValueError: a count is below 1, or the least is above the most.
    """

    min_accelerators: int
    max_accelerators: int
    model_parallel: int = 1
    """Ranks of one replica: tensor times pipeline times context."""
    ranks_per_node: int = 1
    """A world is a whole number of nodes of this many ranks."""

    def __post_init__(self) -> None:
        counts = (self.min_accelerators, self.max_accelerators, self.model_parallel, self.ranks_per_node)
        if min(counts) < 1 or self.min_accelerators > self.max_accelerators:
            raise ValueError(f"counts of 1 or more, and the least no larger than the most, not {self}")

    @property
    def data_step(self) -> int:
        """Data degrees are multiples of this, for worlds of whole nodes."""
        return self.ranks_per_node // math.gcd(self.ranks_per_node, self.model_parallel)

    @property
    def data_range(self) -> range:
        """Data degrees that the bounds allow, whatever the batch."""
        step = self.data_step
        low = -(-self.min_accelerators // self.model_parallel)
        return range(-(-low // step) * step, self.max_accelerators // self.model_parallel + 1, step)


def prime_factors(number: int) -> dict[int, int]:
    """Primes of a number with their exponents, by trial division.

    >>> prime_factors(720)
    {2: 4, 3: 2, 5: 1}

    Raises:
        ValueError: the number is not between 1 and `MAX_SEQUENCES`.
    """
    if not 1 <= number <= MAX_SEQUENCES:
        raise ValueError(f"{number} is not between 1 and {MAX_SEQUENCES}")
    found: dict[int, int] = {}
    prime = 2
    while prime * prime <= number:
        while number % prime == 0:
            found[prime] = found.get(prime, 0) + 1
            number //= prime
        prime += 1 if prime == 2 else 2
    if number > 1:
        found[number] = found.get(number, 0) + 1
    return found


def divisors(number: int, most: int | None = None) -> list[int]:
    """Divisors of a number up to `most`, in order.

    >>> divisors(48, most=12)
    [1, 2, 3, 4, 6, 8, 12]

    Raises:
        ValueError: as `prime_factors`.
    """
    limit = number if most is None else most
    found = [1] if limit >= 1 else []
    for prime, exponent in prime_factors(number).items():
        powers = [prime**power for power in range(exponent + 1)]
        found = [value * power for value in found for power in powers if value * power <= limit]
    return sorted(found)


def data_degrees(global_sequences: int, micro_sequences: Sequence[int], bounds: Bounds) -> list[int]:
    """Data degrees with which some micro-batch makes the batch exactly, in order.

    It takes time by the number of divisors, not of ranks. A batch of 96 with micro-batches of 4 or 6:

    >>> data_degrees(96, [4, 6], Bounds(1, 16))
    [1, 2, 3, 4, 6, 8, 12, 16]

    Raises:
        ValueError: a count is below 1, there is no micro-batch, or the batch is above `MAX_SEQUENCES`.
    """
    _counts(global_sequences, micro_sequences)
    allowed = bounds.data_range
    found: set[int] = set()
    for micro in set(micro_sequences):
        if allowed and global_sequences % micro == 0:
            found.update(d for d in divisors(global_sequences // micro, allowed[-1]) if d in allowed)
    return sorted(found)


def scales(global_sequences: int, micro_sequences: Sequence[int], bounds: Bounds) -> list[Scale]:
    """Every way to run a fixed batch within the bounds, by world size and then by micro-batch, largest first.

    Eight ranks of tensor parallelism on nodes of eight:

    >>> [(s.world_size, s.micro_sequences, s.accumulation_steps) for s in scales(12, [1, 2], Bounds(24, 48, 8, 8))]
    [(24, 2, 2), (24, 1, 4), (32, 1, 3), (48, 2, 1), (48, 1, 2)]

    Raises:
        ValueError: as `data_degrees`.
    """
    micros = sorted(set(micro_sequences), reverse=True)
    return [
        Scale(data * bounds.model_parallel, data, micro, global_sequences // (micro * data))
        for data in data_degrees(global_sequences, micro_sequences, bounds)
        for micro in micros
        if global_sequences % (micro * data) == 0
    ]


def nearest_scale(
    global_sequences: int, micro_sequences: Sequence[int], bounds: Bounds, num_available: int
) -> Scale | None:
    """The largest world that so many accelerators can make, with its largest micro-batch; None when there is none.

    A job of 64 loses a node of eight:

    >>> nearest_scale(1024, [4, 8], Bounds(8, 64, ranks_per_node=8), 56)
    Scale(world_size=32, data=32, micro_sequences=8, accumulation_steps=4)

    Raises:
        ValueError: as `data_degrees`.
    """
    if num_available < bounds.min_accelerators:
        return None
    most = replace(bounds, max_accelerators=min(bounds.max_accelerators, num_available))
    found = scales(global_sequences, micro_sequences, most)
    return max(found, key=lambda scale: (scale.world_size, scale.micro_sequences), default=None)


def _counts(global_sequences: int, micro_sequences: Sequence[int]) -> None:
    if not micro_sequences or min(micro_sequences) < 1:
        raise ValueError("give one micro-batch or more, each of 1 sequence or more")
    if not 1 <= global_sequences <= MAX_SEQUENCES:
        raise ValueError(f"a batch of {global_sequences} is not between 1 and {MAX_SEQUENCES}")


def proportional_shares(global_sequences: int, speeds: Sequence[float], multiple_of: int = 1) -> list[int]:
    """Sequences of each worker, in proportion to its measured speed, with a sum of exactly the batch.

    Shares are rounded by largest remainder, so each is less than one `multiple_of` from its quota; the first of
    equals gets more. Fractions are exact, whatever the speeds. One of four workers at half speed:

    >>> proportional_shares(64, [1, 1, 1, 0.5])
    [19, 18, 18, 9]

    Raises:
        ValueError: no worker, a speed that is not finite and above 0, a batch that is not a multiple, or a worker that
            would get nothing.
    """
    if not speeds or not all(speed > 0 and math.isfinite(speed) for speed in speeds):
        raise ValueError("every worker needs a finite speed above 0")
    if multiple_of < 1 or global_sequences < 1 or global_sequences % multiple_of:
        raise ValueError(f"a batch of {global_sequences} is not a multiple of {multiple_of}")
    units = global_sequences // multiple_of
    pairs = [float(speed).as_integer_ratio() for speed in speeds]
    # Denominators of floats are powers of two, so the largest is common to all.
    common = max(below for _, below in pairs)
    weights = [above * (common // below) for above, below in pairs]
    total = sum(weights)
    quotas = [divmod(units * weight, total) for weight in weights]
    shares = [whole for whole, _ in quotas]
    by_remainder = sorted(range(len(speeds)), key=lambda worker: -quotas[worker][1])
    for worker in by_remainder[: units - sum(shares)]:
        shares[worker] += 1
    if min(shares) == 0:
        raise ValueError(
            f"worker {shares.index(0)} would get nothing: the batch has {units} parts for {len(shares)} workers"
        )
    return [share * multiple_of for share in shares]


def gradient_weights(shares: Sequence[int]) -> list[float]:
    """Weight of each worker's mean gradient, so that the sum is the mean over the batch; they add up to 1.

    >>> gradient_weights([3, 1])
    [0.75, 0.25]

    Raises:
        ValueError: no share, or one below 1.
    """
    if not shares or min(shares) < 1:
        raise ValueError("every worker takes one sequence or more")
    total = sum(shares)
    return [share / total for share in shares]


def slowest_seconds(shares: Sequence[int], sequences_per_second: Sequence[float]) -> float:
    """Time until the last worker has done its share.

    A worker at half speed among eight holds up an even batch; a proportional one is done in 0.55 of the time:

    >>> speeds = [1.0] * 7 + [0.5]
    >>> even, fitted = [32] * 8, proportional_shares(256, speeds)
    >>> round(slowest_seconds(fitted, speeds) / slowest_seconds(even, speeds), 2)
    0.55

    Raises:
        ValueError: lengths differ, or a speed is not above 0.
    """
    if len(shares) != len(sequences_per_second) or not all(speed > 0 for speed in sequences_per_second):
        raise ValueError("wanted one speed above 0 for each share")
    return max(share / speed for share, speed in zip(shares, sequences_per_second, strict=True))
