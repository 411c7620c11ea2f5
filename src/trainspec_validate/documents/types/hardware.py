"""Declares what a node group is made of: accelerators, hosts, scale-up links and NICs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import (
    AcceleratorFlopsPerSecond,
    Count,
    CountOrZero,
    LinkBytesPerSecond,
    MemoryBytes,
    Name,
    Record,
    Source,
    Text,
)

PathClass = Literal["LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS", "NET", "DIS"]
"""Distance between two devices, nearest first, as collective libraries class it."""

NumberFormat = Literal[
    "fp64",
    "fp32",
    "tf32",
    "bf16",
    "fp16",
    "fp8",
    "fp8-e4m3",
    "fp8-e5m2",
    "mxfp8",
    "fp6",
    "mxfp6",
    "fp4",
    "mxfp4",
    "nvfp4",
    "int8",
]


MemoryBytesPerSecond = Annotated[float, Meta(ge=5e10, le=1e17, extra_json_schema={"x-unit": "By/s"})]
HopSeconds = Annotated[float, Meta(ge=5e-8, le=2e-5, extra_json_schema={"x-unit": "s"})]
HostLinkBytesPerSecond = Annotated[float, Meta(ge=2e8, le=5e12, extra_json_schema={"x-unit": "By/s"})]
BoardWatts = Annotated[float, Meta(ge=10, le=100_000, extra_json_schema={"x-unit": "W"})]
NicBytesPerSecond = Annotated[float, Meta(ge=1.25e8, le=2e12, extra_json_schema={"x-unit": "By/s"})]
NodeWatts = Annotated[float, Meta(ge=50, le=5_000_000, extra_json_schema={"x-unit": "W"})]


class PeakRate(Record, frozen=True, kw_only=True):
    """Dense peak rate of one accelerator for one number format."""

    format: NumberFormat
    """Number format of the multiplied operands."""
    flops_per_second: AcceleratorFlopsPerSecond
    """Dense peak in floating-point operations per second; never the figure for structured sparsity."""


class Accelerator(Record, frozen=True, kw_only=True):
    """The accelerator of a node group: a catalog entry by name, or own figures, or both when they agree."""

    model: Name
    """Catalog name such as `nvidia-h100-sxm-80gb`, or an own name when the figures below are given."""
    vendor: Name | None = None
    """Maker, for example `nvidia`, `amd`, `intel`, `google`, `aws`, `graphcore`."""
    memory_bytes: MemoryBytes | None = None
    """Device memory of one accelerator in bytes, as the device reports it: 81,559 MiB of nvidia-smi are 85.5e9."""
    memory_bandwidth_bytes_per_second: MemoryBytesPerSecond | None = None
    """Device memory bandwidth of one accelerator."""
    peak_rates: tuple[PeakRate, ...] = ()
    """Dense peak rate per number format."""
    unified_memory: bool | None = None
    """True when host and accelerator share one physical memory: `memory_bytes` is then all of it, for both."""
    power_watts: BoardWatts | None = None
    """Board or package power limit of one accelerator."""
    power_cap_watts: BoardWatts | None = None
    """Lower limit that the cluster owner has set; absent means none. Peak rates are those without it."""
    num_ranks_per_accelerator: Annotated[int, Meta(ge=1, le=64)] = 1
    """Ranks that a training job places on one accelerator, for example 2 for a package with two dies."""
    sources: tuple[Source, ...] = ()
    """Where own figures come from."""


class Host(Record, frozen=True, kw_only=True):
    """The host side of one node."""

    num_sockets: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Processor sockets of one node."""
    num_numa_nodes: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """NUMA nodes that the operating system shows."""
    num_cores: Count | None = None
    """Physical processor cores of one node."""
    memory_bytes: MemoryBytes | None = None
    """Host memory of one node."""
    memory_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Host memory bandwidth of one node."""
    virtualised: bool | None = None
    """True when training runs in virtual machines."""
    acs_enabled: bool | None = None
    """True when PCIe Access Control Services redirect peer-to-peer traffic through the root complex."""
    ats_enabled: bool | None = None
    """True when PCIe Address Translation Services are on, which peers inside a virtual machine need."""
    topology_file: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    """Topology description that the collective library is given where it cannot see the machine."""


class HostLink(Record, frozen=True, kw_only=True):
    """The link between host and accelerator, or host and NIC."""

    technology: Literal["pcie", "nvlink-c2c", "infinity-fabric", "coherent", "other"]
    """Kind of link; `coherent` for a cache-coherent link without a name of its own."""
    generation: Annotated[int, Meta(ge=1, le=10)] | None = None
    """Generation, for example 5 for PCIe 5."""
    num_lanes: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Negotiated lanes of one link, for example 16."""
    num_links: Annotated[int, Meta(ge=1, le=16)] = 1
    """Links of one device, for example 2 for a NIC on two PCIe links of four lanes."""
    bandwidth_bytes_per_second: HostLinkBytesPerSecond | None = None
    """Rate of one device in one direction, all its links together."""
    num_devices_per_upstream_link: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Accelerators and NICs that share one upstream link through a switch."""
    upstream_bandwidth_bytes_per_second: HostLinkBytesPerSecond | None = None
    """Rate of the shared upstream link in one direction."""


class ScaleUp(Record, frozen=True, kw_only=True):
    """The fast domain: accelerators joined by links faster than the fabric. A domain may span nodes."""

    technology: Literal[
        "nvlink", "xgmi", "ici", "neuronlink", "gaudi-roce", "ipu-link", "pcie", "ualink", "sue", "other"
    ]
    """Kind of link."""
    generation: Annotated[str, Meta(min_length=1, max_length=16)] | None = None
    """Generation as the makers name it, for example `4` for NVLink 4 or `v5p` for ICI."""
    topology: Literal["switched", "full-mesh", "hybrid-mesh", "torus", "ring", "point-to-point", "other"]
    """How the accelerators of a domain are joined."""
    domain_num_accelerators: Count
    """Accelerators in one physical domain, for example 8 for one HGX node or 72 for an NVL72 rack."""
    used_num_accelerators: Count | None = None
    """Accelerators of a domain that jobs use, for example 64 of 72; absent means all."""
    num_links: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Links of one accelerator into the domain."""
    link_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one link in one direction."""
    bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one accelerator into the domain, all links together, in one direction."""
    direction: Annotated[Literal["one-way"], Meta(extra_json_schema={"x-requirement": "TS-CLU-009"})] = "one-way"
    """Every rate is one-way; the key exists so that a file can say it aloud."""
    latency_seconds: HopSeconds | None = None
    """Latency of one hop."""
    dimensions: tuple[Count, ...] = ()
    """Extent of each axis of a torus, in accelerators."""
    wraparound: tuple[bool, ...] = ()
    """Per axis of a torus: whether the ends are joined."""
    in_network_reduction: bool | None = None
    """True when the switches of the domain can reduce."""
    num_switches: CountOrZero | None = None
    """Switch chips of one domain."""


class Nic(Record, frozen=True, kw_only=True):
    """A kind of network interface of a node, with its number per node."""

    name: Name
    """Name of this kind of interface within the node group, for example `rail`."""
    role: Literal["compute", "storage", "management"] = "compute"
    """Kind of traffic that it carries; collective traffic uses `compute` only."""
    fabric: Name | None = None
    """Name of the fabric that it is plugged into."""
    num_per_node: Annotated[int, Meta(ge=1, le=256)]
    """Interfaces of this kind in one node."""
    virtual: bool | None = None
    """True when a hypervisor presents the interface, with a rate that the provider sets."""
    technology: Literal["infiniband", "ethernet", "efa", "slingshot", "omni-path", "ici", "dcn", "other"]
    """Link layer."""
    generation: Annotated[str, Meta(min_length=1, max_length=32)] | None = None
    """Generation as the makers name it, for example `ndr` or `v3`."""
    num_ports: Annotated[int, Meta(ge=1, le=16)] | None = None
    """Ports of one interface."""
    rate_bytes_per_second: NicBytesPerSecond
    """Rate of one interface in one direction: 400 Gb/s is 50e9."""
    num_accelerators_served: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Accelerators that share one interface."""
    num_per_accelerator: Annotated[int, Meta(ge=1, le=16)] | None = None
    """Interfaces of this kind that one accelerator has to itself, where there are more than accelerators; absent means
    those of a node over its accelerators."""
    accelerator_path: PathClass | None = None
    """Path class between an accelerator and its own interface."""
    nearest_path: PathClass | None = None
    """Best path class that any interface of the node offers to that accelerator."""
    same_numa_node: bool | None = None
    """Whether an accelerator and its interface hang on one NUMA node."""
    bonded: bool | None = None
    """True when the interface is a bond of several ports."""
    gpu_direct: bool | None = None
    """True when the interface reads and writes accelerator memory without a copy through the host."""
    gpu_direct_level: PathClass | None = None
    """Largest distance at which the collective library is set to use that direct path."""
    gid_index: Annotated[int, Meta(ge=0, le=255)] | None = None
    """Index of the routable address that RoCE uses."""
    host_link: HostLink | None = None
    """Slot of the interface."""
    devices: tuple[Name, ...] = ()
    """Device names on one node, in rail order, for example `mlx5_0`."""


class NodeGroup(Record, frozen=True, kw_only=True):
    """Nodes of one kind that train; login, storage and service nodes are left out, in `num_nodes` too."""

    name: Name
    """Name of the group, unique in the document."""
    site: Name | None = None
    """Name of the site that the nodes are at, where there are several."""
    num_nodes: Count
    """Nodes of this group that can train."""
    num_accelerators_per_node: Annotated[int, Meta(ge=1, le=1024)]
    """Accelerators of one node: chips or packages, never cores or dies."""
    accelerator: Accelerator
    """The accelerator of these nodes."""
    host: Host | None = None
    """The host side of one node."""
    host_link: HostLink | None = None
    """The link between host and accelerator."""
    scale_up: ScaleUp | None = None
    """The fast domain that the accelerators belong to."""
    nics: tuple[Nic, ...] = ()
    """Network interfaces of one node."""
    node_power_watts: NodeWatts | None = None
    """Largest power of one node at its supplies."""
    description: Text | None = None
    """Kind of these nodes."""
