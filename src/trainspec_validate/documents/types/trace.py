"""Declares the trace: the record of each step that a stack writes for a conformance test, as JSON Lines."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Time = Annotated[int, Meta(ge=0, le=2**62)]
Step = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
Rank = Annotated[int, Meta(ge=0, le=10_000_000)]
Attempt = Annotated[int, Meta(ge=0, le=1_000_000)]
Word = Annotated[str, Meta(min_length=1, max_length=4096)]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Number = float | Literal["NaN", "+Inf", "-Inf"]
SampleIds = Annotated[tuple[Annotated[int, Meta(ge=0, le=2**63 - 1)], ...], Meta(max_length=1_000_000)]


class _Record(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag_field="k",
    omit_defaults=True,
    forbid_unknown_fields=True,
    gc=False,  # a history has many, and none refers to itself
):
    time_us: Time
    """Microseconds since 1970 by the clock of the writer."""
    attempt: Attempt = 0
    """Attempt of the run; a new one begins whenever the set of processes that train together is formed anew."""


class Process(_Record, frozen=True, kw_only=True, tag="process"):
    """A process of the stack has started; each writes it first."""

    role: Literal["rank", "controller", "agent", "other"]
    """Role of the process."""
    pid: Annotated[int, Meta(ge=1, le=2**31)]
    """Its number on its host."""
    rank: Rank | None = None
    """Its rank, for `rank`."""
    host: Word | None = None
    """Node that it represents."""


class StepDone(_Record, frozen=True, kw_only=True, tag="step"):
    """An optimizer step has ended on one rank."""

    rank: Rank
    step: Step
    """Optimizer steps completed, this one included; of a skipped step, as many as before it."""
    loss: Number
    """Mean over all targets of the global batch, before the update."""
    learning_rate: float
    """Rate that the step used."""
    sample_ids: SampleIds = ()
    """Samples that this rank consumed, in their order; ranks that share samples report the same ones."""
    gradient_norm: Number | None = None
    """Norm of the global gradient before clipping."""
    loss_scale: float | None = None
    """Scale that the loss was multiplied with."""
    skipped: str | None = None
    """Why the step was not applied."""
    global_sequences: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    """Samples of the global batch."""


class Save(_Record, frozen=True, kw_only=True, tag="save"):
    """A stage of a save, reported as soon as it is reached."""

    checkpoint: Word
    """Name of the checkpoint: its path below the directory of checkpoints."""
    step: Step
    stage: Literal["begin", "snapshot", "written", "committed", "failed"]
    """Training waits from `begin` to `snapshot`; files of this rank, then of all, are durable at the next two."""
    rank: Rank | None = None
    digest: Digest | None = None
    """State digest of what the snapshot holds."""
    reason: Word | None = None
    """Why it failed."""


class Restore(_Record, frozen=True, kw_only=True, tag="restore"):
    """A rank holds verified state and is about to train from it."""

    rank: Rank
    step: Step
    """Optimizer steps that are in the state; 0 with the source `initial` for a start from nothing."""
    source: Literal["checkpoint", "peer", "initial", "memory"]
    checkpoint: Word | None = None
    digest: Digest | None = None
    """State digest of what was restored."""


class Refused(_Record, frozen=True, kw_only=True, tag="refused"):
    """A checkpoint was found and not used."""

    checkpoint: Word
    reason: Word
    file: Word | None = None


class FaultSeen(_Record, frozen=True, kw_only=True, tag="fault"):
    """A fault was detected."""

    kind: Literal["process", "hang", "node", "network", "storage", "corruption", "numeric", "out-of-memory", "slow"]
    rank: Rank | None = None
    """The rank to blame, as far as it is known."""
    reason: Word | None = None


class Decision(_Record, frozen=True, kw_only=True, tag="decision"):
    """The action against a fault is fixed, and the old attempt can no longer write."""

    action: Literal["restart", "replace", "shrink", "wait", "rollback", "skip", "stop", "rebalance"]
    reason: Word | None = None


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """The run has ended."""

    reason: Literal["completed", "crash-loop", "preempted", "fault", "operator"]
    step: Step
    digest: Digest | None = None
    """State digest at the end."""


TraceRecord = Process | StepDone | Save | Restore | Refused | FaultSeen | Decision | End
"""One line of a trace."""
