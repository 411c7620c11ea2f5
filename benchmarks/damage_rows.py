"""Reads real logs of several producers into rows whose fields can be read and changed, and writes them back."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Value = float | str | None
"""A number, a text that is written as it is, or None for a field that goes."""
_MARK = ":::MLLOG"
_EDGES = {"eval_start", "eval_stop", "run_start", "run_stop", "block_start", "block_stop"}
_STATISTICS = {
    "loss": ("reduced_train_loss", "train_loss", "loss"),
    "lr": ("lr", "learning_rate"),
    "step_seconds": ("train_step_time", "train_step_timing in s"),
    "rate": ("throughput",),
}
_NUMBER = r"([-+0-9.eEnaif]+)"
_MEGATRON = {
    "step": re.compile(r"iteration +(\d+)/"),
    "samples": re.compile(r"consumed samples: +(\d+)"),
    "step_seconds": re.compile(rf"elapsed time per iteration \(ms\): {_NUMBER}"),
    "lr": re.compile(rf"learning rate: +{_NUMBER}"),
    "loss": re.compile(rf"lm loss: +{_NUMBER}"),
    "scale": re.compile(rf"loss scale: +{_NUMBER}"),
    "grad_norm": re.compile(rf"grad norm: +{_NUMBER}"),
    "skipped": re.compile(r"number of skipped iterations: +(\d+)"),
    "flops": re.compile(rf"(?:TFLOPs|throughput per GPU \(TFLOP/s/GPU\)): +{_NUMBER}"),
}
_NANOGPT = {
    "step": re.compile(r"step:(\d+)/"),
    "loss": re.compile(rf"train_loss:{_NUMBER}"),
    "time": re.compile(r"train_time:(\d+)ms"),
}
_MILLISECONDS = {"step_seconds", "time"}


@dataclass
class Row:
    """One line of a log: what it is, and its fields."""

    kind: str
    """`report`, `evaluation`, an edge such as `run_stop`, or `other`."""
    text: str
    entry: dict[str, Any] | None = None
    patterns: dict[str, re.Pattern[str]] = field(default_factory=dict)

    def get(self, name: str) -> float | None:
        """A field as a number."""
        if self.entry is not None:
            place = _place(self.entry, name)
            value = place[0].get(place[1]) if place else None
            scale = 1000 if name == "time" else 1
            return value / scale if isinstance(value, int | float) and not isinstance(value, bool) else None
        match = self.patterns[name].search(self.text) if name in self.patterns else None
        try:
            return float(match[1]) / (1000 if name in _MILLISECONDS else 1) if match else None
        except ValueError:
            return None

    def put(self, name: str, value: Value) -> None:
        """Change a field that the row has."""
        if self.get(name) is None:
            return
        if self.entry is not None:
            self._put_entry(name, value)
        else:
            match = self.patterns[name].search(self.text)
            if match:
                begin, end = match.span(1) if value is not None else match.span()
                self.text = self.text[:begin] + self._told(name, value, match[1]) + self.text[end:]

    def _put_entry(self, name: str, value: Value) -> None:
        assert self.entry is not None
        holder, key = _place(self.entry, name) or ({}, "")
        if value is None:
            del holder[key]
        elif name == "time" and isinstance(value, float | int):
            holder[key] = round(value * 1000)
        else:
            holder[key] = round(value) if isinstance(holder[key], int) and isinstance(value, float) else value

    def _told(self, name: str, value: Value, before: str) -> str:
        if value is None or isinstance(value, str):
            return value or ""
        value = value * 1000 if name in _MILLISECONDS else value
        is_whole = before.isdigit() and abs(value) < 1e300
        return str(round(value)) if is_whole else f"{value:.6E}" if "E" in before else f"{value:.6g}"

    def copy(self) -> Row:
        """A row that changes alone."""
        return Row(self.kind, self.text, json.loads(json.dumps(self.entry)), self.patterns)

    def written(self) -> str:
        """The line."""
        return self.text if self.entry is None else f"{self.text}{_MARK} {json.dumps(self.entry)}"


@dataclass
class Log:
    """A log of one producer."""

    producer: str
    rows: list[Row]
    doubled: bool = False

    def of(self, *kinds: str) -> list[Row]:
        """The rows of some kinds."""
        return [row for row in self.rows if row.kind in kinds]

    @property
    def reports(self) -> list[Row]:
        """The reports of steps."""
        return self.of("report")

    def has(self, name: str) -> bool:
        """Whether the log holds enough of what a kind of damage needs."""
        needs: dict[str, Callable[[], bool]] = {
            "eval": lambda: len(self.of("eval_start", "evaluation")) > 3,
            "end": lambda: bool(self.of("run_stop")),
            "start": lambda: bool(self.of("run_start")),
            "block": lambda: bool(self.of("block_start")),
            "time": lambda: sum(row.get("time") is not None for row in self.rows) > 7,
            "step": lambda: _varies(self.reports, "step"),
        }
        if name in needs:
            return needs[name]()
        return len([row for row in self.reports if row.get(name) is not None]) > 7

    def text(self) -> str:
        """The whole log."""
        return "\n".join(row.written() for row in self.rows) + "\n"


def _varies(rows: list[Row], name: str) -> bool:
    return len({row.get(name) for row in rows}) > 7


def _place(entry: dict[str, Any], name: str) -> tuple[dict[str, Any], str] | None:
    """The object and the key that hold a field of an MLPerf entry."""
    about, value = entry.get("metadata"), entry.get("value")
    if name == "time":
        return entry, "time_ms"
    if name == "status" and isinstance(about, dict):
        return about, "status"
    if name == "step" and isinstance(about, dict):
        return next(((about, key) for key in ("step", "step_num") if key in about), None)
    if name == "samples" and isinstance(about, dict):
        return (about, "samples_count") if "samples_count" in about else None
    if name == "loss" and entry["key"] == "train_loss":
        return entry, "value"
    if isinstance(value, dict):
        return next(((value, key) for key in _STATISTICS.get(name, ()) if key in value), None)
    return None


def read_log(text: str) -> Log:
    """A log by its content."""
    lines = text.splitlines()
    if any(_MARK in line for line in lines):
        return Log("mlperf", [_mllog_row(line) for line in lines])
    if any(_MEGATRON["step"].search(line) and "|" in line for line in lines):
        return Log("megatron", [_text_row(line, _MEGATRON) for line in lines])
    return Log("modded-nanogpt", [_text_row(line, _NANOGPT) for line in lines if line.startswith("step:")])


def _text_row(line: str, patterns: dict[str, re.Pattern[str]]) -> Row:
    is_report = patterns["step"].search(line) and "val_loss" not in line
    kind = "report" if is_report else "evaluation" if "val_loss" in line else "other"
    return Row(kind, line, None, patterns)


def _mllog_row(line: str) -> Row:
    before, mark, rest = line.partition(_MARK)
    try:
        entry = json.loads(rest) if mark else None
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or "key" not in entry or "time_ms" not in entry:
        return Row("other", line)
    key = entry["key"]
    row = Row(key if key in _EDGES else "evaluation" if key == "eval_accuracy" else "other", before, entry)
    is_report = key == "train_loss" or (key == "tracked_stats" and isinstance(entry.get("value"), dict))
    if is_report and any(row.get(name) is not None for name in ("loss", "step_seconds", "rate")):
        row.kind = "report"
    return row
