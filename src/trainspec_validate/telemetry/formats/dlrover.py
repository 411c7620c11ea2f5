"""Reads the events of a trainer of DLRover: what begins, ends or happens on each line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.documents.types.stream import AttributeValue, Head, HistogramValue, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.local_times import local_us
from trainspec_validate.telemetry.formats.megatron import names
from trainspec_validate.telemetry.formats.transcript import Transcript, producer

_LINE = re.compile(
    r"\[(?P<time>[0-9]{4}-[0-9][0-9]-[0-9][0-9]T[0-9:.]{8,15})\] \[(?P<pid>[0-9]{1,10})\] \[(?P<id>[^\]]{1,200})\]"
    r"(?: \[(?P<program>[^\]]{0,200})\]){0,2} \[#(?P<name>\w{1,60})\] \[(?P<edge>BEGIN|END|INSTANT)\] ?(?P<content>.*)",
    re.DOTALL,
)
_PAIRS = {
    "save": ("train.checkpoint.begin", "train.checkpoint.commit"),
    "load_ckpt": ("train.checkpoint.restore.begin", "train.checkpoint.restore.end"),
    "evaluate": ("train.evaluation.begin", "train.evaluation.end"),
    "train": ("train.attempt.start", "train.attempt.end"),
}
_COUNTS = {
    "global_step": "train.step.count",
    "consumed_train_samples": "train.sample.count",
    "consumed_train_tokens": "train.token.count{train.token.kind=all}",
}
_MAX_OPEN = 10_000


class Reader:
    """Reads the lines of one process."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._names = names(transcript.tally, dict(transcript.given.quantities))
        self._started = False
        self._open: dict[tuple[str, str], int] = {}
        self._last: dict[str, MetricValue] = {}

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of a line."""
        match = _LINE.fullmatch(text.strip())
        if not match:
            yield (
                offset,
                Refusal("the line is no event", "[time] [process] [id] [program] [#name] [BEGIN] {...}", "value"),
            )
            return
        content = decode(match["content"] or "{}", not_finite=True)
        if isinstance(content, Refusal):
            yield offset, content
            return
        time_us = local_us(match["time"], self._transcript.given.utc_offset_seconds)
        if time_us is None or not isinstance(content, dict):
            yield offset, Refusal("the line has no time, or no object after it", "2025-04-21T23:31:09.074419", "time")
            return
        if not self._started:
            yield offset, self._head(time_us, match["program"])
        yield from self._entry(offset, match, time_us, content)

    def _head(self, time_us: int, program: str | None) -> Head:
        self._started = True
        transcript = self._transcript
        if transcript.given.utc_offset_seconds is None:
            transcript.lose("time", "time", "times have no zone; they are taken for UTC", 0)
        else:
            transcript.clock = "utc"
        return transcript.head(time_us, ("job",), producer=producer(program))

    def _entry(self, offset: int, match: re.Match[str], time_us: int, content: Mapping[str, Any]) -> Iterator[Found]:
        name, edge = match["name"], match["edge"]
        step = fit.step(content.get("global_step"))
        if name == "step":
            yield from self._step(offset, time_us, step, content)
        elif name == "log":
            yield from self._log(offset, time_us, step, content)
        elif name in _PAIRS and edge != "INSTANT":
            yield from self._event(offset, match, time_us, step)
        else:
            self._transcript.lose("unknown-name", f"#{name}", f"#{name}: the catalog has no such event", offset)

    def _step(self, offset: int, time_us: int, step: int | None, content: Mapping[str, Any]) -> Iterator[Found]:
        """The counters that a step begins or ends with, where they are not those of the line before."""
        numbers = {key: fit.number(content.get(name)) for name, key in _COUNTS.items()}
        values: dict[str, MetricValue] = {key: value for key, value in numbers.items() if isinstance(value, float)}
        self._transcript.lose(
            "meaning", "#step", "the time between BEGIN and END of a step is not its duration", offset
        )
        if values and values != self._last:
            self._last = values
            yield offset, self._transcript.sample(time_us, values, step=step)

    def _log(self, offset: int, time_us: int, step: int | None, content: Mapping[str, Any]) -> Iterator[Found]:
        logs = content.get("logs")
        if not isinstance(logs, dict):
            self._transcript.lose("value", "#log", "#log has no object `logs`", offset)
            return
        values: dict[str, MetricValue] = {}
        for name, value in logs.items():
            if name != "step":
                self._names.take(name, value, offset, values)
        if values:
            yield offset, self._transcript.sample(time_us, values, step=step)

    def _event(self, offset: int, match: re.Match[str], time_us: int, step: int | None) -> Iterator[Found]:
        name, edge = match["name"], match["edge"]
        identifier = f"{name}-{match['id']}"
        begun = self._open.pop((name, identifier), None)
        if edge == "BEGIN":
            if len(self._open) >= _MAX_OPEN:
                yield offset, Refusal(f"more than {_MAX_OPEN:,} events are open", "end them", "interval")
                return
            self._open[name, identifier] = time_us
        attributes, values = self._details(name, edge, identifier, step), dict[str, MetricValue]()
        if name == "save" and edge == "END" and begun is not None and time_us >= begun:
            seconds = (time_us - begun) / 1e6
            key = "train.checkpoint.duration{train.checkpoint.phase=total}"
            values[key] = HistogramValue(count=1, sum=seconds, min=seconds, max=seconds)
        more = {"id": identifier, "step": step, "a": attributes, "m": values}
        yield offset, self._transcript.event(time_us, _PAIRS[name][edge == "END"], **more)

    def _details(self, name: str, edge: str, identifier: str, step: int | None) -> dict[str, AttributeValue]:
        if name == "save":
            self._transcript.lose("meaning", "#save", "the END of a save is taken for its commit", 0)
            return {"train.checkpoint.id": identifier}
        if name == "load_ckpt":
            return {} if step is None else {"train.restore.step": step}
        if name == "evaluate":
            outcome: dict[str, AttributeValue] = {"train.evaluation.outcome": "completed"}
            return {"train.evaluation.set": "eval"} | (outcome if edge == "END" else {})
        reason: dict[str, AttributeValue] = {"train.attempt.reason": "completed"}
        return {"train.run.attempt": self._transcript.given.attempt} | (reason if edge == "END" else {})

    def end(self) -> Iterator[Found]:
        """Nothing is left; events that are open stay so."""
        return iter(())
