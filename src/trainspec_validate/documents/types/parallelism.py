"""Declares how a plan divides work: parallel degrees, order, placement, schedule and synchrony."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from trainspec_validate.documents.types.base import Count, CountOrZero, Degree, Name, Record, Text
from trainspec_validate.documents.types.precision import StateFormat

Axis = Literal["data", "tensor", "pipeline", "context", "expert"]
ContextMethod = Literal["ring", "all-gather", "head-parallel", "head-parallel-ring"]
Locality = Literal["scale-up-domain", "node", "fabric"]


class Placement(Record, frozen=True, kw_only=True):
    """How far the members of one parallel group may be apart."""

    axis: Axis
    """Dimension of parallelism that the placement is for."""
    within: Locality
    """Smallest thing that holds a whole group: a scale-up domain, a node, or the fabric."""
    fabric_tier: Name | None = None
    """Fabric tier that groups stay below, for groups on the fabric."""
    reason: Text | None = None
    """Why this placement is right where it is unusual."""


class Parallelism(Record, frozen=True, kw_only=True):
    """Parallel degrees and their layout."""

    num_accelerators: Count
    """Ranks of the job; equal to the accelerators used unless an accelerator carries several ranks."""
    data: Degree = 1
    """Replicas of the model, shards of a sharded replica included."""
    tensor: Degree = 1
    """Ranks that split each layer's matrices."""
    pipeline: Degree = 1
    """Stages that split the layers."""
    context: Degree = 1
    """Ranks that split each sequence."""
    context_method: ContextMethod | None = None
    """How attention sees the whole sequence: keys and values pass around a `ring` or are gathered (`all-gather`), an
    all-to-all gives each rank whole sequences of some heads (`head-parallel`, as DeepSpeed-Ulysses does), or the latter
    within groups that form a ring (`head-parallel-ring`)."""
    expert: Degree = 1
    """Ranks that split the experts; they are taken from the data, context and tensor ranks."""
    expert_tensor: Degree | None = None
    """Ranks that split one expert's matrices; absent means as `tensor`."""
    sequence: bool | None = None
    """True when the tensor ranks also split activations along the sequence; absent where that is not known."""
    num_virtual_stages: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Pipeline chunks of one rank."""
    stage_layers: tuple[CountOrZero, ...] = ()
    """Layers of each virtual stage in order, for an uneven split."""
    schedule: Literal["none", "gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "dual-pipe", "other"] | None = None
    """Order in which a rank runs the forward and backward passes of its micro-batches."""
    sharding: Literal["none", "optimizer", "gradients", "parameters"] = "none"
    """State that is sharded over data ranks: `optimizer` is ZeRO-1, `gradients` ZeRO-2, `parameters` ZeRO-3 or FSDP."""
    sharding_degree: Degree | None = None
    """Data ranks that share one copy, context ranks counted among them; absent means all."""
    order: tuple[Axis, ...] = ("tensor", "context", "expert", "data", "pipeline")
    """Axes from adjacent ranks outwards."""
    placements: tuple[Placement, ...] = ()
    """Locality that each axis needs."""
    rank_order: Literal["topology", "scheduler", "alphabetical"] | None = None
    """How hosts become ranks: sorted by topology, as the scheduler lists them, or by name."""


class OuterOptimizer(Record, frozen=True, kw_only=True):
    """How the changes of several groups become one change of the parameters, for local updates."""

    name: Literal["sgd", "nesterov", "adam", "other"]
    """Algorithm that takes the mean change of the groups for a gradient; `sgd` with rate 1 averages parameters."""
    learning_rate: Annotated[float, Meta(gt=0, le=100)] | None = None
    """Learning rate of the outer step."""
    momentum: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Momentum of the outer step."""
    exchange_format: StateFormat | None = None
    """Number format of what groups exchange."""


class Synchrony(Record, frozen=True, kw_only=True):
    """Whether replicas step together."""

    mode: Literal["synchronous", "local-update", "asynchronous", "decentralised"] = "synchronous"
    """`local-update` lets groups of data ranks step apart and average at an interval, as DiLoCo does; `asynchronous`
    and `decentralised` are declared extensions."""
    num_groups: Degree | None = None
    """Groups of data ranks that step apart, for local updates."""
    outer_optimizer: OuterOptimizer | None = None
    """Optimizer of the exchanges between groups, for local updates."""
    max_staleness_steps: CountOrZero | None = None
    """Largest age of a gradient or parameter that is applied, for asynchronous modes."""
    outer_interval_steps: Count | None = None
    """Inner steps between exchanges, for local updates and decentralised modes."""
    extension: Annotated[str, Meta(pattern=r"^[a-z0-9]+(\.[a-z0-9-]+)+$")] | None = None
    """Key under `extensions` that defines the mode."""
