"""Decides once for a log of MLPerf what its steps count, and whether its evaluations are offline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Literal, NamedTuple

from trainspec_validate.telemetry.formats import fit

Unit = Literal["count", "index", "samples", "tokens", "epochs", "unknown"]
MAX = 10**18
STEP_TIMES = ("train_step_time", "train_step_timing in s")
_TOLERANCE = 1.15
"""Factor by which counts may exceed what the clock allows: times are rounded, and the first steps differ."""
_LEAST_SHARE = 0.3
"""Share of the time in which a log trains, at least: evaluations take the rest."""
_LEAST_AGREED = 0.4
"""Share of the statistics whose step and samples agree by one reading, from which the others contradict it."""
_TRAINING = ("block_start", "block_stop", "tracked_stats", "train_loss", "epoch_stop")
_EVALUATED = frozenset({"eval_start", "eval_accuracy"})
_SLACK_US = 10_000
"""Times this close count as equal: clocks of ranks differ, and logs round to milliseconds."""


class Entry(NamedTuple):
    """One entry of the log, as it is written."""

    offset: int
    key: str
    time_us: int
    value: Any
    metadata: Mapping[str, Any]
    event_type: object

    @property
    def step(self) -> int | None:
        """The position that it states as a step."""
        return fit.whole(self.metadata.get("step", self.metadata.get("step_num")), MAX)

    @property
    def epoch(self) -> int | None:
        """The position that it states as an epoch, where it is whole."""
        return fit.whole(self.metadata.get("epoch_num"), MAX)

    @property
    def samples(self) -> int | None:
        """The position that it states in samples."""
        return fit.whole(self.metadata.get("samples_count"), MAX)


@dataclass(frozen=True, slots=True)
class Units:
    """Unit of the steps in a log."""

    step: Unit | None = None
    """Unit of the steps of statistics; None where no statistic has one."""
    epoch: Unit | None = None
    """Unit of the epochs of evaluations; None where steps next to them do not say."""
    can_be_tokens: bool = True
    """Whether the epochs of all evaluations are whole optimizer steps in tokens."""
    trained_us: int | None = None
    """When training ended, where evaluations run on saved states after it; the stated end may be before."""

    @property
    def is_offline(self) -> bool:
        """Whether evaluations run on saved states after training."""
        return self.trained_us is not None


def units_of(entries: Sequence[Entry]) -> Units:
    """Decide by the settings of the job, the positions that entries state, and the clock together."""
    batch, length, train = (_setting(entries, k) for k in ("global_batch_size", "max_sequence_length", "train_samples"))
    reports = [each for each in entries if is_report(each) and each.step is not None]
    detailed = [each for each in reports if not sums_up(each)]
    reports = detailed if len(detailed) > 1 else reports
    epochs = [(each.step, n) for each in entries if each.key in _EVALUATED and (n := each.epoch)]
    trained_us = _trained_us(entries)
    return Units(
        _step_unit(entries if trained_us is None else (), reports, batch, length, train),
        _epoch_unit([(step, epoch) for step, epoch in epochs if step], batch, length),
        all(epoch % (batch * length or 1) == 0 for _, epoch in epochs),
        trained_us,
    )


def _setting(entries: Sequence[Entry], key: str) -> int:
    return next((fit.whole(each.value, 10**12) or 0 for each in reversed(entries) if each.key == key), 0)


def is_report(entry: Entry) -> bool:
    """Whether an entry is a statistic of training, not of the start or of an evaluation."""
    if entry.key != "tracked_stats" or not isinstance(entry.value, dict):
        return False
    return any(
        name.startswith(("train", "throughput", "reduced", "loss")) and "time_to" not in name for name in entry.value
    )


def sums_up(entry: Entry) -> bool:
    """Whether a statistic is of a block, next to those of updates."""
    return "throughput" in entry.value


def _step_unit(entries: Sequence[Entry], reports: Sequence[Entry], batch: int, length: int, train: int) -> Unit | None:
    steps = [step for each in reports if (step := each.step) is not None]
    if not steps:
        return None
    paired = [(each.step, each.samples) for each in reports if each.step is not None and each.samples is not None]
    if paired and batch:
        return _of_pairs(paired, batch)
    sizes: dict[Unit, float] = {"count": batch or 1, "samples": 1}
    if length:
        sizes["tokens"] = 1 / length
    if train and all(sums_up(each) for each in reports) and steps[0] <= 1:
        sizes["epochs"] = train
    if batch <= 1:
        sizes.pop("samples")
    possible: list[Unit] = [unit for unit in sizes if _divides(unit, steps, batch, batch * length)]
    placed = [unit for unit in possible if _fits_positions(entries, sizes[unit])]
    if len(placed) == 1 and len(possible) > 1:
        return _count_or_index(steps) if placed == ["count"] else placed[0]
    fitting = [unit for unit in placed if _fits_clock(reports, sizes[unit], batch)]
    if len(fitting) > 1:
        fitting = _by_first(fitting, steps, batch, batch * length)
    if fitting == ["count"]:
        return _count_or_index(steps)
    return fitting[0] if len(fitting) == 1 else "unknown"


def readings(entries: Sequence[Entry], reports: Sequence[Entry], batch: int, length: int) -> list[Unit]:
    """Units that the steps of reports of steps can have, by the positions that other entries state in samples."""
    steps = [step for each in reports if (step := each.step) is not None]
    sizes: dict[Unit, float] = {"count": batch or 1, **({"samples": 1} if batch > 1 else {})}
    if length:
        sizes["tokens"] = 1 / length
    fitting = (unit for unit in sizes if _divides(unit, steps, batch, batch * length))
    return [unit for unit in fitting if _fits_positions(entries, sizes[unit])]


def _of_pairs(paired: Sequence[tuple[int | None, int | None]], batch: int) -> Unit:
    """What steps count that stand next to samples."""
    readings: tuple[tuple[Unit, int, int], ...] = (("samples", 1, 0), ("count", batch, 0), ("index", batch, 1))
    shares = {
        unit: sum(samples == ((step or 0) + ahead) * size for step, samples in paired) / len(paired)
        for unit, size, ahead in readings
    }
    best = max(shares, key=lambda unit: shares[unit])
    others = max(share for unit, share in shares.items() if unit != best)
    # Where few pairs differ from the rest, they are wrong; the step and the samples of each are kept as they are.
    return best if shares[best] == 1 or (shares[best] >= _LEAST_AGREED and others <= shares[best] / 2) else "unknown"


def _epoch_unit(paired: Sequence[tuple[int, int]], batch: int, length: int) -> Unit | None:
    """What epochs count that stand next to steps, which are optimizer steps outside of statistics."""
    sizes: dict[Unit, int] = {"samples": batch, "tokens": batch * length}
    fitting = [unit for unit, size in sizes.items() if size and all(e == s * size for s, e in paired)]
    return fitting[0] if paired and len(fitting) == 1 else None


def _divides(unit: Unit, steps: Sequence[int], batch: int, tokens: int) -> bool:
    size = {"samples": batch, "tokens": tokens}.get(unit, 1)
    return all(step % size == 0 for step in steps) if size else False


def _fits_positions(entries: Sequence[Entry], size: float) -> bool:
    """No report is behind a position before it, or ahead of one after it."""
    low, waiting = 0.0, 0.0
    for each in entries:
        position = each.samples if each.key in {"eval_accuracy", "train_loss", "eval_start"} else None
        if position is not None:
            if waiting > position * _TOLERANCE:
                return False
            low, waiting = max(low, float(position)), 0.0
        elif is_report(each) and each.step:
            reached = each.step * size
            if reached * _TOLERANCE < low:
                return False
            waiting = max(waiting, reached)
    return True


def _fits_clock(reports: Sequence[Entry], size: float, batch: int) -> bool:
    """Samples between two reports against the time between them; true where the log does not tell."""
    ratios = []
    for before, after in pairwise(reports):
        seconds, grown = (after.time_us - before.time_us) / 1e6, ((after.step or 0) - (before.step or 0)) * size
        rate = _samples_per_second(after, batch)
        if seconds > 0 and grown > 0 and rate:
            ratios.append(grown / (seconds * rate))
    return not ratios or _LEAST_SHARE <= median(ratios) <= _TOLERANCE


def _samples_per_second(report: Entry, batch: int) -> float:
    seconds = next((fit.number(report.value[name]) for name in STEP_TIMES if name in report.value), None)
    if isinstance(seconds, float) and seconds > 0 and batch:
        return batch / seconds
    rate = fit.number(report.value.get("throughput"))
    return rate if isinstance(rate, float) and rate > 0 else 0.0


def _by_first(fitting: Sequence[Unit], steps: Sequence[int], batch: int, tokens: int) -> list[Unit]:
    """Of several readings the one in which each report is of one optimizer step."""
    each_one: dict[Unit, int] = {"tokens": tokens, "samples": batch, "count": 1}
    distances = {after - before for before, after in pairwise(steps)} | {steps[0]}
    return [unit for unit in fitting if distances - {0} == {each_one.get(unit)}]


def _count_or_index(steps: Sequence[int]) -> Unit:
    """Whether steps count from 1, or from 0: by the first of them and the interval of reports."""
    counts = Counter(after - before for before, after in pairwise(steps) if after > before)
    interval = max(counts, key=lambda size: (counts[size], -size), default=1)
    if interval > 1:
        return "count" if steps[0] <= 1 or steps[0] % interval == 0 else _indexed(steps[0], interval)
    return {0: "index", 1: "count"}.get(steps[0], "unknown")  # type: ignore[return-value]


def _indexed(first: int, interval: int) -> Unit:
    return "index" if (first + 1) % interval == 0 else "unknown"


def _trained_us(entries: Sequence[Entry]) -> int | None:
    """When training ended in a log whose evaluations all follow it, while its end lies before them; else None.

    Stable Diffusion is evaluated so, and its run ends, by its rules, at the position that reached the target.
    """
    evaluated = [each for each in entries if each.key == "eval_start"]
    trained = [each.time_us for each in entries if each.key in _TRAINING]
    ended = [each.time_us for each in entries if each.key == "run_stop"]
    if not evaluated or not trained or not ended or any(each.samples is None for each in evaluated):
        return None
    times = [each.time_us for each in evaluated]
    is_offline = max(trained) <= min(times) + _SLACK_US and ended[-1] + _SLACK_US < max(times)
    return max(trained) if is_offline else None
