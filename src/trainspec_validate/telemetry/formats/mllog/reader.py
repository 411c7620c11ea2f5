"""Reads the log of MLPerf: lines with :::MLLOG, of a job or of the power of a node."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from statistics import median
from typing import Any

from trainspec_validate.documents.types.stream import Head, MetricValue
from trainspec_validate.model.metrics import Alias
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.json_text import decode
from trainspec_validate.telemetry.formats.mllog.clock import Clock
from trainspec_validate.telemetry.formats.mllog.intervals import Intervals
from trainspec_validate.telemetry.formats.mllog.launch import Launch
from trainspec_validate.telemetry.formats.mllog.owed import Owed
from trainspec_validate.telemetry.formats.mllog.position import Position
from trainspec_validate.telemetry.formats.mllog.result import Result
from trainspec_validate.telemetry.formats.mllog.steps import contradictions
from trainspec_validate.telemetry.formats.mllog.units import STEP_TIMES, Entry, units_of
from trainspec_validate.telemetry.formats.names import IMPLIED, Names
from trainspec_validate.telemetry.formats.transcript import Transcript

_MARK = ":::MLLOG"
_MAX_HELD = 50_000
"""Entries by which it is decided what positions count; the logs of 11,616 GPUs have 40,000."""
_EVALUATION_SET = "eval"
_LOSS_BENCHMARKS = frozenset({"gpt3", "llama31_405b", "llama31_8b", "llama2_70b_lora"})
"""Benchmarks whose `eval_accuracy` is a loss in natural logarithms; source: mlcommons/training_policies."""
_BESIDE = (
    Alias("train.loss.mean", "mlperf", "tracked_stats.train_loss", "1", 1.0),
    Alias("train.loss.mean", "mlperf", "tracked_stats.loss", "1", 1.0),
    Alias("train.learning_rate", "mlperf", "tracked_stats.lr", "1", 1.0),
    Alias("train.learning_rate", "mlperf", "tracked_stats.current_lr", "1", 1.0),
    Alias("train.sample.rate", "mlperf", "tracked_stats.throughput", "{sample}/s", 1.0),
)
_WITHOUT_METRIC = {
    **dict.fromkeys(
        ("init_finished", "before_model_init", "after_model_init", "warmup_time"), "a time before the run starts"
    ),
    **dict.fromkeys(
        ("validation_time", "validation_step_time", "validation_step_timing in s", "validation_throughput"),
        "a time or rate of evaluation; starts and stops of evaluations have it",
    ),
    **dict.fromkeys(("walltime", "train_time"), "a time of an epoch, which holds many steps"),
    "train_accuracy": "an accuracy of training, which has no metric; the loss has one",
    "loss_scale": "the scale of the loss, which has no metric; its fall is a skipped step",
    "epoch_num": "a position in samples, rounded to no step",
}
"""Statistics of benchmarks that have no metric, with the reason."""
_TOTAL = {"train.loss.name": "total"}
_IMPLIED = {
    **IMPLIED,
    "hw.power": {"hw.type": "enclosure"},
    "train.evaluation.loss": {"train.evaluation.set": _EVALUATION_SET, **_TOTAL},
}
_LOSS_KEY = f"train.evaluation.loss{{train.evaluation.set={_EVALUATION_SET},train.loss.name=total}}"
_SETTINGS = ("opt_", "submission_", "cache_", "target_", "init_", "eval_", "train_")
_CONFIGURATION = frozenset({"global_batch_size", "max_sequence_length", "max_steps", "submission_benchmark"})
_OF_ONE_OR_MORE = frozenset({"global_batch_size", "max_sequence_length"})
_MOST = 1.5
"""Of the time between two reports: each is of one step at least. In 884 public logs the ratio is 1.00003 at most."""
_FEWEST = 8
_MAX_KEPT = 10_000
_EARLIEST_US = 946_684_800_000_000
"""The year 2000: a log does not begin before it, where a later entry has a time."""


class Reader:
    """Reads the lines of one log; logs of a job and of a node's power are distinguished by their first line."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        quantities = dict(transcript.given.quantities)
        self._names = Names(("mlperf",), transcript.tally, quantities, _BESIDE, _IMPLIED)
        self._position = Position(transcript.tally)
        self._intervals, self._launch = Intervals(transcript), Launch(transcript)
        self._owed, self._clock, self._result, self._durations = Owed(), Clock(), Result(), _Durations()
        self._held: list[tuple[int, Entry | Refusal]] | None = []
        """The log until it is known what its positions count."""
        self._is_loss = self._has_updates = self._has_statistics = self._has_begun = self._is_offline = False
        self._has_stopped = False
        self._begun_us: int | None = None
        self._step = 0
        self._loss_step: int | None = None
        self._trained_us: int | None = None
        self._evaluation: dict[str, MetricValue] = {}

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records that a line sets free."""
        _, mark, rest = text.partition(_MARK)
        if not mark:
            self._transcript.lose("text", "text", "the file has lines of other programs, which are passed over", offset)
            return
        item = _entry(offset, rest)
        if self._held is None:
            yield from self._taken(offset, item)
            return
        self._held.append((offset, item))
        if len(self._held) >= _MAX_HELD:
            yield from self._released()

    def _released(self) -> Iterator[Found]:
        """What was held, by what its positions count."""
        held, self._held = self._held or [], None
        entries = [item for _, item in held if isinstance(item, Entry)]
        self._begun_us = next((entry.time_us for entry in entries if entry.time_us >= _EARLIEST_US), None)
        units = units_of(entries)
        self._position.decide(units)
        self._is_offline, self._trained_us = units.is_offline, units.trained_us
        self._intervals.are_evaluations_offline = units.is_offline
        for offset, item in held:
            yield from self._taken(offset, item)
        if units.step == "unknown":
            yield from contradictions(entries)

    def _taken(self, offset: int, item: Entry | Refusal) -> Iterator[Found]:
        if isinstance(item, Refusal):
            yield offset, item
            return
        if self._begun_us is not None and item.time_us < _EARLIEST_US:
            message = f"time_ms of {item.key} is {item.time_us // 1000}, which is before 2000: no clock was set"
            yield offset, Refusal(message, "write the line once the time service has set the clock", "time")
            return
        if not self._has_begun:
            self._has_begun = True
            yield offset, self._head(item)
        yield from self._owed.take(offset, item)
        self._result.take(item)
        yield from self._launch.take(offset, item.key, item.time_us)
        yield from ((offset, refusal) for refusal in _negative(item.key, item.metadata))
        if not self._is_offline:
            yield from self._clock.take(item)
        yield from ((offset, refusal) for refusal in _not_finite(item.key, item.value))
        yield from self._entry(offset, item.key, item.time_us, item.value, item.metadata)

    def _head(self, first: Entry) -> Head:
        host = self._transcript.given.host
        begun_us = first.time_us if self._begun_us is None else self._begun_us
        if not first.key.startswith("power_"):
            return self._transcript.head(begun_us, ("job",), host=host)
        if host is None:
            host = fit.identity(PurePosixPath(self._transcript.name).stem) or "node"
            self._transcript.lose("identity", "host", f"the file names no node; its own name is used: {host}", 0)
        return self._transcript.head(begun_us, ("node",), host=host)

    def _entry(self, offset: int, key: str, time_us: int, value: Any, metadata: Mapping[str, Any]) -> Iterator[Found]:
        if key in _CONFIGURATION:
            yield from self._configuration(offset, key, time_us, value)
        elif key == "tracked_stats":
            yield from self._statistics(offset, time_us, value, metadata)
        elif key == "train_loss":
            yield from self._loss(offset, time_us, value, metadata)
        elif key == "eval_accuracy":
            yield from self._accuracy(offset, time_us, value, metadata)
        elif key == "power_reading":
            values: dict[str, MetricValue] = {}
            if self._names.take(key, value, offset, values):
                self._intervals.saw_reading(time_us)
                yield offset, self._transcript.sample(time_us, values)
        elif self._intervals.has(key):
            yield from self._edge(offset, key, time_us, value, metadata)
        elif key not in {"init_start", "init_stop"}:
            if key == "train_samples":
                self._position.learn(key, fit.whole(value, 10**18) or 0)
            group = next((f"{prefix}*" for prefix in _SETTINGS if key.startswith(prefix)), key)
            message = f"{group}: settings and remarks have no name in the catalog"
            self._transcript.lose("unknown-name", group, message, offset)

    def _edge(self, offset: int, key: str, time_us: int, value: Any, metadata: Mapping[str, Any]) -> Iterator[Found]:
        """The start or the stop of something."""
        is_apart = self._is_offline and key.startswith("eval_")
        if key == "run_stop":
            self._has_stopped = True
            self._intervals.end_at(time_us)
            if self._trained_us is not None and self._trained_us > time_us:
                message = "run_stop has the time of an evaluated position; the run ends with its last training"
                self._transcript.lose("meaning", key, message, offset)
                time_us = self._trained_us
        step = None if is_apart else self._position.updates(key, metadata)
        carried: dict[str, MetricValue] = {}
        if key == "eval_stop":
            carried, self._evaluation = self._evaluation, {}
        if is_apart:
            message = "evaluations run on saved states after training (offline), and are no part of the run in time"
            self._transcript.lose("meaning", "eval_start", message, offset)
        yield from self._intervals.take(offset, key, time_us, step, value, metadata, carried)

    def _configuration(self, offset: int, key: str, time_us: int, value: Any) -> Iterator[Found]:
        if key == "submission_benchmark":
            self._is_loss = value in _LOSS_BENCHMARKS
            return
        number = fit.whole(value, 10**12)
        if not number:
            if key in _OF_ONE_OR_MORE:
                message = f"{key} is {str(value)[:40]!r}, and an optimizer step has at least one of what it counts"
                yield offset, Refusal(message, "write the whole number that the run used", "value")
            self._transcript.lose("value", key, f"{key} is no whole number: {str(value)[:40]!r}", offset)
            return
        self._position.learn(key, number)
        if key == "max_sequence_length":
            self._names.quantities.setdefault("tokens_per_sample", number)
        elif key == "global_batch_size":
            yield offset, self._transcript.sample(time_us, {"train.batch.size": float(number)})

    def _statistics(self, offset: int, time_us: int, value: Any, metadata: Mapping[str, Any]) -> Iterator[Found]:
        if not isinstance(value, dict):
            self._transcript.lose("value", "tracked_stats", "tracked_stats has values that are no objects", offset)
            return
        if self._has_stopped and "throughput" in value:
            message = "statistics of the last block come after run_stop, and are no part of the run"
            self._transcript.lose("meaning", "tracked_stats", message, offset)
            return
        yield from ((offset, refusal) for refusal in self._position.rates(value))
        positioned = "step" in metadata or "step_num" in metadata or "samples_count" in metadata
        values: dict[str, MetricValue] = {}
        about = {"lr": metadata["lr"]} if "lr" in metadata and "lr" not in value else {}
        for name, number in {**value, **about}.items():
            if name == "train_step_time" and self._is_mean(value, metadata):
                message = "some train_step_time are means of a block, next to those of each step"
                self._transcript.lose("step", "tracked_stats.train_step_time", message, offset)
            elif name in _WITHOUT_METRIC:
                message = f"tracked_stats.{name} is {_WITHOUT_METRIC[name]}"
                self._transcript.lose("unknown-name", f"tracked_stats.{name}", message, offset)
            elif name == "throughput" and self._position.counts_tokens:
                rate = fit.number(number)
                values |= {"train.token.rate": rate} if isinstance(rate, float) else {}
            else:
                yield from self._statistic(f"tracked_stats.{name}", number, offset, values)
        step = self._position.updates("tracked_stats", metadata, is_statistic=True) if positioned else None
        if step is None or "train.step.duration" not in values:
            yield from ((offset, refusal) for refusal in self._durations.take(offset, time_us, value))
        if not values:
            return
        # What sums up a block has the position of its start in some rounds.
        step = self._step if step is not None and step < self._step and "throughput" in value else step
        self._has_statistics |= step is not None
        if step is not None and (step != self._step or "throughput" not in value):
            declared = None if "throughput" in value else self._position.declared(metadata)
            values |= self._counts(step, declared)
            self._step = step
        yield offset, self._transcript.sample(time_us, values, step=step)

    def _loss(self, offset: int, time_us: int, value: Any, metadata: Mapping[str, Any]) -> Iterator[Found]:
        """A loss with an entry of its own, of one step or, as in other logs, a mean over those since the last."""
        step, before = self._position.updates("train_loss", metadata), self._loss_step
        if step is None:
            message = "train_loss is of a step that is not stated; train.loss.mean is of one step"
            self._transcript.lose("meaning", "train_loss", message, offset)
            return
        self._loss_step = step
        if step - (before or 0) > 1:
            message = f"train_loss is reported after {step - (before or 0)} steps at once and can be a mean over them"
            self._transcript.lose("meaning", "train_loss", message, offset)
        if before is not None and step <= before:
            message = f"train_loss is at {step:,} optimizer steps, where the one before is at {before:,}"
            yield offset, Refusal(message, "write the samples of all completed steps, which grow", "step")
        values: dict[str, MetricValue] = {}
        about = {"lr": metadata["lr"]} if "lr" in metadata else {}
        for name, number in {"train_loss": value, **about}.items():
            yield from self._statistic(f"tracked_stats.{name}", number, offset, values)
        if values:
            yield offset, self._transcript.sample(time_us, values, step=step)

    def _statistic(self, name: str, value: Any, offset: int, into: dict[str, MetricValue]) -> Iterator[Found]:
        is_new = self._transcript.tally.is_new("unknown-name", name)
        if isinstance(value, str) and fit.number(value) is None and self._names.aliases(name):
            yield offset, Refusal(f"{name} is the text {value[:40]!r}", "write a number, or leave it out", "value")
            return
        if not self._names.take(name, value, offset, into) and is_new and self._names.aliases(name.strip()):
            message = f"the name {name!r} begins or ends with a blank"
            if not self._names.aliases(name):
                yield offset, Refusal(message, f"write {name.strip()!r}", "name")

    def _is_mean(self, value: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
        """Whether a time of a step is the mean of many, in a log that has each of them too."""
        self._has_updates |= "throughput" not in value and "step" in metadata
        return ("step" not in metadata and "step_num" not in metadata) or (self._has_updates and "throughput" in value)

    def _counts(self, step: int, samples: int | None = None) -> dict[str, MetricValue]:
        counts: dict[str, MetricValue] = {"train.step.count": float(step)}
        batch = self._position.batch
        if batch:
            samples = step * batch if samples is None else samples
            counts["train.sample.count"] = float(samples)
            if "tokens_per_sample" in self._names.quantities:
                tokens = samples * self._names.quantities["tokens_per_sample"]
                counts["train.token.count{train.token.kind=all}"] = float(tokens)
        return counts

    def _accuracy(self, offset: int, time_us: int, value: Any, metadata: Mapping[str, Any]) -> Iterator[Found]:
        number = fit.number(value)
        step = None if self._is_offline else self._position.updates("eval_accuracy", metadata)
        counts: dict[str, MetricValue] = {}
        if step is not None and not self._has_statistics:
            samples = self._position.samples(metadata)
            is_rounded = samples is not None and samples % self._position.batch != 0
            counts = self._counts(step, samples)
            if is_rounded:
                # Exact samples are not those of the rounded count of steps: their record has no step.
                updates = {"train.step.count": counts.pop("train.step.count")}
                yield offset, self._transcript.sample(time_us, counts)
                counts = updates
        if not self._is_loss or number is None:
            message = "eval_accuracy is a loss in some benchmarks and an accuracy in others; here it is not converted"
            self._transcript.lose("meaning", "eval_accuracy", message, offset)
        else:
            self._evaluation = {_LOSS_KEY: number}  # type: ignore[dict-item]
            counts[_LOSS_KEY] = number  # type: ignore[assignment]
        if counts and not self._is_offline:
            yield offset, self._transcript.sample(time_us, counts, step=step)

    def end(self) -> Iterator[Found]:
        """Records that are still open, absent, or held back."""
        if self._held is not None:
            yield from self._released()
        yield from self._launch.end()
        yield from self._intervals.end()
        yield from self._owed.end()
        yield from self._clock.end()
        yield from self._result.end()
        yield from self._durations.end()


def _entry(offset: int, text: str) -> Entry | Refusal:
    """What follows the mark of a line."""
    found = decode(text, not_finite=True)
    problem = found if isinstance(found, Refusal) else _problem(found)
    if problem:
        return problem
    metadata = found.get("metadata")
    about = metadata if isinstance(metadata, dict) else {}
    return Entry(offset, found["key"], found["time_ms"] * 1000, found.get("value"), about, found.get("event_type"))


def _not_finite(key: str, value: Any) -> Iterator[Refusal]:
    """The refusal of a number that JSON has no form for, which some programs write without quotes."""
    numbers = value.items() if isinstance(value, dict) else ((key, value),)
    for name, number in numbers:
        if isinstance(number, float) and not math.isfinite(number):
            help_text = 'JSON has no such number: write the text "NaN", and count the step as skipped'
            yield Refusal(f"{name} is {fit.told(number)}", help_text, "not-finite")


def _negative(key: str, metadata: Mapping[str, Any]) -> Iterator[Refusal]:
    """The refusal of positions below 0, which count from the start of training."""
    for name in ("step", "step_num", "samples_count", "epoch_num"):
        position = metadata.get(name)
        if isinstance(position, int | float) and not isinstance(position, bool) and position < 0:
            yield Refusal(f"{name} of {key} is {position}, below 0", "positions count up from 0", "range")


def _problem(entry: Any) -> Refusal | None:
    """Why an entry is none of this log."""
    if not isinstance(entry, dict):
        return Refusal("no object follows :::MLLOG", "write one JSON object on each line", "value")
    if not isinstance(entry.get("key"), str):
        return Refusal("the entry has no key", "every entry names what it is about", "value")
    if fit.whole(entry.get("time_ms"), 9_007_199_254_740) is None or isinstance(entry["time_ms"], str | float):
        return Refusal(f"time_ms is no moment: {str(entry.get('time_ms'))[:40]}", "milliseconds since 1970 UTC", "time")
    return None


class _Durations:
    """The times of steps of one log, and the time between their reports."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], tuple[int, list[tuple[float, float]]]] = {}
        self._first = -1

    def take(self, offset: int, time_us: int, statistic: Mapping[str, Any]) -> Iterator[Refusal]:
        """Take the time of a step, whose position is unknown; the refusal of one below 0."""
        name = next((name for name in STEP_TIMES if name in statistic), "")
        seconds = fit.number(statistic.get(name))
        if not isinstance(seconds, float):
            return
        if seconds < 0:
            yield Refusal(f"{name} is {seconds:g} s, below 0", "write the time that the step took", "range")
        self._first = offset if self._first < 0 else self._first
        names = tuple(sorted(statistic))
        before, pairs = self._seen.get(names, (time_us, []))
        if time_us > before and len(pairs) < _MAX_KEPT:
            pairs.append((seconds, (time_us - before) / 1e6))
        self._seen[names] = time_us, pairs

    def end(self) -> Iterator[Found]:
        """The refusal of steps that take longer than from one report to the next."""
        for _, pairs in self._seen.values():
            if len(pairs) >= _FEWEST and median(seconds / between for seconds, between in pairs) > _MOST:
                taken, between = (median(pair[place] for pair in pairs) for place in (0, 1))
                message = f"an optimizer step takes {taken:.6g} s, and its reports come every {between:.6g} s"
                yield self._first, Refusal(message, "write the time of a step in seconds", "duration")
