"""The pydantic models accept what the typed documents and the published schemas accept, and dump the same document."""

from __future__ import annotations

import types
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.examples import examples
from trainspec_validate import models
from trainspec_validate.documents import schema
from trainspec_validate.documents.types import KINDS, SIDE_KINDS, Record, read_any

STRUCTS = {**KINDS, **SIDE_KINDS}
MODELS = {kind: getattr(models, struct.__name__) for kind, struct in STRUCTS.items()}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)
ODD = st.one_of(
    JSON,
    st.sampled_from([0, 1, -1, 1.0, 8.0, 0.5, 1e8, 1e14, 1e21, 1.5, 64, 65, 1e-9, 0.1, 10**20, 10**400, True, "1", ""]),
    st.sampled_from(
        [
            "fp32",
            "ring",
            "node",
            "x" * 200,
            "a b",
            "9.5",
            "trainspec/v1",
            "2026-01-01",
            "\u0662\u0660\u0662\u0666-01-01",
            "a\n",
        ]
    ),
)


# --- documents that are drawn from the types ------------------------------------------------------------------------


def values(hint: Any, limits: msgspec.Meta | None = None) -> st.SearchStrategy[Any]:
    """Plain values of a type, most of them within its limits."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values(arguments[0], arguments[1])
    if origin in {Union, types.UnionType}:
        return st.one_of([values(each, limits) for each in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        least = (limits.min_length if limits else None) or 0
        return st.lists(values(arguments[0]), min_size=least, max_size=least + 1)
    if origin is dict:
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=1)
    if isinstance(hint, type) and issubclass(hint, Record):
        return st.deferred(lambda: record(hint))
    known = {type(None): st.none(), bool: st.booleans(), str: texts(limits), Any: JSON}
    return known[hint] if hint in known else numbers(hint, limits)


def texts(limits: msgspec.Meta | None) -> st.SearchStrategy[str]:
    if limits is None:
        return st.text(max_size=10)
    least, most = limits.min_length or 0, limits.max_length or 100
    if limits.pattern is None:
        return st.text(min_size=least, max_size=min(most, least + 10))
    # `$` also matches before a line break, which would be drawn for every other text.
    pattern = f"{limits.pattern[:-1]}\\Z" if limits.pattern.endswith("$") else limits.pattern
    found = st.from_regex(pattern, alphabet=st.characters(codec="ascii"))
    return found.filter(lambda text: least <= len(text) <= most and not text.endswith("\n"))


def numbers(hint: Any, limits: msgspec.Meta | None) -> st.SearchStrategy[Any]:
    low = high = None
    if limits is not None:
        low = limits.ge if limits.ge is not None else limits.gt
        high = limits.le if limits.le is not None else limits.lt
    if hint is int:
        return st.integers(None if low is None else int(low), None if high is None else int(high))
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@cache
def record(struct: type[Record]) -> st.SearchStrategy[dict[str, Any]]:
    """Plain mappings of a record: its required keys, and some of the others."""
    hints = get_type_hints(struct, include_extras=True)
    needed, more = {}, {}
    for field in msgspec.structs.fields(struct):
        (needed if field.required else more)[field.encode_name] = values(hints[field.name])
    tag = struct.__struct_config__.tag
    if tag is not None:
        needed[struct.__struct_config__.tag_field] = st.just(tag)
    some = st.sets(st.sampled_from(sorted(more)), max_size=4) if more else st.just(set[str]())
    return some.flatmap(lambda names: st.fixed_dictionaries({**needed, **{name: more[name] for name in names}}))


DOCUMENTS = st.sampled_from(sorted(STRUCTS)).flatmap(lambda kind: st.tuples(st.just(kind), record(STRUCTS[kind])))


def places(value: Any, pointer: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Every place in a plain value but the root."""
    entries = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [place for key, item in entries for place in ((*pointer, key), *places(item, (*pointer, key)))]


def damaged(data: Any, pointer: tuple[str | int, ...], act: str, value: Any) -> Any:
    """A copy with one place changed."""
    step, *rest = pointer
    copied: Any = dict(data) if isinstance(data, dict) else list(data)
    if rest:
        copied[step] = damaged(copied[step], tuple(rest), act, value)
    elif act == "remove":
        del copied[step]
    elif act == "add" and isinstance(copied, dict):
        copied["extra_key"] = value
    else:
        copied[step] = value
    return copied


@st.composite
def mutants(draw: st.DrawFn) -> tuple[str, Any]:
    kind, data = draw(DOCUMENTS)
    for _ in range(draw(st.integers(1, 2))):
        found = places(data)
        assume(found)
        act = draw(st.sampled_from(["remove", "add", "change", "change", "change"]))
        data = damaged(data, draw(st.sampled_from(found)), act, draw(ODD))
    return kind, data


# --- what each accepts ----------------------------------------------------------------------------------------------


def of_struct(kind: str, data: Any) -> Record | None:
    try:
        return read_any(kind, data)
    except msgspec.ValidationError:
        return None


def of_model(kind: str, data: Any) -> Any:
    try:
        return MODELS[kind].model_validate(data)
    except ValidationError:
        return None


def holds(value: Any, odd: Any) -> bool:
    """Whether a value is somewhere in a plain value."""
    if isinstance(value, dict):
        return any(holds(item, odd) for item in value.values())
    if isinstance(value, list):
        return any(holds(item, odd) for item in value)
    return bool(odd(value))


def agree(kind: str, data: Any) -> None:
    """Assert that model, struct and schema have one verdict.

    The schema refuses nulls, a line break at the end of a name, and a document in a document that does not say its
    kind; the struct lets them pass. Models are as the schema, but for null, which in Python is a key that is absent.
    """
    model, struct = of_model(kind, data), of_struct(kind, data)
    has_line_end = holds(data, lambda value: isinstance(value, str) and value.endswith("\n"))
    inner = data.get("stack") if kind == "ConformanceReport" else None
    if not has_line_end and not (isinstance(inner, dict) and "kind" not in inner):
        assert (model is None) == (struct is None)
    if not holds(data, lambda value: value is None):
        assert (model is None) == bool(list(schema.failures(kind, data)))
    if model is not None:
        assert of_struct(kind, model.model_dump()) == struct


@pytest.mark.slow
@given(DOCUMENTS)
@examples(200)
def test_documents(case: tuple[str, Any]) -> None:
    agree(*case)


@pytest.mark.slow
@given(mutants())
@example(("Waivers", {"apiVersion": "trainspec/v1", "waivers": []}))
@example(("Waivers", {"kind": "Waivers", "waivers": []}))
@example(("Waivers", {"apiVersion": "trainspec/v1", "kind": "Waivers", "waivers": [], "more": 1}))
@examples(400)
def test_mutants(case: tuple[str, Any]) -> None:
    agree(*case)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(STRUCTS))
def test_something_of_each_kind_is_accepted(kind: str) -> None:
    seen = []

    @given(record(STRUCTS[kind]))
    @settings(max_examples=20, database=None)
    def draw(data: Any) -> None:
        seen.append(of_model(kind, data) is not None)

    draw()
    assert any(seen)
