"""Declares what the suite writes down itself: what it did, and what it saw of the processes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from trainspec_validate.documents.types.trace import TraceRecord

MOST_RANKS = 100_000
"""Of one job, as far as its trial can be judged."""
SOUND_KINDS = frozenset({"resealed", "scaled-values", "scaled-tensor"})
"""Kinds of change that leave a checkpoint valid."""


class _Record(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="k", omit_defaults=True, forbid_unknown_fields=True, gc=False
):
    pass


class Started(_Record, frozen=True, kw_only=True, tag="started"):
    """The command of the stack was started."""

    pid: int
    attempt: int
    num_ranks: Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
    seed: int | None = None
    """Of the job in its task."""
    learning_rate_factor: float = 1.0
    """Of the job in its task."""
    resume: bool = False
    by_platform: bool = False
    """Whether the suite did what a platform does after an error, and not what the scenario says."""


class Exited(_Record, frozen=True, kw_only=True, tag="exited"):
    """The command of the stack has ended; a negative status is the signal that ended it."""

    pid: int
    status: int
    asked: bool = False
    """Whether the suite ended it, as the scenario says."""


class Injected(_Record, frozen=True, kw_only=True, tag="injected"):
    """Damage to the running job is in force."""

    kind: str
    target: str
    ranks: tuple[int, ...] = ()
    pids: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    step: int = 0
    """Optimizer steps that any rank had reported by then."""
    value: float = 0.0
    """Factor, bytes or seconds."""


class Damaged(_Record, frozen=True, kw_only=True, tag="damaged"):
    """The store was damaged while no process ran."""

    kind: str
    checkpoint: str
    """Name of the checkpoint, or of the pointer."""
    file: str = ""
    """Path below the checkpoint."""
    place: int = 0
    """Byte at which it was done."""
    factor: float = 1.0
    """Factor of its values."""

    @property
    def is_sound(self) -> bool:
        """Whether the checkpoint is another one now, and whole: it has to be restored as it is."""
        return self.kind in SOUND_KINDS


class Stored(_Record, frozen=True, kw_only=True, tag="stored"):
    """Results that the suite computed from the bytes of a checkpoint while no process ran."""

    checkpoint: str
    digest: str
    """Of all floating-point values with their names."""
    num_bytes: int
    """Of these values."""


class Applied(_Record, frozen=True, kw_only=True, tag="applied"):
    """Rates and gradient of an optimizer step, as the suite computed them from the checkpoints before and after it."""

    checkpoint: str
    """The one after it."""
    step: int
    rates: tuple[float, ...] = ()
    """Rates of the parameters that moved as Adam moves them, with its correction of the bias of the moments."""
    correction: float = 1.0
    """Factor by which the rates are without that correction."""
    resting: tuple[str, ...] = ()
    """Parameters that did not move, while their moments did."""
    idle: tuple[str, ...] = ()
    """Tensors that did not change, apart from moments."""
    others: tuple[str, ...] = ()
    """Tensors that changed and have no moments."""
    squared_norm: float = 0.0
    """Of the gradient that the moments took."""
    dot: float = 0.0
    """Product of this gradient and the parameters."""
    squared_values: float = 0.0
    """Sum of squares of these parameters."""


class Unread(_Record, frozen=True, kw_only=True, tag="unread"):
    """The suite cannot read the values of checkpoints."""

    reason: str


class Listed(_Record, frozen=True, kw_only=True, tag="listed"):
    """Content of the storage target while no process runs."""

    checkpoints: tuple[str, ...]
    """Complete or not, from the oldest step to the newest."""
    pointer: str | None = None
    """Content of the pointer."""
    newest: str | None = None
    """The newest one that was committed and is still there."""
    findings: tuple[str, ...] = ()
    """Findings of the validator about it, each as `severity id: message`."""
    canary: bool = False
    """Whether the mark is there that something executed what a checkpoint holds."""


class Waited(_Record, frozen=True, kw_only=True, tag="waited"):
    """The awaited event was observed, or could no longer occur."""

    until: str
    seen: bool
    reason: str = ""


class Orphans(_Record, frozen=True, kw_only=True, tag="orphans"):
    """Processes of the stack that were left after the end, each as `pid name`; the suite ended them."""

    processes: tuple[str, ...]


class Malformed(_Record, frozen=True, kw_only=True, tag="malformed"):
    """A line of a trace is not a trace record."""

    reason: str


class Probed(_Record, frozen=True, kw_only=True, tag="probed"):
    """The stack answered a numeric question, or failed to."""

    case: str
    status: int
    input: msgspec.Raw = msgspec.Raw(b"null")
    output: msgspec.Raw = msgspec.Raw(b"null")
    reason: str = ""
    peak_bytes: int = 0
    """Most resident memory of its processes, as the suite saw it; 0 where the machine does not report it."""


class Streams(_Record, frozen=True, kw_only=True, tag="streams"):
    """Result of the validator on the metric streams: each finding as `severity id: message`, and the metrics seen."""

    num_files: int
    findings: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    """Required metrics that are neither present nor declared as unsupported."""


class Streamed(_Record, frozen=True, kw_only=True, tag="streamed"):
    """A record of a metric stream, read after the end; its `seconds` say nothing of when it was written."""

    kind: Literal["head", "sample", "event"]
    attempt: int
    time_us: int
    """By the clock of the stack."""
    name: str = ""
    """Of an event."""
    rank: int | None = None
    step: int | None = None
    values: dict[str, float | str] = {}
    """By metric; a text where a number is not finite, and of a histogram the sum."""
    attributes: dict[str, Any] = {}


class Load(_Record, frozen=True, kw_only=True, tag="load"):
    """How much of the processors that the suite may use others used, while the trial ran."""

    num_processors: int
    before_processors: float
    """In use before anything was started."""
    others_processors: float
    """On average."""
    full_seconds: float
    """Time without a free processor to which others contributed."""
    seconds: float
    """Of the measurement."""


End = Literal["done", "budget", "wait"]


class Ended(_Record, frozen=True, kw_only=True, tag="ended"):
    """The trial is over."""

    reason: End


Act = (
    Started
    | Exited
    | Injected
    | Damaged
    | Stored
    | Applied
    | Unread
    | Listed
    | Waited
    | Orphans
    | Probed
    | Streams
    | Ended
)
"""Actions and observations of the suite, a few times in a trial."""
SuiteRecord = Act | Malformed | Streamed | Load


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One line of a history: a record of the stack or of the suite, and when the suite saw it.

    `seconds` are those of the suite's monotonic clock since the trial began: the clock by which verdicts say how long
    something took. Files are read one after the other, so it does not give the order of lines that are close together.
    """

    seconds: float
    record: TraceRecord | SuiteRecord
    file: str = ""
    """File of the trace, below the directory of the trial; empty for records of the suite."""
    line: int = 0
    """Its line there."""
