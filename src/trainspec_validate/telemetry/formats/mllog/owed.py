"""Lists the keys that a log of MLPerf requires, and the kinds of their entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.mllog.units import MAX, Entry

SETTINGS = ("submission_benchmark", "global_batch_size")
"""Entries that a log states once before or while it runs. Source: mlcommons/logging,
compliance_checker/training_5.1.0."""
RESULTS = (("eval_accuracy", "eval_error"), ("block_start", "epoch_start"))
"""Entries that a log of a run that ends holds at least once, each under one of these keys; source: as above,
common.yaml.

Two benchmarks of MLPerf HPC measure an error: mlcommons/logging, hpc_1.0.0/closed_cosmoflow.yaml, closed_oc20.yaml.
"""
_OF_A_RUN = frozenset({"tracked_stats", "eval_accuracy", "eval_error", "block_start", "epoch_start", "eval_start"})
_OF_A_WHOLE_LOG = ("submission_", "init_st", "run_st")
"""Beginnings of keys of which an extract of lines about optimizer steps has none."""
_POSITIONED = frozenset({"tracked_stats", "train_loss", "eval_accuracy"})
"""Entries that are about a position after training has begun."""
_LEAST_POSITIONS = 3
_EDGES = {"INTERVAL_START": "_start", "INTERVAL_END": "_stop"}


def _has_loss(value: object) -> bool:
    """Whether a statistic is of steps: means of blocks and of evaluations have counts of their own."""
    return isinstance(value, dict) and any(name.strip().endswith("loss") for name in value)


@dataclass(slots=True)
class _Positions:
    """The counts of samples in the entries of one key."""

    first: int
    num: int = 0
    largest: int = 0


class Owed:
    """The keys of one log as they come."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._last_stop = -1
        self._positions: dict[str, _Positions] = {}

    def take(self, offset: int, entry: Entry) -> Iterator[Found]:
        """Take an entry; the refusal of one whose kind is the opposite of what its key says, or without its status."""
        key, event_type, metadata = entry.key, entry.event_type, entry.metadata
        if key == "run_stop" and "status" not in metadata:
            yield offset, Refusal("run_stop has no status", "write status: success, or aborted", "absent")
        is_about_updates = key != "tracked_stats" or _has_loss(entry.value)
        if (
            key in _POSITIONED
            and is_about_updates
            and (samples := fit.whole(metadata.get("samples_count"), MAX)) is not None
        ):
            mine = self._positions.setdefault(key, _Positions(offset))
            mine.num += 1
            mine.largest = max(mine.largest, samples)
        if len(self._first) < 10_000:
            self._first.setdefault(key, offset)
        ending = next((each for each in _EDGES.values() if key.endswith(each)), "")
        said = _EDGES.get(event_type) if isinstance(event_type, str) else None
        if ending and said and said != ending:
            kind = next(name for name, each in _EDGES.items() if each == ending)
            yield offset, Refusal(f"{key} is written as {event_type}", f"write {kind}", "interval")

    def end(self) -> Iterator[Found]:
        """The keys that are absent, where the run starts or ends, and counts that stay 0."""
        for key, positions in self._positions.items():
            if positions.num >= _LEAST_POSITIONS and positions.largest == 0:
                message = f"samples_count is 0 in all {positions.num:,} entries {key}, while the run continues"
                yield positions.first, Refusal(message, "count the samples of all steps before the entry", "rate")
        first = self._first
        begun = min((place for key, place in first.items() if key in _OF_A_RUN), default=None)
        start = first.get("run_start", begun)
        if start is None or not any(key.startswith(_OF_A_WHOLE_LOG) for key in first):
            return
        if not {"run_start", "run_stop"} & set(first):
            yield start, Refusal("nothing says when the run starts: no run_start", "write run_start", "absent")
        for key in SETTINGS:
            if key not in first:
                yield start, Refusal(f"the run starts, and the log has no {key}", f"write {key} once", "absent")
        for keys in RESULTS if "run_stop" in first else ():
            if not set(keys) & set(first):
                named = " or ".join(keys)
                yield first["run_stop"], Refusal(f"the run ends, and the log has no {named}", "write it", "absent")
