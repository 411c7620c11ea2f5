"""Plans made of imported fragments, and what the validator finds in them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainspec_validate import Severity, validate
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import TrainingPlan
from trainspec_validate.interop.document import document as written
from trainspec_validate.interop.document import facts_of
from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.model.finding import Finding

FIXTURES = Path(__file__).resolve().parent / "fixtures" / "plans"


def text_of(name: str) -> ForeignText:
    """A fixture as a foreign text."""
    return ForeignText(name, (FIXTURES / name).read_text(encoding="utf-8"))


def imported(name: str) -> Fragment:
    """A fixture, read by the one format that fits it."""
    text = text_of(name)
    return recognise(text).read(text)


def merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested mappings; the second wins where both have a value."""
    result = dict(low)
    for key, value in high.items():
        inner = result.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        result[key] = merged(inner, value) if both else value
    return result


def document(*parts: Fragment | Mapping[str, Any]) -> dict[str, Any]:
    """A whole plan of fragments and answers; later parts win."""
    plan: dict[str, Any] = {"apiVersion": "trainspec/v1", "kind": "TrainingPlan", "metadata": {"name": "imported"}}
    for part in parts:
        plan = merged(plan, part.facts if isinstance(part, Fragment) else part)
    return plan


def converted(plan: Mapping[str, Any]) -> TrainingPlan:
    """The plan as a record; raises where a key or a type does not fit."""
    return msgspec.convert(plan, TrainingPlan)


def findings(plan: Mapping[str, Any], folder: Path, least: Severity = Severity.ERROR) -> list[Finding]:
    """What the validator finds in a plan on its own."""
    path = folder / "plan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    return list(validate([path]).at_or_above(least))


def broken(plan: Mapping[str, Any], folder: Path, least: Severity = Severity.ERROR) -> set[tuple[str, str]]:
    """Requirements that a plan breaks, each with the dotted key that is to blame."""
    return {(found.requirement, ".".join(map(str, found.pointer))) for found in findings(plan, folder, least)}


def remarks_of(fragment: Fragment) -> str:
    """All remarks in one text, for a look at words."""
    return "\n".join(f"{remark.line}: {remark.message}" for remark in fragment.remarks)


def unknown_keys(fragment: Fragment) -> set[str]:
    """Dotted keys that a fragment calls unknown."""
    return {".".join(map(str, item.pointer)) for item in fragment.unknown}


def assert_sound(fragment: Fragment) -> None:
    """Unknown keys have no fact, derived ones have; what is kept has a reason; the document reads back."""
    assert fragment.kind == "TrainingPlan"
    for item in fragment.unknown:
        assert item.reason
        assert at(fragment, *map(str, item.pointer)) is None, item
    for pointer, how in (fragment.derived or {}).items():
        assert how
        assert at(fragment, *map(str, pointer)) is not None, pointer
    whole = merge([fragment])
    assert load_text(written(whole), "plan.yaml").data == facts_of(whole)


def at(fragment: Fragment, *pointer: str) -> Any:
    """A fact, or None."""
    found: Any = fragment.facts
    for key in pointer:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def how(fragment: Fragment, dotted: str) -> str:
    """How a fact was derived; empty where it stands in the source."""
    return (fragment.derived or {}).get(tuple(dotted.split(".")), "")
