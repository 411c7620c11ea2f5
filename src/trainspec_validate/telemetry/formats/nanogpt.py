"""Reads the log of modded-nanogpt: lines with step:, the time since some start and often a loss."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.documents.types.stream import AttributeValue, Head, MetricValue
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.items import Found, Refusal
from trainspec_validate.telemetry.formats.transcript import Transcript

_LINE = re.compile(
    r"step:(?P<step>[0-9]{1,12})/[0-9]{1,12}(?: (?P<kind>train|val)_loss:(?P<loss>[^ ]{1,40}))?"
    r" train_time:(?P<time>[0-9.]{1,20})(?P<unit>[^0-9. ]{0,20})"
    r"(?: step_avg:(?P<average>[^ ]{1,40}?)m?s(?= |$))?(?P<rest>.*)"
)
_UNITS_US = {"ms": 1_000, "s": 1_000_000}
"""Units of train_time; programs of the optimization track write seconds."""
_MOST_NAN = 16
"""Lines without a mean that the program prints at most: of ten steps, of the two after them, and of evaluations."""
_KEYS = {
    "train": "train.loss.mean{train.loss.name=total}",
    "val": "train.evaluation.loss{train.evaluation.set=validation,train.loss.name=total}",
}


_SEVERAL = "is about several runs: step 0 comes again, and the program resumes no run"
_APART = "cut the log before each first line with step:0/, and judge each run by itself"


class Reader:
    """Reads the lines of one log; those without step: are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._start_us = transcript.given.start_us or 0
        self._elapsed_us = 0
        self._clock_us = 0
        self._step = -1
        self._since_us = 0
        self._started = False
        self._first_nan = self._num_nan = self._num_late = 0
        self._has_mean = False
        self._last_of: dict[str, int] = {}
        """Step of the last line, by what it has: train, val or nothing."""
        self._num_starts = self._num_again = 0
        """Lines of step 0 that come again, and all lines whose step does not rise, without copies."""
        self._is_over = False
        """Whether the log is known to be of several runs, so that nothing more is read."""
        self._is_set_back = False
        """Whether the clock was set back after the first steps, as the program does once."""
        self._last_text = ""
        self._first_copy = self._num_copies = 0
        """Lines that repeat the one before."""
        self._unread: tuple[int, str, int] | None = None
        """Where the first line is whose unit is not known, that unit, and how many such lines there are."""

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line."""
        if self._is_over:
            self._transcript.lose("meaning", "run", "the rest is of several runs, which are left out", offset)
            return
        if not text.startswith("step:"):
            self._transcript.lose("text", "text", "the file has lines without step:, which are passed over", offset)
            return
        yield from self._of_step(offset, text)

    def _of_step(self, offset: int, text: str) -> Iterator[Found]:
        match = _LINE.fullmatch(text.strip())
        loss = fit.number(match["loss"]) if match and match["kind"] else None
        amount = fit.number(match["time"]) if match else None
        step = fit.step(match["step"]) if match else None
        lossless = match is not None and match["kind"] and loss is None
        if match is None or lossless or not isinstance(amount, float) or step is None:
            yield (
                offset,
                Refusal("the line has no step, loss or time", "step:1/2 train_loss:3.0 train_time:4ms", "value"),
            )
            return
        unit_us = _UNITS_US.get(match["unit"])
        if unit_us is None:
            first, unit, num = self._unread or (offset, match["unit"], 0)
            self._unread = first, unit, num + 1
            return
        if match["rest"].strip():
            self._transcript.lose(
                "unknown-name", match["rest"].strip()[:60], "the catalog has no metric for it", offset
            )
        if self._is_copy(offset, text, step):
            return
        if self._is_of_another_run(step, match["kind"] or "", round(amount * unit_us)):
            yield offset, Refusal(_SEVERAL, _APART, "several-runs")
            return
        if not self._started:
            yield offset, self._head()
        # The log leaves its first steps out of the mean that it prints, which is not a number until then.
        is_nan = self._is_nan(offset, match["average"])
        yield from self._moved(offset, step, round(amount * unit_us), is_of_start=is_nan and not self._has_mean)
        values = self._values(match["kind"], loss, step)
        time_us = fit.time_us(self._start_us + self._elapsed_us)
        if time_us is None:
            yield offset, Refusal("the time is beyond what a record holds", "", "time")
            return
        warm = is_nan and match["kind"] != "val"
        attributes: dict[str, AttributeValue] = {"train.step.warmup": True} if warm else {}
        yield offset, self._transcript.sample(time_us, values, step=step, a=attributes)

    def _is_copy(self, offset: int, text: str, step: int) -> bool:
        """Whether a line repeats the one before, which is noted; two runs have the same first line."""
        is_copy = text == self._last_text
        self._last_text = text
        if is_copy:
            self._first_copy = self._first_copy if self._num_copies else offset
            self._num_copies += 1
            self._num_starts += step == 0
        return is_copy

    def _is_of_another_run(self, step: int, kind: str, clock_us: int) -> bool:
        """Whether a line shows that the log is of several runs: step 0 comes again, at once with another step.

        The clock of another run starts again too; where it rises, the count of steps of one run is wrong.
        """
        is_again = step <= self._last_of.get(kind, -1)
        is_start = step == 0 and is_again and clock_us <= self._clock_us
        self._num_starts += is_start
        self._num_again += is_again
        is_late = is_start and max(self._last_of.values()) > 0
        self._last_of[kind] = step
        self._is_over = is_late or (self._num_starts > 0 and self._num_again > 1)
        return self._is_over

    def _is_nan(self, offset: int, average: str | None) -> bool:
        """Whether the mean of a line is not a number, which is noted; a line without one has none."""
        is_nan = fit.number(average or "") == "NaN"
        if is_nan:
            self._first_nan = self._first_nan if self._num_nan else offset
            self._num_nan += 1
            self._num_late += self._has_mean
        self._has_mean = self._has_mean or (average is not None and not is_nan)
        return is_nan

    def _head(self) -> Head:
        self._started = True
        transcript = self._transcript
        if transcript.given.start_us is None:
            transcript.lose(
                "time", "train_time", "times count from a start that is not stated (0; --known start= states it)", 0
            )
        else:
            transcript.clock = "utc"
        transcript.lose("meaning", "train_time", "train_time leaves evaluation out; durations are its differences", 0)
        return transcript.head(self._start_us, ("job",))

    def _moved(self, offset: int, step: int, clock_us: int, *, is_of_start: bool) -> Iterator[Found]:
        """Move on to the time of a line; a clock that was set back goes on from where it was.

        Source: the program, which each log holds, sets `training_time_ms = 0` after ten steps that are no part of the
        mean, and prints `float('nan')` for the mean until then.
        """
        if clock_us < self._clock_us:
            message = f"train_time falls from {self._clock_us / 1000:g} to {clock_us / 1000:g} ms at step {step}"
            help_text = "a clock that was set back; later times continue from where it was"
            if is_of_start and not self._is_set_back:
                self._is_set_back = True
                self._transcript.lose("meaning", "train_time", f"{message}; {help_text}", offset)
            else:
                yield offset, Refusal(message, help_text, "time")
            self._elapsed_us += clock_us
            self._since_us = self._elapsed_us - clock_us
        else:
            self._elapsed_us += clock_us - self._clock_us
        self._clock_us = clock_us

    def _values(self, kind: str | None, loss: fit.Number | None, step: int) -> dict[str, MetricValue]:
        """The values of a line; since 2025 the log prints no loss of a training step."""
        values: dict[str, MetricValue] = {} if kind is None or loss is None else {_KEYS[kind]: loss}  # type: ignore[dict-item]
        return values if kind == "val" else values | self._progress(step)

    def _progress(self, step: int) -> dict[str, MetricValue]:
        values: dict[str, MetricValue] = {"train.step.count": float(step)}
        num_steps = step - max(self._step, 0)
        if num_steps > 0 and self._elapsed_us > self._since_us:
            values["train.step.duration"] = (self._elapsed_us - self._since_us) / num_steps / 1e6
        self._step, self._since_us = step, self._elapsed_us
        return values

    def end(self) -> Iterator[Found]:
        """Copies, lines of another unit, and means that are not a number, which a log has in its first steps."""
        if self._unread is not None:
            first, unit, num = self._unread
            what = f"train_time is in {unit!r}" if unit else "train_time has no unit"
            message = f"{what}; the first of {num:,} lines that are left out"
            yield first, Refusal(message, "write seconds (s) or milliseconds (ms)", "unit")
        if self._num_copies and not self._is_over:
            message = f"the line repeats the one before; the first of {self._num_copies:,} copies, which are left out"
            yield self._first_copy, Refusal(message, "write each line once", "sequence")
        message = "step_avg is nan" + (f"; the first of {self._num_nan:,} cases" if self._num_nan > 1 else "")
        is_accepted = self._num_nan <= _MOST_NAN
        if self._num_nan and is_accepted and not self._num_late:
            words = f"{message}: the mean leaves the first steps out"
            self._transcript.lose("meaning", "step_avg", words, self._first_nan)
        elif self._num_nan:
            help_text = "leave a mean out until it is one of some steps"
            yield self._first_nan, Refusal(message, help_text, "not-finite", is_accepted=is_accepted)
