"""Writes the formulas of collectives, of places of ranks and of compression."""

from __future__ import annotations

from appendix_machines import MACHINES, switched
from appendix_text import Formula, Given

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
