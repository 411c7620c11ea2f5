"""Reads the log of Megatron-LM: lines with iteration, and the fields between their bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from trainspec_validate.documents.types.stream import MetricValue, Sample
from trainspec_validate.model.metrics import Alias
from trainspec_validate.system.digits import is_digits
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.courses import MIXED, Courses
from trainspec_validate.telemetry.formats.items import Found, Refusal, beyond
from trainspec_validate.telemetry.formats.iteration import Iterations
from trainspec_validate.telemetry.formats.local_times import has_zone, local_us
from trainspec_validate.telemetry.formats.megatron_evaluations import MOST, Evaluation, evaluation_of
from trainspec_validate.telemetry.formats.names import IMPLIED, Names
from trainspec_validate.telemetry.formats.prefixes import moment_of
from trainspec_validate.telemetry.formats.printed_saves import Save
from trainspec_validate.telemetry.formats.row_copies import PastedRows
from trainspec_validate.telemetry.formats.tally import Tally
from trainspec_validate.telemetry.formats.transcript import Transcript

_LINE = re.compile(
    r"(?:^|[ \]])iteration {1,12}(?P<step>[0-9]{1,40})/ {0,12}(?P<total>[0-9]{1,40}) \|(?P<fields>.*)", re.DOTALL
)
_LOADED = re.compile(
    r"(?:successfully loaded|loading) (?:distributed |release )?checkpoint from [^\n]{1,1000} at iteration "
    r"{1,4}(?P<step>[0-9]{1,15})\b"
)
_STARTED = re.compile(
    r"using world size: [0-9]{1,9}, |time to initialize megatron \(seconds\)|\[before the start of training step\]"
    r"|could not find the metadata file|\brestart_count=[1-9]"
    r"|\b(?i:restart(?:s|ed|ing)?)\b[^\n]{0,80}\b(?i:workers?|training|job|ranks?|process(?:es)?)\b"
    r"|\b(?i:workers?|training|job|ranks?|process(?:es)?)\b[^\n]{0,80}\b(?i:restart(?:ed|ing))\b"
    r"|\b(?i:resum(?:ed|ing))\b[^\n]{0,40}\b(?i:training|from|at)\b"
)
"""What the program prints once as it starts, and what launchers say of a restart."""
_TIME = re.compile(r"\[([0-9]{4}-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9](?:\.[0-9]{1,6})?)\]")
_FIELD = re.compile(r"(?P<name>[^|]*?): *(?P<value>[^|: ]+) *")
BESIDE = (
    Alias("train.token.count", "megatron", "consumed tokens", "{token}", 1.0),
    Alias("train.token.rate", "megatron", "samples per second", "{sample}/s", 1.0, times=("tokens_per_sample",)),
    Alias("train.flops.utilization", "megatron", "TFLOPs", "T{operation}/s", 1e12, over=("peak_flops_per_second",)),
)
"""Spellings of older releases."""
_IMPLIED = {
    **IMPLIED,
    "train.loss.mean": {"train.loss.name": "lm"},
    "train.step.skipped": {"train.skip.reason": "overflow"},
}
_SOMETIMES = {
    "train.token.rate": "the log counts no tokens, and the tokens of a sample are not given",
    "train.flops.utilization": "it follows from the peak of an accelerator, which is not given",
    "train.world.active": "the lines of this log have no world size",
}
"""Required metrics that a log may lack, with the reason."""
_DURATION = "train.step.duration"
_LOSS = "train.loss.mean"
_NUM_SKIPPED = "number of skipped iterations"
_SKIPPED = "train.step.skipped{train.skip.reason=overflow}"
_LIKE_MEAN = 0.02
"""Share of the first time by which a mean times its iterations may differ from the sum of both reports."""
_UNLIKE = 0.05
"""Share of the time by the clock that a mean has to be beyond it, to be one with the first iteration."""
_FEWEST_AFTER = 4
"""Reports after the second one from which the sum of an attempt says something, as for steps of every stream."""
_CLOCK_TOLERANCE = 0.02
"""As for steps of every stream: share of an attempt by which its steps may differ from the clock (TS-TEL-037)."""
_SECOND_US = 1_000_000
_MAX_INTERVAL = 10_000
_MAX_FIELDS = 1_000
_MAX_ATTEMPTS = 10_000


def names(tally: Tally, quantities: dict[str, float]) -> Names:
    """The names of a line, which other programs of the family write too."""
    return Names(("megatron",), tally, quantities, BESIDE, _IMPLIED)


@dataclass(slots=True)
class _Line:
    """A line that reports an iteration."""

    offset: int
    text: str
    match: re.Match[str]
    start: int | None
    """Iteration of the checkpoint that was loaded since the line before, as in `Reader`."""
    save: Save | None = None
    """Saves since the line before."""
    evaluations: tuple[Evaluation, ...] = ()
    """Evaluations since the line before."""
    time: str | None = None
    """Date and time in what was written before the line."""


class Reader:
    """Reads the lines of one log; those that report no iteration are passed over."""

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._given = dict(transcript.given.quantities)
        self._names = names(transcript.tally, dict(self._given))
        self._started = False
        self._first: tuple[int, int, int] | None = None
        self._held: list[Found] = []
        self._num_lines = 0
        self._last_step = -1
        self._last_us = 0
        """Time of the last line."""
        self._interval = 1
        self._attempt = transcript.given.attempt
        self._start: int | None = None
        """Iteration of the checkpoint that was loaded since the last line, -1 for a start that loads none."""
        self._total = 0
        self._has_loss = False
        """Whether a line had a loss."""
        self._is_scaled = True
        """Whether the loss of the first line has another scale than 1."""
        self._is_first = True
        """Whether no iteration of the attempt was reported."""
        self._first_report: tuple[float | None, int, int] = None, 0, 0
        """Seconds, step and time of the first report of the attempt."""
        self._mean: tuple[int, float, str] | None = None
        """Place, seconds beyond the clock and words of a second report that is a mean with the first one."""
        self._mean_line = 0
        """Number of that report among those of the log."""
        self._iterations = Iterations()
        self._base_us = transcript.given.start_us or 0
        self._lacks: dict[str, str] = {}
        self._is_beyond = False
        self._pasted = PastedRows[_Line]()
        self._courses = Courses()
        self._evaluations: list[Evaluation] = []
        """Evaluations since the last line."""
        self._evaluated: Evaluation | None = None
        """The last evaluation whose record was written."""
        self._is_over = False
        """Whether the log is known to be of several runs, so that nothing more is read."""

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The record of a line, which waits where it repeats an earlier one."""
        match = _LINE.search(text)
        if not match:
            evaluation = evaluation_of(offset, text) if " value: " in text else None
            if evaluation is not None and len(self._evaluations) < MOST:
                self._evaluations.append(evaluation)
                return
            self._note_start(text)
            self._transcript.lose("text", "text", "the file has lines that report no iteration, passed over", offset)
            return
        if fit.step(int(match["step"])) is None or fit.step(int(match["total"])) is None:
            yield offset, Refusal(f"iteration {match['step']}/{match['total']} is beyond what a step can be")
            return
        start, self._start, saved = self._start, None, self._transcript.saves.pop()
        is_timed = "elapsed time per" in match["fields"] or _TIME.search(text[: match.start()]) is not None
        line = _Line(offset, text, match, start, saved, tuple(self._evaluations))
        line.time = moment_of(self._transcript.before)
        self._evaluations.clear()
        free, copy = self._pasted.take(hash(text.strip()), line, is_timed=is_timed)
        for each in free:
            yield from self._report(each)
        if copy:
            yield offset, copy

    def _hold_before_begin(self, found: list[Found]) -> Iterator[Found]:
        """These at once, or later where the beginning of the run is not known yet."""
        if self._first:
            self._held += found
        else:
            yield from found

    def _begin_once(self, offset: int, time_us: int, step: int) -> Iterator[Found]:
        """Keep the first report, or begin the run by the second."""
        if not self._started:
            self._started = True
            self._first = (offset, time_us, step)
        elif self._first:
            yield from self._begin(step)

    def _report(self, line: _Line) -> Iterator[Found]:
        """The record of a line that is no copy."""
        offset, text, match = line.offset, line.text, line.match
        if self._is_over:
            self._transcript.lose("meaning", "run", "the rest is of several runs, which are left out", offset)
            return
        if self._courses.is_mixed(int(match["step"])):
            self._is_over = True
            yield offset, MIXED
            return
        yield from self._hold_before_begin(list(self._of_evaluations(line.evaluations)))
        time_us = self._time(text[: match.start()], line.time, offset)
        if time_us is None:
            yield offset, Refusal("the line has no time, unlike lines before it", "", "time")
            return
        pairs, rest = self._pairs(offset, match["fields"])
        values = self._values(offset, pairs)
        step = fit.step(int(match["step"]))
        if not rest:
            self._note_absent(offset, pairs, values, (step or 0) - self._last_step)
        self._transcript.reach(step, int(match["total"]))
        if step is not None and step > int(match["total"]) > 0 and not self._is_beyond:
            self._is_beyond = True
            yield offset, beyond(step, int(match["total"]))
        if step is not None:
            yield from self._follow(step, time_us, line)
            self._without_first(offset, step, time_us, values)
            values["train.step.count"] = float(step)
        yield from self._begin_once(offset, time_us, step or 0)
        refusals = (*self._texts(pairs), *self._iterations.take(dict(pairs), step or 0, self._interval))
        self._held += ((offset, refusal) for refusal in refusals)
        if rest:
            message = f"the line is cut off after {rest[:60]!r}"
            self._held.append((offset, Refusal(message, "the text before it is taken", "cut-off")))
        self._held += self._gap(line, time_us)
        self._held.append((offset, self._transcript.sample(time_us, values, step=step, **self._place())))
        if not self._first:
            yield from self._held
            self._held = []

    def _of_evaluations(self, evaluations: Iterable[Evaluation]) -> Iterator[Found]:
        """The records of evaluations, which have the time of the report before them; each process may print one."""
        for each in evaluations:
            if not self._started:
                words = "evaluations before the first report of an iteration are left out"
                self._transcript.lose("meaning", "evaluation", words, each.offset)
            elif self._evaluated is None or (each.step, each.values) != (self._evaluated.step, self._evaluated.values):
                self._evaluated = each
                step = max(self._last_step, 0) if each.step is None else each.step
                yield each.offset, self._transcript.sample(self._last_us, each.values, step=step, **self._place())

    def _begin(self, second_step: int) -> Iterator[Found]:
        """The head, which has the interval between two reports: it waits for the second line."""
        offset, time_us, step = self._first or (0, 0, 0)
        interval = second_step - step
        self._first = None
        self._interval = interval if 1 <= interval <= _MAX_INTERVAL else 1
        self._lacks = self._lacking()
        yield offset, self._transcript.head(time_us, ("job",), unsupported=self._lacks)
        yield from self._held
        self._held = []

    def _lacking(self) -> dict[str, str]:
        """Metrics that only some releases write, or that follow from a quantity which nobody gave."""
        seen = {
            name.partition("{")[0] for _, found in self._held if isinstance(found, Sample) for name in found.m or ()
        }
        return {name: reason for name, reason in _SOMETIMES.items() if name not in seen}

    def _time(self, before: str, moment: str | None, offset: int) -> int | None:
        """The time of a line, its own or that of its prefix; in a file without times, a second for each line."""
        own = _TIME.search(before)
        found = own[1] if own else moment
        transcript = self._transcript
        self._num_lines += 1
        if found and (not self._started or transcript.clock != "none"):
            if not self._started and transcript.given.utc_offset_seconds is None and not has_zone(found):
                transcript.lose("time", "time", "times have no zone; they are taken for UTC", offset)
            is_zoned = transcript.given.utc_offset_seconds is not None or has_zone(found)
            transcript.clock = "utc" if is_zoned else "local"
            return local_us(found, transcript.given.utc_offset_seconds)
        if not self._started:
            transcript.clock = "none"
            transcript.lose("time", "time", "lines have no times; each line counts as a second", offset)
        return None if transcript.clock != "none" else self._base_us + self._num_lines * _SECOND_US

    def _pairs(self, offset: int, fields: str) -> tuple[list[tuple[str, str]], str]:
        """The names and values of a line, and the start of one that has no value."""
        pairs: list[tuple[str, str]] = []
        *whole, last = fields.split("|", _MAX_FIELDS)
        for part in whole:
            match = _FIELD.fullmatch(part)
            if match:
                pairs.append((self._plain(match["name"].strip(" ")), match["value"]))
            elif part.strip():
                self._transcript.lose("text", part.strip()[:60], "a part of the line has no name and value", offset)
        return pairs, last.strip()

    def _plain(self, name: str) -> str:
        """A name as Megatron-LM writes it, where a program of its family has hyphens or underscores for blanks."""
        if "-" not in name and "_" not in name:
            return name
        plain = name.replace("-", " ").replace("_", " ")
        return plain if plain != name and not self._names.aliases(name) and self._names.aliases(plain) else name

    def _values(self, offset: int, pairs: list[tuple[str, str]]) -> dict[str, MetricValue]:
        self._learn(pairs)
        values: dict[str, MetricValue] = {}
        for name, value in pairs:
            self._names.take(name, value, offset, values)
        if self._is_first and not self._last_us:
            self._is_scaled = fit.number(dict(pairs).get("loss scale")) != 1.0
        if not self._is_scaled and _SKIPPED in values:  # nothing is scaled that could overflow
            values["train.step.skipped"] = values.pop(_SKIPPED)
        return values

    def _without_first(self, offset: int, step: int, time_us: int, values: dict[str, MetricValue]) -> None:
        """Leave out the time of a second report that is a mean with the first one, as the clock shows.

        Megatron-LM reports the first iteration without setting its timer back, so that the next report is a mean over
        all iterations since the start (NVIDIA/Megatron-LM, training_log, `should_reset = not is_first_iteration`).
        """
        (first, first_step, first_us), is_second = self._first_report, not self._is_first
        now = values.get(_DURATION)
        if self._is_first:
            self._first_report = now if isinstance(now, float) else None, step, time_us
            self._is_first = False
        elif first is not None:
            self._first_report = None, first_step, first_us
        if not is_second or not isinstance(now, float) or first is None or self._transcript.clock == "none":
            return
        clock, num = (time_us - first_us) / _SECOND_US, step - first_step
        over = now * num - clock
        if over > _UNLIKE * clock > 0 and abs(over - first + now) <= _LIKE_MEAN * first:
            message = (
                f"the time of the second report, {now:.4g} s, is a mean with the first iteration, of {first:.4g} s; "
                f"by the clock it is {clock / num:.4g} s"
            )
            self._transcript.lose("meaning", _DURATION, "the second report is a mean with the first; left out", offset)
            self._mean, self._mean_line = (offset, over, message), self._num_lines
            del values[_DURATION]

    def _of_mean(self) -> Iterator[Found]:
        """What the attempt so far shows of a mean that is left out: steps that do not add up to its time."""
        found, self._mean = self._mean, None
        if self._num_lines - self._mean_line < _FEWEST_AFTER:
            return
        if found is None or found[1] * _SECOND_US <= _CLOCK_TOLERANCE * (self._last_us - self._first_report[2]):
            return
        help_text = "leave the second report out of means of step times; Megatron-LM writes it so"
        yield found[0], Refusal(found[2], help_text, "duration", is_accepted=True)

    def _texts(self, pairs: list[tuple[str, str]]) -> Iterator[Refusal]:
        """The refusal of fields with a metric whose value is a text without any digit, such as N/A."""
        for name, value in pairs:
            if is_digits(value[0]) or any(map(is_digits, value)):
                continue
            if fit.number(value) is None and self._names.aliases(name):
                yield Refusal(f"{name} is the text {value[:40]!r}", "write a number, or leave it out", "value")

    def _note_absent(
        self, offset: int, pairs: list[tuple[str, str]], values: dict[str, MetricValue], num_steps: int
    ) -> None:
        """Count a line without a loss of iterations that were applied.

        Megatron-LM prints a mean where it is above 0, and so none that is not a number; it prints none either where
        all iterations since the last line were skipped (NVIDIA/Megatron-LM, training_log, `if avg > 0.0`).
        """
        if any(key.startswith(_LOSS) for key in values):
            self._has_loss = True
            return
        skipped = fit.number(dict(pairs).get(_NUM_SKIPPED))
        is_skipped = isinstance(skipped, float) and skipped >= (num_steps if self._last_step >= 0 else 1)
        has_other = any("loss" in name and name != "loss scale" for name, _ in pairs)
        if not is_skipped and (self._has_loss or not has_other):
            words = "iterations without a loss, as Megatron-LM prints one that is not a number, or not above 0"
            self._transcript.lose("unread", "absent", words, offset)

    def _learn(self, pairs: list[tuple[str, str]]) -> None:
        """Tokens of a sample, where the line counts both."""
        told = dict(pairs)
        samples, tokens = (fit.whole(told.get(f"consumed {name}"), 10**18) for name in ("samples", "tokens"))
        if samples and tokens and tokens % samples == 0 and "tokens_per_sample" not in self._given:
            self._names.quantities["tokens_per_sample"] = tokens // samples

    def _gap(self, line: _Line, time_us: int) -> Iterator[Found]:
        """The event of a gap since the last line that saves explain."""
        gap = line.save.within(self._last_us, time_us) if line.save and self._last_us else None
        if gap:
            yield line.offset, self._transcript.event(time_us, "train.telemetry.gap", a=gap, **self._place())
        self._last_us = time_us

    def _place(self) -> dict[str, Any]:
        """Attempt and emitter of the next record, which are named once the file has more than one attempt."""
        is_first = self._attempt == self._transcript.given.attempt
        return {} if is_first else {"att": self._attempt, "emitter": self._transcript.emitter}

    def _note_start(self, text: str) -> None:
        """Note that the program started, and from which checkpoint."""
        if not self._started:
            return
        loaded = _LOADED.search(text)
        if loaded:
            self._start = int(loaded["step"])
        elif self._start is None and _STARTED.search(text):
            self._start = -1

    def _follow(self, step: int, time_us: int, line: _Line) -> Iterator[Found]:
        """Begin another attempt where the log shows that the program started again before this line."""
        offset, start, total = line.offset, line.start, int(line.match["total"])
        is_shown = start is not None and start <= self._last_step and start < step
        is_new = step <= self._interval and step < self._last_step and start in {None, -1}
        before, self._total = self._total, total
        is_other = is_new and total != before
        if is_other and self._transcript.clock != "none" and self._attempt < _MAX_ATTEMPTS:
            message = f"another job begins, of {total:,} iterations after {before:,}, which is no restart"
            self._transcript.lose("incident", "job", message, offset)
            yield from self._again(step, time_us - 1, offset, message)
            changed = {"train.change.key": "train_iters", "train.change.before": before, "train.change.after": total}
            a = {name: str(value) for name, value in changed.items()}
            event = self._transcript.event(time_us - 1, "train.hyperparameter.changed", a=a, **self._place())
            self._held.append((offset, event))
        elif is_shown and (start != -1 or step <= self._last_step) and self._attempt < _MAX_ATTEMPTS:
            message = "the program starts again, as the log shows, which begins an attempt"
            yield from self._again(step, time_us, offset, message)
        elif step < self._last_step:
            message = "iteration falls: a restart or another run in the same file; attempts are not distinguished"
            self._transcript.lose("step", "iteration", message, offset)
        self._last_step = step

    def _again(self, step: int, time_us: int, offset: int, message: str) -> Iterator[Found]:
        """The head of what begins with this line."""
        yield from self._begin(step) if self._first else ()
        yield from self._of_mean()
        self._attempt += 1
        self._is_first = True
        self._iterations = Iterations()
        self._transcript.lose("step", "attempt", message, offset)
        yield offset, self._transcript.head(time_us, ("job",), att=self._attempt, unsupported=self._lacks)

    def end(self) -> Iterator[Found]:
        """Records that wait for a second line, or until they are known to be no copy."""
        for line in self._pasted.end():
            yield from self._report(line)
        if self._first:
            yield from self._begin(0)
        yield from self._of_evaluations(self._evaluations)
        yield from self._of_mean()
