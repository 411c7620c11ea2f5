"""Counts the reports of steps in a console log that its reader passed over."""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARACTERS: Final = 100_000
"""Of a line that are searched."""
_STEP: Final = re.compile(
    r"(?<![A-Za-z])(?:iteration|iter|step)(?![A-Za-z])[\"']? {0,12}[:=]? {0,12}\[?\d{1,40}(?![\d.]*(?:ms|s)\b)",
    re.IGNORECASE,
)
_LOSS: Final = re.compile(
    r"(?<![A-Za-z])loss(?: value)?[\"']? {0,8}[:=]? {0,8}[\"']?(?:[-+]?\d|[-+]?(?:nan|inf)\b)", re.IGNORECASE
)


def num_reports(text: str) -> int:
    """Steps of a line that have a loss behind them, before the next step.

    >>> num_reports("iter 210: loss nan"), num_reports("step: 1 loss: 2.5 step: 2 loss: 2.4"), num_reports("loss: 2.5")
    (1, 2, 0)
    """
    text = text[:_MOST_CHARACTERS]
    if "oss" not in text and "OSS" not in text:
        return 0
    return sum(_LOSS.search(part) is not None for part in _STEP.split(text)[1:])
