"""What an expression of PromQL names, read without the generator that wrote it; and promtool, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "integrations" / "prometheus"
KEYWORDS = {"by", "without", "on", "ignoring", "and", "or", "unless", "offset", "bool", "Inf", "NaN"}
IDENTIFIER = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
TEXT = re.compile(r'"[^"]*"')
SELECTOR = re.compile(r"\{([^{}]*)\}")
LIST = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^()]*)\)")
DURATION = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
NUMBER = re.compile(r"\b\d[\w.]*")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")


@dataclass(frozen=True)
class Words:
    """The series and labels that an expression names."""

    series: frozenset[str]
    labels: frozenset[str]


def words(expression: str) -> Words:
    """The series and labels of an expression."""
    bare = TEXT.sub('""', expression)
    labels = {name for inner in SELECTOR.findall(bare) for name in LABEL.findall(inner)}
    labels |= {name.strip() for inner in LIST.findall(bare) for name in inner.split(",")}
    bare = NUMBER.sub("", DURATION.sub("", LIST.sub("", SELECTOR.sub("", bare))))
    series = {
        match[0]
        for match in IDENTIFIER.finditer(bare)
        if match[0] not in KEYWORDS and not bare[match.end() :].lstrip().startswith("(")
    }
    return Words(frozenset(series), frozenset(labels))


def promtool(*arguments: str, folder: Path = FOLDER, stdin: IO[bytes] | None = None) -> str:
    """Run promtool, or skip the test where there is none; its output."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed; `make promtool` says more")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True, check=False, stdin=stdin)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
