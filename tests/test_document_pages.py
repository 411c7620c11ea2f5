"""Pages of the data model: each kind has one, the records of a stream and the report of a conformance test as well."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from trainspec_site import document_pages

ROOT = Path(__file__).resolve().parent.parent


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


def test_most_keys_have_an_example(pages: dict[str, str]) -> None:
    """Others are texts of any form, and keys that no document or example of the repository gives."""
    rows = [row for page in pages.values() for row in re.findall(r"^\| \**`.*\|$", page, re.MULTILINE)]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    values = [row for row in cells if len(row) == 7 and "](#" not in row[1] and row[1] != "mapping"]
    assert len(values) > 900
    without = [row[0] for row in values if not row[5]]
    assert len(without) < 0.16 * len(values)


def test_a_manifest_and_a_task_are_shown_whole(pages: dict[str, str]) -> None:
    for page, needed in (("CheckpointManifest.md", "`size_bytes`"), ("ConformanceTask.md", "`trace_directory`")):
        (row,) = re.findall(rf"^\| \*\*{needed}\*\* \|.*$", pages[page], re.MULTILINE)
        assert row.split(" | ")[5]
