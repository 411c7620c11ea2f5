"""Judges the end of a log of MLPerf: whether an evaluation reaches the target, and whether reports come to the end."""

from __future__ import annotations

from collections.abc import Iterator

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.mllog.units import Entry, is_report

_AT_LEAST = {
    "bert": 0.706,
    "dlrm": 0.8025,
    "dlrm_dcnv2": 0.80275,
    "gnn": 0.72,
    "resnet": 0.759,
    "retinanet": 0.34,
    "rgat": 0.72,
    "ssd": 0.23,
    "unet3d": 0.908,
}
_AT_MOST = {
    "deepseekv3_671b": 3.6,
    "flux1": 0.586,
    "gpt3": 2.69,
    "gpt_oss_20b": 3.34,
    "llama2_70b_lora": 0.925,
    "llama31_405b": 5.6,
    "llama31_8b": 3.3,
    "rnnt": 0.058,
}
"""What one `eval_accuracy` reaches in a run that succeeds, by benchmark; of several rounds the target that is easiest.
Source: mlcommons/logging@7bbf792, ATLEAST_ONE_CHECK in compliance_checker/training_0.7.0 to 6.1.0, closed division."""
_STOPS = ("epoch_stop", "block_stop")
_FEWEST = 3
"""Evaluations with reports before them, from which an evaluation without one is an exception."""


class Result:
    """The evaluations of one log, and the reports between them."""

    def __init__(self) -> None:
        self._benchmark = self._division = ""
        self._best: float | None = None
        self._num_evaluations = 0
        self._beyond: tuple[int, float] | None = None
        """The first evaluation above 1, and where it is."""
        self._success: int | None = None
        self._reports: list[int] = []
        """Reports before each evaluation, since the one before it."""
        self._num_reports = 0
        self._last_report = 0
        self._stops: dict[str, list[int]] = {}
        """Reports after each stop of a kind, until the next; the first number is of those before the first stop."""
        self._last_stop = 0

    def take(self, entry: Entry) -> None:
        """Take an entry."""
        if entry.key == "submission_benchmark":
            self._benchmark = str(entry.value)
        elif entry.key == "submission_division":
            self._division = str(entry.value)
        elif entry.key == "eval_accuracy":
            self._evaluated(entry.offset, fit.number(entry.value))
        elif entry.key == "train_loss" or is_report(entry):
            self._num_reports += 1
            self._last_report = entry.offset
            for key in _STOPS:
                self._stops.setdefault(key, [0])[-1] += 1
        elif entry.key in _STOPS:
            self._stops.setdefault(entry.key, [0]).append(0)
            self._last_stop = entry.offset
        elif entry.key == "run_stop" and entry.metadata.get("status") == "success":
            self._success = entry.offset

    def _evaluated(self, offset: int, accuracy: float | str | None) -> None:
        self._num_evaluations += 1
        self._reports.append(self._num_reports)
        self._num_reports = 0
        if isinstance(accuracy, float):
            self._beyond = self._beyond or ((offset, accuracy) if accuracy > 1 else None)
            better = min if self._benchmark in _AT_MOST else max
            self._best = accuracy if self._best is None else better(self._best, accuracy)

    def end(self) -> Iterator[Found]:
        """Results that the end of the log contradicts."""
        yield from self._target()
        yield from self._percent()
        yield from self._silence()
        yield from self._stop()

    def _target(self) -> Iterator[Found]:
        """A success that no evaluation shows."""
        name, best = self._benchmark, self._best
        target = _AT_LEAST.get(name, _AT_MOST.get(name))
        if self._success is None or best is None or target is None or self._division == "open":
            return
        is_reached = best >= target if name in _AT_LEAST else best <= target
        if not is_reached:
            side = "at least" if name in _AT_LEAST else "at most"
            message = (
                f"run_stop says success, and none of {self._num_evaluations:,} eval_accuracy is {side} {target:g}, the "
                f"target of {name}: the best is {best:.6g}"
            )
            help_text = "write each evaluation, the last one too, or the status aborted"
            yield self._success, Refusal(message, help_text, "absent")

    def _percent(self) -> Iterator[Found]:
        """An evaluation above 1, where the metric of the benchmark is a fraction."""
        target = _AT_LEAST.get(self._benchmark)
        if self._beyond is not None and target is not None:
            offset, accuracy = self._beyond
            message = f"eval_accuracy is {accuracy:.6g}, and the metric of {self._benchmark} is a fraction of at most 1"
            yield (
                offset,
                Refusal(message, f"write it as the target of {target:g} is written, and not in percent", "value"),
            )

    def _stop(self) -> Iterator[Found]:
        """A report after each stop but the last."""
        for key, (before, *after) in self._stops.items():
            if not before and len(after) > _FEWEST and all(after[:-1]) and not after[-1]:
                message = f"a report of training follows each of {len(after) - 1} {key}, and none the last"
                yield self._last_stop, Refusal(message, "write reports until the run stops", "silence")

    def _silence(self) -> Iterator[Found]:
        """Reports before each evaluation but the last."""
        num_silent = next((n for n, reports in enumerate(reversed(self._reports)) if reports), len(self._reports))
        before = self._reports[: len(self._reports) - num_silent]
        if num_silent and len(before) >= _FEWEST and all(before):
            last = "the last one has" if num_silent == 1 else f"the last {num_silent} have"
            message = (
                f"each of {len(before)} evaluations follows a report of training (tracked_stats or train_loss), and "
                f"{last} none before {'it' if num_silent == 1 else 'them'}"
            )
            yield self._last_report, Refusal(message, "write reports until the run stops", "silence")
