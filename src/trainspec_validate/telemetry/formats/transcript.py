"""Writes the output of a reader as records, and states their provenance in the stream header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types.stream import Event, Head, MetricValue, Producer, Sample, ScopeName
from trainspec_validate.model.metrics import metrics
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.absent_losses import AbsentLosses
from trainspec_validate.telemetry.formats.format import StreamFormat
from trainspec_validate.telemetry.formats.items import Clock, Given, Losses, LossReason, Stated
from trainspec_validate.telemetry.formats.printed_saves import PrintedSaves
from trainspec_validate.telemetry.formats.tally import Tally

ORIGIN = "org.trainspec.import"
"""Key of `head.extensions` that says what a converted stream was, and what its times and numbers are worth."""
UNKNOWN_RUN = "unknown"
OF_COURSE = frozenset({"train.loss.mean", "train.loss.max", "train.evaluation.loss", "train.gradient.norm"})
"""Metrics whose course is judged, so that a value which cannot be read leaves the file not judged."""
_MAX_STATED = 10_000


@dataclass(slots=True)
class Transcript:
    """The records of one foreign file as they are written, and the tally of what is lost on the way."""

    format: StreamFormat
    name: str
    """Name of the file in messages."""
    given: Given
    clock: Clock = "utc"
    first_step: int = 0
    """Step that the index 0 of the program has here: 1 where steps are indices from 0, to which 1 is added."""
    takes_skips_off: bool = False
    """Whether the program counts skipped steps too, which are taken off: its reports come by the sum of both."""
    sequenced: bool = False
    """Whether the file's own sequence numbers are used."""
    is_restored: bool = False
    """Whether the program says, before its first record, that it continues from a checkpoint."""
    ends: tuple[int, int] | None = None
    """Last step and number of steps that the file states, and has not reached; None where it has, or states none."""
    end: tuple[int, str] | None = None
    """Place and words of what the log ends with, where it says why its program ended before its training was over."""
    before: bytes = b""
    """Prefix that was taken off the line that is read."""
    is_over: bool = False
    """Whether the last report is of the last step that the log states, or the program says that training is over."""
    tally: Tally = field(default_factory=Tally)
    num_records: int = 0
    num_refusals: int = 0
    num_passed: int = 0
    """Lines that its reader passed over as text."""
    absent: AbsentLosses = field(default_factory=AbsentLosses)
    """Reports of optimizer steps without a loss."""
    saves: PrintedSaves = field(init=False)
    """Saves that lines of a console say."""
    _next: dict[tuple[str, int], int] = field(default_factory=dict)
    _stated: dict[str, Stated] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the times of lines as those of records."""
        self.saves = PrintedSaves(self.given.utc_offset_seconds)

    @property
    def emitter(self) -> str:
        """Emitter of records that name none: what was given, or the name of the file."""
        return self.given.emitter or fit.identity(self.name) or "imported"

    @property
    def run(self) -> str:
        """Run of records that name none."""
        return self.given.run or UNKNOWN_RUN

    def lose(self, reason: LossReason, what: str, message: str, offset: int, num: int = 1) -> None:
        """Count a loss."""
        self.num_passed += what == "text"
        self.tally.lose(reason, what, message, offset, num)

    def lose_value(self, name: str, value: object, offset: int) -> None:
        """Count a loss or a gradient norm that is no number."""
        words = f"values of {name[:60]} that are no numbers, such as {str(value)[:40]!r}"
        self.lose("unread", name, words, offset)

    def reach(self, step: int | None, total: int | None) -> None:
        """Note a completed step, and of how many it is as its line says."""
        self.ends = (step, total) if step is not None and total and step < total else None
        self.is_over = self.ends is None and step is not None and bool(total)

    def note_end(self, offset: int, words: str) -> None:
        """Note what the log ends with."""
        self.end = offset, words

    def state(self, name: str, unit: str | None, instrument: str | None) -> None:
        """Note what the file states of a metric; what it stated first stays."""
        if len(self._stated) < _MAX_STATED:
            self._stated.setdefault(name, Stated(unit, instrument))

    def head(self, time_us: int, scopes: Iterable[ScopeName], **more: Any) -> Head:
        """The head of the file, or of one emitter in it; `more` are further fields of it."""
        run = more.pop("run", None) or self.run
        if run == UNKNOWN_RUN:
            self.lose("identity", "run", f"the file names no run; its records are of run {UNKNOWN_RUN!r}", 0)
        if not self.sequenced:
            self.lose("meaning", "seq", "the file has no sequence numbers; records are numbered in its order", 0)
        self.num_records += 1
        wanted = tuple(scopes)
        lacking = more.pop("unsupported", {})
        given = self.given
        filled: dict[str, Any] = {"att": given.attempt, "emitter": self.emitter, "host": given.host, "rank": given.rank}
        filled |= {name: value for name, value in more.items() if value is not None}
        return Head(
            apiVersion="trainspec/v1",
            kind="MetricStream",
            run=run,
            time_us=time_us,
            scopes=wanted,
            unsupported={**self._unsupported(wanted), **lacking},
            extensions={ORIGIN: self.origin()},
            **filled,
        )

    def origin(self) -> dict[str, Any]:
        """Facts of its source for a reader of the converted stream."""
        return {
            "format": self.format.name,
            "clock": self.clock,
            "ordered": self.format.ordered,
            "snapshot": self.format.snapshot,
            "sequenced": self.sequenced,
        } | ({"restored": True} if self.is_restored else {})

    def _unsupported(self, scopes: tuple[ScopeName, ...]) -> dict[str, str]:
        """Metrics that the scopes owe and the format cannot carry."""
        can = self.format.metrics
        if can is None:
            return {}
        owed = (entry for entry in metrics().values() if entry.level == "required" and set(scopes) & set(entry.scopes))
        return {
            entry.name: f"the format {self.format.name} has no such value" for entry in owed if entry.name not in can
        }

    def number(self, emitter: str | None, attempt: int | None) -> int:
        """The next sequence number of an emitter in an attempt."""
        place = (emitter or self.emitter, self.given.attempt if attempt is None else attempt)
        number = self._next.get(place, 0)
        self._next[place] = number + 1
        return number

    def sample(self, time_us: int, values: Mapping[str, MetricValue], **more: Any) -> Sample:
        """A sample with the next number, where `more` has none."""
        self.num_records += 1
        seq = more.pop("seq", None)
        if seq is None:
            seq = self.number(more.get("emitter"), more.get("att"))
        return Sample(time_us=time_us, seq=seq, m=dict(values), **more)

    def event(self, time_us: int, name: str, **more: Any) -> Event:
        """An event with the next number, where `more` has none."""
        self.num_records += 1
        seq = more.pop("seq", None)
        if seq is None:
            seq = self.number(more.get("emitter"), more.get("att"))
        return Event(time_us=time_us, seq=seq, name=name, **more)

    def losses(self) -> Losses:
        """Losses in all."""
        places = self.tally.places("unread")
        for offset, num in self.absent.found():
            if offset not in places:  # its value is no number, which is said
                self.lose("unread", "absent", "optimizer steps without a loss, unlike others", offset, num)
        counts = (self.num_records, self.num_refusals)
        end = None if self.is_over else self.end
        return Losses(
            self.tally.losses(), *counts, self.clock, self.sequenced, dict(self._stated), end, self.tally.unread_names()
        )


def producer(name: object, version: object = None) -> Producer | None:
    """The program that wrote a stream, where the file names it."""
    named = fit.identity(name)
    return Producer(name=named, version=fit.identity(version)) if named else None
