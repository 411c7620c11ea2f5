"""Reads the log of DeepSpeed: lines with step= and skipped=, and those of its timer."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.telemetry.formats import fit, keys
from trainspec_validate.telemetry.formats.console import RATE, Console
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.printed_numbers import NUMBER
from trainspec_validate.telemetry.formats.transcript import Transcript

_HEAD = r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[,.](?P<milli>\d{3})\] \[INFO\] \[\w{1,40}\.py:\d{1,6}:\w{1,40}\] "
_PROGRESS = re.compile(
    _HEAD + r"\[Rank 0\] step=(?P<step>\d{1,12}), skipped=(?P<skipped>\d{1,12}), lr=\[(?P<rates>[^\]\n]{0,2000})\]"
)
_TIMER = re.compile(
    _HEAD + r"(?:epoch=\d{1,9}/micro_step=\d{1,12}/global_step=|\d{1,9}/)(?P<step>\d{1,12}), "
    rf"RunningAvgSamplesPerSec={NUMBER}, CurrSamplesPerSec=(?P<rate>{NUMBER})"
)
_TOGETHER_US = 5_000_000
"""The timer prints its line right after that of the step; its own count begins again with the process."""
_MOST_GROUPS = 100
_MOST_ENGINES = 8
"""Engines of one process, each of which reports a step: an actor and a critic are two."""
_START = "[Rank 0] DeepSpeed info: version="
"""What each process writes when its engine is initialized; several engines of one process are before its first step."""
_LAUNCH = "] WORLD INFO DICT: "
"""What the launcher writes before it starts the processes of a node."""
_SKIPPED = keys.join("train.step.skipped", {"train.skip.reason": "overflow"})


class Reader(Console):
    """Reads the log of DeepSpeed: lines with step= and skipped=, and those of its timer."""

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

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        step = _PROGRESS.search(text)
        timer = None if step else _TIMER.search(text)
        found = step or timer
        if found is None:
            is_cut = "[Rank 0] step=" in text or "RunningAvgSamplesPerSec=" in text
            if is_cut and text.startswith("["):
                yield (
                    offset,
                    Refusal(
                        "the line has no time, step, skipped and lr", "[Rank 0] step=10, skipped=0, lr=[0.1]", "value"
                    ),
                )
            else:
                self._is_launched = self._is_launched or _LAUNCH in text
                # Before the first step of a process it is a further engine, such as a reference model.
                if _START in text and (self._counted > 0 or self._is_launched):
                    self._is_launched = False
                    self._counted, self._skipped, self._is_of_another = -1, 0, False
                    self.rows.restart(
                        offset, "DeepSpeed is initialized again; inferred: a restart, which begins an attempt"
                    )
                self.passed(offset)
            return
        time_us = self.time_of(offset, found)
        if time_us is None:
            yield offset, Refusal("the line has no time that is one", "2024-05-31 12:00:00,000", "time")
        elif step:
            yield from self._progress(offset, time_us, step)
        elif timer and not self._is_of_another:
            yield from self._pace(offset, time_us, timer)

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
            message = "the line repeats a step, as for another engine, such as that of a critic, and is left out"
            self.transcript.lose("meaning", "engine", message, offset)
            return
        # A count of skipped steps that falls is wrong, and no step was executed again.
        num_skipped = max(skipped, self._skipped) if step > self._counted >= 0 else skipped
        self._counted, self._skipped = step, num_skipped
        values: dict[str, MetricValue] = {_SKIPPED: float(skipped), **self._rates(offset, found["rates"])}
        self.transcript.lose("step", "step", "step counts skipped ones too; they are taken off", offset)
        self._last = (time_us, step - num_skipped)
        yield from self.rows.row(offset, time_us, step - num_skipped, values, trained=True)

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
        yield from self.rows.row(offset, time_us, step, values, trained=False)
