"""Reads the log of DeepSpeed: lines with step= and skipped=, those of its timer and those of its pipeline engine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from trainspec_validate.documents.types.stream import AttributeValue, MetricValue
from trainspec_validate.telemetry.formats import fit, keys, pipeline_lines
from trainspec_validate.telemetry.formats.console import RATE, Console
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.printed_numbers import NUMBER
from trainspec_validate.telemetry.formats.step_rows import Row
from trainspec_validate.telemetry.formats.transcript import Transcript

_HEAD = (
    r"\[(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})[,.](?P<milli>[0-9]{3})\] \[INFO\] "
    r"\[\w{1,40}\.py:[0-9]{1,6}:\w{1,40}\] "
)
_PROGRESS = re.compile(
    _HEAD
    + r"\[Rank 0\] step=(?P<step>[0-9]{1,12}), skipped=(?P<skipped>[0-9]{1,12}), lr=\[(?P<rates>[^\]\n]{0,2000})\]"
)
_TIMER = re.compile(
    _HEAD + r"(?:epoch=[0-9]{1,9}/micro_step=[0-9]{1,12}/global_step=|[0-9]{1,9}/)(?P<step>[0-9]{1,12}), "
    rf"RunningAvgSamplesPerSec={NUMBER}, CurrSamplesPerSec=(?P<rate>{NUMBER})"
)
_TOGETHER_US = 5_000_000
"""The timer prints its line right after that of the step; its own count begins again with the process."""
_SECOND_US = 1_000_000
_MOST_GROUPS = 100
_MOST_ENGINES = 8
"""Engines of one process, each of which reports a step: an actor and a critic are two."""
_START = "[Rank 0] DeepSpeed info: version="
"""What each process writes when its engine is initialized; several engines of one process are before its first step."""
_LAUNCH = "] WORLD INFO DICT: "
"""What the launcher writes before it starts the processes of a node."""
_OF_ANOTHER = "the line repeats a step, as for another engine, such as that of a critic, and is left out"
_WARM: Mapping[str, AttributeValue] = {"train.step.warmup": True}
_SKIPPED = keys.join("train.step.skipped", {"train.skip.reason": "overflow"})


class Reader(Console):
    """Reads the log of DeepSpeed, one line after another."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, "deepspeed")
        transcript.takes_skips_off = True
        self._last: tuple[int, int] | None = None
        self._counted = -1
        """Steps of the last line, with those that were skipped."""
        self._skipped = 0
        """Steps of the last line that were skipped."""
        self._is_launched = False
        """Whether processes were launched since the last engine was initialized."""
        self._num_again = 0
        """Lines in a row with the step of the one before."""
        self._is_of_another = False
        """Whether the last line with a step was of another engine than the one that is read."""
        self._held: list[Row] = []
        """The row of a step whose pipeline engine prints its loss in a later line, and those of the timer after it."""
        self._reported: tuple[int, int] | None = None
        """Steps and time of the last report of a pipeline engine in this process; 0 where lines have no times."""
        self._num_untimed = 0
        """Reports of a pipeline engine before any line with step=, which has the time."""
        self._is_pipelined = False

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        step = _PROGRESS.search(text)
        timer = None if step else _TIMER.search(text)
        found = step or timer
        reports = [*pipeline_lines.reports(text)]
        for report in reports:
            yield from self._report(offset, report)
        if pipeline_lines.is_unread(text, len(reports)):
            self._unread(offset)
        elif found is None and not reports:
            yield from self._other(offset, text)
        if found is None:
            return
        time_us = self.time_of(offset, found)
        if time_us is None:
            yield offset, Refusal("the line has no time that is one", "2024-05-31 12:00:00,000", "time")
        elif self._num_untimed > 1:
            message = "lines with a time come after reports of losses that have none, and are left out"
            self.transcript.lose("time", "step", message, offset)
        elif step:
            yield from self._progress(offset, time_us, step)
        elif timer and not self._is_of_another:
            yield from self._pace(offset, time_us, timer)

    def _other(self, offset: int, text: str) -> Iterator[Found]:
        """The refusal of a line that is cut; a line of another program may say that processes start."""
        is_cut = "[Rank 0] step=" in text or "RunningAvgSamplesPerSec=" in text
        if is_cut and text.startswith("["):
            message = "the line has no time, step, skipped and lr"
            yield offset, Refusal(message, "[Rank 0] step=10, skipped=0, lr=[0.1]", "value")
            return
        self._is_launched = self._is_launched or _LAUNCH in text
        # Before the first step of a process it is a further engine, such as a reference model.
        if _START in text and (self._counted > 0 or self._is_launched):
            self._is_launched = False
            self._counted, self._skipped, self._is_of_another = -1, 0, False
            self._reported = None
            yield from self._release()
            self.rows.restart(offset, "DeepSpeed is initialized again; inferred: a restart, which begins an attempt")
        self.passed(offset)

    def _progress(self, offset: int, time_us: int, found: re.Match[str]) -> Iterator[Found]:
        step, skipped = int(found["step"]), int(found["skipped"])
        if skipped > step:
            yield (
                offset,
                Refusal(f"{skipped:,} of {step:,} steps were skipped", "at most as many as there were", "value"),
            )
            return
        self._is_of_another = step == self._counted
        self._num_again = self._num_again + 1 if self._is_of_another else 0
        if self._num_again == _MOST_ENGINES:
            message = f"step={step:,} is reported {_MOST_ENGINES + 1} times in a row, and no step is completed"
            yield (
                offset,
                Refusal(message, "write each completed step once; find why training makes no progress", "step"),
            )
        if self._is_of_another:
            self.transcript.lose("meaning", "engine", _OF_ANOTHER, offset)
            return
        # A count of skipped steps that falls is wrong, and no step was executed again.
        num_skipped = max(skipped, self._skipped) if step > self._counted >= 0 else skipped
        self._counted, self._skipped = step, num_skipped
        values: dict[str, MetricValue] = {_SKIPPED: float(skipped), **self._rates(offset, found["rates"])}
        self.transcript.lose("step", "step", "step counts skipped ones too; they are taken off", offset)
        if self._last is None and self._held:
            self._drop_untimed()
        yield from self._release()
        self._last = (time_us, step - num_skipped)
        row = self.rows.made(offset, time_us, step - num_skipped, values, trained=True)
        if self._is_pipelined:
            self._held.append(row)
        else:
            yield from self.rows.write(row)

    def _rates(self, offset: int, text: str) -> dict[str, MetricValue]:
        """The learning rate, or those of groups of parameters that differ."""
        rates = [fit.number(part) for part in text.split(",")[:_MOST_GROUPS] if part.strip()]
        whole = [rate for rate in rates if rate is not None]
        if not whole or len(whole) < len(rates):
            self.transcript.lose("value", "lr", f"lr has values that are no numbers, such as {text[:40]!r}", offset)
            return {}
        if len(set(whole)) == 1:
            return {RATE: whole[0]}  # type: ignore[dict-item]
        names = (keys.join(RATE, {"train.parameter.group": str(group)}) for group in range(len(whole)))
        return dict(zip(names, whole, strict=True))  # type: ignore[arg-type]

    def _pace(self, offset: int, time_us: int, found: re.Match[str]) -> Iterator[Found]:
        values = self.take(offset, {"CurrSamplesPerSec": found["rate"]})
        rate = fit.number(found["rate"])
        if rate is not None:
            self.transcript.tally.read.add("CurrSamplesPerSec")
            values["train.sample.rate"] = rate  # type: ignore[assignment]
        last = self._last
        step = last[1] if last and 0 <= time_us - last[0] <= _TOGETHER_US else None
        row = self.rows.made(offset, time_us, step, values, trained=False)
        if self._held:
            self._held.append(row)
        else:
            yield from self.rows.write(row)

    def _report(self, offset: int, report: pipeline_lines.Report) -> Iterator[Found]:
        """The record of a report of the pipeline engine, whose step a line with step= has just completed."""
        self._is_pipelined = True
        if self._last is None or self._num_untimed > 1:
            yield from self._report_untimed(offset, report)
        elif report.step != self._counted:
            self._unread(offset)
        elif self._reported and self._reported[0] == report.step:
            self.transcript.lose("meaning", "engine", _OF_ANOTHER, offset)
        else:
            time_us, step = self._last
            before, self._reported = self._reported, (report.step, time_us)
            passed = (time_us - before[1]) / _SECOND_US / (report.step - before[0]) if before else None
            values = report.values(self.transcript, offset, passed)
            if any("train.sample.rate" in row.values for row in self._held):
                values.pop("train.sample.rate", None)
            row = self._held[0] if self._held else self.rows.made(offset, time_us, step, {}, trained=False)
            row.values, row.a = {**row.values, **values}, {} if before else _WARM
            yield from self._release() if self._held else self.rows.write(row)

    def _report_untimed(self, offset: int, report: pipeline_lines.Report) -> Iterator[Found]:
        """The record of a report in a log that has no lines with step=; the first waits for such a line."""
        before, self._reported = self._reported, (report.step, 0)
        a = {} if before and before[0] < report.step else _WARM
        values = report.values(self.transcript, offset, None)
        self._num_untimed += 1
        row = self.rows.made(offset, None, report.step, values, trained=True, a=a)
        self._held.append(row)
        if self._num_untimed > 1:
            yield from self._release_untimed()

    def _release_untimed(self) -> Iterator[Found]:
        """Write the rows of a log without lines with step=, which say times and skipped steps."""
        for row in self._held:
            self.untimed(row.offset)
            message = "steps count skipped ones too, and the log does not say which"
            self.transcript.lose("step", "step", message, row.offset)
        self.transcript.clock = "none"
        yield from self._release()

    def _drop_untimed(self) -> None:
        """Leave out the report that a log begins with, whose line with step= and a time is cut off."""
        row = self._held.pop()
        is_finite = not any(isinstance(value, str) for value in row.values.values())
        message = "a loss comes before the first line with a time, and is left out"
        self.transcript.lose("time" if is_finite else "unread", "losses", message, row.offset)

    def _unread(self, offset: int) -> None:
        """Count a report of the pipeline engine that is cut, or of no step that a line with step= completed."""
        self.transcript.lose("unread", "reports", "reports of a step and a loss that are not read", offset)

    def _release(self) -> Iterator[Found]:
        """Write the rows that are held."""
        held, self._held = self._held, []
        for row in held:
            yield from self.rows.write(row)

    def end(self) -> Iterator[Found]:
        """The rows that are held, and those that wait."""
        yield from self._release() if self._last else self._release_untimed()
        yield from super().end()
