"""Reads the log of NeMo: progress lines of Lightning with reduced_train_loss."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainspec_validate.telemetry.formats import fit
from trainspec_validate.telemetry.formats.console import Console
from trainspec_validate.telemetry.formats.items import INDEX, Found, Refusal
from trainspec_validate.telemetry.formats.printed_numbers import VALUE
from trainspec_validate.telemetry.formats.transcript import Transcript

_BAR = re.compile(r"(?:^|[\r\n ])(?:Epoch|Training epoch) (?P<epoch>[0-9]{1,6})[:,]")
_NEMO_FIELD = re.compile(
    rf"(?:[\[,|] {{0,4}})(?P<name>[A-Za-z][A-Za-z_/ ]{{0,60}})(?:=|: {{0,4}})(?P<value>{VALUE})(?=[,\]| ]|$)"
)
_PLACE = re.compile(r"Training epoch (?P<epoch>[0-9]{1,6}), iteration [0-9]{1,12}/(?P<last>[0-9]{1,12})(?= |$)")
"""Where NeMo 2 is in an epoch, counted from 0: of the first one, that is where it is in the job, or in its data."""
_GLOBAL = "global_step"
_ROUNDED = re.compile(r"[eE]\+?[0-9]")


class Reader(Console):
    """Reads the log of NeMo: progress lines of Lightning with reduced_train_loss."""

    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript, "nemo")
        self._seen = -1
        transcript.clock = "none"

    def line(self, offset: int, text: str) -> Iterator[Found]:
        """The records of a line, on which a progress bar may have been printed several times."""
        if "reduced_train_loss" not in text or _BAR.search(text) is None:
            self.passed(offset)
            return
        for part in text.split("\r"):
            if "reduced_train_loss" in part:
                yield from self._bar(offset, part)

    def _bar(self, offset: int, text: str) -> Iterator[Found]:
        told = {field["name"].strip(): field["value"] for field in _NEMO_FIELD.finditer(text)}
        if fit.number(told.get("reduced_train_loss")) is None:
            yield (
                offset,
                Refusal(
                    "reduced_train_loss is no number, or the line is cut",
                    "reduced_train_loss=2.5, global_step=9.0",
                    "value",
                ),
            )
            return
        index = self._index(offset, told.pop(_GLOBAL, None))
        if index is not None and index == self._seen:
            return  # the bar again, with nothing new
        self._seen = -1 if index is None else index
        told.pop("loss", None)
        if told.pop("consumed_samples", None) is not None:
            message = "consumed_samples counts with or without the samples of the step, by the release"
            self.transcript.lose("meaning", "consumed_samples", message, offset)
        place = _PLACE.search(text)
        if place is None or index is None or int(place["epoch"]):
            self.transcript.reach(None, None)
        else:
            self.transcript.reach(index + 1, int(place["last"]) + 1)
        values = self.take(offset, {name: value for name, value in told.items() if name != "v_num"})
        self.untimed(offset)
        yield from self.rows.row(offset, None, None if index is None else index + 1, values, trained=index is not None)

    def _index(self, offset: int, text: str | None) -> int | None:
        """The index of a step; None where the bar rounds it."""
        lose = self.transcript.lose
        number = fit.number(text)
        if text is None or not isinstance(number, float) or _ROUNDED.search(text):
            lose("step", _GLOBAL, "global_step is absent or rounded to three digits; its record has no step", offset)
            return None
        lose("step", "step", INDEX, offset)
        return fit.step(number)
