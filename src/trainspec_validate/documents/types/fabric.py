"""Declares the scale-out network and the explicit nodes and links of irregular machines."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Count,
    CountOrZero,
    LatencySeconds,
    LinkBytesPerSecond,
    Name,
    Record,
    Text,
)

Transport = Literal[
    "infiniband",
    "rocev2",
    "efa-srd",
    "mrc",
    "uet",
    "tcp",
    "tcpx",
    "tcpxo",
    "slingshot",
    "omni-path",
    "ici",
    "dcn",
    "other",
]

FailoverSeconds = Annotated[float, Meta(ge=1e-6, le=3600, extra_json_schema={"x-unit": "s"})]


class PortKind(Record, frozen=True, kw_only=True):
    """Ports of one switch that have a rate of their own."""

    num_ports: Annotated[int, Meta(ge=1, le=4096)]
    """Cabled ports of one switch."""
    bandwidth_bytes_per_second: LinkBytesPerSecond
    """Rate of one port in one direction."""


class FabricTier(Record, frozen=True, kw_only=True):
    """One layer of switches, counted from the nodes upwards."""

    name: Name
    """Name of the layer, for example `leaf`."""
    num_switches: Count | None = None
    """Switches of this layer in the whole fabric."""
    num_ports: Annotated[int, Meta(ge=2, le=4096)] | None = None
    """Ports of one switch."""
    num_down_ports: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """Cabled ports of one switch towards the nodes."""
    num_up_ports: Annotated[int, Meta(ge=0, le=4096)] | None = None
    """Cabled ports of one switch towards the next layer; 0 at the top."""
    port_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one port in one direction."""
    up_port_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one upward port where it differs."""
    other_down_ports: tuple[PortKind, ...] = ()
    """Further ports of one switch towards the nodes, with other rates."""
    group_num_nodes: Count | None = None
    """Nodes that reach each other without leaving this layer."""
    oversubscription: Annotated[float, Meta(ge=0.1, le=1000, extra_json_schema={"x-unit": "1"})] | None = None
    """Downward capacity divided by upward capacity: 1 is non-blocking, 7 means 7:1."""
    latency_seconds: LatencySeconds | None = None
    """Latency that crossing this layer adds."""
    uplinks_found: tuple[CountOrZero, ...] = ()
    """Upward links counted on each switch, where the fabric was surveyed."""


class Spraying(Record, frozen=True, kw_only=True):
    """How packets of one flow are spread over paths."""

    mode: Literal["none", "flowlet", "packet"]
    """Unit that may take a path of its own."""
    num_entropy_values: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """Path identifiers of one queue pair."""
    out_of_order_delivery: bool | None = None
    """True when the receiver places packets in any order."""


class Routing(Record, frozen=True, kw_only=True):
    """Party that chooses paths."""

    mode: Literal["static", "ecmp", "adaptive", "source"]
    """`source` when the sender writes the path into the packet."""
    control_plane: Literal["none", "bgp", "subnet-manager", "other"] | None = None
    """Program that computes the routes."""


class LossHandling(Record, frozen=True, kw_only=True):
    """Behaviour of the fabric when a buffer fills."""

    lossless: bool
    """True when the fabric promises not to drop."""
    priority_flow_control: bool | None = None
    """True when Ethernet priority flow control is on."""
    credit_flow_control: bool | None = None
    """True when links use credits."""
    packet_trimming: bool | None = None
    """True when switches cut packets down to headers instead of dropping them."""


class Congestion(Record, frozen=True, kw_only=True):
    """How senders learn to slow down."""

    signal: Literal["ecn", "rtt", "trimming", "credit", "none"]
    """Signals that report congestion."""
    placement: Literal["sender", "receiver"] | None = None
    """Which side holds the control loop."""


class Fabric(Record, frozen=True, kw_only=True):
    """One scale-out network."""

    name: Name
    """Name that NICs refer to."""
    transport: Transport
    """Protocol between NICs."""
    topology: Literal["fat-tree", "rail-optimised", "dragonfly", "torus", "direct", "other"]
    """Shape of the network."""
    num_planes: Annotated[int, Meta(ge=1, le=64)] = 1
    """Independent copies of the network: the ports of each NIC are in all of them, or the NICs of each node are spread
    over them."""
    plane_bandwidth_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of one NIC into one plane in one direction: its whole rate where each NIC is in one plane."""
    num_rails: Annotated[int, Meta(ge=1, le=256)] | None = None
    """Rails of a rail-optimised network: NIC i of every node meets on rail i."""
    rails_joined: bool | None = None
    """True when rails meet at a higher tier."""
    cross_rail_traffic: Literal["forbidden", "allowed", "automatic"] | None = None
    """Whether the collective library may send from one rail to another."""
    path_selection: Literal["single", "ecmp", "adaptive", "packet-spraying"] | None = None
    """How a flow gets its path."""
    spraying: Spraying | None = None
    """Spreading of one flow over paths."""
    routing: Routing | None = None
    """Party that chooses paths."""
    loss: LossHandling | None = None
    """Behaviour when a buffer fills."""
    congestion: Congestion | None = None
    """How senders learn to slow down."""
    tiers: tuple[FabricTier, ...] = ()
    """Switch layers, from the nodes upwards."""
    failover_seconds: FailoverSeconds | None = None
    """Time until traffic flows again after a link or switch is lost."""
    failover_evidence: Text | None = None
    """Where the failover time comes from."""
    latency_seconds: LatencySeconds | None = None
    """One-way latency of a small message between two nodes of different groups."""
    max_num_nics: Count | None = None
    """NICs that the fabric can hold at its declared shape."""
    in_network_reduction: bool | None = None
    """True when the switches of the fabric can reduce."""


class ExplicitDevice(Record, frozen=True, kw_only=True):
    """An accelerator or NIC of one explicit node."""

    name: Name
    """Name of the device on its node."""
    numa_node: Annotated[int, Meta(ge=0, le=1024)] | None = None
    """NUMA node that it hangs on."""
    link_generation: Annotated[int, Meta(ge=1, le=10)] | None = None
    """Negotiated PCIe generation."""
    link_num_lanes: Annotated[int, Meta(ge=1, le=64)] | None = None
    """Negotiated PCIe lanes."""
    upstream_generation: Annotated[int, Meta(ge=1, le=10)] | None = None
    """PCIe generation of the bridge above."""
    rate_bytes_per_second: LinkBytesPerSecond | None = None
    """Rate of a NIC in one direction."""
    rail: Annotated[int, Meta(ge=0, le=255)] | None = None
    """Rail that a NIC is attached to, counted from 0; NICs of one rail meet in the same leaf switches."""
    leaf: Name | None = None
    """Leaf switch that a NIC is plugged into."""
    identifier: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    """Identifier that survives renumbering, for example a UUID or serial number."""


class ExplicitNode(Record, frozen=True, kw_only=True):
    """One node of an irregular machine."""

    name: Name
    """Host name or alias, unique in the document."""
    group: Name
    """Node group that it belongs to."""
    rack: Name | None = None
    """Rack or other failure domain that it is in."""
    scale_up_domain: Name | None = None
    """Identifier of its scale-up domain where the domain spans nodes."""
    accelerators: tuple[ExplicitDevice, ...] = ()
    """Accelerators, in device order."""
    nics: tuple[ExplicitDevice, ...] = ()
    """NICs, in device order."""


class ExplicitLink(Record, frozen=True, kw_only=True):
    """One link of an irregular machine, stated once for each direction that differs."""

    source: Name
    """Name of the node or switch at one end."""
    target: Name
    """Name of the node or switch at the other end."""
    num_links: Count = 1
    """Parallel links of this kind between the two ends."""
    bandwidth_bytes_per_second: LinkBytesPerSecond
    """Rate of one link in one direction."""
    latency_seconds: LatencySeconds | None = None
    """Time that a bit takes from end to end, in one direction and without queues."""
    both_directions: bool = True
    """False when the rate holds from source to target only."""


class ExplicitSwitch(Record, frozen=True, kw_only=True):
    """One switch of an irregular machine."""

    name: Name
    """Name, unique among nodes and switches."""
    tier: Name | None = None
    """Fabric tier that it belongs to."""
    num_ports: Annotated[int, Meta(ge=1, le=4096)] | None = None
    """Physical ports of the switch, up and down together."""


class Layout(Record, frozen=True, kw_only=True):
    """Explicit nodes, switches and links; only where a machine is irregular."""

    nodes: tuple[ExplicitNode, ...] = ()
    """Every node of the groups named here."""
    switches: tuple[ExplicitSwitch, ...] = ()
    """Switches that links end at."""
    links: tuple[ExplicitLink, ...] = ()
    """Links between nodes and switches."""
