"""Searches for the batch with which an elastic job can run at the most world sizes."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainspec_validate.performance.costs.elastic import MAX_SEQUENCES, Bounds, data_degrees, prime_factors

MAX_TABLE = 1_000_000
"""Largest number of pairs of batch and degree that are counted one by one."""
MAX_DEGREE = 10_000_000
"""Largest data degree that the search allows, so that its primes fit in memory."""
MAX_VISITS = 100_000
"""Batches that the search may look at before it gives up; typical searches take some hundreds."""


@dataclass(frozen=True, slots=True)
class ElasticChoice:
    """A batch and the data degrees that it can run with."""

    global_sequences: int
    data_degrees: tuple[int, ...]


def best_batch(
    max_sequences: int, micro_sequences: Sequence[int], bounds: Bounds, *, prefer_larger: bool = True
) -> ElasticChoice | None:
    """The batch of at most `max_sequences` with the most valid world sizes; None when none has any.

    Among equals it takes the largest, or the smallest. DeepSpeed's elasticity tries highly composite multiples of
    the micro-batches only (microsoft/DeepSpeed, deepspeed/elasticity/elasticity.py); this is exact. Its documented
    example, micro-batches of 8, 12, 16 and 17 on 32 to 1,500 accelerators, gives 9,792 sequences and 23 counts:

    >>> choice = best_batch(10_000, [8, 12, 16, 17], Bounds(32, 1500))
    >>> choice.global_sequences, len(choice.data_degrees)
    (9792, 23)

    Raises:
        ValueError: a count is below 1, there is no micro-batch, or the search is too wide to be exact.
    """
    if not micro_sequences or min(micro_sequences) < 1 or not 1 <= max_sequences <= MAX_SEQUENCES:
        raise ValueError(f"give micro-batches of 1 or more, and a largest batch between 1 and {MAX_SEQUENCES}")
    allowed, micros = bounds.data_range, _minimal(micro_sequences)
    if not allowed or micros[0] * allowed[0] > max_sequences:
        return None
    pairs = sum(max_sequences / micro for micro in micros) * _sum_of_inverses(allowed)
    if pairs <= MAX_TABLE:
        best = _by_table(max_sequences, micros, allowed, prefer_larger)
    else:
        best = _Search(max_sequences, micros, bounds, prefer_larger).run()
    return ElasticChoice(best, tuple(data_degrees(best, micros, bounds)))


def _minimal(micro_sequences: Sequence[int]) -> list[int]:
    """Micro-batches that no other divides: what a multiple can do, its divisor can do too."""
    ordered = sorted(set(micro_sequences))
    return [m for i, m in enumerate(ordered) if not any(m % smaller == 0 for smaller in ordered[:i])]


def _sum_of_inverses(allowed: range) -> float:
    """About the sum of 1 / degree, by its integral."""
    return 1 / allowed[0] + math.log(allowed[-1] / allowed[0]) / allowed.step


def _by_table(most: int, micros: Sequence[int], allowed: range, prefer_larger: bool) -> int:
    """Count the degrees of every batch."""
    counts: dict[int, int] = {}
    for degree in allowed:
        if degree * micros[0] > most:
            break
        batches: set[int] = set()
        for micro in micros:
            batches.update(range(micro * degree, most + 1, micro * degree))
        for batch in batches:
            counts[batch] = counts.get(batch, 0) + 1
    return max(counts, key=lambda batch: (counts[batch], batch if prefer_larger else -batch))


class _Search:
    """Walk batches by their primes, and leave out those that cannot have as many degrees as the best so far.

    Every batch with a valid degree is a multiple of `base`, and its valid degrees, over the step between degrees,
    divide the rest. Primes that are in no degree and no micro-batch only make a batch larger.
    """

    def __init__(self, most: int, micros: Sequence[int], bounds: Bounds, prefer_larger: bool) -> None:
        self.micros, self.bounds, self.prefer_larger = micros, bounds, prefer_larger
        self.base = math.gcd(*micros) * bounds.data_step
        self.quota = most // self.base
        self.largest = min(bounds.data_range[-1] // bounds.data_step, self.quota)
        if self.largest > MAX_DEGREE:
            raise ValueError(f"data degrees of up to {self.largest} are too many; allow at most {MAX_DEGREE}")
        of_micros = {prime for micro in micros for prime in prime_factors(micro)}
        self.primes = sorted(of_micros.union(_primes(self.largest)))
        self.best, self.key, self.visits = 0, (0, 0), 0

    def run(self) -> int:
        """The best batch."""
        for rest in self._staircases(1, 0, 64):
            self._judge(rest)
        self._walk(1, 0, [1])
        return self.best

    def _judge(self, rest: int) -> int:
        """Compare a rest, or its largest multiple, with the best; return its number of degrees."""
        self.visits += 1
        if self.visits > MAX_VISITS:
            raise ValueError("too many batches could be the best; lower the largest batch, or allow smaller worlds")
        full = rest * (self.quota // rest) if self.prefer_larger else rest
        batch = self.base * full
        num_degrees = len(data_degrees(batch, self.micros, self.bounds))
        self._take(batch, num_degrees)
        return num_degrees

    def _take(self, batch: int, num_degrees: int) -> None:
        key = (num_degrees, batch if self.prefer_larger else -batch)
        if num_degrees and key > self.key:
            self.best, self.key = batch, key

    def _staircases(self, rest: int, index: int, most_exponent: int) -> Iterator[int]:
        """Rests with falling exponents of successive primes: a first bound, near the best."""
        yield rest
        if index == len(self.primes):
            return
        for _ in range(most_exponent):
            rest *= self.primes[index]
            if rest > self.quota:
                return
            most_exponent -= 1
            yield from self._staircases(rest, index + 1, 64 - most_exponent)

    def _walk(self, rest: int, index: int, small: list[int]) -> None:
        """Judge a rest and all its products with later primes; `small` are its divisors up to the largest degree."""
        judged = len(small) >= self.key[0]
        # When the largest multiple (or the smallest one) already has the most, no other multiple comes before it.
        done = judged and self._judge(rest) >= self._bound(rest, index, small)
        if done:
            return
        for position in range(index, len(self.primes)):
            prime = self.primes[position]
            product = rest * prime
            if product > self.quota or self._bound(rest, position, small) < self.key[0]:
                return
            more, power = small, small
            while product <= self.quota:
                power = [d * prime for d in power if d * prime <= self.largest]
                more = sorted(more + power)
                self._walk(product, position + 1, more)
                product *= prime

    def _bound(self, rest: int, index: int, small: list[int]) -> int:
        """Most degrees of any product of a rest with primes from this one on.

        A divisor of the product is one of the rest times one of the added part. The part has at most `length` primes,
        hence at most comb(length, k) divisors of k primes, each of at least prime ** k.
        """
        if index == len(self.primes):
            return len(small)
        prime, room, length = self.primes[index], self.quota // rest, 0
        while room >= prime:
            room //= prime
            length += 1
        total, least = 0, 1
        for k in range(length + 1):
            if least > self.largest:
                break
            total += math.comb(length, k) * bisect_right(small, self.largest // least)
            least *= prime
        return total


def _primes(most: int) -> Iterator[int]:
    """Primes up to a number, by sieve."""
    sieve = bytearray([1]) * (most + 1)
    for number in range(2, most + 1):
        if sieve[number]:
            yield number
            sieve[number * number :: number] = bytes(len(range(number * number, most + 1, number)))
