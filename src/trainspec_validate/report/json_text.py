"""Writes JSON: strict, readable, and safe to print."""

from __future__ import annotations

import json

from trainspec_validate.system.neutral import neutral


def dumps(value: object) -> str:
    """JSON without lone surrogates (strict parsers refuse them) and with escapes for what a log would obey."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return neutral(text, "json") + "\n"
