"""A value of a wrong type, or one at the end of a range, at any key of a document is answered, never a failure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.rules.conftest import BASE, ROOT
from trainspec_validate.documents.load import load_text
from trainspec_validate.pipeline.validation import validate

SCHEMAS = {
    "cluster.yaml": "cluster-profile",
    "plan.yaml": "training-plan",
    "checkpoint.yaml": "checkpoint-policy",
}
VALUES = [
    *("{}", '{"a": {"b": 1}}', "[]", "[{}]", "[[1]]", "null", "true", '""', '"x"', '".."', ".nan", ".inf", "1e999"),
    *("0", "-1", "1e308", "5e-324", "9007199254740993", "1" + 400 * "0"),
]
"""As they are written in YAML."""
MARK = "@value@"
Path_ = tuple[str | int, ...]


def node_of(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in node or "anyOf" in node:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        else:
            node = next(choice for choice in node["anyOf"] if choice.get("type") != "null")
    return node


def key_paths(schema: dict[str, Any], node: dict[str, Any], path: Path_ = ()) -> Iterator[Path_]:
    node = node_of(schema, node)
    if path:
        yield path
    for key, inner in node.get("properties", {}).items():
        yield from key_paths(schema, inner, (*path, key))
    if isinstance(node.get("items"), dict):
        yield from key_paths(schema, node["items"], (*path, 0))


def put(data: Any, path: Path_, value: str) -> Any:
    """The data with a value at a path; what is missing on the way is made, of a list the first item is taken."""
    if not path:
        return value
    step, *rest = path
    if isinstance(step, int):
        items = list(data) if isinstance(data, list) else []
        return [put(items[0] if items else None, tuple(rest), value), *items[1:]]
    known = dict(data) if isinstance(data, dict) else {}
    return known | {step: put(known.get(step), tuple(rest), value)}


def cases() -> list[tuple[str, Path_]]:
    found: list[tuple[str, Path_]] = []
    for file, name in SCHEMAS.items():
        schema = json.loads((ROOT / "schemas" / "v1" / f"{name}.schema.json").read_text(encoding="utf-8"))
        found += [(file, path) for path in dict.fromkeys(key_paths(schema, schema))]
    return found


def failures(directory: Path, chosen: Iterator[tuple[str, Path_, str]]) -> list[str]:
    texts = {file: (BASE / file).read_text(encoding="utf-8") for file in SCHEMAS}
    base = {file: load_text(text, file).data for file, text in texts.items()}
    wrong = []
    for file, path, value in chosen:
        for other, text in texts.items():
            (directory / other).write_text(text, encoding="utf-8")
        changed = json.dumps(put(base[file], path, MARK)).replace(json.dumps(MARK), value)
        (directory / file).write_text(changed, encoding="utf-8")
        try:
            validate([directory])
        except Exception as error:
            wrong.append(f"{file} {'.'.join(map(str, path))}: {value[:20]}: {error!r}")
    return wrong


def test_the_schemas_have_the_keys() -> None:
    found = cases()
    assert len(found) > 800
    assert ("cluster.yaml", ("storage_targets", 0, "free_bytes")) in found
    assert ("plan.yaml", ("cluster", "name")) in found
    assert ("checkpoint.yaml", ("plan", "name")) in found


def test_references_of_any_type_are_answered(tmp_path: Path) -> None:
    places = [("plan.yaml", "cluster"), ("checkpoint.yaml", "plan"), ("checkpoint.yaml", "cluster")]
    keys = [(file, path) for file, key in places for path in ((key,), (key, "name"), (key, "file"))]
    assert failures(tmp_path, ((file, path, value) for file, path in keys for value in VALUES)) == []


def test_numbers_at_the_end_of_a_range_are_answered(tmp_path: Path) -> None:
    numbers = re.compile(r"(free|capacity|size)_bytes|bandwidth|seconds|num_kept|num_replicas")
    keys = [(file, path) for file, path in cases() if file != "plan.yaml" and numbers.search(str(path[-1]))]
    assert failures(tmp_path, ((file, path, "0") for file, path in keys)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_every_key_takes_a_value_of_any_type(tmp_path: Path, part: int) -> None:
    """Each key has two of the values, neighbours have others."""
    found = list(enumerate(cases()))[part::6]
    assert len(found) > 100
    chosen = ((*case, VALUES[(number + turn) % len(VALUES)]) for number, case in found for turn in (0, 7))
    assert failures(tmp_path, chosen) == []
