"""Writes the table of limits in SECURITY.md: every limit of the validator and the suite, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from trainspec_validate.system.budget import LIMITS, Limit

PAGE = "SECURITY.md"
PACKAGES = ("src/trainspec_validate", "conformance/trainspec_conformance")
START, END = "<!-- limits: made by tools/limit_table.py -->\n", "<!-- end of limits -->\n"
_DECLARES = re.compile(r"^from trainspec_validate\.system\.budget import .*\bLimit\b", re.MULTILINE)


def limits(root: Path) -> list[Limit]:
    """Every limit that a module of the validator or of the conformance suite declares, by input and unit."""
    for package in PACKAGES:
        source = (root / package).parent
        for path in sorted((root / package).rglob("*.py")):
            if _DECLARES.search(path.read_text(encoding="utf-8")):
                parts = path.relative_to(source).with_suffix("").parts
                importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return [LIMITS[name] for name in sorted(LIMITS)]


def page(root: Path) -> str:
    """SECURITY.md with its table made anew."""
    text = (root / PAGE).read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{PAGE} lacks {START.strip()} or {END.strip()}")
    return f"{before}{START}{table(limits(root))}{END}{after}"


def table(found: list[Limit]) -> str:
    """The table; a row is what a refusal says."""
    rows = [f"| {limit.input} | {limit.most:,} | {limit.unit} |" for limit in found]
    return "\n".join(["| what is read | at most | of |", "|---|---:|---|", *rows, ""])
