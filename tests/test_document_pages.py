"""Pages of the data model: each kind has one, the records of a stream and the report of a conformance test as well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from every import every
from key_examples import BY_KEY
from trainspec_site import document_pages

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = sorted((ROOT / "schemas" / "v1").rglob("*.schema.json"))


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    index = json.loads((ROOT / "spec" / "v1" / "requirements.json").read_text(encoding="utf-8"))
    return document_pages.pages(ROOT, index["requirements"])


@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("MetricStream.md", {"Head", "Sample", "Event", "HistogramValue"}),
        ("ConformanceReport.md", {"Document", "ScenarioReport", "TrialReport", "Evidence"}),
    ],
)
def test_streams_and_reports_have_a_page(pages: dict[str, str], page: str, headings: set[str]) -> None:
    assert headings <= set(re.findall(r"^## (.+)$", pages[page], re.MULTILINE))
    assert f"]({page})" in pages["index.md"]


def test_keys_of_records_have_examples_of_their_own_kind(pages: dict[str, str]) -> None:
    row = r"^\| \*\*`k`\*\* \|.*\| Kind of the record\. \| (\S+) \|"
    assert re.findall(row, pages["MetricStream.md"], re.MULTILINE) == ["`e`", "`head`", "`m`"]


def test_every_key_has_an_example(pages: dict[str, str]) -> None:
    rows = [row for page in pages.values() for row in re.findall(r"^\| \**`.*\|$", page, re.MULTILINE)]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    values = [row for row in cells if len(row) == 7 and "](#" not in row[1] and row[1] != "mapping"]
    assert len(values) > 900
    assert [row[0] for row in values if not row[5]] == []


def examples(path: Path) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Each value that a schema gives as an example, with its place and the schema of its key."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    definitions = schema.get("$defs", schema.get("definitions"))
    for name, node in {"": schema, **definitions}.items():
        for key, value in node.get("properties", {}).items():
            for example in value.get("examples", ()):
                yield f"{name}.{key}", {**value, "$defs": definitions, "definitions": definitions}, example


@every("path", SCHEMAS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_of_a_schema_keep_it(path: Path) -> None:
    wrong = [(place, value) for place, schema, value in examples(path) if not jsonschema_rs.is_valid(schema, value)]
    assert wrong == []


def test_every_example_is_of_a_key_that_exists() -> None:
    given = {place for path in SCHEMAS for place, _, _ in examples(path)}
    roots = {json.loads(path.read_text(encoding="utf-8"))["title"] for path in SCHEMAS}
    wanted = {f".{key}" if name in roots else f"{name}.{key}" for name, key in BY_KEY}
    assert wanted <= given


def test_unknown_keys_in_examples_are_keys() -> None:
    kinds = document_pages.kinds_of(ROOT)
    for kind in ("ClusterProfile", "CheckpointPolicy", "TrainingPlan"):
        for path in BY_KEY[kind, "unknowns"][0]:
            assert path.split(".")[0] in kinds[kind].schema["properties"]


def test_a_histogram_in_examples_adds_up() -> None:
    bounds, counts = (BY_KEY["HistogramValue", key][0] for key in ("bounds", "counts"))
    assert len(counts) == len(bounds) + 1
    assert sum(counts) == BY_KEY["HistogramValue", "count"][0]


def test_a_manifest_and_a_task_are_shown_whole(pages: dict[str, str]) -> None:
    for page, needed in (("CheckpointManifest.md", "`size_bytes`"), ("ConformanceTask.md", "`trace_directory`")):
        (row,) = re.findall(rf"^\| \*\*{needed}\*\* \|.*$", pages[page], re.MULTILINE)
        assert row.split(" | ")[5]
