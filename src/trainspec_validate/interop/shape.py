"""Compares facts with a schema before there is a whole document: what fits, and what is missing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainspec_validate.documents.schema import load_schema
from trainspec_validate.model.finding import Pointer
from trainspec_validate.model.values import as_in_file

_SHOWN = 80


def fitting(kind: str, facts: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[Pointer, str]]]:
    """The facts that keys of the kind take, and the place and reason of every other one.

    A key that is absent is no mistake here; `missing` lists those.

    >>> fitting("ClusterProfile", {"num_nodes": 0, "num_accelerators": 8})
    ({'num_accelerators': 8}, [(('num_nodes',), '0 is below 1')])
    """
    refused: list[tuple[Pointer, str]] = []
    schema = load_schema(kind)
    kept = _fit(schema, schema, dict(facts), (), refused)
    return (kept if isinstance(kept, dict) else {}), refused


def missing(kind: str, facts: Mapping[str, Any]) -> list[Pointer]:
    """The keys that a document of the kind needs and the facts lack, at every depth that the facts reach.

    >>> missing("ClusterProfile", {"apiVersion": "trainspec/v1", "kind": "ClusterProfile", "num_nodes": 2})
    [('metadata',), ('num_accelerators',), ('node_groups',)]
    """
    schema = load_schema(kind)
    return list(_missing(schema, schema, facts, ()))


def top_keys(kind: str) -> tuple[str, ...]:
    """The keys of a document of the kind, in the order in which people write them.

    >>> top_keys("ClusterProfile")[:3]
    ('apiVersion', 'kind', 'metadata')
    """
    properties = load_schema(kind)["properties"]
    first = ("apiVersion", "kind", "metadata")
    return (*first, *(key for key in properties if key not in first))


def ordered(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts with the keys of every mapping in the order of the schema.

    >>> list(ordered("ClusterProfile", {"num_nodes": 1, "kind": "ClusterProfile"}))
    ['kind', 'num_nodes']
    """
    schema = load_schema(kind)
    placed = _ordered(schema, schema, facts)
    return {key: placed[key] for key in (*top_keys(kind), *placed) if key in placed}


def _ordered(root: Mapping[str, Any], schema: Any, value: Any) -> Any:
    rules = _resolve(root, schema, value)
    if isinstance(value, Mapping):
        properties = rules.get("properties", {})
        keys = [*(key for key in properties if key in value), *(key for key in value if key not in properties)]
        return {key: _ordered(root, properties.get(key, {}), value[key]) for key in keys}
    if isinstance(value, list | tuple):
        return [_ordered(root, rules.get("items", {}), item) for item in value]
    return value


def _resolve(root: Mapping[str, Any], schema: Any, value: Any) -> Mapping[str, Any]:
    """The schema that applies to a value: references followed, and of several the first of the value's type."""
    for _ in range(16):
        if not isinstance(schema, Mapping):
            return {}
        if "$ref" in schema:
            schema = root["$defs"].get(str(schema["$ref"]).rpartition("/")[2], {})
        elif "anyOf" in schema or "oneOf" in schema:
            choices = schema.get("anyOf") or schema["oneOf"]
            plain = [choice for choice in choices if choice.get("type") != "null"]
            fits = [choice for choice in plain if _type_fits(_resolve(root, choice, value), value)]
            schema = (fits or plain or [{}])[0]
        else:
            return schema
    return {}


def _type_fits(schema: Mapping[str, Any], value: Any) -> bool:
    return not _wrong_type(schema.get("type"), value)


def _wrong_type(wanted: Any, value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float) and math.isfinite(value))
    fits = {
        "object": isinstance(value, Mapping),
        "array": isinstance(value, list | tuple),
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": whole or (number and value.is_integer()),
        "number": number,
        "null": value is None,
    }
    names = wanted if isinstance(wanted, list) else [wanted]
    return wanted is not None and not any(fits.get(str(name), True) for name in names)


_DROPPED = object()


def _fit(root: Mapping[str, Any], schema: Any, value: Any, place: Pointer, refused: list[tuple[Pointer, str]]) -> Any:
    rules = _resolve(root, schema, value)
    reason = _refusal(rules, value)
    if reason:
        refused.append((place, reason))
        return _DROPPED
    if isinstance(value, Mapping):
        return _fit_mapping(root, rules, value, place, refused)
    if isinstance(value, list | tuple):
        items = (_fit(root, rules.get("items", {}), item, (*place, i), refused) for i, item in enumerate(value))
        return [item for item in items if item is not _DROPPED]
    return value


def _fit_mapping(
    root: Mapping[str, Any],
    rules: Mapping[str, Any],
    value: Mapping[str, Any],
    place: Pointer,
    refused: list[tuple[Pointer, str]],
) -> dict[str, Any]:
    properties, more = rules.get("properties", {}), rules.get("additionalProperties", True)
    kept = {}
    for key, item in value.items():
        if key not in properties and more is False:
            refused.append(((*place, key), "there is no such key"))
            continue
        schema = properties.get(key, more if isinstance(more, Mapping) else {})
        fitted = _fit(root, schema, item, (*place, key), refused)
        if fitted is not _DROPPED:
            kept[key] = fitted
    return kept


def _refusal(rules: Mapping[str, Any], value: Any) -> str:
    """Why a value is not taken; empty when it is."""
    text = as_in_file(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    if _wrong_type(rules.get("type"), value):
        return f"{shown} is no {rules['type']}"
    if "enum" in rules and value not in rules["enum"]:
        return f"{shown} is not one of {', '.join(map(str, rules['enum']))}"
    if "const" in rules and value != rules["const"]:
        return f"{shown} is not {rules['const']}"
    if isinstance(value, str):
        return _text_refusal(rules, value, shown)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number_refusal(rules, value, shown)
    return ""


def _text_refusal(rules: Mapping[str, Any], value: str, shown: str) -> str:
    if len(value) < rules.get("minLength", 0):
        return f"{shown} is too short"
    if len(value) > rules.get("maxLength", math.inf):
        return f"{shown} is longer than {rules['maxLength']} characters"
    # A dollar of a JSON Schema is the end of the text, that of Python also a line feed before it.
    if "pattern" in rules and not re.search(re.sub(r"\$$", r"\\Z", rules["pattern"]), value):
        return f"{shown} is not of the form {rules['pattern']}"
    return ""


def _number_refusal(rules: Mapping[str, Any], value: float, shown: str) -> str:
    if "minimum" in rules and value < rules["minimum"]:
        return f"{shown} is below {rules['minimum']}"
    if "exclusiveMinimum" in rules and value <= rules["exclusiveMinimum"]:
        return f"{shown} is not above {rules['exclusiveMinimum']}"
    if "maximum" in rules and value > rules["maximum"]:
        return f"{shown} is above {rules['maximum']}"
    return ""


def _missing(root: Mapping[str, Any], schema: Any, value: Any, place: Pointer) -> Iterator[Pointer]:
    rules = _resolve(root, schema, value)
    if isinstance(value, Mapping):
        yield from ((*place, key) for key in rules.get("required", ()) if key not in value)
        for key, item in value.items():
            yield from _missing(root, rules.get("properties", {}).get(key, {}), item, (*place, key))
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _missing(root, rules.get("items", {}), item, (*place, i))
