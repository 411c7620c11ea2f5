"""Writes predicted bus bandwidths as thresholds for programs that measure those of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainspec_validate._version import __version__
from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.performance.costs.collective_libraries import LIBRARIES
from trainspec_validate.performance.costs.collectives import best
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.placement import Span
from trainspec_validate.performance.derived.groups import choose
from trainspec_validate.performance.derived.job import job_network
from trainspec_validate.performance.topology.graph import topology_of
from trainspec_validate.performance.topology.networks import Traffic, group_network

SIZES_BYTES = (8 * 2**30, 16 * 2**30)
"""Messages for which both programs have thresholds of their own."""
_OPERATIONS = {
    "all-reduce": "all_reduce_perf",
    "all-gather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
}
"""Operations with published measurements, by their programs in nccl-tests and rccl-tests."""
_WIDEST = 2.0
"""Upper end of a predicted band over its middle, beyond which it separates no good cluster from a bad one."""
_CVS_NICS = ("ainic", "connectx", "thor")
_CVS_TOLERANCE = 0.95
"""Share of a stated bandwidth that passes: ROCm/cvs@dddd9143:cvs/lib/rccl_lib.py, check_bus_bw."""
_AICR_TOLERANCE = 0.9
"""The same of NVIDIA/aicr@bc05c6b8:validators/performance/nccl_all_reduce_bw_constraint.go."""


class NotPredictable(ValueError):  # noqa: N818 - an answer about a machine, not a slip of a program
    """No bus bandwidth of the ranks is predicted; the text says why."""


@dataclass(frozen=True, slots=True)
class Test:
    """One run of a benchmark over whole nodes, with the least bus bandwidths that are predicted for it."""

    cluster: str
    node_group: str
    vendor: str
    num_nodes: int
    num_ranks_per_node: int
    spans_nodes: bool
    """Whether links between accelerators leave the node."""
    least: Mapping[tuple[str, int], float]
    """Bytes per second by operation and message size: nine of ten held-out measurements were above."""
    notes: tuple[str, ...]
    """Assumptions, a sentence each."""

    @property
    def num_ranks(self) -> int:
        """Ranks of the benchmark."""
        return self.num_nodes * self.num_ranks_per_node


@dataclass(frozen=True, slots=True)
class Program:
    """A program that takes thresholds."""

    title: str
    """Documents that it takes, and the version that it was checked against."""
    write: Callable[[Test], str]
    """Raises `NotPredictable` for a run that it does not judge."""


def predicted(cluster: ClusterProfile, node_group: str | None, num_nodes: int | None) -> Test:
    """The least bus bandwidths of a benchmark on the first nodes of a node group, all of them without a number.

    Raises:
        NotPredictable: there is no such group, it has fewer nodes or ranks, or its links or library have no figures.
    """
    try:
        nodes, note = choose(cluster, node_group)
        nodes, fabric = job_network(None, cluster, nodes)
    except ValueError as error:
        raise NotPredictable(str(error)) from error
    used = num_nodes or nodes.group.num_nodes
    if used > nodes.group.num_nodes:
        raise NotPredictable(f"node group {nodes.group.name} has {nodes.group.num_nodes} nodes, not {used}")
    num_ranks = used * nodes.ranks_per_node
    topology = topology_of(cluster, nodes, fabric)
    if topology.library not in LIBRARIES:
        known = " and ".join(sorted(LIBRARIES))
        raise NotPredictable(f"bus bandwidths of {topology.library} are not predicted, those of {known} are")
    try:
        network = group_network(topology, Traffic(Span(1, num_ranks)))
    except ValueError as error:
        raise NotPredictable(str(error)) from error
    if network is None:
        raise NotPredictable("one rank has no collectives; ask for more nodes")
    accelerator = nodes.group.accelerator
    return Test(
        cluster=cluster.metadata.name,
        node_group=nodes.group.name,
        vendor=accelerator.vendor or accelerator.model.split("-")[0],
        num_nodes=used,
        num_ranks_per_node=nodes.ranks_per_node,
        spans_nodes=_spans_nodes(nodes.group),
        least=_least(network),
        notes=(note,) if note else (),
    )


def _spans_nodes(group: NodeGroup) -> bool:
    domain = group.scale_up.domain_num_accelerators if group.scale_up is not None else None
    return domain is not None and domain > group.num_accelerators_per_node


def _least(network: Network) -> dict[tuple[str, int], float]:
    """The lowest bus bandwidths of the predicted bands.

    Raises:
        NotPredictable: a band is too wide.
    """
    found = {}
    for operation in _OPERATIONS:
        for size in SIZES_BYTES:
            estimate = best(operation, size, network)
            if estimate.high_seconds > _WIDEST * estimate.seconds:
                times = f"{estimate.high_seconds / estimate.seconds:.1f} times"
                raise NotPredictable(
                    f"no threshold: over {network.transport} a time may be {times} the predicted one, for which there "
                    f"are no measurements of several systems"
                )
            found[operation, size] = estimate.bus_bandwidth_bytes_per_second * estimate.seconds / estimate.high_seconds
    return found


def _gigabytes(bytes_per_second: float, tolerance: float) -> str:
    """A rate as these programs write it, from which they subtract a tolerance."""
    return f"{bytes_per_second / tolerance / 1e9:.2f}"


def _cvs(test: Test) -> str:
    """Sections of `rccl_config.json`, by the keys under which `rccl_perf` looks for them."""
    results = {
        f"{program}-float-{test.num_ranks}": {
            str(size): {"bus_bw": _gigabytes(test.least[operation, size], _CVS_TOLERANCE)} for size in SIZES_BYTES
        }
        for operation, program in _OPERATIONS.items()
    }
    sections = {
        "_comment_thresholds": f"{_origin(test)}; cvs accepts 5 % less",
        "mpi_params": {"no_of_nodes": str(test.num_nodes), "no_of_local_ranks": str(test.num_ranks_per_node)},
        "cvs_params": {"verify_bus_bw": "True"},
        "results": dict.fromkeys(_CVS_NICS, results),
    }
    return json.dumps({"rccl": sections}, indent=4) + "\n"


def _aicr(test: Test) -> str:
    """The section `validation` of a recipe, or of `spec` in an overlay."""
    if test.num_nodes < 2:
        raise NotPredictable("aicr measures between nodes; ask for two or more")
    _refuse_others("aicr", test)
    least = min(rate for (operation, _), rate in test.least.items() if operation == "all-reduce")
    lines = [
        f"# {_origin(test)}; aicr accepts 10 % less than the value.",
        "validation:",
        "  performance:",
        "    checks: [nccl-all-reduce-bw]",
        "    constraints:",
        "      - name: nccl-all-reduce-bw",
        f'        value: ">= {_gigabytes(least, _AICR_TOLERANCE)}"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _nvcre(test: Test) -> str:
    """The categories of a Certification, which compares the highest bus bandwidth of all sizes without a tolerance.

    Fields: NVIDIA/cluster-readiness-engine@00992e28:api/v1alpha1/certification_types.go, CategoryOptions.
    """
    _refuse_others("nvcre", test)
    lines = [f"# {_origin(test)}.", "spec:", "  categories:"]
    for operation in ("all-reduce", "all-gather"):
        least = min(rate for (kind, _), rate in test.least.items() if kind == operation)
        lines += [
            "    - domain: communication",
            f"      variant: nccl-{operation}",
            "      options:",
            f"        nodesPerJob: {test.num_nodes}",
            f"        gpusPerNode: {test.num_ranks_per_node}",
            f"        enableMNNVL: {str(test.spans_nodes).lower()}",
            "        thresholds:",
            f'          busBandwidthGBps: "value >= {_gigabytes(least, 1)}"',
        ]
    return "".join(f"{line}\n" for line in lines)


def _refuse_others(program: str, test: Test) -> None:
    if test.vendor != "nvidia":
        raise NotPredictable(f"{program} measures with NCCL; node group {test.node_group} is not of nvidia")


def _origin(test: Test) -> str:
    shape = f"{test.num_nodes} node{'s' if test.num_nodes > 1 else ''} of {test.num_ranks_per_node} ranks"
    return f"trainspec {__version__}: least bus bandwidths in GB/s predicted for {shape}, {test.cluster}"


PROGRAMS = {
    "aicr": Program("section `validation` of a recipe of NVIDIA's aicr (bc05c6b8)", _aicr),
    "cvs": Program("sections of rccl_config.json of AMD's Cluster Validation Suite (dddd9143)", _cvs),
    "nvcre": Program("categories of a Certification of NVIDIA's Cluster Readiness Engine (00992e28)", _nvcre),
}
