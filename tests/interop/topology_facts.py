"""What the tests of the node-level readers share: fixtures, samples, and facts held against the types of the schema."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from msgspec import inspect

from trainspec_validate.documents.types import ClusterProfile
from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.model.finding import Pointer

FIXTURES = Path(__file__).parent / "fixtures" / "topology"
REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", REPOSITORY.parent / "shared" / "samples"))
PROFILE = inspect.type_info(ClusterProfile)


def fixture(name: str) -> ForeignText:
    return ForeignText(name, (FIXTURES / name).read_text(encoding="utf-8"))


def samples(*patterns: str) -> list[Any]:
    """Parameters of a test over sample files; one that skips where there are none."""
    found = [path for pattern in patterns for path in sorted((SAMPLES / "topology").glob(pattern))]
    if not found:
        return [pytest.param(None, marks=pytest.mark.skip(reason=f"no samples at {SAMPLES}"), id="no-samples")]
    return [pytest.param(path, id=path.name) for path in found]


def group(fragment: Fragment) -> dict[str, Any]:
    [only] = fragment.facts["node_groups"]
    return dict(only)


def messages(fragment: Fragment) -> str:
    return "\n".join(remark.message for remark in fragment.remarks)


def unknown_keys(fragment: Fragment) -> set[str]:
    """Paths within the one node group that the source cannot tell."""
    return {".".join(map(str, item.pointer[2:])) for item in fragment.unknown if item.pointer[:1] == ("node_groups",)}


def assert_fits_schema(fragment: Fragment) -> None:
    """Every fact is a key of the schema with a value that it takes; every pointer leads to a key."""
    assert fragment.kind == "ClusterProfile"
    whole = _filled(PROFILE, copy.deepcopy(dict(fragment.facts)))
    msgspec.convert(whole, ClusterProfile)
    for item in fragment.unknown:
        assert _key_exists(PROFILE, item.pointer), item
        assert item.reason
        assert not _present(fragment.facts, item.pointer), item
    for pointer, how in (fragment.derived or {}).items():
        assert how
        assert _present(fragment.facts, pointer), pointer
    assert all(remark.message for remark in fragment.remarks)


def read_or_refuse(entry: Format, text: str) -> Fragment | None:
    """What reading any text may do: give facts that fit the schema, or refuse."""
    foreign = ForeignText("any", text)
    assert entry.looks_like(foreign) in {True, False}
    refusal = fragment = None
    try:
        fragment = entry.read(foreign)
    except ForeignFormatError as error:
        refusal = error
    if fragment is not None:
        assert_fits_schema(fragment)
    if refusal is not None:
        assert str(refusal)
        assert refusal.line is None or refusal.line >= 1
    return fragment


def mutated(text: str) -> st.SearchStrategy[str]:
    """A text with parts cut out, repeated, or replaced."""
    cut = st.tuples(st.integers(0, len(text)), st.integers(0, 200), st.text(max_size=12) | st.sampled_from(_SNIPPETS))
    return st.lists(cut, min_size=1, max_size=4).map(lambda cuts: _apply(text, cuts))


_SNIPPETS = (
    "\n",
    "\t",
    '"',
    "<pci>",
    "</cpu>",
    "&lol;",
    "0",
    "-1",
    "99999999999999999999",
    "GPU0",
    "NV255",
    "X",
    "N/A",
    ",",
)


def _apply(text: str, cuts: list[tuple[int, int, str]]) -> str:
    for start, length, new in cuts:
        text = text[:start] + new + text[start + length :]
    return text


def _filled(kind: inspect.Type, value: Any) -> Any:
    """A value with placeholders where a key that it needs is not known; only a test may invent any."""
    kind = _plain(kind)
    if isinstance(kind, inspect.StructType) and isinstance(value, dict):
        for field in kind.fields:
            if field.encode_name in value:
                value[field.encode_name] = _filled(field.type, value[field.encode_name])
            elif field.required:
                value[field.encode_name] = _placeholder(field.type)
        if kind.tag_field and kind.tag is not None:
            value.setdefault(kind.tag_field, kind.tag)
    elif isinstance(kind, inspect.VarTupleType) and isinstance(value, list):
        return [_filled(kind.item_type, item) for item in value]
    return value


def _plain(kind: inspect.Type) -> inspect.Type:
    while isinstance(kind, inspect.Metadata):
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        return _plain(next(item for item in kind.types if not isinstance(item, inspect.NoneType)))
    return kind


def _placeholder(kind: inspect.Type) -> Any:
    kind = _plain(kind)
    if isinstance(kind, inspect.StructType):
        return _filled(kind, {})
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return kind.ge if kind.ge is not None else 1
    if isinstance(kind, inspect.VarTupleType):
        return [_placeholder(kind.item_type)] if kind.min_length else []
    assert isinstance(kind, inspect.StrType), kind
    return "x"


def _key_exists(kind: inspect.Type, pointer: Pointer) -> bool:
    if not pointer:
        return True
    kind, key = _plain(kind), pointer[0]
    if isinstance(kind, inspect.VarTupleType) and isinstance(key, int):
        return _key_exists(kind.item_type, pointer[1:])
    if isinstance(kind, inspect.StructType):
        return any(field.encode_name == key and _key_exists(field.type, pointer[1:]) for field in kind.fields)
    return False


def _present(facts: Any, pointer: Pointer) -> bool:
    return list(_follow(facts, pointer)) != []


def _follow(facts: Any, pointer: Pointer) -> Iterator[Any]:
    for key in pointer:
        try:
            facts = facts[key]
        except (KeyError, IndexError, TypeError):
            return
    yield facts
