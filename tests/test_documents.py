"""The published schemas and the typed documents accept the same values, and the schemas are what they claim to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.every import every
from tests.examples import examples
from tests.mutation.operators import leaves, replaced, without
from trainspec_validate import validate
from trainspec_validate.documents import schema
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import KINDS, read, read_plain

ROOT = Path(__file__).resolve().parent.parent
BASES = {data["kind"]: data for data in (load_file(p).data for p in (ROOT / "spec" / "v1" / "base").glob("*.yaml"))}
SCHEMAS = sorted((ROOT / "schemas" / "v1").rglob("*.schema.json"))

WORDS = st.sampled_from(["fp32", "bf16", "ring", "nvlink", "0", "", "x" * 200, "a b", "9.5", "trainspec/v1"])
NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 1, -1, 1.0, 8.0, 0.5, 1e8, 1e14, 1e21, 1.5, 64, 65, 1e-9, 0.1]),
)
VALUES = st.one_of(
    WORDS, NUMBERS, st.booleans(), st.just([]), st.just({}), st.lists(NUMBERS, max_size=3), st.just([{}])
)


def accepted_by_schema(kind: str, data: Any) -> bool:
    return not list(schema.failures(kind, data))


def accepted_by_model(kind: str, data: Any) -> bool:
    try:
        read(kind, data)
    except msgspec.ValidationError:
        return False
    return True


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, Any]:
    kind = draw(st.sampled_from(sorted(BASES)))
    data = BASES[kind]
    for _ in range(draw(st.integers(1, 3))):
        places = [pointer for pointer, _ in leaves(data)]
        pointer = draw(st.sampled_from(places))
        pointer = pointer[: draw(st.integers(1, len(pointer)))]
        if draw(st.booleans()):
            data = replaced(data, pointer, draw(VALUES))
        elif draw(st.booleans()):
            data = without(data, pointer)
        else:
            data = replaced(
                data, (*pointer[:-1], "extra_key") if isinstance(pointer[-1], str) else pointer, draw(VALUES)
            )
    return kind, data


@given(damaged())
@example(("ClusterProfile", {**BASES["ClusterProfile"], "num_nodes": 16.0}))
@example(("ClusterProfile", {**BASES["ClusterProfile"], "num_nodes": 16.5}))
@example(("ClusterProfile", {**BASES["ClusterProfile"], "num_nodes": True}))
@example(("ClusterProfile", {**BASES["ClusterProfile"], "extensions": {"nodots": 1}}))
@examples(400)
def test_schema_and_model_accept_the_same_values(case: tuple[str, Any]) -> None:
    kind, data = case
    assert accepted_by_schema(kind, data) == accepted_by_model(kind, data)


@given(damaged())
@example(("ClusterProfile", replaced(BASES["ClusterProfile"], ("clock",), None)))
@example(("ClusterProfile", replaced(BASES["ClusterProfile"], ("metadata", "name"), "example\n")))
@example(("ClusterProfile", {**BASES["ClusterProfile"], "extensions": {"org.example.a": {"deep": [None]}}}))
@examples(400)
def test_what_the_quick_reader_accepts_satisfies_the_schema(case: tuple[str, Any]) -> None:
    kind, data = case
    assert read_plain(kind, data) is None or accepted_by_schema(kind, data)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_quick_reader_takes_plain_documents(kind: str) -> None:
    assert read_plain(kind, BASES[kind]) == read(kind, BASES[kind])


def test_absent_and_null_differ_for_the_schema() -> None:
    data = replaced(BASES["ClusterProfile"], ("clock",), None)
    (failure,) = schema.failures("ClusterProfile", data)
    assert failure.pointer == ("clock",)
    assert "leave the key out" in failure.help


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_base_document_is_accepted(kind: str) -> None:
    assert accepted_by_schema(kind, BASES[kind])
    assert isinstance(read(kind, BASES[kind]), KINDS[kind])


@pytest.mark.slow
@every("path", SCHEMAS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_schema_is_valid_against_its_meta_schema(path: Path) -> None:
    text = json.loads(path.read_text(encoding="utf-8"))
    validator = jsonschema.validators.validator_for(text, default=None)
    assert validator is not None
    validator.check_schema(text)


@every("path", SCHEMAS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_every_field_has_a_description(path: Path) -> None:
    missing = list(undescribed(json.loads(path.read_text(encoding="utf-8"))))
    assert missing == []


def undescribed(node: Any, place: str = "") -> Any:
    if isinstance(node, dict):
        for key, field in node.get("properties", {}).items() if isinstance(node.get("properties"), dict) else ():
            if isinstance(field, dict) and not field.get("description"):
                yield f"{place}.{key}"
        for key, value in node.items():
            yield from undescribed(value, f"{place}.{key}")
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from undescribed(item, f"{place}.{index}")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_draft_07_copy_agrees(kind: str) -> None:
    """The editor's copy accepts the base document and refuses each of its retyped values."""
    text = (ROOT / "schemas" / "v1" / "draft-07" / schema.schema_file(kind)).read_text(encoding="utf-8")
    validator = jsonschema.Draft7Validator(json.loads(text))
    assert validator.is_valid(BASES[kind])
    for pointer, _ in leaves(BASES[kind]):
        damaged_data = replaced(BASES[kind], pointer, {"not": "this"})
        assert validator.is_valid(damaged_data) == accepted_by_schema(kind, damaged_data), pointer


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_only_keywords_that_both_drafts_have(kind: str) -> None:
    text = json.dumps(schema.load_schema(kind))
    for keyword in (
        "unevaluatedProperties",
        "dependentRequired",
        "dependentSchemas",
        "prefixItems",
        "$dynamicRef",
    ):
        assert f'"{keyword}"' not in text


def test_integral_floats_are_whole_numbers() -> None:
    data = {**BASES["ClusterProfile"], "num_nodes": 16.0}
    document = read("ClusterProfile", data)
    assert document.num_nodes == 16  # type: ignore[union-attr]
    assert isinstance(document.num_nodes, int)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("num_nodes: 16\n", "num_nodes: 016\n", 7, "016 is 16 in YAML 1.2 and 14 in YAML 1.1 (write 16)"),
        (
            "name: example-cluster",
            "name: no",
            5,
            "no is 'no' in YAML 1.2 and false in YAML 1.1 (write \"no\" in quotes",
        ),
    ],
)
def test_values_that_readers_of_yaml_take_differently_are_reported(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    """A count with a leading zero is no silent 16, and a name `no` no silent name: other readers have 14 and false."""
    text = (ROOT / "spec" / "v1" / "base" / "cluster.yaml").read_text(encoding="utf-8")
    assert text.count(old) >= 1
    file = tmp_path / "cluster.yaml"
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    (found,) = [finding for finding in validate([file]).findings if finding.requirement == "TS-DOC-020"]
    assert found.span is not None
    assert found.span.line == line
    assert says in f"{found.message} ({found.help})"
    file.write_text(text, encoding="utf-8")
    assert not validate([file]).findings


@pytest.mark.parametrize(
    ("day", "is_one"),
    [
        ("2026-01-31", True),
        ("2024-02-29", True),
        ("2000-02-29", True),
        ("2026-02-29", False),
        ("2026-02-30", False),
        ("2026-04-31", False),
        ("2026-13-01", False),
        ("2026-00-10", False),
        ("0206-01-10", False),
        ("2206-01-10", False),
        ("2026-1-10", False),
    ],
)
def test_a_day_is_one_of_the_calendar(day: str, is_one: bool, tmp_path: Path) -> None:
    base = BASES["ClusterProfile"]
    source = {"title": "page", "reference": "https://example.org/page", "accessed": day}
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({**base, "metadata": {"name": "example-cluster", "sources": [source]}}), "utf-8")
    found = [(finding.requirement, finding.help) for finding in validate([path]).findings]
    told = "write a day of the calendar in this century as year-month-day, such as 2026-01-31"
    assert found == ([] if is_one else [("TS-DOC-010", told)])
