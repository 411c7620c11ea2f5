"""The appendix of hardware has each row of the tables, with a source that is known and dated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import hardware_pages
import pytest
from spec_text import SpecificationError
from trainspec_site.source_links import SOURCE

from trainspec_validate.documents.load import load_file

DIRECTORY = Path(__file__).resolve().parent.parent / "spec" / "v1"
PAGE = (DIRECTORY / "91-hardware.md").read_text(encoding="utf-8")


def table(name: str) -> Any:
    return load_file(DIRECTORY / f"{name}.yaml").data


def rows(section: str) -> list[list[str]]:
    text = PAGE.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]


def test_every_accelerator_has_its_row() -> None:
    named = [row[0].strip("`") for row in rows("Accelerators") if row[0].startswith("`")]
    assert named == [entry["name"] for entry in table("accelerators")["accelerators"]]


def test_every_link_has_its_row() -> None:
    links = table("links")
    wanted = [hardware_pages._name(row) for kind in ("scale_up", "host_links", "nics") for row in links[kind]]
    assert [row[0] for row in rows("Links") if row[0] not in {"link", "kind"}] == wanted


def test_figures_are_those_of_the_table() -> None:
    (row,) = [row for row in rows("Accelerators") if row[0] == "`nvidia-h100-sxm-80gb`"]
    assert row[1:7] == [
        "85.52 GB",
        "3.35 TB/s",
        "bf16 989, fp16 989, fp8 1,979, tf32 494.5",
        "794.5",
        "700 W",
        "nvlink 4",
    ]


def test_every_source_has_a_day_and_a_standing() -> None:
    for entry in table("sources")["sources"]:
        assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", entry["dated"]), entry
        assert entry["standing"] in {"maker", "standard", "collection", "secondary"}
        assert entry["words"]


def test_every_source_of_a_row_is_a_link() -> None:
    links = table("links")
    rows = [
        *table("accelerators")["accelerators"],
        *(row for kind in ("scale_up", "host_links", "nics") for row in links[kind]),
    ]
    parts = [part.strip() for row in rows for part in row["source"].split(";")]
    assert len(parts) > 80
    assert [part for part in parts if not SOURCE.match(part)] == []


def test_a_source_that_nobody_knows_is_refused() -> None:
    known = hardware_pages.Sources([{"starts": "a/b@1"}])
    assert known.cell("a/b@1:c.md", "note") == "note; a/b@1:c.md"
    with pytest.raises(SpecificationError, match=r"no entry of sources\.yaml has the start of 'x/y@2'"):
        known.cell("a/b@1; x/y@2", "")


def test_a_maker_that_has_no_words_is_refused() -> None:
    rows = [{"name": "npu-1", "vendor": "new-maker"}]
    with pytest.raises(
        SpecificationError, match=r"the vendor 'new-maker' is not in MAKERS of tools/hardware_pages\.py"
    ):
        list(hardware_pages._makers(rows, hardware_pages.Sources([])))


def test_a_source_without_a_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no row comes from 'a/b@1'"):
        list(hardware_pages.Sources([{"starts": "a/b@1"}]).rows())
