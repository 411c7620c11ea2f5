"""The page of the Python interface has every public name, with the signature that it has."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import trainspec_validate
from trainspec_record.silent import SilentRun
from trainspec_validate.models import Document

PAGE = (Path(__file__).resolve().parent.parent / "spec" / "python.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    found = re.search(rf"^### {name}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[1]


@pytest.mark.parametrize("name", [name for name in trainspec_validate.__all__ if name != "__version__"])
def test_a_public_name_has_its_words(name: str) -> None:
    value = getattr(trainspec_validate, name)
    words = value.__doc__ if isinstance(value, type) or inspect.isfunction(value) else f"{name} = "
    assert inspect.cleandoc(words or "").splitlines()[0] in section(name)


@pytest.mark.parametrize("name", ["check", "from_record", "from_text", "load", "to_yaml"])
def test_a_model_has_its_methods(name: str) -> None:
    words = inspect.cleandoc(getattr(Document, name).__doc__ or "").splitlines()[0]
    assert f"def {name}(" in section("Document")
    assert words in section("Document")


def test_validate_has_its_parameters() -> None:
    text = section("validate")
    assert all(f"    {name}: " in text for name in inspect.signature(trainspec_validate.validate).parameters)


def test_a_run_shows_what_users_call_and_nothing_else() -> None:
    shown = re.findall(r"^def (\w+)\(", section("Run"), re.MULTILINE)
    public = [name for name in dir(SilentRun) if not name.startswith("_")]
    assert len(shown) == len(set(shown))
    assert set(shown) <= set(public)
    assert {"step", "phase", "log", "checkpoint", "restore", "evaluation", "fault", "event", "end"} <= set(shown)
    assert "noqa" not in PAGE
