"""Declares the ClusterProfile: what a training machine is, and how reliable."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Bytes,
    BytesPerSecond,
    Count,
    CountOrZero,
    Extensions,
    KeyPath,
    LinkBytesPerSecond,
    Metadata,
    Name,
    PositiveSeconds,
    Record,
    Seconds,
    SoftwareComponent,
    Source,
    StorageBytes,
    Text,
    Watts,
)
from trainspec_validate.documents.types.fabric import Fabric, Layout
from trainspec_validate.documents.types.hardware import NodeGroup
from trainspec_validate.documents.types.observation import CollectiveObservation, NodeObservation

FailureDomain = Literal["process", "node", "scale-up-domain", "rack", "cluster", "site"]
"""Unit that is lost together, smallest first."""


class StorageTarget(Record, frozen=True, kw_only=True):
    """A place that checkpoints or data can live in."""

    name: Name
    """Name that checkpoint tiers refer to."""
    kind: Literal["parallel-file-system", "object-store", "network-file-system", "local-disk", "host-memory", "block"]
    """Kind of storage: a file system, an object store, disks, or memory of hosts."""
    scope: Literal["node", "cluster"]
    """`node` when the figures are for one node's own store, `cluster` when all nodes share it; memory of servers that
    all nodes reach over the network is `host-memory` with scope `cluster`."""
    write_bandwidth_bytes_per_second: BytesPerSecond | None = None
    """Sustained write rate of the whole target."""
    read_bandwidth_bytes_per_second: BytesPerSecond | None = None
    """Sustained read rate of the whole target."""
    capacity_bytes: StorageBytes | None = None
    """Size of the target."""
    free_bytes: Bytes | None = None
    """Space that checkpoints may use; absent means the capacity."""
    num_stripe_targets: Count | None = None
    """Servers or disks that the target is striped over; each one can fill up by itself."""
    atomic_rename: bool | None = None
    """True when a rename replaces a name in one step."""
    failure_domain: FailureDomain
    """Loss of which domain loses the target."""


class Site(Record, frozen=True, kw_only=True):
    """A data centre or a room of its own; node groups say at which site they are."""

    name: Name
    """Name that node groups and interconnects refer to."""
    description: Text | None = None
    """Where it is, or what it is."""


class Interconnect(Record, frozen=True, kw_only=True):
    """Links that join two sites or two fabrics."""

    ends: Annotated[tuple[Name, ...], Meta(min_length=2, max_length=2)]
    """Names of two sites, or of two fabrics."""
    bandwidth_bytes_per_second: LinkBytesPerSecond
    """Rate of all links together in one direction."""
    latency_seconds: Annotated[float, Meta(ge=1e-9, le=1, extra_json_schema={"x-unit": "s"})] | None = None
    """One-way latency between the two ends."""


class Screening(Record, frozen=True, kw_only=True):
    """Tests that look for nodes that compute wrong results without an error."""

    interval_seconds: PositiveSeconds
    """Time in which every node is tested once."""
    duration_seconds: PositiveSeconds | None = None
    """Time that one node is tested for in that interval."""
    in_production: bool | None = None
    """True when nodes are tested next to the job, false when they are taken out of it."""


class Reliability(Record, frozen=True, kw_only=True):
    """How often nodes fail, with the evidence."""

    failures_per_1000_node_days: Annotated[float, Meta(gt=0, le=1000, extra_json_schema={"x-unit": "1"})]
    """Failures that stop a job, per 1000 days of one node."""
    source: Literal["measured", "vendor", "default"]
    """Where the rate comes from."""
    num_failures: CountOrZero | None = None
    """Failures counted, for a measured rate."""
    node_days: Annotated[float, Meta(gt=0, le=1e10, extra_json_schema={"x-unit": "d"})] | None = None
    """Days of nodes observed, for a measured rate."""
    citation: Source | None = None
    """Publication or log that the rate is read from."""
    num_spare_nodes: CountOrZero | None = None
    """Nodes kept ready to replace a lost one; not counted in the node groups."""
    replacement_seconds: Seconds | None = None
    """Time until a lost node is repaired or replaced."""
    spare_start_seconds: Seconds | None = None
    """Time until a spare node has joined the job."""
    screening: Screening | None = None
    """Schedule of tests for silent corruption."""


class Clock(Record, frozen=True, kw_only=True):
    """How clocks agree."""

    discipline: Literal["ptp", "ntp", "gps", "none"]
    """Discipline that keeps the clocks together."""
    max_offset_seconds: Annotated[float, Meta(ge=0, le=10, extra_json_schema={"x-unit": "s"})] | None = None
    """Bound on the offset between any two nodes."""


class Power(Record, frozen=True, kw_only=True):
    """Facility figures for energy and carbon."""

    power_usage_effectiveness: Annotated[float, Meta(ge=1, le=3, extra_json_schema={"x-unit": "1"})] | None = None
    """Facility energy divided by IT energy."""
    carbon_intensity_kilograms_per_kilowatt_hour: (
        Annotated[
            float,
            Meta(ge=0, le=1.5, extra_json_schema={"x-unit": "kg/kW.h", "x-requirement": "TS-NRG-010"}),
        ]
        | None
    ) = None
    """Carbon dioxide equivalent of one kilowatt-hour."""
    carbon_basis: Literal["location", "market"] | None = None
    """Whether the intensity is that of the grid or of purchased energy."""
    carbon_source: Source | None = None
    """Where the intensity comes from, with its year."""
    it_power_watts: Watts | None = None
    """Power that the facility can deliver to the nodes of this document."""
    max_swing_watts: Watts | None = None
    """Largest rise or fall of the nodes' power that the supply allows at every step of a job."""
    smoothing: tuple[Literal["accelerator", "rack-storage", "facility-storage", "software"], ...] = ()
    """Means that keep power level between the phases of a step: a feature of the accelerators, storage in racks or in
    the facility, or work that software adds while accelerators wait."""


class SoftwareStack(Record, frozen=True, kw_only=True):
    """The software that figures in this document depend on."""

    collective_library: SoftwareComponent | None = None
    """NCCL, RCCL, oneCCL, or their like."""
    driver: SoftwareComponent | None = None
    """Driver of the accelerators, as name and exact version."""
    runtime: SoftwareComponent | None = None
    """CUDA, ROCm, libtpu, Neuron or their like."""
    frameworks: tuple[SoftwareComponent, ...] = ()
    """Frameworks that are installed on the nodes, as names and exact versions."""
    operating_system: SoftwareComponent | None = None
    """Distribution that the nodes run, as name and version."""


class CollectiveMeasurement(Record, frozen=True, kw_only=True):
    """One measured collective, as benchmark programs report it."""

    operation: Literal[
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "reduce", "send-receive"
    ]
    """Collective whose bandwidth was measured."""
    num_ranks: Annotated[int, Meta(ge=2, le=10_000_000)]
    """Ranks that took part."""
    num_domains: Count = 1
    """Scale-up domains that the ranks were spread over."""
    message_bytes: Bytes
    """Total buffer size in the benchmark's convention."""
    algorithm_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Buffer size divided by time."""
    bus_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Algorithm bandwidth times the factor of the operation."""
    time_seconds: Annotated[float, Meta(ge=1e-6, le=1000, extra_json_schema={"x-unit": "s"})] | None = None
    """Time of one operation, as the benchmark prints it."""
    relative_spread: Annotated[float, Meta(ge=1e-4, le=10, extra_json_schema={"x-unit": "1"})] | None = None
    """Largest minus smallest over the median of repeated runs; clocks and networks never repeat a run exactly."""
    group: Name | None = None
    """Node group that the ranks belonged to; needed when there are several."""
    in_network_reduction: bool = False
    """True when switches reduced, which doubles the reachable bus bandwidth of an all-reduce inside a domain."""
    source: Source | None = None
    """Where the figure comes from."""


class ClusterProfile(Record, frozen=True, kw_only=True, tag_field="kind", tag="ClusterProfile"):
    """A training machine: node groups, networks, storage, reliability, power and software."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    metadata: Metadata
    """Identity of the document."""
    num_nodes: Count
    """Nodes of all groups together; stated so that a slip in a group is found."""
    num_accelerators: Count
    """Accelerators of all groups together; stated so that a slip in a group is found."""
    node_groups: Annotated[tuple[NodeGroup, ...], Meta(min_length=1)]
    """Nodes by kind."""
    sites: tuple[Site, ...] = ()
    """Sites of a machine that is not all in one place."""
    fabrics: tuple[Fabric, ...] = ()
    """Scale-out networks."""
    interconnects: tuple[Interconnect, ...] = ()
    """Links between sites or fabrics."""
    layout: Layout | None = None
    """Explicit nodes and links of an irregular machine."""
    storage_targets: tuple[StorageTarget, ...] = ()
    """Stores for checkpoints and data."""
    reliability: Reliability | None = None
    """Failure rate with its evidence, spares and repair time."""
    clock: Clock | None = None
    """How the clocks of hosts are synchronised, and how far they are off."""
    power: Power | None = None
    """Facility figures."""
    software: SoftwareStack | None = None
    """Software that figures depend on."""
    measurements: tuple[CollectiveMeasurement, ...] = ()
    """Measured collectives."""
    observations: tuple[CollectiveObservation, ...] = ()
    """Collective libraries that real jobs reported, to hold against what is declared."""
    observed_nodes: tuple[NodeObservation, ...] = ()
    """Devices that were found on each node, to hold against what is declared; `trainspec accept` writes it."""
    notes: Text | None = None
    """Anything a reader should know."""
    unknowns: tuple[KeyPath, ...] = ()
    """Keys that are absent because their values are not known, such as `parallelism.context`; requirements that need
    one are not judged, and no default takes its place."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Vendor data, keyed by reverse domain name; never interpreted by the specification."""
