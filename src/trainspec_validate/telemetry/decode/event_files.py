"""Joins the event files of a directory, which TensorBoard shows as one run: each start of the program is an attempt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainspec_validate.documents.types.stream import Sample
from trainspec_validate.system.budget import OverLimitError
from trainspec_validate.telemetry.decode.run_file import RunFile
from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.format import FORMATS
from trainspec_validate.telemetry.formats.items import Given
from trainspec_validate.telemetry.formats.read import pieces, read
from trainspec_validate.telemetry.formats.source import SourceError, opened

FORMAT = "tensorboard"
_PROCESS = re.compile(r"\.tfevents\.[0-9]{1,20}\.(.{1,250}?\.[0-9]{1,10})\.[0-9]{1,10}(?:\.v2)?(?:\.gz|\.zst)?$")
"""Host and process in the name of a file, where the writer puts them there."""
_STEPS, _LOSS = "train.step.count", "train.loss.mean"


@dataclass(slots=True)
class _Span:
    """What one file covers."""

    file: RunFile
    process: str = ""
    start_us: int = -1
    end_us: int = -1
    steps: list[int] = field(default_factory=list)
    """Its first and its last completed step."""
    last_attempt: int = 0
    keys: set[str] = field(default_factory=set)

    def note(self, sample: Sample) -> None:
        """Widen the span by a record."""
        self.start_us = sample.time_us if self.start_us < 0 else min(self.start_us, sample.time_us)
        self.end_us = max(self.end_us, sample.time_us)
        self.last_attempt = max(self.last_attempt, sample.att or 0)
        self.keys.update(sample.m)
        if _STEPS in sample.m and sample.step is not None:
            self.steps = [self.steps[0] if self.steps else sample.step, sample.step]

    @property
    def trains(self) -> bool:
        """Whether it reports training, not an evaluation alone."""
        return any(key.startswith((_STEPS, _LOSS)) for key in self.keys)


def joined(files: Sequence[RunFile]) -> list[list[RunFile]]:
    """The files of one directory by run: those that follow one another are one, with the attempt that each begins.

    Files of the same values at the same time have several programs, which nothing keeps apart: each is by itself.
    """
    name = fit.identity(files[0].path.absolute().parent.name) or ""
    spans = sorted(map(_span, files), key=lambda span: (span.start_us, span.file.name))
    together: list[_Span] = []
    run: list[RunFile] = []
    alone: list[list[RunFile]] = []
    attempt = 0
    for span in spans:
        beside = [other for other in together if span.start_us < other.end_us]
        if any(span.keys & other.keys for other in beside):
            alone.append([span.file])
            continue
        trained = [other for other in together if other.trains]
        if trained and span.trains and not beside and _starts_again(trained[-1], span):
            attempt += 1
        run.append(replace(span.file, given=Given(run=name, attempt=attempt)))
        attempt += span.last_attempt
        together.append(span)
    return [run, *alone] if run else alone


def _starts_again(before: _Span, after: _Span) -> bool:
    """Whether the program was started once more between two files."""
    if before.process != after.process:
        return True
    return bool(before.steps and after.steps and after.steps[0] <= before.steps[1])


def _span(file: RunFile) -> _Span:
    """What a file covers, as far as it can be read; its own reading reports the rest."""
    match = _PROCESS.search(file.path.name)
    span = _Span(file, match[1] if match else "")
    form = FORMATS[file.format]
    try:
        with opened(file.path) as stream:
            for _, item in read(pieces(stream, form), file.name, form):
                if isinstance(item, Sample):
                    span.note(item)
    except (OSError, SourceError, OverLimitError):
        return span
    return span
