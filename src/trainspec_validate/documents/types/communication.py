"""Declares communication: algorithms per collective, overlap, compression and time-outs."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Bytes,
    Count,
    Fraction,
    Name,
    PositiveSeconds,
    Record,
    SoftwareComponent,
    Text,
)
from trainspec_validate.documents.types.parallelism import Axis

WatchdogSeconds = Annotated[float, Meta(ge=0.001, le=86400, extra_json_schema={"x-unit": "s"})]


class CollectiveChoice(Record, frozen=True, kw_only=True):
    """The algorithm of one collective for one range of sizes."""

    operation: Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast", "send-receive"]
    """Collective that this row chooses an algorithm for."""
    axis: Axis
    """Parallel group that it runs in."""
    algorithm: Literal[
        "automatic",
        "ring",
        "tree",
        "hierarchical",
        "halving-doubling",
        "in-network",
        "in-network-tree",
        "pairwise",
        "direct",
        "torus",
    ]
    """Algorithm; `automatic` leaves the choice to the library."""
    protocol: Literal["automatic", "low-latency", "low-latency-128", "simple"] = "automatic"
    """Wire protocol of the library."""
    min_bytes: Bytes = 0
    """Smallest message of the range, included."""
    max_bytes: Bytes | None = None
    """Largest message of the range, excluded; absent means no limit."""
    reason: Text | None = None
    """Why the choice departs from the table in the specification."""


class Compression(Record, frozen=True, kw_only=True):
    """Lossy reduction of gradient traffic."""

    method: Literal[
        "none",
        "fp16",
        "bf16",
        "fp8",
        "int8",
        "int4",
        "power-sgd",
        "top-k",
        "random-k",
        "one-bit",
        "quantised",
        "sign",
        "other",
    ]
    """Algorithm that makes what is sent smaller, such as `top-k`; `none` sends values as they are."""
    axis: Axis = "data"
    """Parallel group whose traffic is compressed."""
    unbiased: bool | None = None
    """True when the compressor's expectation is its input."""
    error_feedback: bool = False
    """True when what was not sent is added to the next gradient."""
    residual_checkpointed: bool | None = None
    """True when residuals are part of the checkpoint."""
    residual_on_resize: Literal["reset", "redistribute", "refuse"] | None = None
    """Handling of residuals when the world size changes."""
    rank: Annotated[int, Meta(ge=1, le=65536)] | None = None
    """Rank of a low-rank compressor."""
    density: Annotated[float, Meta(gt=0, le=1, extra_json_schema={"x-unit": "1"})] | None = None
    """Share of entries that a sparse compressor sends."""
    start_step: Count | None = None
    """First step that is compressed; earlier steps are dense."""
    wire_ratio: Annotated[float, Meta(ge=1, le=100_000)] | None = None
    """Dense bytes divided by bytes on the wire, indices and scales included."""
    exposed_fraction_before: Fraction | None = None
    """Share of a dense step that waits for this traffic."""
    exposed_fraction_after: Fraction | None = None
    """Share of a compressed step that waits for this traffic."""
    expected_speedup: Annotated[float, Meta(ge=0.1, le=100)] | None = None
    """Dense step time divided by compressed step time."""
    compression_seconds_per_step: PositiveSeconds | None = None
    """Time that compressing and decompressing takes."""
    loss_tolerance: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Largest rise of the final loss that is accepted, in nats."""
    num_seeds: Count | None = None
    """Seeds behind the claim that the loss is unharmed."""


class Communication(Record, frozen=True, kw_only=True):
    """How ranks communicate."""

    library: SoftwareComponent | None = None
    """Collective library with its version."""
    collectives: tuple[CollectiveChoice, ...] = ()
    """Algorithm per operation, group and size."""
    overlap_gradients: bool | None = None
    """True when gradient traffic overlaps with the backward pass."""
    overlap_parameters: bool | None = None
    """True when parameter gathering overlaps with computation."""
    overlap_tensor: bool | None = None
    """True when messages of tensor ranks are split and hidden behind matrix products; absent means as usual for
    `framework`."""
    overlap_expert: bool | None = None
    """True when all-to-all messages of experts are hidden behind computation of another micro-batch; absent means as
    usual for `framework`."""
    bucket_bytes: Annotated[float, Meta(ge=1e4, le=1e12, extra_json_schema={"x-unit": "By"})] | None = None
    """Gradient bytes that travel together."""
    compression: Compression | None = None
    """Compression of gradient traffic."""
    timeout_seconds: WatchdogSeconds | None = None
    """Time after which a collective is given up."""
    heartbeat_seconds: WatchdogSeconds | None = None
    """Interval of liveness messages between ranks."""
    gradient_averaging: Literal["divide-before", "divide-after", "weighted"] | None = None
    """Where the sum becomes a mean."""
    hierarchical_reduction: bool | None = None
    """True when gradients are reduced inside the scale-up domain before they cross the fabric."""
    fabric: Name | None = None
    """Fabric of the cluster that collective traffic uses."""
    nic_names: tuple[Name, ...] = ()
    """NIC kinds of the cluster that collective traffic uses; absent means all of role `compute`."""
