"""Declares the messages between the controller and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Formation = Annotated[int, Meta(ge=0, le=1_000_000)]
Step = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}$")]
Source = Literal["initial", "checkpoint", "peer", "memory"]


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="say", omit_defaults=True):
    """One line on the channel."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a save, as its writer read it back."""

    path: Annotated[str, Meta(min_length=1, max_length=4096)]
    """Relative to the directory of the save, with forward slashes."""
    size_bytes: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where a formation takes its state from."""

    source: Source
    """`memory`: each worker continues with its own state; `peer`: all workers copy the state of the rank `donor`."""
    step: Step = 0
    checkpoint: Name | None = None
    donor: int | None = None
    state: str | None = None
    """State of the trainer outside the backend, for a start from a peer."""
    counters: dict[str, float] | None = None
    """Counts of the recorder, for a start from memory or from a peer; None where they are not known."""
    save_first: bool = False
    """Save before the first step: the save of this state was given up."""
    holders: tuple[int, ...] = ()
    """Numbers of the workers that hold the state, which the controller alone needs."""

    def of(self, members: Sequence[int]) -> Start:
        """The start of these workers, in the order of their ranks: from their own memory where all hold the state."""
        ranks = [rank for rank, number in enumerate(members) if number in self.holders]
        if len(ranks) == len(members):
            return msgspec.structs.replace(self, source="memory", state=None)
        return msgspec.structs.replace(self, donor=ranks[0]) if ranks else self


# --- a worker tells ---------------------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True, tag="hello"):
    """A worker is there; the first thing that it says."""

    token: Annotated[str, Meta(max_length=128)]
    """Secret of the run, so that no stranger joins."""
    worker: Annotated[int, Meta(ge=0, le=1_000_000)]
    can_rejoin: bool


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """A worker holds the state that its formation starts from."""

    formation: Formation
    step: Step


class Arrived(Message, frozen=True, kw_only=True, tag="arrived"):
    """A worker has done its part of a step and waits for the others now."""

    formation: Formation
    step: Step


class Done(Message, frozen=True, kw_only=True, tag="done"):
    """A worker has completed an update."""

    formation: Formation
    step: Step
    counters: dict[str, float] | None = None
    """Counts of the recorder, on the rank that records the job."""


class Pausing(Message, frozen=True, kw_only=True, tag="pausing"):
    """A worker waits for the end of a save, not for an optimizer step."""

    formation: Formation


class Begun(Message, frozen=True, kw_only=True, tag="begun"):
    """A worker has copied its state for a save and can write it."""

    formation: Formation
    checkpoint: Name
    step: Step
    digest: Digest | None = None
    state: str
    """State of the trainer, in JSON."""


class Written(Message, frozen=True, kw_only=True, tag="written"):
    """The files of a worker are durable."""

    formation: Formation
    checkpoint: Name


class Hashed(Message, frozen=True, kw_only=True, tag="hashed"):
    """Digests of the files that a worker was asked for."""

    formation: Formation
    checkpoint: Name
    files: tuple[File, ...]


class Unsaved(Message, frozen=True, kw_only=True, tag="unsaved"):
    """A worker cannot do its part of a save."""

    formation: Formation
    checkpoint: Name
    reason: Text


class Ended(Message, frozen=True, kw_only=True, tag="ended"):
    """A fault has ended the formation for a worker, which still lives."""

    formation: Formation
    kind: Literal["network", "storage", "numeric", "corruption"]
    """A peer was lost, the state to start from cannot be loaded, or that of now must not be used."""
    reason: Text
    rank: int | None = None
    """The rank to blame, where it is known."""
    checkpoint: Name | None = None
    """That cannot be loaded."""
    is_final: bool = False
    """Whether the plan wants the run to stop."""


class Left(Message, frozen=True, kw_only=True, tag="left"):
    """A worker has left its formation and waits for the next one."""

    formation: Formation
    step: Step | None = None
    """Optimizer steps in the state that it holds; None where that state is undefined."""
    digest: Digest | None = None
    """Of the whole state, where this worker holds it all."""
    state: str | None = None
    """State of the trainer, in JSON."""


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """A worker ends by an error of its own."""

    kind: Literal["process", "out-of-memory"]
    reason: Text


class Finished(Message, frozen=True, kw_only=True, tag="finished"):
    """A worker has done all optimizer steps that it was asked for, and all of its saves have ended."""

    formation: Formation
    step: Step
    was_stopped: bool = False
    """Whether it ended early, as requested."""
    digest: Digest | None = None


class Notice(Message, frozen=True, kw_only=True, tag="notice"):
    """The platform notified a worker of its termination."""


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """A worker can still answer."""


FromWorker = (
    Hello | Ready | Arrived | Done | Pausing | Begun | Written | Hashed | Unsaved | Ended | Left | Failed | Finished
    | Notice | Pong
)  # fmt: skip


# --- the controller tells ---------------------------------------------------------------------------------------


class Form(Message, frozen=True, kw_only=True, tag="form"):
    """Join a formation and train."""

    formation: Formation
    rank: Annotated[int, Meta(ge=0)]
    hosts: tuple[str, ...]
    address: str
    timeout_seconds: float
    start: Start


class Leave(Message, frozen=True, kw_only=True, tag="leave"):
    """Leave the formation, as soon as its exchange fails."""

    formation: Formation


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """Save at the next boundary between optimizer steps, and finish."""


class Write(Message, frozen=True, kw_only=True, tag="write"):
    """Write the state into a directory."""

    checkpoint: Name
    directory: str


class Hash(Message, frozen=True, kw_only=True, tag="hash"):
    """Read these files of a save back."""

    checkpoint: Name
    paths: tuple[str, ...]


class SaveEnded(Message, frozen=True, kw_only=True, tag="save-ended"):
    """A save is committed, or given up."""

    checkpoint: Name
    size_bytes: int | None = None
    """Of a save that is committed."""
    reason: Text | None = None
    """Why it was given up."""


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """Say that you can answer."""


class Exit(Message, frozen=True, kw_only=True, tag="exit"):
    """End the process."""


FromController = Form | Leave | Stop | Write | Hash | SaveEnded | Ping | Exit
