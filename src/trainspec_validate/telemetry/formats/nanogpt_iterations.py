"""Reads the log of nanoGPT: lines with `iter` and a loss, and lines with `step` and the losses of an evaluation."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import cast

from trainspec_validate.documents.types.stream import AttributeValue, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import INDEX, Found, Refusal
from trainspec_validate.telemetry.formats.step_rows import StepRows
from trainspec_validate.telemetry.formats.transcript import Transcript

_ITERATION = re.compile(
    r"iter (?P<step>[0-9]{1,12}): loss (?P<loss>[^ ,]{1,40})(?P<bits> BPC)?, "
    r"time (?P<time>[0-9.]{1,20})ms(?P<rest>[, ].*)?"
)
_EVALUATION = re.compile(
    r"step (?P<step>[0-9]{1,12}): train loss (?P<train>[^ ,]{1,40})(?P<bits> BPC)?, "
    r"val loss (?P<val>[^ ,]{1,40})(?: BPC)?"
)
_REPORT = re.compile(r"(?:iter|step) [0-9]{1,12}:")
_CONTROL = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_START = re.compile(r"(?<![^\s\]:|>])(?:iter [0-9]{1,12}: loss|step [0-9]{1,12}: train loss)\b")
"""Begins a report that a launcher wrote its rank or a time before."""
_LOSS = "train.loss.mean{train.loss.name=total}"
_EVALUATED = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=total}}"
_DURATION = "train.step.duration"
_NEAR_START = 10
"""Iterations up to which a first one is of the start of the program; an excerpt can begin with any."""
_EXAMPLE = "iter 10: loss 3.0, time 250.00ms, mfu 30.00%"


class Reader:
    """Reads the lines of one log; those that report no iteration and no evaluation are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._rows = StepRows(transcript, is_console=True)
        self._num_completed = 0
        self._is_first = True
        self._has_other = False
        """Whether a line was read that reports nothing, as a program prints them when it starts."""
        self._has_evaluated = False
        """Whether an evaluation was reported since the last iteration, whose time is in that of the next one."""
        transcript.clock = "none"

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        text = _report(text)
        iteration, evaluation = _ITERATION.fullmatch(text), _EVALUATION.fullmatch(text)
        if iteration:
            yield from self._iteration(offset, iteration)
        elif evaluation:
            yield from self._evaluation(offset, evaluation)
        elif _REPORT.match(text):
            yield offset, Refusal("the line has no step, loss or time", _EXAMPLE, "value")
        else:
            self._has_other = True
            self._transcript.lose("text", "text", "the file has lines that report no step, passed over", offset)

    def _iteration(self, offset: int, match: re.Match[str]) -> Iterator[Found]:
        loss, milliseconds, index = fit.number(match["loss"]), fit.number(match["time"]), fit.step(match["step"])
        if loss is None or not isinstance(milliseconds, float) or index is None:
            yield offset, Refusal("the line has no step, loss or time", _EXAMPLE, "value")
            return
        lose = self._transcript.lose
        lose("time", "time", "lines have no times; each counts as a second", offset)
        self._transcript.first_step = 1
        lose("step", "step", INDEX, offset)
        if "mfu" in (match["rest"] or ""):
            lose("meaning", "mfu", "mfu is of the peak of an A100, whatever the accelerator is", offset)
        values: dict[str, MetricValue] = {_LOSS: self._nats(offset, match, loss)}
        if self._has_evaluated:
            lose("meaning", _DURATION, "the time of an iteration has that of the evaluation before it", offset)
        else:
            values[_DURATION] = milliseconds / 1000
        is_start = self._is_first and (self._has_other or index <= _NEAR_START)
        warm: dict[str, AttributeValue] = {"train.step.warmup": True} if is_start else {}
        self._is_first = self._has_evaluated = False
        self._num_completed = index + 1
        yield from self._rows.row(offset, None, index + 1, values, trained=True, a=warm)

    def _nats(self, offset: int, match: re.Match[str], loss: fit.Number) -> MetricValue:
        """A loss of a line, which some versions print in bits per character."""
        if match["bits"]:
            self._transcript.lose("meaning", "BPC", "losses in bits per character are converted to nats", offset)
            loss = loss * math.log(2) if isinstance(loss, float) else loss
        return cast("MetricValue", loss)

    def _evaluation(self, offset: int, match: re.Match[str]) -> Iterator[Found]:
        step = fit.step(match["step"])
        told = {name: fit.number(match[name]) for name in ("train", "val")}
        losses = {
            _EVALUATED.format(name): self._nats(offset, match, value)
            for name, value in told.items()
            if value is not None
        }
        if step is None or len(losses) < len(told):
            yield offset, Refusal("the line has no step or loss", "step 10: train loss 3.0, val loss 3.1", "value")
            return
        self._has_evaluated = True
        if step < self._num_completed:
            message = "an evaluation of an earlier step; inferred: a restart, which begins an attempt"
            self._rows.restart(offset, message)
            self._is_first = self._has_other = True
        yield from self._rows.row(offset, None, step, losses, trained=False)

    def end(self) -> Iterator[Found]:
        """The last rows, which may wait."""
        yield from self._rows.end()


def _report(text: str) -> str:
    r"""The last report of a line, without colours and without what a launcher wrote before it; else the line.

    >>> _report("0: iter 10: loss 3.0, time 250.00ms"), _report("\x1b[0mstep 5: train loss 3.0, val loss 3.1")
    ('iter 10: loss 3.0, time 250.00ms', 'step 5: train loss 3.0, val loss 3.1')
    """
    text = _CONTROL.sub("", text).rpartition("\r")[2].strip() if "\x1b" in text or "\r" in text else text.strip()
    found = None
    for found in _START.finditer(text):  # noqa: B007
        pass
    return text[found.start() :] if found else text
