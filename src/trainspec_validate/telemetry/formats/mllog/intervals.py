"""Pairs starts and stops in a log of MLPerf, and writes them as events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_STARTS = {"run_start": "run", "block_start": "block", "eval_start": "eval", "epoch_start": "epoch"}
_STOPS = {"run_stop": "run", "block_stop": "block", "eval_stop": "eval", "epoch_stop": "epoch"}
_POWER = {"power_measurement_start", "power_measurement_stop"}
_STATUS = {"success": ("completed", "completed"), "aborted": ("failed", "operator")}
_ALONE = "write the log of each run to a file of its own"
_SLACK_US = 1_000_000
_JITTER_US = 10_000
"""What clocks of the processes of a run differ by, which write its last entries."""
_POSITIONS = ("eval_id", "id", "epoch_num", "samples_count", "step", "step_num")
"""What tells evaluations apart that run at the same time."""
_MAX_OPEN = 1_000
_WITHOUT_PAIRS = frozenset({"block", "epoch"})
_ACCEPTED = "; the rules of MLPerf let the last one of a run be open"
_UNPAIRED = "; the rules of MLPerf ask for no pairs of blocks or epochs"
"""Source: mlcommons/logging, compliance_checker/training_5.1.0/common.yaml: blocks and epochs have one entry of each
kind at least, no rule pairs them, and the comment on run_stop accepts an epoch that is open. No number follows from
them, while the time of an evaluation follows from its pair."""


class _Open(NamedTuple):
    """What has started and not stopped."""

    offset: int
    identifier: str
    time_us: int
    positions: Mapping[str, Any]

    def is_like(self, positions: Mapping[str, Any]) -> bool:
        """Whether some position is the same, and none differs."""
        both = self.positions.keys() & positions.keys()
        return bool(both) and all(self.positions[name] == positions[name] for name in both)


class Intervals:
    """Open intervals, and the power readings that were seen."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._open: dict[str, list[_Open]] = {}
        self._num = 0
        self._power_start: int | None = None
        self._readings: tuple[int, int] | None = None
        self._num_readings = 0
        self._has_stopped = False
        self._stated_end_us: int | None = None
        self.are_evaluations_offline = False
        """Whether evaluations are only paired, and give no events."""

    def has(self, key: str) -> bool:
        """Whether a key starts or stops something."""
        return key in _STARTS or key in _STOPS or key in _POWER

    def saw_reading(self, time_us: int) -> None:
        """Note the time of a power reading."""
        low, high = self._readings or (time_us, time_us)
        self._readings = (min(low, time_us), max(high, time_us))
        self._num_readings += 1

    def end_at(self, time_us: int) -> None:
        """Note when the run ends, as the log states it."""
        self._stated_end_us = time_us

    def take(  # noqa: PLR0913, PLR0917 - the parts of an entry
        self,
        offset: int,
        key: str,
        time_us: int,
        step: int | None,
        value: Any,
        metadata: Mapping[str, Any],
        carried: Mapping[str, MetricValue],
    ) -> Iterator[Found]:
        """The events of a start or a stop."""
        if key in _POWER:
            yield from self._power(offset, key, time_us, value)
        elif key in _STARTS:
            yield from self._start(offset, _STARTS[key], time_us, step, _positions(metadata))
        else:
            yield from self._stop(offset, _STOPS[key], time_us, step, metadata, carried)

    def _start(
        self, offset: int, kind: str, time_us: int, step: int | None, positions: Mapping[str, Any]
    ) -> Iterator[Found]:
        self._num += 1
        identifier = f"{kind}-{self._num}"
        opened = self._open.setdefault(kind, [])
        is_apart = kind == "eval" and positions and not any(each.is_like(positions) for each in opened)
        if opened and not (is_apart and len(opened) < _MAX_OPEN):
            is_accepted = kind in _WITHOUT_PAIRS
            help_text = f"write {kind}_stop first" + _UNPAIRED * is_accepted
            yield offset, Refusal(f"{kind}_start again before {kind}_stop", help_text, "interval", is_accepted)
            return
        opened.append(_Open(offset, identifier, time_us, positions))
        transcript = self._transcript
        if kind == "run":
            if self._stated_end_us is not None:
                yield offset, Refusal("run_start after run_stop: the log holds another run", _ALONE, "interval")
            run = {"train.run.id": transcript.run}
            attempt = {"train.run.attempt": transcript.given.attempt}
            yield offset, transcript.event(time_us, "train.run.start", id=identifier, a=run)
            yield offset, transcript.event(time_us, "train.attempt.start", id=f"{identifier}-attempt", a=attempt)
        elif kind == "eval" and not self.are_evaluations_offline:
            a = {"train.evaluation.set": "eval"}
            yield offset, transcript.event(time_us, "train.evaluation.begin", id=identifier, step=step, a=a)

    def _stop(  # noqa: PLR0913, PLR0917 - the parts of an entry
        self,
        offset: int,
        kind: str,
        time_us: int,
        step: int | None,
        metadata: Mapping[str, Any],
        carried: Mapping[str, MetricValue],
    ) -> Iterator[Found]:
        opened, positions = self._open.get(kind), _positions(metadata)
        tells_of_evaluation = kind == "eval" and not self.are_evaluations_offline
        if not opened:
            is_accepted = kind in _WITHOUT_PAIRS
            message = f"{kind}_stop closes nothing: no {kind} is open"
            yield offset, Refusal(message, f"write {kind}_start" + _UNPAIRED * is_accepted, "interval", is_accepted)
            if not tells_of_evaluation:
                return
        identifier = self._taken_off(kind, positions)
        transcript = self._transcript
        if kind == "run":
            self._has_stopped = True
            status, reason = _STATUS.get(str(metadata.get("status")), ("failed", "fault"))
            attempt = {"train.run.attempt": transcript.given.attempt, "train.attempt.reason": reason}
            run = {"train.run.id": transcript.run, "train.run.status": status}
            yield (
                offset,
                transcript.event(time_us, "train.attempt.end", id=f"{identifier}-attempt", step=step, a=attempt),
            )
            yield offset, transcript.event(time_us, "train.run.end", id=identifier, step=step, a=run)
        elif tells_of_evaluation:
            a = {"train.evaluation.set": "eval", "train.evaluation.outcome": "completed"}
            more = {"id": identifier, "step": step, "a": a, "m": dict(carried)}
            yield offset, transcript.event(time_us, "train.evaluation.end", **more)

    def _taken_off(self, kind: str, positions: Mapping[str, Any]) -> str:
        """The name of what a stop ends; a new one where nothing has started."""
        opened = self._open.get(kind)
        if not opened:
            self._num += 1
            return f"{kind}-{self._num}"
        mine = next((each for each in opened if each.is_like(positions)), opened[0])
        opened.remove(mine)
        return mine.identifier

    def _power(self, offset: int, key: str, time_us: int, value: Any) -> Iterator[Found]:
        if value is not None and not isinstance(value, int | float):
            yield offset, Refusal(f"{key} has the text {value!r} for a value", "write null", "value")
        if key.endswith("start"):
            self._power_start = time_us
            return
        if self._power_start is None:
            yield offset, Refusal(f"{key} closes nothing", "write power_measurement_start", "interval")
            return
        start = self._power_start
        low, high = self._readings or (time_us, time_us)
        outside = max(start - low, high - time_us)
        if outside > _SLACK_US or time_us < start:
            message = (
                f"the measurement takes {(time_us - start) / 1e6:g} s, but {self._num_readings:,} readings span "
                f"{(high - low) / 1e6:g} s and reach {outside / 1e6:g} s beyond it"
            )
            yield offset, Refusal(message, "start before the first reading and stop after the last", "interval")
        self._power_start = None

    def end(self) -> Iterator[Found]:
        """Intervals that are open at the end."""
        for kind, opened in self._open.items():
            for each in opened:
                end_us = self._stated_end_us
                if kind == "block" and end_us is not None and abs(each.time_us - end_us) <= _JITTER_US:
                    message = "a block starts as the run ends, and has no end; it is no part of the run"
                    self._transcript.lose("meaning", "block_start", message, each.offset)
                    continue
                is_accepted = kind in _WITHOUT_PAIRS and self._has_stopped
                help_text = f"write {kind}_stop" + _ACCEPTED * is_accepted
                yield each.offset, Refusal(f"{kind}_start is never closed", help_text, "interval", is_accepted)


def _positions(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: metadata[name] for name in _POSITIONS if name in metadata}
