"""Damages rows of logs in the ways that `published/damage_incidents.csv` lists; needs of each kind are listed there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from damage_rows import Log, Row, Value

HOUR = 3600.0
Operator = Callable[[Log], Log | str]
"""A kind of damage to a log; a text where the damage is within a line."""
OPERATORS: dict[str, Operator] = {}
"""By the name of the kind."""


def _kind(name: str) -> Callable[[Operator], Operator]:
    def register(operator: Operator) -> Operator:
        OPERATORS[name] = operator
        return operator

    return register


def _half(rows: list[Row]) -> list[Row]:
    return rows[len(rows) // 2 :]


def _set(name: str, field: str, change: Callable[[float, int], Value], *, whole: bool = False) -> None:
    """Register a kind that changes a field of all reports, or of their second half; the number counts from 0."""

    def operator(log: Log) -> Log:
        rows = [row for row in log.reports if row.get(field) is not None]
        for number, row in enumerate(rows if whole else _half(rows)):
            row.put(field, change(row.get(field) or 0.0, number))
        return log

    OPERATORS[name] = operator


def _first(log: Log, field: str) -> float:
    return next(value for row in _half(log.reports) if (value := row.get(field)) is not None)


def _hold(name: str, field: str, shown: Callable[[float], float] = lambda value: value) -> None:
    """Register a kind that keeps a field at its value in the middle."""

    def operator(log: Log) -> Log:
        held = shown(_first(log, field))
        for row in _half([row for row in log.reports if row.get(field) is not None]):
            row.put(field, held)
        return log

    OPERATORS[name] = operator


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


_set("loss-nan-from-middle", "loss", lambda *_: math.nan)
_set("loss-nan-once", "loss", lambda value, n: math.nan if n == 0 else value)
_set("grad-norm-nan", "grad_norm", lambda *_: math.nan, whole=True)
_set("loss-zero", "loss", lambda *_: 0.0, whole=True)
_set("loss-infinite", "loss", lambda *_: math.inf)
_set("loss-explodes", "loss", lambda value, _: value * 1e9)
_set("loss-grows", "loss", lambda value, n: value * 1.1 ** min(n, 500))
_set("loss-after-resume-jumps", "loss", lambda value, n: value if n == 0 else value * 1000)
_hold("loss-frozen", "loss")
_hold("loss-frozen-two-digits", "loss", _two_digits)
_set("loss-nearly-frozen", "loss", lambda _, n: round(3.0447 + (n % 3) * 1e-4, 4))
_set("loss-negative", "loss", lambda value, _: -value)
_set("loss-times-accumulation", "loss", lambda value, _: value * 8, whole=True)
_set("loss-is-text", "loss", lambda *_: "N/A", whole=True)
_set("loss-dropped", "loss", lambda *_: None)
_set("numbers-not-json", "loss", lambda value, n: math.nan if n == 3 else value)
_set("numbers-infinity", "loss", lambda value, n: math.inf if n == 3 else value)
_set("rate-negative", "rate", lambda value, _: -value, whole=True)
_set("rate-in-milliseconds", "rate", lambda value, _: value / 1000, whole=True)
_set("rate-doubled", "rate", lambda value, _: value * 2, whole=True)
_set("step-time-in-milliseconds", "step_seconds", lambda value, _: value * 1000, whole=True)
_set("step-time-in-kiloseconds", "step_seconds", lambda value, _: value / 1000, whole=True)
_set("step-time-negative", "step_seconds", lambda value, _: -value, whole=True)
_hold("step-time-frozen", "step_seconds")
_set("lr-zero", "lr", lambda *_: 0.0)
_set("lr-negative", "lr", lambda value, _: -value)
_set("loss-scale-collapses", "scale", lambda value, n: value * 0.5 ** min(n * 20, 660))
_set("utilization-above-one", "flops", lambda value, _: value * 8, whole=True)
_set("tokens-stay-zero", "samples", lambda *_: 0.0, whole=True)
_hold("samples-stop", "samples")
_set("samples-negative", "samples", lambda value, _: -value)
_set("steps-jump-ahead", "step", lambda value, _: value * 2)
_set("steps-counted-twice", "step", lambda value, _: value + 1)
_set("steps-shifted-after-resume", "step", lambda value, _: value + 1)
_hold("steps-frozen", "step")
_set("steps-fall-and-recover", "step", lambda value, n: max(value - 50, 0) if n % 10 == 0 else value, whole=True)
_set("steps-of-two-counters", "step", lambda value, n: float(n) if n % 2 else value)


@_kind("every-step-skipped")
def _every_step_skipped(log: Log) -> Log:
    before = None
    for row in log.reports:
        step = row.get("step")
        row.put("skipped", step - before if step is not None and before is not None and step > before else 1.0)
        before = step
    return log


@_kind("loss-zero-grad-norm-nan")
def _loss_zero_grad_norm_nan(log: Log) -> Log:
    for row in _half(log.reports):
        row.put("loss", 0.0)
        row.put("grad_norm", math.nan)
    return log


@_kind("loss-diverges-to-start")
def _loss_diverges_to_start(log: Log) -> Log:
    losses = [value for row in log.reports if (value := row.get("loss")) is not None]
    high = max(losses[: max(len(losses) // 10, 3)])
    for number, row in enumerate(_half(log.reports)):
        row.put("loss", high * (1.2 + 0.01 * math.sin(number)))
    return log


@_kind("loss-spikes-and-recovers")
def _loss_spikes_and_recovers(log: Log) -> Log:
    rows = [row for row in log.reports if row.get("loss") is not None]
    for row in rows[5 :: max(len(rows) // 10, 1)]:
        row.put("loss", (row.get("loss") or 0.0) * 10)
    return log


@_kind("lr-constant")
def _lr_constant(log: Log) -> Log:
    held = next(value for row in log.reports if (value := row.get("lr")) is not None)
    for row in log.reports:
        row.put("lr", held)
    return log


@_kind("lr-starts-again")
def _lr_starts_again(log: Log) -> Log:
    rows = [row for row in log.reports if row.get("lr") is not None]
    first = [row.get("lr") for row in rows]
    for row, value in zip(_half(rows), first, strict=False):
        row.put("lr", value)
    return log


def _starting_again(log: Log, field: str) -> Log:
    rows = [row for row in log.reports if row.get(field) is not None]
    first = [row.get(field) for row in rows]
    for row, value in zip(_half(rows), first, strict=False):
        row.put(field, value)
    return log


OPERATORS["samples-restart"] = lambda log: _starting_again(log, "samples")
OPERATORS["steps-restart-at-zero"] = lambda log: _starting_again(log, "step")


@_kind("step-repeated")
def _step_repeated(log: Log) -> Log:
    rows = _half(log.reports)[:4]
    for row in rows:
        row.put("step", rows[0].get("step"))
        row.put("samples", rows[0].get("samples"))
    return log


def _without(log: Log, gone: Iterable[Row]) -> Log:
    numbers = set(map(id, gone))
    log.rows = [row for row in log.rows if id(row) not in numbers]
    return log


def _fifth(log: Log, begin: float) -> list[Row]:
    return log.reports[round(begin * len(log.reports)) : round((begin + 0.2) * len(log.reports))]


OPERATORS["reports-stop"] = lambda log: _without(log, _fifth(log, 0.8))
OPERATORS["reports-absent"] = lambda log: _without(log, _fifth(log, 0.4))
OPERATORS["reports-none"] = lambda log: _without(log, [*log.reports, *log.of("evaluation", "eval_start", "eval_stop")])
OPERATORS["one-report-absent"] = lambda log: _without(log, _half(log.reports)[:1])
OPERATORS["evaluations-absent"] = lambda log: _without(log, log.of("evaluation", "eval_start", "eval_stop"))
OPERATORS["last-evaluations-absent"] = lambda log: _without(log, _half(log.of("evaluation", "eval_start", "eval_stop")))
OPERATORS["evaluation-without-start"] = lambda log: _without(log, log.of("eval_start"))
OPERATORS["begin-cut-off"] = lambda log: _without(log, log.rows[: _place(log, 0.1)])
OPERATORS["end-without-word"] = lambda log: _without(log, log.rows[_place(log, 0.8) :])


def _place(log: Log, share: float) -> int:
    """Where a share of what counts has passed: the rows of a log of MLPerf start with settings."""
    told = [number for number, row in enumerate(log.rows) if row.kind != "other"]
    return told[int(share * len(told))] + 1


@_kind("end-cut-off")
def _end_cut_off(log: Log) -> str:
    text = _without(log, log.rows[_place(log, 0.8) :]).text()
    return text[: -max(len(log.rows[-1].written()) // 2, 2)]


@_kind("lines-doubled")
def _lines_doubled(log: Log) -> Log:
    log.rows = [each for row in log.rows for each in (row, row)]
    return log


@_kind("lines-torn")
def _lines_torn(log: Log) -> str:
    lines = [row.written() for row in log.rows]
    places = [number for number, row in enumerate(log.rows) if row.kind == "report"][5::10]
    for place in places[:-1]:
        middle = len(lines[place]) * 2 // 3
        lines[place] = lines[place][:middle] + lines[place + 1] + lines[place][middle:]
    return "\n".join(lines) + "\n"


@_kind("ranks-interleaved")
def _ranks_interleaved(log: Log) -> Log:
    found = []
    for row in log.rows:
        found.append(row)
        if row.kind == "report":
            other = row.copy()
            other.put("loss", (row.get("loss") or 0.0) * 1.01)
            other.put("step_seconds", (row.get("step_seconds") or 0.0) * 1.01)
            other.put("rate", (row.get("rate") or 0.0) * 1.01)
            found.append(other)
    log.rows = found
    return log


@_kind("run-appended")
def _run_appended(log: Log) -> Log:
    last = max((row.get("time") or 0.0 for row in log.rows), default=0.0)
    first = next((value for row in log.rows if (value := row.get("time"))), 0.0)
    other = [row.copy() for row in log.rows]
    for row in other if log.producer == "mlperf" else ():
        row.put("time", (row.get("time") or 0.0) + last - first + 600)
        row.put("loss", (row.get("loss") or 0.0) * 1.02)
    log.rows += other
    return log


def _later(rows: Iterable[Row], seconds: float) -> None:
    for row in rows:
        row.put("time", (row.get("time") or 0.0) + seconds)


def _middle(log: Log) -> int:
    """A row in the middle of training, after one that says nothing of a pause."""
    rows = log.reports or log.of("evaluation")
    return next(number for number, row in enumerate(log.rows) if row is rows[len(rows) // 2]) if rows else 0


def _hang(name: str, seconds: float) -> None:
    def operator(log: Log) -> Log:
        _later(log.rows[_middle(log) :], seconds)
        return log

    OPERATORS[name] = operator


_hang("hang-half-an-hour", 1800)
_hang("hang-ten-hours", 10 * HOUR)
_hang("clock-ahead-one-hour", HOUR)
_hang("clock-back-one-hour", -HOUR)


@_kind("hang-in-evaluation")
def _hang_in_evaluation(log: Log) -> Log:
    starts = [number for number, row in enumerate(log.rows) if row.kind == "eval_start"]
    _later(log.rows[starts[len(starts) // 2] + 1 :] if starts else (), 24 * HOUR)
    return log


@_kind("hang-before-the-end")
def _hang_before_the_end(log: Log) -> Log:
    stop = next(number for number, row in enumerate(log.rows) if row.kind == "run_stop")
    _later(log.rows[stop:], 10 * HOUR)
    return log


@_kind("hang-at-the-start")
def _hang_at_the_start(log: Log) -> Log:
    start = next(number for number, row in enumerate(log.rows) if row.kind == "run_start")
    _later(log.rows[start + 1 :], 10 * HOUR)
    return log


def _slower(log: Log, factor: Callable[[float], float]) -> Log:
    """Stretch the time between reports, and the times of steps with it, by a factor of the share of the run."""
    places = {id(row): number for number, row in enumerate(log.reports)}
    late, before, share = 0.0, None, 0.0
    for row in log.rows:
        time = row.get("time")
        if time is not None:
            late += (time - before) * (factor(share) - 1) if before is not None and time > before else 0.0
            before = time
            row.put("time", time + late)
        share = places.get(id(row), share * len(places)) / max(len(places), 1)
        if id(row) in places:
            row.put("step_seconds", (row.get("step_seconds") or 0.0) * factor(share))
            row.put("rate", (row.get("rate") or 0.0) / factor(share))
    return log


OPERATORS["step-thirty-times-slower"] = lambda log: _slower(log, lambda share: 30.0 if share > 0.5 else 1.0)
OPERATORS["steps-slow-down"] = lambda log: _slower(log, lambda share: 1 + 2 * share)


@_kind("clock-back-once")
def _clock_back_once(log: Log) -> Log:
    _later([log.rows[_middle(log)]], -60)
    return log


@_kind("times-stale")
def _times_stale(log: Log) -> Log:
    rows = log.rows[_middle(log) :]
    held = next(value for row in rows if (value := row.get("time")) is not None)
    for row in rows:
        row.put("time", held)
    return log


@_kind("times-of-whole-minutes")
def _times_of_whole_minutes(log: Log) -> Log:
    for row in log.rows:
        row.put("time", (row.get("time") or 0.0) // 60 * 60)
    return log


@_kind("times-at-the-end")
def _times_at_the_end(log: Log) -> Log:
    last = max(row.get("time") or 0.0 for row in log.rows)
    for number, row in enumerate(log.rows):
        row.put("time", last - 1 + number / len(log.rows))
    return log


@_kind("times-in-seconds")
def _times_in_seconds(log: Log) -> Log:
    for row in log.rows:
        row.put("time", (row.get("time") or 0.0) / 1000)
    return log


@_kind("end-twice")
def _end_twice(log: Log) -> Log:
    log.rows += [row.copy() for row in log.of("run_stop")]
    return log


def _with_status(log: Log, status: str | None) -> Log:
    for row in log.of("run_stop"):
        about = row.entry["metadata"] if row.entry else {}
        about.pop("status", None)
        if status:
            about["status"] = status
    return log


OPERATORS["end-status-absent"] = lambda log: _with_status(log, None)
OPERATORS["end-aborted"] = lambda log: _with_status(log, "aborted")


@_kind("block-of-negative-samples")
def _block_of_negative_samples(log: Log) -> Log:
    row = log.of("block_start")[0]
    if row.entry:
        row.entry["metadata"]["samples_count"] = -1024
    return log
