"""Texts for the tests of network, system and log readers: committed fixtures, samples if there are any, and noise."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from trainspec_validate.documents.load import load_text
from trainspec_validate.interop.document import document, facts_of
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.interop.shape import fitting

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).parent / "fixtures" / "network"
SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES") or ROOT.parent / "shared" / "samples")
Read = Callable[[ForeignText], Fragment]


def fixture(name: str) -> ForeignText:
    return ForeignText(name, (FIXTURES / name).read_text(encoding="utf-8"))


def sample(name: str) -> ForeignText:
    path = SAMPLES / "topology" / name
    if not path.is_file():
        pytest.skip(f"no sample {name}; TRAINSPEC_SAMPLES names their folder")
    return ForeignText(name, path.read_text(encoding="utf-8"))


def value(fragment: Fragment, *pointer: str | int) -> Any:
    found: Any = fragment.facts
    for key in pointer:
        found = found[key]
    return found


def told(fragment: Fragment) -> str:
    return "\n".join(remark.message for remark in fragment.remarks)


def assert_sound(fragment: Fragment, wanted_format: str) -> None:
    """Facts are values that the keys take, unknowns have no fact, and the document reads back to the same facts."""
    assert fragment.format == wanted_format
    assert fitting(fragment.kind, fragment.facts) == (fragment.facts, [])
    for entry in fragment.unknown:
        assert entry.reason
        with pytest.raises((KeyError, IndexError, TypeError)):
            value(fragment, *entry.pointer)
    for pointer in fragment.derived or {}:
        value(fragment, *pointer)
    merged = merge([fragment])
    assert load_text(document(merged), "document.yaml").data == facts_of(merged)


def assert_recognised(text: ForeignText, name: str) -> None:
    assert recognise(text).name == name


def survives(read: Read, text: str) -> None:
    """A reader gives a sound fragment or says what is wrong with the text."""
    try:
        fragment = read(ForeignText("noise", text))
    except ForeignFormatError:
        return
    assert_sound(fragment, fragment.format)


@st.composite
def damaged(draw: st.DrawFn, name: str) -> str:
    """A fixture with lines dropped, doubled, swapped, cut or replaced by noise."""
    lines = (FIXTURES / name).read_text(encoding="utf-8").split("\n")
    for _ in range(draw(st.integers(1, 4))):
        i, j = draw(st.integers(0, len(lines) - 1)), draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["drop", "double", "swap", "cut", "noise", "digits", "end"]))
        if how == "drop" and len(lines) > 1:
            del lines[i]
        elif how == "double":
            lines.insert(i, lines[j % len(lines)])
        elif how == "swap":
            j %= len(lines)
            lines[i], lines[j] = lines[j], lines[i]
        elif how == "cut":
            lines[i] = lines[i][: draw(st.integers(0, 40))]
        elif how == "noise":
            lines[i] += draw(st.text(max_size=20))
        elif how == "digits":
            lines[i] = lines[i].replace(str(draw(st.integers(0, 9))), str(draw(st.integers(-(10**12), 10**12))))
        elif how == "end":
            lines = lines[: i + 1]
    return "\n".join(lines)
