"""Declares what a collective library reported about the machine that a job ran on."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Bytes,
    Count,
    CountOrZero,
    Fraction,
    LinkBytesPerSecond,
    MeasuredBytesPerSecond,
    MeasuredFlopsPerSecond,
    Name,
    Record,
    SoftwareComponent,
    Source,
    Text,
)
from trainspec_validate.documents.types.fabric import Transport


class CollectiveObservation(Record, frozen=True, kw_only=True):
    """Facts that one log of a collective library shows of one job."""

    source: Source
    """Log that was read: its title, where it is, and a note."""
    group: Name | None = None
    """Node group that the job ran on; absent means that the observation speaks of every group."""
    library: SoftwareComponent | None = None
    """The library and its version, as the log names them."""
    transport: Transport | None = None
    """Protocol between the nodes of the job; absent where the log does not show it, or shows several."""
    interfaces: tuple[Name, ...] = ()
    """Names of the network interfaces that the library uses, in its order, for example `mlx5_0`."""
    link_layers: tuple[Literal["infiniband", "ethernet"], ...] = ()
    """Link layers of these interfaces, each once."""
    num_ranks: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """Ranks of the largest communicator."""
    num_nodes: Count | None = None
    """Nodes whose ranks appear in the log."""
    gpu_direct_share: Fraction | None = None
    """Share of the network connections that read and write accelerator memory without a copy through the host."""
    forced_settings: tuple[Name, ...] = ()
    """Names of the settings that the environment forced on the library."""
    in_switch_reduction: Literal["seen", "disabled"] | None = None
    """Whether the switches of a scale-up domain were ready to reduce, or were switched off."""
    warnings: tuple[Text, ...] = ()
    """Warnings of the library, each once."""


class DeviceObservation(Record, frozen=True, kw_only=True):
    """Facts that tools report of one accelerator of a node; an absent key was not read."""

    name: Text
    """UUID of the device, or else its PCI address."""
    model: Name | None = None
    """Catalog name of the product, or the product's own name."""
    firmware: Text | None = None
    """Version of its firmware, for example the VBIOS."""
    serial_number: Text | None = None
    """Serial number of its board, which several devices of one board share."""
    host_link_num_lanes: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Lanes of its host link that are in use."""
    host_link_most_lanes: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Lanes that its host link can have, of device and slot together."""
    host_link_generation: Annotated[int, Meta(ge=1, le=10)] | None = None
    """Generation of its host link: the one in use at full performance, else the highest that it can have."""
    num_active_links: CountOrZero | None = None
    """Scale-up links that are up."""
    least_link_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of the slowest of these links in one direction, as the tool states it."""
    memory_bytes: Bytes | None = None
    """Memory that the device reports to programs."""
    ecc_enabled: bool | None = None
    """Whether its memory corrects errors; absent where the device cannot."""
    clock_limit_hertz: Annotated[float, Meta(ge=1e6, le=1e11)] | None = None
    """Largest clock that its compute units may run at."""
    application_clock_hertz: Annotated[float, Meta(ge=1e6, le=1e11)] | None = None
    """Clock that is set for programs, where the driver still has such a setting."""
    power_limit_watts: Annotated[float, Meta(ge=1, le=50_000)] | None = None
    """Power limit that is set."""
    num_uncorrected_errors: CountOrZero | None = None
    """Uncorrected memory errors since the driver was loaded."""
    faults: tuple[Text, ...] = ()
    """Faults of the device: vendor codes of telemetry such as `xid:79` and `row-remap:failure`, `throttle:thermal`."""


class PortObservation(Record, frozen=True, kw_only=True):
    """Facts that tools report of one port of a network interface."""

    device: Name
    """Name of the interface, for example `mlx5_0`."""
    port: Count = 1
    """Port of the interface, counted from 1."""
    active: bool
    """Whether the link is up."""
    awaits_subnet_manager: bool | None = None
    """Whether the physical link is up, and no subnet manager has set up the port yet."""
    rate_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate that the port runs at in one direction."""
    link_layer: Literal["infiniband", "ethernet"] | None = None
    """Whether the port is an InfiniBand or an Ethernet port; many adapters can be switched between both."""
    firmware: Text | None = None
    """Firmware version that the interface reports."""
    node_guid: Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$")] | None = None
    """Globally unique identifier of the interface (node GUID), in hexadecimal digits."""


class BusBandwidth(Record, frozen=True, kw_only=True):
    """A bus bandwidth that a benchmark measured among the accelerators of one node."""

    operation: Literal[
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send-receive"
    ]
    """Collective that the benchmark ran."""
    num_ranks: Annotated[int, Meta(ge=2, le=10_000)]
    """Ranks that took part."""
    message_bytes: Bytes
    """Total buffer size in the benchmark's convention."""
    bus_bandwidth_bytes_per_second: LinkBytesPerSecond
    """Algorithm bandwidth times the factor of the operation."""


class CopyRate(Record, frozen=True, kw_only=True):
    """The slowest copy to or from one accelerator of a node, by its copy engines and with no other at the same time."""

    kind: Literal["host-to-device", "device-to-host", "device-to-device"]
    """Where it copies to; between devices the slowest pair counts."""
    device: CountOrZero
    """Number of the accelerator, as the benchmark counts."""
    peer: CountOrZero | None = None
    """Number of the other accelerator of the pair."""
    bandwidth_bytes_per_second: MeasuredBytesPerSecond
    """Rate in one direction."""


class LinpackRun(Record, frozen=True, kw_only=True):
    """A run of High-Performance Linpack in FP64 whose residual is small enough."""

    matrix_size: Count
    """Order of the matrix that is solved, N of the benchmark."""
    num_ranks: Count
    """Ranks that took part."""
    flops_per_second: MeasuredFlopsPerSecond
    """Rate of all ranks together, as the benchmark counts operations."""


class ObservedFile(Record, frozen=True, kw_only=True):
    """A file that was gathered from a node."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Path below the directory of what was gathered."""
    digest: Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
    """Digest of its bytes, by which both parties know that they judge the same file."""


class DescribedAccelerators(Record, frozen=True, kw_only=True):
    """Accelerators of one node that a file describes alike; an absent key is not stated."""

    num: Count
    """Accelerators of this kind."""
    names: tuple[Text, ...] = ()
    """Identifiers in the file, such as UUIDs or PCI addresses."""
    model: Name | None = None
    """Catalog name of the product, or the product's own name."""
    memory_bytes: Bytes | None = None
    """Memory of one accelerator, or of one die of it."""
    num_links: CountOrZero | None = None
    """Scale-up links of one accelerator; 0 where the file shows that there are none."""
    partitioned: bool | None = None
    """Whether they are divided into instances or partitions."""


class DescribedNics(Record, frozen=True, kw_only=True):
    """Network interfaces of one node that a file describes alike; an absent key is not stated."""

    num: Count
    """Interfaces of this kind."""
    names: tuple[Name, ...] = ()
    """Names of the interfaces, for example `mlx5_0`."""
    technology: Name | None = None
    """Link layer, in the words of `nics.technology` of a node group."""
    rate_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one interface in one direction."""
    bonded: bool | None = None
    """True when an interface is a bond of several ports."""


class NodeDescription(Record, frozen=True, kw_only=True):
    """Hardware of one node as one file describes it; an absent key is not stated."""

    file: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Path of the file that was gathered, one of those in `files`."""
    partial: bool = False
    """Whether the file may show a part of the devices, as in a container with some of the processors."""
    accelerators: tuple[DescribedAccelerators, ...] = ()
    """Its accelerators, one entry for those that are alike."""
    link_technology: Name | None = None
    """Kind of the scale-up links, in the words of `scale_up.technology` of a node group."""
    link_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one scale-up link in one direction."""
    host_link_generation: Annotated[int, Meta(ge=1, le=10)] | None = None
    """Lowest generation of the host links of accelerators."""
    host_link_num_lanes: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Fewest lanes of the host links of accelerators."""
    nics: tuple[DescribedNics, ...] = ()
    """Its network interfaces, one entry for those that are alike."""


class NodeObservation(Record, frozen=True, kw_only=True):
    """Devices that were found on one node; an absent key was not read, and is not judged."""

    name: Name
    """Host name of the node that was observed."""
    group: Name | None = None
    """Node group that it belongs to; absent means the only one."""
    answered: bool = True
    """False for a node that gave nothing that could be read."""
    num_nodes: Count = 1
    """Nodes that this entry is about: several where they are absent and have no names."""
    hosts: tuple[Name, ...] = ()
    """Host names that its kernel logs and its benchmarks of one node state."""
    driver: Text | None = None
    """Version of the driver of its accelerators."""
    num_accelerators: CountOrZero | None = None
    """Accelerators that the tools list."""
    devices: tuple[DeviceObservation, ...] = ()
    """Its accelerators, where a tool reports them one by one."""
    ports: tuple[PortObservation, ...] = ()
    """Ports of its network interfaces."""
    descriptions: tuple[NodeDescription, ...] = ()
    """Its hardware as each file of an import format describes it."""
    failed_checks: tuple[Text, ...] = ()
    """Checks of a diagnostic program that did not pass."""
    bus_bandwidths: tuple[BusBandwidth, ...] = ()
    """The largest message of each benchmark that ran on this node alone."""
    copies: tuple[CopyRate, ...] = ()
    """The slowest copy of each kind and accelerator."""
    linpack_runs: tuple[LinpackRun, ...] = ()
    """The fastest run for each number of ranks."""
    files: tuple[ObservedFile, ...] = ()
    """The files that this was read from."""
