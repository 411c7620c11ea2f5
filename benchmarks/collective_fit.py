"""Fits the constants of the collective models to published measurements."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import log

from collective_points import Point, plan_of, predicted

from trainspec_validate.performance.costs.collective_libraries import NEWER_REDUCTION, Calibration, Transport

MIB = 1 << 20
_ROUNDS = 3
Grid = tuple[Sequence[float], Sequence[float]]
"""Values to try, then offsets around the best of them."""
_SHARES: Grid = ([0.05 * step for step in range(4, 21)], [0.01 * step for step in range(-4, 5)])
_RAMPS: Grid = ([0.2 * step for step in range(9)], [0.05 * step for step in range(-3, 4)])
_LATENCIES: Grid = ([0.0, *(2e-6 * 1.6**step for step in range(15))], [])
_MOST = 0.97
"""No NIC carries more of its rate: ib_write_bw measures 193.7 of 200 Gb/s (stas00/ml-engineering)."""
GENERIC = Calibration(
    switched=1.0,
    mesh=(),
    in_network=1.0,
    in_network_newer=1.0,
    domain_ramp=0.5,
    in_network_ramp=0.5,
    in_network_newer_ramp=0.5,
    ring_ramp=0.5,
    tree_ramp=0.5,
    fabric_reduction=1.0,
    transports=(),
    other=Transport("other", 1.0, 0.0),
)
"""Where a fit begins: nothing is known."""


def _newer(point: Point) -> bool:
    link = point.network.domain
    return link is not None and link.bandwidth_bytes_per_second > 600e9


def _mesh(point: Point) -> bool:
    return point.network.domain_shape == "full-mesh"


def _reducing(point: Point) -> bool:
    return point.network.domain_reduces and point.operation == "all-reduce" and point.network.num_ranks > 4


def _older_switch(point: Point) -> bool:
    return _reducing(point) and not _newer(point) and point.algorithm != "ring"


_DOMAIN_PAIRS: tuple[tuple[str, str, Callable[[Point], bool]], ...] = (
    ("switched", "domain_ramp", lambda point: not _mesh(point) and not _reducing(point)),
    ("in_network", "in_network_ramp", _older_switch),
    ("in_network_newer", "in_network_newer_ramp", lambda point: _reducing(point) and _newer(point)),
)
"""A share of the link rate, the ramp to it, and the points inside one domain that tell of both."""


_KNOWN: dict[Calibration, dict[Point, float]] = {}
"""Errors by the constants that they follow from: fits that leave one system out ask for most of them again."""


def errors(points: Iterable[Point], calibration: Calibration) -> list[float]:
    """Natural logarithm of predicted over measured bus bandwidth."""
    by_transport: dict[str, dict[Point, float]] = {}
    found = []
    for point in points:
        name = point.network.transport
        known = by_transport.get(name)
        if known is None:  # of the transports, a prediction depends on its own alone
            constants = replace(calibration, transports=(), other=calibration.transport(name))
            known = by_transport[name] = _KNOWN.setdefault(constants, {})
        error = known.get(point)
        if error is None:
            error = known[point] = log(predicted(point, calibration) / point.bus_bandwidth)
        found.append(error)
    return found


def loss(points: Sequence[Point], calibration: Calibration) -> float:
    """Mean absolute logarithmic error, every system with the same weight."""
    by_system: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_system[point.system].append(point)
    return statistics.fmean(
        statistics.fmean(abs(error) for error in errors(mine, calibration)) for mine in by_system.values()
    )


def fit(points: Iterable[Point]) -> Calibration:
    """Constants by coordinate descent, first those of domains, then those of the fabric.

    A constant without points takes the value of its class. A transport without points takes the median of the others;
    a mesh that of switched domains; a fabric that reduces, the share of switches of a domain. Of the two
    generations of reducing switches either takes the value of the other by the ratio in NCCL's table. Only points
    that NICs bound are used for the NICs: a rack-wide domain whose links are the slower part would spoil the rest.
    """
    usable = sorted({point for point in points if not point.excluded and point.message_bytes >= 256}, key=repr)
    inside = tuple(point for point in usable if point.network.num_domains == 1 and point.message_bytes >= MIB)
    return _fabric(_domains(inside), [point for point in usable if point.network.num_domains > 1])


@lru_cache(maxsize=64)
def _domains(points: tuple[Point, ...]) -> Calibration:
    calibration = GENERIC
    for share, ramp, concerns in _DOMAIN_PAIRS:
        mine = [point for point in points if concerns(point)]
        if mine:
            calibration = _pair(calibration, share, ramp, mine)
    for library in sorted({point.network.library for point in points if _mesh(point)}):
        mine = [point for point in points if _mesh(point) and point.network.library == library]

        def with_share(share: float, name: str = library, known: Calibration = calibration) -> Calibration:
            return replace(known, mesh=(*known.mesh, (name, share)))

        calibration = _search(with_share, _SHARES, mine)
    if not any(_reducing(point) and _newer(point) for point in points):
        newer = calibration.in_network * NEWER_REDUCTION
        ramp = calibration.in_network_ramp
        calibration = replace(calibration, in_network_newer=newer, in_network_newer_ramp=ramp)
    if not any(_older_switch(point) for point in points):
        older = min(calibration.in_network_newer / NEWER_REDUCTION, 1.0)
        ramp = calibration.in_network_newer_ramp
        calibration = replace(calibration, in_network=older, in_network_ramp=ramp)
    return replace(calibration, fabric_reduction=calibration.in_network)


def _fabric(calibration: Calibration, points: Sequence[Point]) -> Calibration:
    large = [point for point in points if point.message_bytes >= MIB]
    bound = {point for point in large if _fabric_bound(calibration, point)}
    by_transport: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        by_transport[point.network.transport].append(point)
    for _ in range(_ROUNDS):
        for name, mine in sorted(by_transport.items()):
            calibration = _efficiency(calibration, name, [point for point in mine if point in bound])
            if name != "infiniband":  # the libraries' latencies were taken there
                calibration = _extra(calibration, name, mine)
        for name in ("ring_ramp", "tree_ramp"):
            calibration = _turn(calibration, name, _RAMPS, large)
        told = {point.network.transport for point in bound}
        rates = [known.efficiency for known in calibration.transports if known.name in told]
        times = [known.extra_seconds for known in calibration.transports]
        other = Transport("other", round(statistics.median(rates), 3), round(statistics.median(times), 7))
        calibration = replace(calibration, other=other)
    reducing = [point for point in large if point.network.fabric_reduces]
    return _turn(calibration, "fabric_reduction", _SHARES, reducing) if reducing else calibration


def _efficiency(calibration: Calibration, name: str, bound: Sequence[Point]) -> Calibration:
    """The share of the NIC rate of a transport, or that of the others where its NICs bound nothing."""
    others = tuple(known for known in calibration.transports if known.name != name)
    extra = calibration.transport(name).extra_seconds if len(others) < len(calibration.transports) else 0.0

    def with_share(share: float) -> Calibration:
        return replace(calibration, transports=(*others, Transport(name, min(share, _MOST), extra)))

    return _search(with_share, _SHARES, bound) if bound else with_share(calibration.other.efficiency)


def _extra(calibration: Calibration, name: str, points: Sequence[Point]) -> Calibration:
    """What a step of a transport takes longer than over InfiniBand; small messages tell of it too."""
    others = tuple(known for known in calibration.transports if known.name != name)
    known = calibration.transport(name)

    def with_latency(seconds: float) -> Calibration:
        mine = replace(known, extra_seconds=round(seconds, 7))
        return replace(calibration, transports=(*others, mine))

    return _search(with_latency, _LATENCIES, points)


def _fabric_bound(calibration: Calibration, point: Point) -> bool:
    """Whether NICs at nine tenths of their rate bound the largest messages; else they tell nothing of the NICs."""
    slow = replace(calibration, transports=(), other=Transport("other", 0.9, 0.0))
    free = replace(slow, other=Transport("other", 1e6, 0.0))
    plan = plan_of(replace(point, message_bytes=2.0**60), slow)
    same = replace(point, algorithm=plan.algorithm, protocol=plan.protocol)
    return plan.seconds_per_byte > plan_of(same, free).seconds_per_byte * 1.001


def _turn(calibration: Calibration, name: str, grid: Grid, points: Sequence[Point]) -> Calibration:
    return _search(lambda value: replace(calibration, **{name: value}), grid, points)


def _pair(calibration: Calibration, share: str, ramp: str, points: Sequence[Point]) -> Calibration:
    """Both at once: a lower share and a lower ramp resemble each other too much for one after the other."""

    def with_both(pair: tuple[float, float]) -> Calibration:
        return replace(calibration, **{share: pair[0], ramp: pair[1]})

    def least(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
        return min(pairs, key=lambda pair: loss(points, with_both(pair)))

    middle = least(product(_SHARES[0], _RAMPS[0]))
    near = [_near(value, grid) for value, grid in zip(middle, (_SHARES, _RAMPS), strict=True)]
    return with_both(least(product(*near)))


def _near(value: float, grid: Grid) -> list[float]:
    coarse, offsets = grid
    return [round(value + offset, 4) for offset in offsets if 0 <= value + offset <= max(coarse)] or [value]


def _search(with_value: Callable[[float], Calibration], grid: Grid, points: Sequence[Point]) -> Calibration:
    value = min(grid[0], key=lambda candidate: loss(points, with_value(candidate)))
    return with_value(min(_near(value, grid), key=lambda candidate: loss(points, with_value(candidate))))
