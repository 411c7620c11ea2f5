"""Lists the kinds of damage to logs in the MLPerf text format."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from .mllog import Entry, entries, text_of

Log = list[Entry]


@dataclass(frozen=True, slots=True)
class LogDamage:
    """One kind of damage to a log."""

    name: str
    what: str
    requirements: tuple[str, ...]
    apply: Callable[[str], str]
    beyond: str = ""
    """Why nothing can notice it without more than the log; empty where something is meant to."""


_KINDS: list[LogDamage] = []


def log_kinds() -> tuple[LogDamage, ...]:
    """Every kind of damage to a log: times and values, then records and text."""
    import_module(".mllog_records", __package__)
    return tuple(_KINDS)


def on_entries(*requirements: str, beyond: str = "") -> Callable[[Callable[[Log], Log]], Callable[[Log], Log]]:
    """Register an operator on the objects of a log; its docstring says what it does."""

    def register(operator: Callable[[Log], Log]) -> Callable[[Log], Log]:
        def apply(text: str) -> str:
            return text_of(operator(entries(text)))

        _add(operator, requirements, apply, beyond)
        return operator

    return register


def on_log_text(*requirements: str) -> Callable[[Callable[[str], str]], Callable[[str], str]]:
    """Register an operator on the text of a log; its docstring says what it does."""

    def register(operator: Callable[[str], str]) -> Callable[[str], str]:
        _add(operator, requirements, operator)
        return operator

    return register


def _add(
    operator: Callable[..., object], requirements: tuple[str, ...], apply: Callable[[str], str], beyond: str = ""
) -> None:
    name = operator.__name__.replace("_", "-")
    _KINDS.append(LogDamage(name, (operator.__doc__ or "").strip(), requirements, apply, beyond))


def _is_step(entry: Entry) -> bool:
    return (
        entry["key"] == "tracked_stats" and isinstance(entry["value"], dict) and "reduced_train_loss" in entry["value"]
    )


def step_places(log: Log) -> list[int]:
    """Where the records of steps stand."""
    return [number for number, entry in enumerate(log) if _is_step(entry)]


def reading_places(log: Log) -> list[int]:
    """Where the records of steps stand; evaluations, where a log has none of those."""
    return step_places(log) or [number for number, entry in enumerate(log) if entry["key"] == "eval_accuracy"]


def _with_stats(log: Log, **stats: float) -> Log:
    for number in step_places(log):
        log[number]["value"].update(stats)
    return log


def _scaled_times(log: Log, factor: float) -> Log:
    for number in step_places(log):
        log[number]["value"]["train_step_time"] *= factor
    return log


def first_of(log: Log, key: str) -> Entry:
    """The first record with a key."""
    return next(entry for entry in log if entry["key"] == key)


# --- times


@on_entries("TS-TEL-017", "TS-TEL-019", "TS-TEL-024", "TS-TEL-037")
def reversed_step_times(log: Log) -> Log:
    """The times of steps stand in reverse."""
    places = reading_places(log)
    for number, time in zip(places, [log[place]["time_ms"] for place in reversed(places)], strict=True):
        log[number]["time_ms"] = time
    return log


@on_entries("TS-TEL-043", "TS-TEL-044")
def negative_time_to_train(log: Log) -> Log:
    """The run stops an hour before it starts."""
    first_of(log, "run_stop")["time_ms"] = first_of(log, "run_start")["time_ms"] - 3_600_000
    return log


@on_entries("TS-TEL-021", "TS-TEL-037", "TS-TEL-033")
def hole_of_ten_hours(log: Log) -> Log:
    """Nothing is written for ten hours in the middle of the run."""
    begin = reading_places(log)[len(reading_places(log)) // 2]
    for entry in log[begin:]:
        entry["time_ms"] += 36_000_000
    return log


@on_entries("TS-TEL-021", "TS-TEL-031")
def hole_of_400_seconds(log: Log) -> Log:
    """The records of steps are missing for 400 s."""
    places = reading_places(log)
    begin = log[places[len(places) // 3]]["time_ms"]
    gone = {number for number in places if begin < log[number]["time_ms"] < begin + 400_000}
    return [entry for number, entry in enumerate(log) if number not in gone]


@on_entries("TS-TEL-016", "TS-TEL-001")
def times_as_text(log: Log) -> Log:
    """Times are written in quotation marks."""
    for entry in log:
        entry["time_ms"] = str(entry["time_ms"])
    return log


@on_entries("TS-TEL-016", "TS-TEL-013", "TS-TEL-037")
def times_in_seconds(log: Log) -> Log:
    """Times are written in seconds."""
    for entry in log:
        entry["time_ms"] //= 1000
    return log


@on_entries("TS-TEL-016")
def half_of_the_starts_an_hour_back(log: Log) -> Log:
    """Every second process starts an hour before the others, where several say when they do."""
    for key in ("init_start", "cache_clear"):
        starts = [entry for entry in log if entry["key"] == key]
        for entry in starts[::2] if len(starts) > 1 else ():
            entry["time_ms"] -= 3_600_000
    return log


@on_entries(beyond="no requirement bounds how long a job may take to start")
def initialization_of_a_day(log: Log) -> Log:
    """Initialization takes a day longer."""
    start = log.index(first_of(log, "init_stop"))
    for entry in log[start:]:
        entry["time_ms"] += 86_400_000
    return log


# --- values


@on_entries("TS-TEL-015")
def loss_not_a_number(log: Log) -> Log:
    """All losses are not a number."""
    return _with_stats(log, reduced_train_loss=float("nan"))


@on_entries("TS-TEL-012")
def negative_step_time(log: Log) -> Log:
    """All optimizer steps take -5 s."""
    return _with_stats(log, train_step_time=-5.0)


@on_entries("TS-TEL-012", "TS-TEL-042", "TS-TEL-015", "TS-TEL-001")
def loss_not_a_number_and_negative_times(log: Log) -> Log:
    """All losses are not a number and all optimizer steps take -5 s."""
    return _with_stats(log, reduced_train_loss=float("nan"), train_step_time=-5.0)


@on_entries("TS-TEL-013", "TS-TEL-037")
def step_time_in_milliseconds(log: Log) -> Log:
    """Times of steps are a thousand times too large."""
    return _scaled_times(log, 1000)


@on_entries("TS-TEL-013", "TS-TEL-037")
def step_time_in_kiloseconds(log: Log) -> Log:
    """Times of steps are a thousand times too small."""
    return _scaled_times(log, 1e-3)


@on_entries("TS-TEL-026")
def loss_constant_zero(log: Log) -> Log:
    """The loss is 0 throughout."""
    return _with_stats(log, reduced_train_loss=0.0)


@on_entries("TS-TEL-026")
def values_frozen(log: Log) -> Log:
    """Loss and time of steps do not move any more from the middle on."""
    places = reading_places(log)
    for number in places[len(places) // 2 :]:
        log[number]["value"] = copy.deepcopy(log[places[len(places) // 2]]["value"])
    return log


@on_entries("TS-TEL-031", "TS-TEL-024")
def steps_go_back(log: Log) -> Log:
    """The count of steps and samples falls by a hundred optimizer steps in the middle."""
    places = step_places(log)
    for number in places[len(places) // 2 :]:
        place = log[number]["metadata"]
        size = place["samples_count"] / (place["step"] + 1)
        place["samples_count"] -= 100 * size
        place["step"] -= 100
    return log


@on_entries(beyond="settings of a plan are judged in the plan, and a log does not say how many ranks there are")
def impossible_parallel_degree(log: Log) -> Log:
    """The tensor-parallel degree is 1,000,003."""
    entry = copy.deepcopy(first_of(log, "seed"))
    entry.update(key="tensor_parallel_degree", value=1_000_003)
    kept = [other for other in log if other["key"] != "tensor_parallel_degree"]
    kept.insert(kept.index(first_of(kept, "seed")), entry)
    return kept
