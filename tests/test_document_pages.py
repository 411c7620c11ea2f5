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
