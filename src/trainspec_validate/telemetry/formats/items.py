"""Declares the output of a reader of a foreign stream: records, refusals, and the losses at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from trainspec_validate.documents.types.stream import Event, Head, Sample

Record = Head | Sample | Event
Clock = Literal["utc", "local", "relative", "none"]
"""Kind of times: moments in UTC, moments of an unknown zone, time since some start, or made up."""
RefusalCode = Literal[
    "syntax",
    "value",
    "time",
    "interval",
    "sequence",
    "unit",
    "size",
    "cut-off",
    "absent",
    "name",
    "not-finite",
    "rate",
    "skip",
    "head",
    "range",
    "instrument",
    "silence",
    "step",
    "duration",
    "several-runs",
    "no-training",
    "loss",
]
"""Rule that is broken: the form of a line, a value, a time, a pair of entries, a number, a unit, a length, an
end, a required key, a name, a value that is not finite, a rate, a count of skipped steps, the version of a
head, a number below what it counts from, a metric that is written as another instrument, reports that stop before the
run does, a position that others contradict, a time of steps that the clock contradicts, entries of
several runs, of which none was chosen, no optimizer step, as in the log of a prediction, or a loss of a rank that is
left out and is not finite."""
_REQUIREMENTS: Mapping[RefusalCode, str] = {
    "time": "TS-TEL-016",
    "interval": "TS-TEL-043",
    "unit": "TS-TEL-007",
    "sequence": "TS-TEL-019",
    "absent": "TS-TEL-004",
    "name": "TS-TEL-005",
    "not-finite": "TS-TEL-015",
    "rate": "TS-TEL-038",
    "skip": "TS-TEL-042",
    "head": "TS-TEL-002",
    "range": "TS-TEL-012",
    "instrument": "TS-TEL-008",
    "silence": "TS-TEL-023",
    "step": "TS-TEL-031",
    "duration": "TS-TEL-037",
    "loss": "TS-TEL-055",
}
"""Requirement that a code breaks; TS-TEL-001 for all others."""
LossReason = Literal[
    "unknown-name",
    "unit",
    "quantity",
    "attribute",
    "identity",
    "value",
    "time",
    "step",
    "meaning",
    "text",
    "incident",
    "rank",
    "device",
    "unread",
]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line, or part of it, that cannot become a record, and what would be right."""

    message: str
    help: str = ""
    code: RefusalCode = "syntax"
    is_accepted: bool = False
    """Whether the rules of the program that wrote the file let it be, so that it is a warning at most."""

    @property
    def requirement(self) -> str:
        """Id of the requirement that the line breaks."""
        return _REQUIREMENTS.get(self.code, "TS-TEL-001")

    @property
    def is_unjudged(self) -> bool:
        """Whether it says that a file is about several runs or no training, and not that anything in it is wrong."""
        return self.code in {"several-runs", "no-training"}


def beyond(step: int, total: int) -> Refusal:
    """The refusal of a step that is above the number of steps which its own line states."""
    return Refusal(
        f"step {step:,} is beyond the {total:,} steps that the line states", "state how long it trains", "range"
    )


INDEX: Final = "steps are indices from 0; 1 is added"
"""Message on a program that counts steps from 0."""
Found = tuple[int, Record | Refusal]
"""Bytes before the line, and what it gives."""


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that a conversion lost or could not know, reported once for all its occurrences."""

    reason: LossReason
    what: str
    """Name as it is in the file, or what it is about."""
    message: str
    num: int
    offset: int
    """Bytes before the line of the first occurrence."""


@dataclass(frozen=True, slots=True)
class Stated:
    """Unit and instrument of a metric as a file states them; None where it does not."""

    unit: str | None
    instrument: str | None


@dataclass(frozen=True, slots=True)
class Losses:
    """All that a conversion lost, and what it found."""

    entries: tuple[Loss, ...]
    """Most frequent reasons first within their order of appearance; names beyond the limit are in the last one."""
    num_records: int
    num_refusals: int
    clock: Clock
    sequenced: bool
    """Whether sequence numbers are those of the file; otherwise records were numbered in the order of the file."""
    stated: Mapping[str, Stated] = field(default_factory=dict)
    """Metrics of the catalog that a file states, by name, in formats that state anything; at most 10,000."""
    end: tuple[int, str] | None = None
    """Place and words of what a log ends with, where it says why its program ended."""
    unread_names: tuple[str, ...] = ()
    """Names with values of which none was read."""


Item = tuple[int, Record | Refusal | Losses]
"""Bytes before the line, and what it gives; the last item of a reader holds its `Losses`."""


@dataclass(frozen=True, slots=True)
class Given:
    """Facts of the caller that a file may not state."""

    run: str | None = None
    attempt: int = 0
    emitter: str | None = None
    host: str | None = None
    rank: int | None = None
    start_us: int | None = None
    """Moment that files without a clock start at, in microseconds since 1970 UTC."""
    utc_offset_seconds: int | None = None
    """Local time minus UTC, for files with times of no zone."""
    quantities: Mapping[str, float] = field(default_factory=dict)
    """Quantities of the job that conversions need, such as `num_accelerators`."""
