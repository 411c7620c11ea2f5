"""The pages as Markdown, and `llms.txt`: complete, linked to each other, and without what only MkDocs understands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from site_visit import ROOT
from trainspec_site import navigation, plain_pages, print_page, stage

LISTED = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<address>[^)]+)\)(?:: (?P<summary>.+))?$")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site that has the folders of all pages, as MkDocs makes them, and what lies beside the pages."""
    pages, site = tmp_path_factory.mktemp("pages") / "pages", tmp_path_factory.mktemp("site")
    stage.stage(ROOT, pages, "https://host/blob")
    for path in pages.rglob("*"):
        found = site / path.relative_to(pages)
        if path.suffix == ".md":
            found = site / plain_pages.markdown_of(path.relative_to(pages).as_posix())
        elif path.is_dir():
            continue
        found.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            found.touch()
    text = navigation.settings(ROOT)
    menu = yaml.safe_load(text[text.index(navigation.START) :])["nav"]
    plain_pages.write(pages, site, menu)
    return site


def entries(site: Path) -> list[re.Match[str]]:
    lines = (site / plain_pages.FILE).read_text(encoding="utf-8").splitlines()
    found = [LISTED.fullmatch(line) for line in lines if line.startswith("- ")]
    assert all(found), "each entry has the form that llmstxt.org describes"
    return [match for match in found if match]


def broken_links(site: Path) -> list[str]:
    broken = []
    for page in sorted(site.rglob("*.md")):
        links = stage.LINK.finditer(stage.FENCE.sub("", page.read_text(encoding="utf-8")))
        wrong = [link["target"] for link in links if not (page.parent / link["target"]).exists()]
        broken += [f"{page.relative_to(site)}: {target}" for target in wrong]
    return broken


@pytest.mark.slow
def test_the_list_names_every_page_of_the_menu(plain: Path) -> None:
    text = navigation.settings(ROOT)
    menu = yaml.safe_load(text[text.index(navigation.START) :])["nav"]
    named = [entry["address"] for entry in entries(plain)]
    assert named == [plain_pages.markdown_of(page) for page in print_page.pages_in_order(menu)]
    assert not [address for address in named if not (plain / address).is_file()]
    assert (plain / plain_pages.FILE).read_text(encoding="utf-8").startswith("# TrainSpec\n\n> ")


@pytest.mark.slow
def test_an_entry_has_the_title_and_the_first_sentence(plain: Path) -> None:
    (entry,) = [entry for entry in entries(plain) if entry["address"] == "v1/09-telemetry/index.md"]
    assert entry["title"] == "Telemetry"
    assert entry["summary"].startswith("This page says what a metric stream is")


def test_the_facts_of_a_requirement_are_a_line_of_words(plain: Path) -> None:
    text = (plain / "rules" / "PAR" / "TS-PAR-001" / "index.md").read_text(encoding="utf-8")
    assert "<p" not in text
    assert "<span" not in text
    assert "\nMUST, ground: [arithmetic](" in text


def test_links_of_the_pages_lead_to_pages(plain: Path) -> None:
    assert broken_links(plain) == []


def test_a_link_keeps_its_place_and_code_stays_as_it_is() -> None:
    fence = "```md\n[b](../guide/b.md)\n```\n"
    text = f"---\ntitle: x\n---\n# A\n\n[b](../guide/b.md#c){{ .md-button }} [t](table.json)\n\n{fence}"
    found = plain_pages.plain(text, "v1/a.md", {"v1/a.md": "", "guide/b.md": ""})
    assert found == f"# A\n\n[b](../../guide/b/index.md#c) [t](../../v1/table.json)\n\n{fence}"


def test_the_list_above_the_versions_leads_to_one_of_them() -> None:
    assert plain_pages.with_base("# T\n\n- [A](a/index.md): [x](y)\n", "latest/") == (
        "# T\n\n- [A](latest/a/index.md): [x](y)\n"
    )


def test_the_built_site_has_them(built: Path, site: Path) -> None:
    assert len(entries(built)) > 50
    assert not [entry["address"] for entry in entries(built) if not (built / entry["address"]).is_file()]
    assert broken_links(built) == []
    missing = [entry["address"] for entry in entries(site) if not (site / entry["address"]).is_file()]
    assert missing == ["latest/playground/index.md", "latest/rules/index.md"], (
        "the older version was made without these"
    )
