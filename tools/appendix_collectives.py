"""Writes the page of collectives: constants, choices by size and predicted rates."""

from __future__ import annotations

from collections.abc import Iterator

import appendix_network
from appendix_collectives_formulas import COMPRESSION_FORMULAS, collective_formulas
from appendix_machines import MACHINES, RANKS, switched
from appendix_text import GIB, MIB, digits, fixed, formulas, page, section, size, table

from trainspec_validate.performance.costs import bandwidth, collective_algorithms, collective_libraries, collectives

INTRODUCTION = """
How long a collective takes on a machine, and which algorithm a well-tuned library takes for it. [Ring or
tree](#ring-or-tree) answers the second first; [calibration and its error](#calibration-and-its-error) says how far off
the times are. The models are those that the planner and the validator use. This page is informative: it states no
requirement.

Words: n ranks are in k scale-up domains, g = n/k in each. S is the message, the whole buffer of a rank; for all-gather
and reduce-scatter that is n times the shard. Rates are one way and of one rank. Bus bandwidth is S over the time, times
the factor of the operation. What the ranks of a group talk over is a `network.Network`.
"""

SHORT = """
In short: between nodes trees carry the small messages of an all-reduce and rings the large ones. The size from which
rings do so grows with the ranks, beyond any usual message at 2,048 ranks. Inside one domain, switches
that reduce carry the large messages, and beyond eight ranks the small ones too; what they do not carry goes by rings.
All-gather and reduce-scatter gain nothing from trees: they go by rings at every size. On a torus each axis is a ring of
its own.

The table has the message size of an all-reduce from which a ring is the choice and stays it, up to 32 GiB, by ranks.
Where no ring is the last choice, it names what is.
"""
CHOICES = """
The next tables have every choice of `collectives.best` from 1 KiB to 32 GiB, by `collectives.crossovers`. An arrow with
a size is where the next choice begins. LL and LL128 are NCCL's names of the protocols `low-latency` and
`low-latency-128`; no name means the simple one. In-network means that the switches of the domain reduce; with -tree,
trees join such domains. For EFA with three domains or more the sizes are thresholds fitted to the vendor's tuner; all
others are where one estimate becomes less than another. Near such a size both choices take about as long, and the error
of either is larger than the difference. No library has constants for TPU, so that row is the textbook model.
"""


def _algorithms() -> Iterator[tuple[str, ...]]:
    where = switched(64, "infiniband")
    for name in collective_algorithms.ALGORITHMS:
        try:
            counted = collective_algorithms.traffic("all-reduce", name, where)
        except ValueError:
            continue
        steps, shares = (counted.domain_steps, counted.fabric_steps), (counted.domain_share, counted.fabric_share)
        yield name, *(digits(float(value)) for value in (*steps, *shares)), digits(counted.overlap)


def _latencies() -> Iterator[tuple[str, ...]]:
    for library in collective_libraries.LIBRARIES.values():
        for (family, protocol), steps in library.steps.items():
            yield library.label, family, protocol, *(digits(seconds * 1e6) for seconds in steps)


def _constants() -> Iterator[tuple[str, str]]:
    fitted = collective_libraries.CALIBRATION
    yield "share of the link rate into a switched domain", digits(fitted.switched)
    for library, share in fitted.mesh:
        yield f"the same in a mesh, {library}", digits(share)
    yield "share at which switches of NVLink 4 reduce", digits(fitted.in_network)
    yield "share at which switches of NVLink 5 reduce", digits(fitted.in_network_newer)
    for transport in (*fitted.transports, fitted.other):
        extra = f"{digits(transport.extra_seconds * 1e6)} us more for each step than InfiniBand"
        yield f"share of the NIC rate over {transport.name}", f"{digits(transport.efficiency)}; {extra}"
    yield "share of the NIC rate at which switches of a fabric reduce", digits(fitted.fabric_reduction)
    yield (
        "ramp r in a domain; rings, trees over a fabric",
        ", ".join(digits(ramp) for ramp in (fitted.domain_ramp, fitted.ring_ramp, fitted.tree_ramp)),
    )


def _bands() -> Iterator[tuple[str, str, str]]:
    fitted = collective_libraries.CALIBRATION
    rows = {
        "inside one domain": fitted.domain_band,
        "over a transport that several systems measured": fitted.fabric_band,
        "over a transport that one system measured, or none": fitted.other_band,
        "other operations, algorithms and libraries: an assumption": fitted.uncalibrated_band,
    }
    for name, (low, high) in rows.items():
        yield name, digits(low), digits(high)


def _named(row: collectives.Estimate) -> str:
    protocol = {"low-latency": " LL", "low-latency-128": " LL128"}.get(row.protocol, "")
    return row.algorithm + protocol


def choices(operation: str) -> Iterator[tuple[str, str, str]]:
    """Machine, ranks, and the choices by size: each size is where the choice after it begins."""
    for machine in MACHINES:
        for num_ranks in machine.ranks:
            (_, first), *later = collectives.crossovers(operation, machine.network(num_ranks))
            text = _named(first)
            for start, row in later:
                text += f" → {size(start)} → {_named(row)}"
            yield machine.title, digits(num_ranks), text


def ring_from(operation: str) -> Iterator[tuple[str, ...]]:
    """Machine, and for each number of ranks the size from which a ring stays the choice, or what does instead."""
    for machine in MACHINES:
        cells = []
        for num_ranks in RANKS:
            if num_ranks not in machine.ranks:
                cells.append("no such group")
                continue
            start, last = 0.0, ""
            for begins, row in collectives.crossovers(operation, machine.network(num_ranks)):
                start, last = (start if row.algorithm == last else begins), row.algorithm
            cells.append(size(start) if last == "ring" else last)
        yield machine.title, *cells


def rates(operation: str) -> Iterator[tuple[str, ...]]:
    """Machine, ranks, and bus bandwidth in GB/s at each size with its band."""
    for machine in MACHINES:
        for num_ranks in machine.ranks:
            where, cells = machine.network(num_ranks), []
            for message in (MIB, 64 * MIB, GIB, 16 * GIB):
                row = collectives.best(operation, message, where)
                moved = bandwidth.bus_bandwidth_factor(operation, num_ranks) * message / 1e9
                low, high = moved / row.high_seconds, moved / row.low_seconds
                cells.append(f"{digits(row.bus_bandwidth_bytes_per_second / 1e9)} ({digits(low)} to {digits(high)})")
            yield machine.title, digits(num_ranks), *cells


def _choices() -> list[str]:
    rows = {name: tuple(choices(name)) for name in ("all-reduce", "all-gather", "reduce-scatter")}
    parts: list[str] = []
    for operation, mine in rows.items():
        same = [name for name in rows if rows[name] == mine]
        if same[0] == operation:
            listed = table(("machine", "ranks", "choice by message size"), mine)
            parts += section(f"Choices for {' and '.join(same)}", listed, level=3)
    headers = ("machine", *(f"{digits(num_ranks)} ranks" for num_ranks in RANKS))
    return section("Ring or tree", SHORT, table(headers, ring_from("all-reduce")), CHOICES, parts)


def _rates() -> list[str]:
    headers = ("machine", "ranks", "1 MiB", "64 MiB", "1 GiB", "16 GiB")
    parts: list[str] = []
    for operation in ("all-reduce", "all-gather"):
        parts += section(f"Bus bandwidth of {operation}", table(headers, rates(operation)), level=3)
    return section(
        "Predicted bus bandwidth",
        "In GB/s, 1e9 bytes per second. In brackets stands the band, by the table of calibration: one measurement in "
        "ten lies below it, one above.",
        parts,
    )


def _calibration() -> list[str]:
    labels = ", ".join(library.label for library in collective_libraries.LIBRARIES.values())
    high = fixed(collective_libraries.CALIBRATION.fabric_band[1], 2)
    return section(
        "Calibration and its error",
        f"Latencies are those of the libraries' own cost models ({labels}), below in microseconds. Shares, ramps and "
        "the extra latency of a transport are fitted to published measurements by `benchmarks/score_collectives.py`. "
        "That program predicts each system with constants fitted on the others and prints the error of every one. The "
        "bands are measured over predicted time of what was held out in that way, every system with the same weight: "
        "one point in ten lies below the low factor, one above the high one.",
        f"Fabrics are the weak spot: one point in ten took more than {high} times the predicted time. No number here "
        "is a promise for a machine; a measured sweep of the machine itself comes first.",
        table(("measured over predicted time", "low", "high"), _bands()),
        table(("constant", "value"), _constants()),
        table(("library", "family", "protocol", "once, us", "step inside, us", "step across, us"), _latencies()),
    )


def write() -> str:
    """The page of collectives."""
    counted = ("algorithm", "steps inside", "steps across", "bytes inside", "bytes across", "overlap")
    return page(
        "Collectives",
        INTRODUCTION,
        _choices(),
        _calibration(),
        _rates(),
        section("Formulas", formulas(collective_formulas())),
        section(
            "Steps and bytes by algorithm",
            "All-reduce of 64 ranks in 8 domains: steps in sequence, and bytes that a rank sends for each byte of "
            "message, inside a domain and across domains. Overlap is 1 where both kinds of link are busy at the same "
            "time, and 0 where they take turns.",
            table(counted, _algorithms()),
        ),
        appendix_network.sections(),
        section(
            "What compression saves",
            "The ratios are upper limits: what the encoding itself takes is not in them.",
            formulas(COMPRESSION_FORMULAS),
        ),
    )
