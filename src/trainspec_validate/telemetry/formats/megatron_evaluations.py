"""Reads the lines in which Megatron-LM and GPT-NeoX print the losses of an evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainspec_validate.documents.types.stream import MetricValue
from trainspec_validate.telemetry.formats import fit, keys

_LINE: Final = re.compile(
    r"(?P<data>[A-Za-z][\w./-]{1,80}) (?:loss|results) at "
    r"(?:iteration {1,12}(?P<step>[0-9]{1,15})\b|the end of training)(?P<about>[^|\n]{0,200})"
    r"\|(?P<fields>[^\n]{1,4000})"
)
_FIELD: Final = re.compile(r"(?P<name>[\w -]{1,60}?) value: {0,4}(?P<value>[-+0-9.eE]{1,40}|(?i:nan|-?inf))(?= |\||$)")
_LOSS: Final = re.compile(r"(?P<name>[\w -]{1,50}?)[ _-]loss")
_PANEL: Final = re.compile(r"\[(?P<name>[\w./-]{1,60})\]")
_VALIDATION: Final = "validation"
MOST: Final = 1_000
"""Evaluations between two reports of iterations."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The losses of one evaluation."""

    offset: int
    step: int | None
    """Iterations completed; None where the line is of the end of training."""
    values: dict[str, MetricValue]
    """By key."""


def evaluation_of(offset: int, text: str) -> Evaluation | None:
    """The evaluation of a line; None for another line, or one without a loss.

    >>> evaluation_of(0, " validation loss at iteration 100 | lm loss value: 6.5E+00 | lm loss PPL: 6.6E+02 | ").values
    {'train.evaluation.loss{train.evaluation.set=validation,train.loss.name=lm}': 6.5}
    """
    match = _LINE.search(text)
    if match is None:
        return None
    about = match["about"]
    panel = _PANEL.search(about)
    data = "test" if "test" in about else panel["name"] if panel else match["data"]
    values: dict[str, MetricValue] = {}
    for field in _FIELD.finditer(match["fields"]):
        loss, number = _LOSS.fullmatch(field["name"].strip()), fit.number(field["value"])
        if loss and number is not None:
            a = {
                "train.evaluation.set": keys.attribute_text(_VALIDATION if data == "valid" else data),
                "train.loss.name": keys.attribute_text(loss["name"]),
            }
            values[keys.join("train.evaluation.loss", a)] = number  # type: ignore[assignment]
    return Evaluation(offset, fit.step(match["step"]), values) if values else None
