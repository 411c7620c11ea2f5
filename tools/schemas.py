"""Writes the published schemas from the typed documents."""

from __future__ import annotations

import ast
import copy
import inspect
import json
import sys
import textwrap
from typing import Any

import msgspec
from key_examples import BY_KEY

from trainspec_validate.documents.schema import schema_file
from trainspec_validate.documents.types import KINDS, SIDE_KINDS, Record
from trainspec_validate.documents.types.stream import StreamRecord
from trainspec_validate.model.catalog import accelerators, links, models
from trainspec_validate.model.metrics import Metric, events, metrics
from trainspec_validate.performance.costs.software import RELEASES
from trainspec_validate.rules._libraries import VENDORS

SITE = "https://trainspec.org"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
DRAFT_07 = "http://json-schema.org/draft-07/schema#"

OF_TAGS = {
    "kind": "Kind of the document, which selects its schema together with `apiVersion`.",
    "act": "Word for what is done, which decides the other keys.",
}
"""Keys that distinguish alternatives, which no field of a type declares."""
_NICS = {generation for _, generation in links().nic_rate_bytes_per_second}
EXAMPLES: dict[tuple[str, str], list[Any]] = BY_KEY | {
    ("Accelerator", "model"): list(accelerators()),
    ("Accelerator", "vendor"): sorted({entry.vendor for entry in accelerators().values()}),
    ("ScaleUp", "generation"): list(dict.fromkeys(generation for _, generation in links().scale_up)),
    ("Nic", "generation"): sorted(_NICS),
    ("Model", "name"): list(models()),
    ("SoftwareComponent", "name"): [*VENDORS, *dict.fromkeys(release.name for release in RELEASES)],
}
"""Values that editors offer; others are as good."""
BY_KEYWORD = {
    "additionalProperties": "TS-DOC-005",
    "required": "TS-DOC-006",
    "type": "TS-DOC-007",
    "enum": "TS-DOC-008",
    "minimum": "TS-DOC-009",
    "maximum": "TS-DOC-009",
    "exclusiveMinimum": "TS-DOC-009",
    "exclusiveMaximum": "TS-DOC-009",
    "minItems": "TS-DOC-009",
    "maxItems": "TS-DOC-009",
    "pattern": "TS-DOC-010",
    "minLength": "TS-DOC-010",
    "maxLength": "TS-DOC-010",
    "propertyNames": "TS-DOC-010",
}
"""Requirement that a failure of each keyword belongs to where the subschema names none."""


def schemas() -> dict[str, str]:
    """Text of every published schema by path under `schemas/v1/`: draft 2020-12, and the draft-07 copy for editors."""
    files = {}
    for kind in (*KINDS, *SIDE_KINDS):
        schema = document_schema(kind)
        files[schema_file(kind)] = _text(schema)
        files[f"draft-07/{schema_file(kind)}"] = _text(draft_07(schema, kind))
    stream = stream_schema()
    files[schema_file("MetricStream")] = _text(stream)
    files[f"draft-07/{schema_file('MetricStream')}"] = _text(draft_07(stream, "MetricStream"))
    return files


def stream_schema() -> dict[str, Any]:
    """The schema of one line of a metric stream: a head, a sample or an event."""
    generated = msgspec.json.schema(StreamRecord)
    definitions = generated["$defs"]
    docstrings = _docstrings()
    for name, definition in definitions.items():
        _describe_fields(name, definition, {"k": "Kind of the record.", **docstrings.get(name, {})})
    _plain(definitions)
    return {
        "$schema": DRAFT_2020,
        "$id": f"{SITE}/schemas/v1/{schema_file('MetricStream')}",
        "title": "MetricStream",
        "description": "One line of a metric stream: a head, a sample or an event.",
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in ("Head", "Sample", "Event")],
        "x-requirements": {"type": "TS-TEL-001"},
        "x-metrics": {name: _metric_note(metric) for name, metric in metrics().items()},
        "x-events": {name: event.title for name, event in events().items()},
        "$defs": dict(sorted(definitions.items())),
    }


def document_schema(kind: str) -> dict[str, Any]:
    """The schema of one kind in draft 2020-12, with descriptions from the docstrings of its fields."""
    model = {**KINDS, **SIDE_KINDS}[kind]
    generated = msgspec.json.schema(model)
    definitions = generated["$defs"]
    docstrings = _docstrings()
    for name, definition in definitions.items():
        _describe_fields(name, definition, {**OF_TAGS, **docstrings.get(name, {})})
    root = definitions.pop(model.__name__)
    _plain(root)
    _plain(definitions)
    properties = root["properties"]
    ordered = {"apiVersion": properties.pop("apiVersion"), "kind": properties.pop("kind"), **properties}
    ordered["kind"]["description"] = "Kind of the document, which selects its schema together with `apiVersion`."
    return {
        "$schema": DRAFT_2020,
        "$id": f"{SITE}/schemas/v1/{schema_file(kind)}",
        "title": kind,
        "description": root["description"],
        "type": "object",
        "properties": ordered,
        "required": [key for key in ordered if key in {*root["required"], "kind"}],
        "additionalProperties": False,
        "x-requirements": BY_KEYWORD,
        "$defs": dict(sorted(definitions.items())),
    }


def _metric_note(metric: Metric) -> dict[str, Any]:
    """What the catalog says of a metric: for readers; whether a value is in its range is judged by the checks."""
    bounds = {"minimum": metric.minimum, "maximum": metric.maximum}
    note = {"title": metric.title, "instrument": metric.instrument, "unit": metric.unit, "scopes": list(metric.scopes)}
    return {**note, **{key: value for key, value in bounds.items() if value is not None}}


def draft_07(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """The same schema in draft-07, for editors: definitions renamed, siblings of a reference moved into `allOf`."""
    copied = _references_alone(copy.deepcopy(schema))
    copied["definitions"] = copied.pop("$defs")
    copied["$schema"] = DRAFT_07
    copied["$id"] = f"{SITE}/schemas/v1/draft-07/{schema_file(kind)}"
    result: dict[str, Any] = json.loads(json.dumps(copied).replace("#/$defs/", "#/definitions/"))
    return result


def _references_alone(node: Any) -> Any:
    # Draft-07 ignores everything beside "$ref": https://json-schema.org/draft-07/json-schema-core#section-8.3
    if isinstance(node, list):
        return [_references_alone(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _references_alone(value) for key, value in node.items()}
    if "$ref" in node and len(node) > 1:
        node["allOf"] = [{"$ref": node.pop("$ref")}]
    return node


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _describe_fields(name: str, definition: dict[str, Any], docstrings: dict[str, str]) -> None:
    for key, field in definition.get("properties", {}).items():
        if key in docstrings:
            field["description"] = docstrings[key]
        if (name, key) in EXAMPLES:
            field["examples"] = EXAMPLES[name, key]


def _plain(node: Any) -> None:
    """Leave out the null alternative and null defaults: an absent key says the same, with better errors."""
    if isinstance(node, list):
        for item in node:
            _plain(item)
    if not isinstance(node, dict):
        return
    alternatives = node.get("anyOf")
    if isinstance(alternatives, list):
        real = [option for option in alternatives if option != {"type": "null"}]
        if len(real) == 1:
            del node["anyOf"]
            node.update({key: value for key, value in real[0].items() if key not in node})
    if node.get("default", 0) is None or node.get("default") in ([], {}):
        del node["default"]
    for value in node.values():
        _plain(value)


def _docstrings() -> dict[str, dict[str, str]]:
    """Docstring of every field of every record, by class and field name."""
    found: dict[str, dict[str, str]] = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith("trainspec_validate.documents.types"):
            continue
        for record in vars(module).values():
            if inspect.isclass(record) and issubclass(record, Record) and record.__module__ == name:
                found[record.__name__] = _field_docstrings(record)
    return found


def _field_docstrings(record: type[Record]) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(record))).body[0]
    if not isinstance(body, ast.ClassDef):
        raise TypeError(f"{record.__name__} is not declared by a class statement")
    docstrings = {}
    for statement, following in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _literal(following)
            if text is None:
                raise SystemExit(f"{record.__name__}.{statement.target.id} has no docstring")
            docstrings[statement.target.id] = text
    return docstrings


def _literal(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return inspect.cleandoc(str(statement.value.value))
    return None
