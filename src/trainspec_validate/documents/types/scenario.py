"""Declares a conformance scenario: the acts of a trial, and what has to be true afterwards."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trainspec_validate.documents.types.base import (
    Bytes,
    Count,
    CountOrZero,
    Extensions,
    Metadata,
    PositiveSeconds,
    Record,
    Seconds,
    Text,
)
from trainspec_validate.documents.types.conformance import Capability, TestJob

Privilege = Literal[
    "mounts", "network-namespaces", "process-limits", "memory-limits", "clock-library", "system-call-filters"
]
Target = Literal["rank", "other-rank", "coordinator", "all-ranks", "host", "half", "controller", "writer", "everything"]
"""`rank` is the last rank, `other-rank` the one before it, `coordinator` rank 0, `writer` a rank that is saving; `host`
is the host of the last rank, and `half` the second half of all hosts."""


class _Act(Record, frozen=True, kw_only=True, tag_field="act"):
    pass


class Start(_Act, frozen=True, kw_only=True, tag="start"):
    """Starts the command of the stack."""

    resume: bool = False
    """Whether it has to continue from a checkpoint."""
    num_ranks: Count | None = None
    """Another number of processes than the job's."""
    accumulation_steps: Count | None = None
    """Another number of micro-batches of a rank than the job's."""
    another_seed: bool = False
    """Whether the task has another seed than the baseline run, drawn for this start."""
    another_learning_rate: bool = False
    """Whether the task has a factor of the learning rate, drawn for this start between 0.3 and 0.7."""


class Wait(_Act, frozen=True, kw_only=True, tag="wait"):
    """Waits until something is seen in the trace; a trial fails where it is not seen in time."""

    until: Literal[
        "step",
        "committed",
        "step-after-commit",
        "save-failed",
        "saving",
        "snapshot",
        "written",
        "fault",
        "restored",
        "first-step",
        "end",
        "time",
    ]
    """A step of all ranks, a stage of a save, a fault that was reported, the end of all processes, or mere time.

    After `step-after-commit`, each rank has completed a step later than that of the newest committed checkpoint.
    """
    step: CountOrZero | None = None
    """At or after which update."""
    jitter_steps: CountOrZero = 0
    """Steps that are added at random, and a random part of a step with them."""
    num: Count = 1
    """How many times it is seen, for `committed`."""
    seconds: Seconds = 0
    """Time to wait for, with `time`; a delay after what was seen otherwise."""


class Inject(_Act, frozen=True, kw_only=True, tag="inject"):
    """Damages the running job from outside."""

    kind: Literal[
        "kill",
        "stop",
        "continue",
        "terminate",
        "slow",
        "limit-memory",
        "fill-disk",
        "free-disk",
        "fail-writes",
        "mend-writes",
        "cut-network",
        "mend-network",
        "delay-network",
        "offset-clock",
        "fail-device",
        "mend-device",
        "kill-at-memory-limit",
    ]
    """Kind of the fault; of a network that is cut packets are lost without notice, of a device each write fails."""
    target: Target = "rank"
    """To whom."""
    grace_seconds: Seconds = 0
    """Time between SIGTERM and SIGKILL, for `terminate`."""
    factor: Annotated[float, Meta(gt=1, le=100)] | None = None
    """How many times slower, for `slow`."""
    seconds: Seconds = 0
    """How long it lasts, for `slow`; how late packets are on each way, for `delay-network`; how long all other ranks
    are stopped, for `kill`."""
    offset_seconds: Annotated[float, Meta(ge=-1e6, le=1e6, extra_json_schema={"x-unit": "s"})] | None = None
    """How far the time of day is ahead from now on, for `offset-clock`."""
    loss: Annotated[float, Meta(ge=0, lt=1)] | None = None
    """Share of packets that is lost, for `delay-network`."""
    reaches_command: bool = False
    """Whether what is cut off still reaches the host of the command, for `cut-network`."""
    size_bytes: Bytes | None = None
    """Limit, for `limit-memory`."""


DamageKind = Literal[
    "cut-byte",
    "cut-half",
    "flip-bit",
    "zero-block",
    "delete-file",
    "stale-file",
    "partial-directory",
    "pointer-empty",
    "pointer-garbage",
    "pointer-dangling",
    "pointer-ahead",
    "pointer-incomplete",
    "hostile-pickle",
    "path-traversal",
    "huge-header",
    "all-checkpoints-cut",
    "resealed",
    "scaled-values",
    "scaled-tensor",
]
"""`scaled-values` multiplies every floating-point value by a factor and writes a new manifest, `scaled-tensor` those of
one tensor and of its copies, and `resealed` writes a new manifest alone. All others damage."""


class Damage(_Act, frozen=True, kw_only=True, tag="damage"):
    """Damages the store."""

    kinds: Annotated[tuple[DamageKind, ...], Meta(min_length=1)]
    """Damage, one kind in each trial; to one file of state, drawn at random, where it is about one."""
    checkpoint: Literal["newest", "newest-two", "oldest", "all", "next"] = "newest"
    """To which checkpoint; `next` is the one that will be written after the last. `newest-two` are the two newest where
    there is a third."""
    while_running: bool = False
    """Whether the job runs meanwhile; the newest checkpoint is then the newest that was committed."""


class Stop(_Act, frozen=True, kw_only=True, tag="stop"):
    """Ends the whole job."""

    signal: Literal["kill", "terminate"] = "kill"
    """`kill` ends every process at once, `terminate` asks the command to end."""
    grace_seconds: Seconds = 30
    """Time between the two."""


class Probe(_Act, frozen=True, kw_only=True, tag="probe"):
    """Asks the stack for a number, with an input that the scenario's numeric case makes."""

    case: Annotated[str, Meta(min_length=1, max_length=64)]
    """Name of the numeric case."""


Act = Start | Wait | Inject | Damage | Stop | Probe


class Criterion(Record, frozen=True, kw_only=True):
    """One thing that has to be true of a trial; keys that a check does not use stay away."""

    check: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9-]*$")]
    """Criterion that the suite judges, such as `completes` or `rate-is-zero`. The site lists what each compares, under
    Scenarios by level."""
    seconds: PositiveSeconds | None = None
    """Time limit; absent means what the stack claims."""
    steps: CountOrZero | None = None
    """Optimizer steps that the check counts with; their meaning is that of the check."""
    num: CountOrZero | None = None
    """Number of things."""
    tolerance: Annotated[float, Meta(ge=0, le=1000)] | None = None
    """Largest relative difference."""
    words: tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...] = ()
    """Words that are allowed."""
    case: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    """Numeric case whose answer is judged."""


class Trials(Record, frozen=True, kw_only=True):
    """Trials by the quantile that is claimed."""

    basic: Count = 5
    """Trials where the stack claims a median."""
    standard: Count = 5
    """Trials where the stack claims its recovery time for 90 of 100 faults."""
    strict: Count = 5
    """Trials where the stack claims its recovery time for 95 of 100 faults."""


class Scenario(Record, frozen=True, kw_only=True, tag_field="kind", tag="Scenario"):
    """One conformance test: a job, what happens to it, and what has to be true afterwards."""

    apiVersion: Literal["trainspec/v1"]  # noqa: N815 - the key that selects the schema, spelled as other ecosystems do
    """Version of the document format."""
    metadata: Metadata
    """Identity; the name is that of the scenario's directory."""
    requirement: Annotated[str, Meta(pattern=r"^TS-[A-Z]{3}-[0-9]{3}$")]
    """The requirement that it tests."""
    tier: Literal["core", "extended"]
    """Whether a conformant stack has to pass it in the profile `core`, or in `full` only."""
    level: Literal["observable", "recoverable", "efficient"]
    """Level of conformance that it belongs to."""
    needs: tuple[Capability, ...] = ()
    """Capabilities of the stack without which it cannot run."""
    privileges: tuple[Privilege, ...] = ()
    """Privileges that the machine has to allow."""
    job: TestJob = TestJob()
    """The job that is trained."""
    any_length: bool = False
    """Whether each trial draws the optimizer steps of its job: 8 to 20 in the first, 10,000 to 1,000,000 in the second,
    and so on."""
    control: bool = True
    """Whether a run of the same job without faults comes first."""
    acts: Annotated[tuple[Act, ...], Meta(min_length=1)]
    """Steps of the scenario, in order."""
    criteria: Annotated[tuple[Criterion, ...], Meta(min_length=1)]
    """Checks that have to hold in every trial."""
    trials: Trials = Trials(basic=1, standard=1, strict=1)
    """How often it is run."""
    budget_seconds: PositiveSeconds = 180
    """Longest time of one trial, without the declared start time of the stack; a longer one is ended and fails."""
    notes: Text | None = None
    """Anything a reader should know."""
    extensions: Extensions = msgspec.field(default_factory=dict)
    """Data of others, under reverse domain names."""
