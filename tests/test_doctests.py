"""Every worked example in a docstring of the packages gives what it shows."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = [
    ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
    for source in (ROOT / "src", ROOT / "record")
    for path in sorted(source.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


def test_there_are_examples() -> None:
    assert len(MODULES) > 50


@pytest.mark.parametrize("name", MODULES)
def test_examples_of(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed
