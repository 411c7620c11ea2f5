"""Writes a page for each kind of document from its schema: each key with type, unit, bounds, meaning, requirements."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

Key = tuple[str, str]
"""A definition of a schema, empty for the document itself, and a key of it."""
KINDS = {"cluster.yaml": "ClusterProfile", "plan.yaml": "TrainingPlan", "checkpoint.yaml": "CheckpointPolicy"}
"""Kinds of the excerpts in examples of requirements, by their file."""
SAMPLES = ("spec/v1/base/*.yaml", "examples/*/*.yaml", "conformance/stacks/*.yaml", "conformance/scenarios/*/*.yaml")
SAMPLES += ("conformance/results/*-torch/report.json", "conformance/results/*/report*.json")
TEXTS = ("spec/guide/*.md", "spec/v1/*.md")
"""Pages that show whole documents in fences."""
FENCE = re.compile(r"^```(?:yaml|json)[^\n]*\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
LIMITS = {
    "minimum": "at least {}", "exclusiveMinimum": "above {}", "maximum": "at most {}", "exclusiveMaximum": "below {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "minItems": "at least {} items",
    "maxItems": "at most {} items", "pattern": "form `{}`",
}  # fmt: skip
RECORDS = {"head": "Head", "m": "Sample", "e": "Event"}
"""Definitions of the records of a stream, by their key `k`."""
MAX_EXAMPLE = 40
NAMING = frozenset({"name", "fault", "layer", "apiVersion", "kind"})
"""Keys that an excerpt repeats to say which item it changes."""
INTRODUCTION = """\
# Data model

A page for each kind of document, made from its [schema](../../schemas/v1/README.md): every key with its type, unit,
bounds and meaning, an example, and the requirements whose check or example concerns the key. An example is a value
from a document of the repository, or one that the schema gives; a long one ends with `…`. Units are UCUM codes.
[Documents](../v1/01-documents.md) specifies the form that all kinds share.

| kind | describes |
|---|---|
"""
HEAD = "| key | type | unit | bounds | meaning | example | requirements |\n|---|---|---|---|---|---|---|"


@dataclass(slots=True)
class Kind:
    """The schema of a kind of document, with what is known of each key."""

    schema: Mapping[str, Any]
    examples: dict[Key, str] = field(default_factory=dict)
    cut_examples: dict[Key, str] = field(default_factory=dict)
    shared_examples: dict[Key, str] = field(default_factory=dict)
    requirements: dict[Key, list[str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kind."""
        return str(self.schema["title"])

    @property
    def is_of_documents(self) -> bool:
        """Whether it has the key `kind`; a stream has it in one of its records."""
        records = [self.definition(str(one["$ref"]).rsplit("/", 1)[1]) for one in self.schema.get("oneOf", ())]
        return any("kind" in node.get("properties", {}) for node in (self.schema, *records))

    def definition(self, name: str) -> Mapping[str, Any]:
        """A definition by its name."""
        found: Mapping[str, Any] = self.schema["$defs"][name] if name else self.schema
        return found

    def values(self, value: Any, node: Mapping[str, Any], owner: str = "") -> Iterator[tuple[Key, Any]]:
        """Each key that a value gives, with what it gives."""
        if "$ref" in node:
            owner = str(node["$ref"]).rsplit("/", 1)[1]
            node = self.definition(owner)
        for choice in (*node.get("anyOf", ()), *node.get("oneOf", ())):
            yield from self.values(value, choice, owner)
        if isinstance(value, list) and isinstance(node.get("items"), dict):
            for item in value:
                yield from self.values(item, node["items"], owner)
        if isinstance(value, dict):
            for key, inner in value.items():
                known = node.get("properties", {}).get(key)
                if known is not None:
                    yield (owner, str(key)), inner
                    yield from self.values(inner, known, owner)


def kinds_of(root: Path) -> dict[str, Kind]:
    """The kinds of documents that have a page, by name."""
    schemas = [json.loads(path.read_text(encoding="utf-8")) for path in (root / "schemas" / "v1").glob("*.schema.json")]
    return {kind.name: kind for kind in map(Kind, schemas) if kind.is_of_documents}


def pages(root: Path, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Text of every page, by its path below `documents/`."""
    kinds = kinds_of(root)
    for path in (path for glob in SAMPLES for path in sorted(root.glob(glob))):
        _take_examples(kinds, _read(path.read_text(encoding="utf-8")))
    for entry in entries:
        _take_requirement(kinds, entry)
        _take_records(kinds, entry)
        _take_excerpts(kinds, entry)
    for path in (path for glob in TEXTS for path in sorted(root.glob(glob))):
        for fence in FENCE.finditer(path.read_text(encoding="utf-8")):
            if "kind" in fence["text"]:
                _take_examples(kinds, _read_or_none(fence["text"]))
    _share(kinds.values())
    rows = [f"| [{name}]({name}.md) | {kinds[name].schema['description']} |" for name in sorted(kinds)]
    return {"index.md": INTRODUCTION + "\n".join([*rows, ""])} | {
        f"{name}.md": _page(kind, {str(entry["id"]): str(entry["chapter"]) for entry in entries})
        for name, kind in kinds.items()
    }


def _read(text: str) -> Any:
    """The value of a text in YAML, read by libyaml where PyYAML was built with it: that takes a tenth of the time."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe


def _read_or_none(text: str) -> Any:
    """The value of an excerpt, or None where it is no YAML on its own."""
    try:
        return _read(text)
    except yaml.YAMLError:
        return None


def _take_examples(kinds: Mapping[str, Kind], document: Any) -> None:
    kind = kinds.get(document.get("kind", "")) if isinstance(document, dict) else None
    if kind is not None:
        _keep_examples(kind, kind.values(document, kind.schema))


def _take_records(kinds: Mapping[str, Kind], entry: Mapping[str, Any]) -> None:
    """Values of the records in good examples of streams."""
    kind = kinds["MetricStream"]
    for example in entry["good"]:
        for line in example["text"].splitlines() if example["file"] == "stream.jsonl" else ():
            record = json.loads(line)
            name = RECORDS.get(record.get("k", ""), "")
            if name:
                _keep_examples(kind, kind.values(record, {"$ref": f"#/$defs/{name}"}))


def _take_excerpts(kinds: Mapping[str, Kind], entry: Mapping[str, Any]) -> None:
    """Values of the excerpts in good examples of documents."""
    for example in entry["good"]:
        kind = kinds.get(KINDS.get(example["file"], ""))
        if kind is not None:
            _keep_examples(kind, kind.values(_read_or_none(example["text"]), kind.schema))


def _keep_examples(kind: Kind, values: Iterable[tuple[Key, Any]]) -> None:
    for key, value in values:
        text = json.dumps(value, ensure_ascii=False, default=str)
        if not isinstance(value, dict) and value != [] and len(text) <= MAX_EXAMPLE and "{" not in text:
            kind.examples.setdefault(key, text.strip('"'))
        elif cut := _cut(value):
            kind.cut_examples.setdefault(key, cut)


def _text(value: Any) -> str | None:
    text = json.dumps(value, ensure_ascii=False)
    return text.strip('"') if len(text) <= MAX_EXAMPLE and not isinstance(value, dict) else _cut(value)


def _cut(value: Any) -> str | None:
    """The begin of a long value: of a text, of the items of a list, of the pairs of a mapping.

    >>> _cut({"NCCL_DEBUG": "INFO"}), _cut(["rank-0.json"] * 9), _cut([{"step": 1}])
    ('{"NCCL_DEBUG": "INFO"}', '["rank-0.json", "rank-0.json", …]', None)
    """
    if isinstance(value, str):
        return value if len(value) < MAX_EXAMPLE else f"{value[: MAX_EXAMPLE - 1].split(chr(10))[0].strip()}…"
    if isinstance(value, list) and value and not isinstance(value[0], dict | list):
        return _first("[{}]", [json.dumps(item, ensure_ascii=False, default=str) for item in value])
    if isinstance(value, dict) and value:
        return _first(
            "{{{}}}", [json.dumps({key: inner}, ensure_ascii=False, default=str)[1:-1] for key, inner in value.items()]
        )
    return None


def _first(form: str, items: Sequence[str]) -> str:
    """As many of the items as there is room for, at least one."""
    number = max([1, *(n for n in range(1, len(items) + 1) if len(", ".join(items[:n])) <= MAX_EXAMPLE)])
    shown = [item if len(item) <= MAX_EXAMPLE else f'{item[: MAX_EXAMPLE - 2].strip()}…"' for item in items[:number]]
    return form.format(", ".join([*shown, *(["…"] if number < len(items) else [])]))


def _share(kinds: Collection[Kind]) -> None:
    """Show a key of a definition that several kinds have with the value that one of them gives."""
    for kind in kinds:
        for other in kinds:
            for key, value in [*other.examples.items(), *other.cut_examples.items()]:
                if key[0] and kind.schema["$defs"].get(key[0], {}) == other.schema["$defs"][key[0]]:
                    kind.shared_examples.setdefault(key, value)


def _take_requirement(kinds: Mapping[str, Kind], entry: Mapping[str, Any]) -> None:
    for example in entry["bad"]:
        kind = kinds.get(KINDS.get(example["file"], ""))
        if kind is None or entry["check"] not in ("rule", "schema") or "apiVersion" in example["text"]:
            continue
        for key, value in kind.values(_read(example["text"]), kind.schema):
            identifiers = kind.requirements.setdefault(key, [])
            scalar = not isinstance(value, dict) and "{" not in json.dumps(value, default=str)
            if scalar and key[1] not in NAMING and entry["id"] not in identifiers:
                identifiers.append(entry["id"])


def _page(kind: Kind, chapters: Mapping[str, str]) -> str:
    lines = [f"# {kind.name}", "", str(kind.schema["description"]), ""]
    lines += ["A key in bold is needed; any other one can be left out.", ""]
    for name in ("", *kind.schema.get("$defs", {})):
        node = kind.definition(name)
        if "properties" not in node:
            continue
        lines += [f"## {name or 'Document'}", ""]
        lines += [str(node["description"]), ""] if name and "description" in node else []
        lines.append(HEAD)
        for key, value in node["properties"].items():
            lines.append(_row(kind, (name, key), value, chapters))
        lines.append("")
    return "\n".join(lines)


def _row(kind: Kind, key: Key, node: Mapping[str, Any], chapters: Mapping[str, str]) -> str:
    needed = key[1] in kind.definition(key[0]).get("required", ())
    used = [node["x-requirement"]] if isinstance(node.get("x-requirement"), str) else []
    used += [each for each in kind.requirements.get(key, ()) if each not in used]
    given = kind.examples.get(key) or kind.cut_examples.get(key) or kind.shared_examples.get(key)
    example = given or next(map(_text, node.get("examples", ())), None) or _named_value(node)
    kept_elsewhere = "](#" in _type(node) or _type(node) == "mapping"
    if example and example.startswith("{") and kept_elsewhere:
        example = None
    cells = (
        f"**`{key[1]}`**" if needed else f"`{key[1]}`",
        _type(node),
        f"`{unit}`" if (unit := _found(node, "x-unit")) else "",
        "; ".join(_bounds(node)),
        str(node.get("description", "")),
        "" if example is None else f"`{example}`",
        ", ".join(f"[{each}](../v1/{chapters[each]}.md#{each})" for each in used),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in cells)} |"


def _type(node: Mapping[str, Any]) -> str:
    if "$ref" in node:
        name = str(node["$ref"]).rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    choices = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if choices:
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in node:
        return "one of"
    if node.get("type") == "array":
        return f"list of {_type(node['items'])}" if isinstance(node.get("items"), dict) else "list"
    if node.get("type") == "object":
        values = node.get("additionalProperties")
        return f"mapping to {_type(values)}" if isinstance(values, dict) and values else "mapping"
    named = node.get("type", "any")
    return " or ".join(named) if isinstance(named, list) else str(named)


def _named_value(node: Mapping[str, Any]) -> str | None:
    """A value that a schema names itself: a constant, the first of several, `true`, or a default that is not empty.

    >>> _named_value({"type": "array", "items": {"enum": ["model", "step"]}}), _named_value({"type": "integer"})
    ('["model"]', None)
    """
    if "const" in node or "enum" in node:
        return json.dumps(node.get("const", next(iter(node.get("enum", ())), None))).strip('"')
    if node.get("type") == "boolean":
        return "true"
    if node.get("type") == "array" and "enum" in node.get("items", {}):
        return json.dumps(node["items"]["enum"][:1])
    if node.get("default"):
        return json.dumps(node["default"]).strip('"')
    return next(filter(None, map(_named_value, (*node.get("anyOf", ()), *node.get("oneOf", ())))), None)


def _bounds(node: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in node:
        yield ", ".join(f"`{json.dumps(value).strip(chr(34))}`" for value in node["enum"])
    for keyword, words in LIMITS.items():
        if keyword in node:
            value = node[keyword]
            yield words.format(
                value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"
            )
    for inner in (*node.get("anyOf", ()), *node.get("oneOf", ()), node.get("items")):
        if isinstance(inner, dict) and "$ref" not in inner:
            yield from _bounds(inner)
    if "default" in node:
        yield f"default `{json.dumps(node['default'])}`"


def _found(node: Mapping[str, Any], keyword: str) -> str:
    inner = (*node.get("anyOf", ()), node.get("items") or {})
    return str(node.get(keyword) or next((each[keyword] for each in inner if keyword in each), ""))
