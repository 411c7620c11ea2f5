"""Declares the CheckpointPolicy: what is saved, when, where, and how a job recovers."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Bytes,
    BytesPerSecond,
    Count,
    Extensions,
    Fraction,
    KeyPath,
    Metadata,
    Name,
    Parameters,
    PositiveSeconds,
    Record,
    Reference,
    Seconds,
    Text,
)
from trainspec_validate.documents.types.cluster import FailureDomain

StateItem = Literal[
    "model",
    "optimizer",
    "learning-rate-schedule",
    "rng",
    "data-position",
    "step",
    "samples-or-tokens",
    "layout",
    "config-digest",
    "gradient-scaler",
    "low-precision-scales",
    "compression-residuals",
    "ema-weights",
    "outer-optimizer",
]
FaultClass = Literal[
    "process-loss", "hang", "node-loss", "network-loss", "storage-loss", "silent-corruption", "job-loss"
]

# No exchange between the ranks of a job ends sooner than a tenth of a second, and no limit in days is a budget.
PhaseSeconds = Annotated[float, Meta(ge=0.1, le=1e6, extra_json_schema={"x-unit": "s"})]
# Processes take seconds to start and join, and state to be read and verified; published times begin at five seconds.
LongPhaseSeconds = Annotated[float, Meta(ge=1, le=1e6, extra_json_schema={"x-unit": "s"})]
# huggingface/smollm, text/pretraining/smollm3/stage1_8T.yaml: a save every 2,000 of 4.72e6 steps, all moved to S3.
KeptCount = Annotated[int, Meta(ge=1, le=1_000_000)]
RESTART_LIMITS = "TS-CKP-051"


class Interval(Record, frozen=True, kw_only=True):
    """Productive time between saves, to whichever tier."""

    steps: Count | None = None
    """Optimizer steps between saves."""
    seconds: PositiveSeconds | None = None
    """Time between saves."""
    step_seconds: PositiveSeconds | None = None
    """Median time of one optimizer step; ties the two forms together."""
    final_only: bool = False
    """True when a short job saves at its end only."""


class Save(Record, frozen=True, kw_only=True):
    """Cost of one save."""

    mode: Literal["synchronous", "asynchronous"]
    """`asynchronous` when training continues before the save is durable."""
    size_bytes: Bytes
    """Bytes of one checkpoint, all ranks together."""
    num_parameters: Parameters | None = None
    """Parameters of the model, embeddings included; the bytes of a save follow from them."""
    bytes_per_parameter: Annotated[float, Meta(ge=1, le=64)] | None = None
    """Checkpoint bytes of one parameter."""
    blocking_seconds: PositiveSeconds
    """Time that training is paused for one save."""
    persist_seconds_p95: PositiveSeconds | None = None
    """95th percentile of the time until an asynchronous save is durable."""
    max_in_flight: Annotated[int, Meta(ge=1, le=64)] = 1
    """Asynchronous saves that may be under way at once."""
    num_writers: Count | None = None
    """Ranks that write."""
    writer_bandwidth_bytes_per_second: BytesPerSecond | None = None
    """Rate of one writer while all of them write."""


class JobFacts(Record, frozen=True, kw_only=True):
    """Facts of the job that the interval follows from."""

    num_nodes: Count | None = None
    """Nodes of the job; absent means those of the plan or cluster."""
    mean_time_between_failures_seconds: PositiveSeconds | None = None
    """Mean time between failures that stop the job, of whatever cause, as counted on jobs."""
    mean_time_between_failures_reason: Text | None = None
    """Why that figure departs from the one that the node failure rate gives."""
    planned_seconds: PositiveSeconds | None = None
    """Planned productive time."""
    step_seconds_p99: PositiveSeconds | None = None
    """99th percentile of the step time."""
    min_num_nodes: Count | None = None
    """Fewest nodes that the job can continue with."""


class Tier(Record, frozen=True, kw_only=True):
    """One place that checkpoints go to."""

    name: Name
    """Name by which findings and other keys refer to this tier."""
    storage: Name | None = None
    """Storage target of the cluster."""
    failure_domain: FailureDomain
    """Loss of which domain loses this copy."""
    interval_seconds: PositiveSeconds | None = None
    """Time between saves that reach this tier; absent means the policy's interval, which is the shortest."""
    num_replicas: Annotated[int, Meta(ge=1, le=64)] = 1
    """Copies in this tier."""
    replicas_across: FailureDomain | None = None
    """Domain of which no two copies share one."""
    num_kept: KeptCount | None = None
    """Checkpoints kept in this tier; absent means the policy's number."""


class Commit(Record, frozen=True, kw_only=True):
    """How a set of files becomes a checkpoint."""

    protocol: Literal["rename", "mark-last", "transaction", "overwrite-in-place"]
    """`rename` moves a finished directory into place, `mark-last` writes a completion mark after everything else."""
    pointer: Literal["none", "after-commit", "before-commit"] = "none"
    """When a `latest` pointer moves."""
    durable_before_commit: bool | None = None
    """True when data is forced to storage before the commit."""


class Retention(Record, frozen=True, kw_only=True):
    """How many checkpoints are kept."""

    num_kept: KeptCount
    """Committed checkpoints that are kept."""
    error_detection_seconds: Seconds
    """Longest time until corruption is noticed."""


class OmittedState(Record, frozen=True, kw_only=True):
    """A required item of state that is left out on purpose."""

    item: StateItem
    """State item that is left out."""
    reason: Text
    """Why a resumed run is still what was promised."""


class StateKeys(Record, frozen=True, kw_only=True):
    """Where an item of state is found in a checkpoint."""

    item: StateItem
    """Kinds of fault that are found."""
    patterns: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=512)], ...], Meta(min_length=1)]
    """Names of tensors, of other values, or of files, with `*` for any part of one: each has to be there."""


class State(Record, frozen=True, kw_only=True):
    """Content of a checkpoint."""

    items: tuple[StateItem, ...]
    """Kinds of state that a save holds, such as `model`, `optimizer` and `data-position`."""
    rng_scope: Literal["rank", "global"] = "rank"
    """`rank` keeps random state of each rank, or a key from which each derives its own; `global`, one state for all."""
    omitted: tuple[OmittedState, ...] = ()
    """Required items that are left out, with reasons."""
    keys: tuple[StateKeys, ...] = ()
    """Where items are found, so that checkpoints on disk can be judged by it."""
    resume_class: Literal["bitwise", "statistical"] = "statistical"
    """`bitwise` promises the same numbers as an uninterrupted run, `statistical` equal distributions of losses."""


class Integrity(Record, frozen=True, kw_only=True):
    """How damage is noticed."""

    digest: Literal["none", "crc32c", "xxh3", "blake3", "sha256", "sha512"]
    """Digest of every file."""
    manifest: bool
    """True when a manifest lists files, sizes and digests."""
    verified_on_restore: bool
    """True when digests are checked before training continues."""
    signed: bool = False
    """True when the manifest is signed."""
    format: Literal["tensor-only", "pickle", "framework-native"] | None = None
    """Whether reading the files can run code; `pickle` can."""


class DetectionLayer(Record, frozen=True, kw_only=True):
    """One layer that can notice a fault, with its time-out."""

    layer: Name
    """Name, for example `collective-watchdog`."""
    timeout_seconds: Annotated[float, Meta(ge=1, le=1e6, extra_json_schema={"x-unit": "s"})]
    """Longest time until this layer reports."""
    faults: Annotated[tuple[FaultClass, ...], Meta(min_length=1)]
    """Faults that this layer notices."""
    signal: Literal["exit", "progress", "heartbeat", "collective-timeout", "health-check", "checksum"] | None = None
    """Signal that it watches."""


class RecoveryPath(Record, frozen=True, kw_only=True):
    """How the job recovers from one class of fault, and how fast."""

    fault: FaultClass
    """Class of fault that this path recovers from, such as `process-loss` or `hang`."""
    action: Literal["restart-in-place", "replace-from-spares", "shrink", "wait-for-repair", "rollback"]
    """Action that is taken."""
    budget_seconds: PositiveSeconds
    """Time from the fault to the first completed step."""
    quantile: Annotated[float, Meta(ge=0.5, lt=1)] = 0.95
    """Share of faults that stay within the budget."""
    decide_seconds: PhaseSeconds
    """From detection to a fixed plan with the old attempt fenced."""
    restart_seconds: LongPhaseSeconds
    """From the plan to running processes."""
    restore_seconds: LongPhaseSeconds
    """From running processes to verified state."""
    first_step_seconds: PhaseSeconds
    """From verified state to the first completed step, compilation included."""
    restore_from: Literal["checkpoint", "peers"] = "checkpoint"
    """Where the state comes from: a tier, or the memory of ranks that still run and hold the same state."""


class Grace(Record, frozen=True, kw_only=True):
    """Behaviour when the platform announces an end."""

    preemptible: bool
    """True when the platform may take nodes away, or announces the end of a limit of time."""
    notice_seconds: Annotated[float, Meta(ge=1, le=7200, extra_json_schema={"x-unit": "s"})] | None = None
    """Time between notice and end; platforms give half a minute to an hour."""
    poll_seconds: Annotated[float, Meta(ge=0.1, le=3600, extra_json_schema={"x-unit": "s"})] | None = None
    """Time until the job sees the notice."""
    counts_on_checkpoint: bool = False
    """True when the policy relies on a save within the notice."""


class RestartLimits(Record, frozen=True, kw_only=True):
    """When a job stops trying."""

    max_restarts: Annotated[int, Meta(ge=0, le=10_000, extra_json_schema={"x-requirement": RESTART_LIMITS})]
    """Restarts of the whole job."""
    max_restarts_without_progress: Annotated[
        int, Meta(ge=0, le=1000, extra_json_schema={"x-requirement": RESTART_LIMITS})
    ]
    """Restarts in a row, after the first attempt, that reach no new optimizer step."""


class CheckpointPolicy(Record, frozen=True, kw_only=True, tag_field="kind", tag="CheckpointPolicy"):
    """Content, times and places of checkpoints, and how a job recovers."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    metadata: Metadata
    """Identity of the document."""
    cluster: Reference | None = None
    """Cluster that the policy is for; absent means the plan's."""
    plan: Reference | None = None
    """Plan that the policy is for."""
    interval: Interval
    """Productive time between saves."""
    save: Save
    """Cost of one save."""
    job: JobFacts = JobFacts()
    """Facts that the interval follows from."""
    tiers: Annotated[tuple[Tier, ...], Meta(min_length=1)]
    """Where checkpoints go."""
    commit: Commit
    """How files become a checkpoint."""
    retention: Retention
    """How many are kept."""
    state: State
    """Content of a checkpoint."""
    integrity: Integrity
    """How damage is noticed."""
    detection: Annotated[tuple[DetectionLayer, ...], Meta(min_length=1)]
    """Layers that notice faults."""
    recovery: Annotated[tuple[RecoveryPath, ...], Meta(min_length=1)]
    """How the job recovers, per class of fault."""
    recovery_point_seconds: PositiveSeconds
    """Most work that a fault may cost."""
    effective_training_time_target: Annotated[float, Meta(ge=0.05, lt=1)] | None = None
    """Least share of wall time that makes lasting progress."""
    grace: Grace | None = None
    """Behaviour of a job that is asked to end: the notice it gets, and the save it makes."""
    restart: RestartLimits
    """When the job stops trying."""
    spare_policy: Literal["spares", "shrink", "wait"] | None = None
    """Replacement of a lost node."""
    share_of_restores_tested: Fraction | None = None
    """Share of checkpoints that are test-restored."""
    notes: Text | None = None
    """Anything a reader should know."""
    unknowns: tuple[KeyPath, ...] = ()
    """Keys that are absent because their values are not known, such as `parallelism.context`; requirements that need
    one are not judged, and no default takes its place."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Vendor data, keyed by reverse domain name."""
