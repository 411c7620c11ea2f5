"""The only place that writes JSON: strict, readable, and safe to print."""

from __future__ import annotations

import json


def dumps(value: object) -> str:
    """JSON without lone surrogates (strict parsers refuse them) and with invisible characters escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "\n".join(_escaped(line) for line in text.split("\n")) + "\n"


def _escaped(line: str) -> str:
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
