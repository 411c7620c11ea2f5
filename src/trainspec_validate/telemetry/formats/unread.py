"""Finds reports of steps, and losses that are not finite, in lines of a console log that its reader passed over."""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARACTERS: Final = 100_000
"""Of a line that are searched."""
_STEP: Final = re.compile(
    r"(?<![A-Za-z])(?:iteration|iter|step)(?![A-Za-z])[\"']? {0,12}[:=]? {0,12}\[?[0-9]{1,40}(?![0-9.]*(?:ms|s)\b)",
    re.IGNORECASE,
)
_LOSS: Final = re.compile(
    r"(?<![A-Za-z])loss(?: value)?[\"']? {0,8}[:=]? {0,8}[\"']?(?:[-+]?[0-9]|[-+]?(?:nan|inf)\b)", re.IGNORECASE
)
_LOST: Final = re.compile(
    r"(?<![A-Za-z])loss(?:es)?(?: value)?[\"']?(?: {0,8}[:=]| is| was| became)? {0,8}[\"'(\[]{0,2}(?:\w[\w.]{0,20}\()?"
    r"[-+]?(?P<value>nan|inf|infinity)(?![\w.])",
    re.IGNORECASE,
)
_FILE: Final = re.compile(
    r"(?<![^\s(\[\"'`=:,])(?:\w{1,10}:/|[~.]{1,2})?/[^\s\"'`]{1,4000}"
    r"|(?<![^\s(\[\"'`,])[^\s(\[\"'`,]{1,400}\.(?:bin|ckpt|distcp|h5|keras|nemo|pth?|safetensors|tar)(?![\w.])"
)
"""A file, in whose name programs write the step and the loss that a checkpoint has."""
_NO_REPORT: Final = re.compile(
    r"\b(?:best|least|lowest|min\w{0,6}|init\w{0,6}|prev\w{0,5}|if|when|whether|check\w{0,4}|assert|avoid\w{0,3}"
    r"|prevent\w{0,3}|detect\w{0,3}|case|because|since)(?![A-Za-z])",
    re.IGNORECASE,
)
"""Before a loss that is not one of a step: of a comparison that has just begun, or in a sentence on such losses."""


def says_lost(text: str) -> bool:
    """Whether a line has a loss that is not finite.

    >>> says_lost("{'loss': nan, 'epoch': 1.0}"), says_lost("loss=nan]"), says_lost("best_loss: inf")
    (True, True, False)
    """
    return lost_value(text) is not None


def lost_value(text: str) -> str | None:
    """The loss of a line that is not finite, as it is printed; None where it has none."""
    text = text[:_MOST_CHARACTERS]
    found = _LOST.search(text) if "oss" in text or "OSS" in text else None
    if found is None or _NO_REPORT.search(text[: found.start()].replace("_", " ")) is not None:
        return None
    return found["value"]


def num_reports(text: str) -> int:
    """Steps of a line that have a loss behind them, before the next step.

    >>> num_reports("iter 210: loss nan"), num_reports("step: 1 loss: 2.5 step: 2 loss: 2.4"), num_reports("loss: 2.5")
    (1, 2, 0)
    >>> num_reports("saved step 10 to /runs/a/val_loss=0.00-step=9.ckpt")
    0
    """
    text = text[:_MOST_CHARACTERS]
    if "oss" not in text and "OSS" not in text:
        return 0
    text = _FILE.sub(" ", text)
    return sum(_LOSS.search(part) is not None for part in _STEP.split(text)[1:])
