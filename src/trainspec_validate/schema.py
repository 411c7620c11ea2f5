"""The only place that judges a plain value against a published schema and words what it finds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from trainspec_validate.findings import Pointer
from trainspec_validate.requirements import DATA_DIRECTORY
from trainspec_validate.suggest import hint


@dataclass(frozen=True, slots=True)
class SchemaFailure:
    """One place where a value breaks its schema."""

    requirement: str
    pointer: Pointer
    key: bool
    """True when the finding is about the key, not the value."""
    message: str
    help: str = ""


def schema_file(kind: str) -> str:
    """File name of the schema of a kind: `ClusterProfile` is judged by `cluster-profile.schema.json`."""
    dashed = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in kind).lstrip("-")
    return f"{dashed}.schema.json"


@cache
def load_schema(kind: str) -> dict[str, Any]:
    """The packaged schema of a kind."""
    import json  # noqa: PLC0415

    text = (DATA_DIRECTORY / "schemas" / schema_file(kind)).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@cache
def _validator(kind: str) -> Any:
    import jsonschema_rs  # noqa: PLC0415

    return jsonschema_rs.Draft202012Validator(load_schema(kind))


def failures(kind: str, data: Any) -> Iterator[SchemaFailure]:
    """Every place where `data` breaks the schema of its kind, in document order of discovery."""
    validator = _validator(kind)
    if validator.is_valid(data):
        return
    schema = load_schema(kind)
    for error in validator.iter_errors(data):
        yield from _explain(error, schema)


def _explain(error: Any, schema: Mapping[str, Any]) -> Iterator[SchemaFailure]:
    keyword = str(error.kind.name)
    pointer: Pointer = tuple(error.instance_path)
    trail = list(_subschemas(schema, error.schema_path))
    parent = trail[-1]
    if keyword == "additionalProperties":
        for key in error.kind.unexpected:
            help_text = hint(key, parent.get("properties", {}))
            yield SchemaFailure(_owner(schema, [], keyword), (*pointer, key), True, f"unknown key {key!r}", help_text)
        return
    if keyword == "required":
        missing = error.kind.property
        wanted = parent.get("properties", {}).get(missing, {})
        requirement = _owner(schema, [wanted], keyword)
        message = f"{_place_name(pointer)} lacks the key {missing!r}"
        yield SchemaFailure(requirement, pointer, True, message, _describe(wanted, schema))
        return
    message, help_text = _value_message(keyword, error, parent)
    yield SchemaFailure(_owner(schema, trail, keyword), pointer, keyword == "propertyNames", message, help_text)


def _subschemas(schema: Mapping[str, Any], path: list[str | int]) -> Iterator[Mapping[str, Any]]:
    """The schemas from the root to the one whose keyword failed; the keyword itself is the path's last step."""
    here: Any = schema
    yield schema
    for step in path[:-1]:
        here = here[step]
        if isinstance(here, dict) and step not in {"properties", "$defs"}:
            yield here


def _owner(schema: Mapping[str, Any], trail: list[Mapping[str, Any]], keyword: str) -> str:
    """The requirement that a failure belongs to: the nearest `x-requirement`, else that of the keyword."""
    for subschema in reversed(trail):
        if "x-requirement" in subschema:
            return str(subschema["x-requirement"])
    by_keyword: Mapping[str, str] = schema["x-requirements"]
    return by_keyword.get(keyword, by_keyword["type"])


def _place_name(pointer: Pointer) -> str:
    return ".".join(str(step) for step in pointer) or "the document"


def _describe(subschema: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What a missing key would hold, in the schema's own words."""
    target = subschema
    if "$ref" in subschema:
        target = schema["$defs"][str(subschema["$ref"]).rsplit("/", 1)[1]]
    text = str(subschema.get("description") or target.get("description") or "").split("\n")[0]
    if "enum" in target:
        return f"{text} One of: {', '.join(str(option) for option in target['enum'])}".strip()
    return text


_TYPE_WORDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


def _value_message(keyword: str, error: Any, subschema: Mapping[str, Any]) -> tuple[str, str]:
    value = error.instance
    unit = _unit(subschema)
    match keyword:
        case "type":
            return _type_message(value, subschema)
        case "enum" | "const":
            options = [str(option) for option in subschema.get("enum", [subschema.get("const")])]
            return f"{_show(value)} is not a value of this key", hint(str(value), options)
        case "minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum":
            return _range_message(value, subschema, unit)
        case "pattern":
            return f"{_show(value)} is not of the required form", f"the form is {subschema['pattern']}"
        case "minLength" | "maxLength":
            low, high = subschema.get("minLength", 0), subschema.get("maxLength", "any")
            return f"the text has {len(value)} characters", f"the length is {low} to {high}"
        case "minItems" | "maxItems":
            return f"the list has {len(value)} items", f"at least {subschema.get('minItems', 0)} are needed"
        case "propertyNames":
            return f"the key {_show(value)} is not of the required form", str(error.message)
        case _:
            return str(error.message), ""


def _type_message(value: Any, subschema: Mapping[str, Any]) -> tuple[str, str]:
    wanted = subschema.get("type", "object")
    words = " or ".join(_TYPE_WORDS[name] for name in ([wanted] if isinstance(wanted, str) else wanted))
    if value is None:
        return f"the key has no value; {words} is needed", "give the value, or leave the key out"
    unit = _unit(subschema)
    help_text = f"write the number in base units ({unit}), without a suffix" if unit and isinstance(value, str) else ""
    return f"{_show(value)} is not {words}", help_text


def _range_message(value: Any, subschema: Mapping[str, Any], unit: str) -> tuple[str, str]:
    low = subschema.get("minimum", subschema.get("exclusiveMinimum"))
    high = subschema.get("maximum", subschema.get("exclusiveMaximum"))
    side = "above" if "exclusiveMinimum" in subschema else "at least"
    bounds = [f"{side} {low:g}" if low is not None else "", f"at most {high:g}" if high is not None else ""]
    unit_text = f", in base units ({unit})" if unit else ""
    return f"{_show(value)} is out of range", " and ".join(bound for bound in bounds if bound) + unit_text


def _unit(subschema: Mapping[str, Any]) -> str:
    unit = str(subschema.get("x-unit", ""))
    return "" if unit == "1" else unit


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value) if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else f"{value}"
    return text if len(text) <= 60 else f"{text[:57]}..."
