"""Reads the structured log of torchtitan: spans, scalars and marks of one rank on each line."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainspec_validate.documents.types.stream import AttributeValue, HistogramValue, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.names import Names
from trainspec_validate.telemetry.formats.transcript import Transcript, producer

_PHASES = {
    "fetching_batch": "data_wait",
    "fwd_bwd": "forward_backward",
    "forward_backward": "forward_backward",
    "optim": "optimizer",
    "Optimizer": "optimizer",
}
_SPANS = {
    "eval": ("train.evaluation.begin", "train.evaluation.end"),
    "checkpoint_save": ("train.checkpoint.begin", "train.checkpoint.commit"),
    "checkpoint_load": ("train.checkpoint.restore.begin", "train.checkpoint.restore.end"),
}
_MAX_RANKS = 1_000_000
_MOST_ATTEMPTS = 10_000


@dataclass(slots=True)
class _Rank:
    """What is known of the writer of one rank."""

    emitter: str
    host: str | None
    rank: int | None
    attempt: int
    last_seq: int = -1
    num_spans: int = 0
    open: dict[str, str] = field(default_factory=dict)
    """Open spans that are events, by name, with their `id`."""
    failed: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    """Time by phase since the start of the file."""


class Reader:
    """Reads the lines of one rank, or of several in one file."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._names = Names(("torchtitan",), transcript.tally, dict(transcript.given.quantities))
        self._ranks: dict[tuple[str, int | None], _Rank] = {}

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of a line."""
        entry = decode(text, not_finite=True)
        if isinstance(entry, Refusal):
            yield offset, entry
            return
        name = entry.get("log_type_name") if isinstance(entry, dict) else None
        time_us = self._time(entry) if name else None
        if not isinstance(name, str) or time_us is None:
            yield offset, Refusal("the line has no log_type_name and time_us", "write one trace record a line", "value")
            return
        rank = yield from self._rank(offset, entry, time_us)
        if rank is None:
            return
        yield from self._sequence(offset, rank, entry)
        if entry.get("log_type") == "instant":
            self._instant(offset, name, entry)
        else:
            yield from self._span(offset, rank, name, time_us, entry)

    def _time(self, entry: Mapping[str, Any]) -> int | None:
        time_us = fit.time_us(entry.get("time_us"))
        milliseconds = fit.whole(entry.get("time_ms"), 9_007_199_254_740)
        return time_us if time_us is not None or milliseconds is None else milliseconds * 1000

    def _rank(self, offset: int, entry: Mapping[str, Any], time_us: int) -> Generator[Found, None, _Rank | None]:
        """The writer of a line; a new one begins with a head."""
        number = fit.rank(entry.get("global_rank", entry.get("rank")))
        source = fit.identity(entry.get("source")) or "torchtitan"
        known = self._ranks.get((source, number))
        attempt, num_spans = self._transcript.given.attempt, 0
        if known and self._has_restarted(offset, known, entry):
            attempt, num_spans = known.attempt + 1, known.num_spans
        elif known or len(self._ranks) >= _MAX_RANKS:
            return known
        emitter = fit.identity(f"{source}.rank{number}") or source
        host = fit.identity(entry.get("host_name"))
        known = self._ranks[source, number] = _Rank(emitter, host, number, attempt, num_spans=num_spans)
        more = {"emitter": emitter, "att": attempt, "host": known.host, "rank": number}
        more["producer"] = producer("torchtitan")
        scopes = ("job", "rank") if number == 0 else ("rank",)
        yield offset, self._transcript.head(time_us, scopes, **more)  # type: ignore[arg-type]
        return known

    def _has_restarted(self, offset: int, rank: _Rank, entry: Mapping[str, Any]) -> bool:
        """Whether a line is the first of another attempt of a rank, which numbers its lines anew."""
        if fit.sequence(entry.get("seq_id")) != 0 or rank.last_seq < 1 or rank.attempt >= _MOST_ATTEMPTS:
            return False
        message = "seq_id begins at 0 again; inferred: a restart, which begins an attempt"
        self._transcript.lose("step", "attempt", message, offset)
        self._not_closed(rank)
        return True

    def _sequence(self, offset: int, rank: _Rank, entry: Mapping[str, Any]) -> Iterator[Found]:
        seq = fit.sequence(entry.get("seq_id"))
        if seq is None:
            self._transcript.lose("meaning", "seq_id", "lines without seq_id: missing ones cannot be found", offset)
            return
        if seq > rank.last_seq + 1 and rank.last_seq >= 0:
            num_missing = seq - rank.last_seq - 1
            message = f"seq_id of {rank.emitter} goes from {rank.last_seq} to {seq}: {num_missing} are missing"
            yield offset, Refusal(message, "the log lost records", "sequence")
        rank.last_seq = max(seq, rank.last_seq)

    def _instant(self, offset: int, name: str, entry: Mapping[str, Any]) -> None:
        what = str(entry.get("event_name") or name) if name == "metric_value" else name
        aliases = self._names.aliases(what)
        message = f"{what}: a scalar or mark of the trace that has no name in the catalog"
        if aliases:
            message = f"{what} of the trace is of one rank; {aliases[0].metric} is of the job"
        self._transcript.lose("unknown-name", what, message, offset)

    def _span(self, offset: int, rank: _Rank, name: str, time_us: int, entry: Mapping[str, Any]) -> Iterator[Found]:
        base, _, edge = name.rpartition("_")
        step = fit.step(entry.get("step"))
        if base in _SPANS and edge in {"start", "end", "error"}:
            yield from self._event(offset, rank, base, edge, time_us, step, entry)
        elif base == "step" and edge == "end":
            yield from self._step(offset, rank, time_us, step, entry)
        elif base in _PHASES and edge == "end":
            phase, seconds = _PHASES[base], self._seconds(entry)
            rank.seconds[phase] = rank.seconds.get(phase, 0.0) + (seconds or 0.0)
        elif edge == "error" or (base not in _PHASES and base != "step"):
            self._transcript.lose("unknown-name", base or name, f"{base or name}: the catalog has no such span", offset)

    def _seconds(self, entry: Mapping[str, Any]) -> float | None:
        value = fit.number(entry.get("value"))
        return value / 1000 if isinstance(value, float) and value >= 0 else None

    def _step(
        self, offset: int, rank: _Rank, time_us: int, step: int | None, entry: Mapping[str, Any]
    ) -> Iterator[Found]:
        values: dict[str, MetricValue] = {}
        seconds = self._seconds(entry)
        if seconds is not None:
            values["train.step.duration"] = seconds
        if step is not None:
            values["train.rank.step"] = float(step)
        for phase, total in rank.seconds.items():
            values[f"train.step.phase.time{{train.phase={phase}}}"] = total
        if "data_wait" in rank.seconds:
            values["train.data.wait.time"] = rank.seconds["data_wait"]
        if values:
            relative = fit.step(entry.get("relative_step"))
            attributes: dict[str, AttributeValue] = {"train.step.warmup": True} if relative == 1 else {}
            yield offset, self._transcript.sample(time_us, values, step=step, a=attributes, **self._owner(rank))

    def _owner(self, rank: _Rank) -> dict[str, Any]:
        return {"emitter": rank.emitter, "att": rank.attempt}

    def _event(  # noqa: PLR0913, PLR0917 - the parts of a line
        self,
        offset: int,
        rank: _Rank,
        base: str,
        edge: str,
        time_us: int,
        step: int | None,
        entry: Mapping[str, Any],
    ) -> Iterator[Found]:
        """A span of the whole job as events; that of rank 0 stands for all."""
        if rank.rank != 0:
            self._transcript.lose(
                "meaning", base, f"{base} is reported by rank 0 alone; the records of other ranks are left", offset
            )
            return
        if edge == "error":
            rank.failed.add(base)
            return
        if edge == "start":
            rank.num_spans += 1
            rank.open[base] = f"{base}-{rank.num_spans}"
        identifier = rank.open.get(base) if edge == "start" else rank.open.pop(base, None)
        name = _SPANS[base][edge == "end"]
        failed = edge == "end" and base in rank.failed
        rank.failed.discard(base)
        attributes = self._attributes(base, edge, identifier, step, failed=failed)
        name = "train.checkpoint.fail" if failed and base == "checkpoint_save" else name
        # While the trace is in step n, n - 1 optimizer steps are complete; saves and evaluations follow the update.
        more = {"id": identifier, "step": step, "a": attributes, "m": self._values(base, edge, entry, failed=failed)}
        yield offset, self._transcript.event(time_us, name, **more, **self._owner(rank))

    def _attributes(
        self, base: str, edge: str, identifier: str | None, step: int | None, *, failed: bool
    ) -> dict[str, AttributeValue]:
        why: dict[str, AttributeValue] = {"train.reason": "an error"} if failed else {}
        if base == "eval":
            outcome: dict[str, AttributeValue] = {"train.evaluation.outcome": "aborted" if failed else "completed"}
            return {"train.evaluation.set": "validation"} | (outcome if edge == "end" else {})
        if base == "checkpoint_save":
            self._transcript.lose("meaning", "checkpoint_save", "the end of checkpoint_save is taken for the commit", 0)
            saved: dict[str, AttributeValue] = {"train.checkpoint.id": identifier or "unknown"}
            return saved | why
        restored: dict[str, AttributeValue] = {} if step is None else {"train.restore.step": step}
        return restored | why

    def _values(self, base: str, edge: str, entry: Mapping[str, Any], *, failed: bool) -> dict[str, MetricValue]:
        seconds = self._seconds(entry)
        if base != "checkpoint_save" or edge != "end" or failed or seconds is None:
            return {}
        key = "train.checkpoint.duration{train.checkpoint.phase=blocking}"
        return {key: HistogramValue(count=1, sum=seconds, min=seconds, max=seconds)}

    def end(self) -> Iterator[Found]:
        """Spans that are still open, which the program closes even after an error."""
        for rank in self._ranks.values():
            self._not_closed(rank)
        return iter(())

    def _not_closed(self, rank: _Rank) -> None:
        for base in rank.open:
            self._transcript.lose("meaning", f"{base}_start", f"{base} is not closed: the program was stopped", 0)
