"""Writes the page of collectives: constants, choices by size and predicted rates."""

from __future__ import annotations

from collections.abc import Iterator

import appendix_network
from appendix_machines import MACHINES, RANKS, switched
from appendix_text import GIB, MIB, Formula, Given, digits, fixed, formulas, page, section, size, table

from trainspec_validate.performance.costs import (
    bandwidth,
    collective_algorithms,
    collective_choice,
    collective_libraries,
    collective_plans,
    collectives,
    compression,
    fabric,
    network,
    placement,
)

NODE = Given("node", switched(8, "infiniband"), "eight ranks of NVLink 4 (450 GB/s one way) whose switches reduce")
ROCE = Given("roce", switched(64, "rocev2"), "eight nodes of NVLink 4, RoCE of 50 GB/s for each rank")
EFA = Given("efa", switched(128, "efa-srd"), "sixteen nodes of NVLink 4, EFA of 50 GB/s for each rank")
PLAIN = Given(
    "plain",
    network.Network(8, domain=network.Link(450e9, 2e-6)),
    "eight ranks, 450 GB/s one way, 2 us for a step, no switch that reduces",
)
PAIR = Given(
    "pair",
    network.Network(2, domain=network.Link(448e9, 0), domain_shape="full-mesh", domain_num_ranks=8),
    "two of the eight MI300X of a mesh, 448 GB/s one way for each over all its links",
)
SPREAD = Given("ranks", bandwidth.Ranks(128, 16), "128 ranks in 16 domains")
RATES = Given("rates", bandwidth.Rates(450e9, 50e9), "450 GB/s into the domain and 50 GB/s into the fabric")
LAYERS = Given(
    "layers",
    (fabric.Layer(32, 50e9, 50e9), fabric.Layer(64, 50e9, 50e9)),
    "two layers of switches with 64 ports of 400 Gb/s; the lower has 32 down and 32 up",
)
DEGREES = Given("degrees", {"tensor": 8, "pipeline": 16, "data": 128}, "tensor 8, pipeline 16, data 128")
AXES = ("tensor", "context", "pipeline", "data")
NCCL_TESTS = "NVIDIA/nccl-tests@a0b82b22:doc/PERFORMANCE.md"
NCCL_TUNING = "NVIDIA/nccl@5067397c:src/graph/tuning.cc"
ML_ENGINEERING = "stas00/ml-engineering@744d01e1:network/README.md"
COUNTING = "counting bytes; Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005"


REDUCING = {"in_network_reduction": True}
BANDWIDTH_FORMULAS = (
    Formula(bandwidth.bus_bandwidth_factor, ("all-reduce: 2 (n - 1) / n", "ratio", NCCL_TESTS), ("all-reduce", 128)),
    Formula(
        bandwidth.bus_bandwidth_factor,
        ("all-gather, reduce-scatter, all-to-all: (n - 1) / n", "ratio", NCCL_TESTS),
        ("all-gather", 8),
    ),
    Formula(
        bandwidth.domain_ceiling,
        ("link, or link x 2 (g - 1) / g where switches reduce", "bytes/s", f"{ML_ENGINEERING}; {NCCL_TUNING}"),
        ("all-reduce", SPREAD, 450e9),
        options=REDUCING,
        printed=(1e9, "GB/s"),
    ),
    Formula(
        bandwidth.fabric_ceiling,
        (
            "ring: nic x (n - 1) / (k - 1); all-to-all: nic x (n - 1) / (n - g)",
            "bytes/s",
            f"{ML_ENGINEERING}; counting bytes",
        ),
        ("all-reduce", SPREAD, 50e9),
        printed=(1e9, "GB/s"),
    ),
    Formula(
        bandwidth.bus_bandwidth_ceiling,
        ("min(domain ceiling, fabric ceiling)", "bytes/s", "the two above"),
        ("all-reduce", SPREAD, RATES),
        printed=(1e9, "GB/s"),
    ),
)


TIME_FORMULAS = (
    Formula(
        collective_algorithms.traffic,
        ("steps in sequence and bytes per byte of S; see the next table", "count and ratio", COUNTING),
        ("all-reduce", "ring", NODE),
        taking=".domain_share",
        printed=(1.0, "bytes for each byte"),
    ),
    Formula(
        collective_algorithms.alpha_beta_seconds,
        (
            "steps x latency + bytes / rate; ring: 2 (n-1) a + 2 (n-1)/n S/B",
            "s",
            "Thakur, Rabenseifner and Gropp, 2005",
        ),
        ("all-reduce", "ring", 2**30, PLAIN),
        printed=(1e-3, "ms"),
    ),
    Formula(
        collective_algorithms.combined,
        (
            "max(inside, outside) + (1 - overlap) x min(inside, outside)",
            "s",
            "phases that overlap, take turns, or are known to do either",
        ),
        (4.0, 1.0, 0.5),
    ),
    Formula(
        collective_algorithms.domain_rate,
        ("mesh: link x (g - 1) / (size of the mesh - 1); torus: one axis of d", "bytes/s", ML_ENGINEERING),
        ("all-reduce", "ring", PAIR),
        printed=(1e9, "GB/s"),
    ),
    Formula(
        collective_algorithms.torus_axes,
        ("axes of the torus that the group fills", "ranks", "jax-ml/scaling-book@0819a7d8"),
        (Given("torus", MACHINES[-1].network(512), "512 TPU v5p, 8 x 8 x 8"),),
    ),
    Formula(
        collectives.estimate,
        (
            "max(L + W + 2 r sqrt(L W), factor x S / ceiling)",
            "s",
            "chunks of the best size give r = 1; r is fitted",
        ),
        ("all-reduce", 1.73e9, ROCE, "ring"),
        taking=".seconds",
        printed=(1e-3, "ms"),
    ),
    Formula(
        collectives.best,
        ("the tuner's choice where there is one, else the least time of the library", "s", "as above"),
        ("all-reduce", 1 << 34, NODE),
        taking=".algorithm",
    ),
)


CHOICE_FORMULAS = (
    Formula(
        collective_plans.plans,
        (
            "L: latency of all steps; W: bytes over calibrated rates",
            "plans",
            f"{NCCL_TUNING} (latencies); rates fitted",
        ),
        ("all-reduce", NODE),
        taking="len",
    ),
    Formula(
        collective_libraries.protocol_rate,
        ("rate of a protocol over that of the simple ring", "share", NCCL_TUNING),
        ("tree", "low-latency-128"),
    ),
    Formula(
        collective_libraries.low_latency_cap,
        ("largest bus bandwidth of LL, by link and domains", "bytes/s", NCCL_TUNING),
        (450e9, 1),
        printed=(1e9, "GB/s"),
    ),
    Formula(
        collective_choice.tuned,
        (
            "thresholds in bytes, domains and ranks; only NCCL over EFA",
            "choice",
            "aws/aws-ofi-nccl@2daf7d30:src/tuner",
        ),
        ("all-reduce", 1 << 30, EFA),
    ),
    Formula(
        collective_choice.fastest,
        ("the plan of the library with the least time", "plan", "as above"),
        ("all-reduce", 1 << 30, NODE),
        taking=".algorithm",
    ),
)


PLACE_FORMULAS = (
    Formula(
        placement.span,
        (
            "stride = product of the degrees of the inner axes",
            "ranks",
            "Megatron-LM, megatron/core/parallel_state.py",
        ),
        (AXES, DEGREES, "pipeline"),
        taking=".stride",
    ),
    Formula(
        placement.members_in_block,
        ("min(degree, max(1, block / stride))", "ranks", "counting"),
        (Given("span", placement.Span(2, 64), "64 ranks, two apart"), 8),
    ),
    Formula(
        placement.holds_whole_groups,
        ("every group in one block: block a multiple of stride x degree", "yes or no", "counting"),
        (Given("tensor", placement.Span(1, 8), "8 adjacent ranks"), 8, 128),
    ),
    Formula(
        fabric.oversubscription,
        ("down ports x rate / (up ports x rate)", "ratio", "Alibaba HPN, SIGCOMM 2024"),
        (128, 25e9, 60, 50e9),
    ),
    Formula(
        fabric.most_interfaces,
        (
            "product of down ports; k^2/2 for two layers of radix k",
            "interfaces",
            "Al-Fares and others, SIGCOMM 2008",
        ),
        (LAYERS, 50e9),
    ),
)


COMPRESSION_FORMULAS = (
    Formula(
        compression.quantised_ratio,
        ("dense bits / (bits + scale bits / block)", "ratio", "counting"),
        (16, 4, 16, 128),
    ),
    Formula(
        compression.sparse_ratio,
        ("dense bits / (density x (dense bits + index bits))", "ratio", "counting"),
        (0.01, 16, 32),
    ),
    Formula(compression.least_index_bits, ("entropy of the choice over the density", "bits", "entropy bound"), (0.01,)),
    Formula(
        compression.low_rank_ratio,
        ("rows x columns / ((rows + columns) x rank)", "ratio", "arXiv:1905.13727"),
        (8192, 28672, 4),
    ),
    Formula(compression.most_speedup, ("(1 - exposed after) / (1 - exposed before)", "ratio", "Amdahl's law"), (0.2,)),
)


def collective_formulas() -> list[Formula]:
    """Rates, times, choices and places, in this order."""
    return [*BANDWIDTH_FORMULAS, *TIME_FORMULAS, *CHOICE_FORMULAS, *PLACE_FORMULAS]


INTRODUCTION = """
How long a collective takes on a machine, and which algorithm a well-tuned library takes for it. [Ring or
tree](#ring-or-tree) answers the second first; [calibration and its error](#calibration-and-its-error) says how far off
the times are. The models are those that the planner and the validator use. This page is informative: it states no
requirement.

Words: n ranks are in k scale-up domains, g = n/k in each. S is the message, the whole buffer of a rank; for all-gather
and reduce-scatter that is n times the shard. Rates are one way and of one rank. Bus bandwidth is S over the time, times
the factor of the operation. The links between the ranks of a group are a `network.Network`.
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
        "In GB/s, 1e9 bytes per second. In brackets is the band, by the table of calibration: one measurement in "
        "ten is below it, one above.",
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
        "one point in ten is below the low factor, one above the high one.",
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
            "Savings of compression",
            "The ratios are upper limits: what the encoding itself takes is not in them.",
            formulas(COMPRESSION_FORMULAS),
        ),
    )
