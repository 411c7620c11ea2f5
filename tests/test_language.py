"""Holds what a lint can hold of the project's language: docstrings of modules."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("benchmarks", "conformance", "integrations", "record", "reference", "src", "tests", "tools")


@pytest.mark.parametrize("folder", FOLDERS)
def test_module_docstrings_say_what_the_module_does(folder: str) -> None:
    modules = sorted((ROOT / folder).rglob("*.py"))
    openings = {path: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "" for path in modules}
    assert modules
    assert [str(path) for path, opening in openings.items() if opening.lower().startswith("the only place")] == []
