"""A reader without a server: pages are opened as files, and what cannot work so is said in words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from site_visit import PATIENCE_MILLISECONDS

pytest.importorskip("playwright", reason="playwright is not installed: run make site-test")
from playwright.sync_api import Page, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

expect.set_options(timeout=PATIENCE_MILLISECONDS)
SERVER = "need a web server"
NOT_FROM_FILES = "versions.json"
"""What the theme asks for to show other versions, which a browser refuses to a file."""


@pytest.fixture
def page(chromium: Browser, site: Path) -> Iterator[Page]:
    """The first page of the draft, opened as a file; afterwards nothing was loaded but files, and nothing failed."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    opened, errors, elsewhere = context.new_page(), [], []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: message.type == "error" and errors.append(message.text))
    context.on("request", lambda one: one.url.startswith(("file:", "data:", "blob:")) or elsewhere.append(one.url))
    opened.goto((site / "draft" / "index.html").as_uri())
    yield opened
    context.close()
    assert not elsewhere
    assert not [text for text in errors if NOT_FROM_FILES not in text and "ERR_FAILED" not in text]


def test_the_top_leads_to_the_latest_version(page: Page, site: Path) -> None:
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/latest/index.html")
    expect(page.locator("h1").first).to_contain_text("TrainSpec")


def test_links_lead_to_pages_and_not_to_folders(page: Page) -> None:
    page.locator("nav.md-tabs a", has_text="Reference").click()
    page.wait_for_url("**/reference/index.html")
    page.locator("article a[href*='collectives']").first.click()
    page.wait_for_url("**/reference/collectives/index.html*")
    page.locator("a.md-logo").first.click()
    page.wait_for_url("**/draft/index.html")


def test_a_short_address_lands_on_the_requirement(page: Page, site: Path) -> None:
    page.goto((site / "TS-CKP-011" / "index.html").as_uri())
    page.wait_for_url("**/latest/v1/*/index.html#TS-CKP-011")
    page.goto((site / "draft" / "TS-CKP-011" / "index.html").as_uri())
    page.wait_for_url("**/draft/v1/*/index.html#TS-CKP-011")
    expect(page.locator("#TS-CKP-011")).to_be_visible()
    page.locator("#TS-CKP-011 + .ts-facts a").click()
    page.wait_for_url("**/rules/CKP/TS-CKP-011/index.html")


def test_figures_are_shown(page: Page, site: Path) -> None:
    page.goto((site / "draft" / "figures" / "index.html").as_uri())
    figures = page.locator("figure img")
    expect(figures).not_to_have_count(0)
    assert page.evaluate("[...document.querySelectorAll('figure img')].every(one => one.complete && one.naturalWidth)")


def test_tables_narrow(page: Page, site: Path) -> None:
    page.goto((site / "draft" / "rules" / "index.html").as_uri())
    page.get_by_label("contains").fill("TS-PAR-001")
    expect(page.locator(".ts-filterable tbody tr:visible")).to_have_count(1)
    page.locator(".ts-filterable tbody tr:visible a").first.click()
    page.wait_for_url("**/rules/PAR/TS-PAR-001/index.html")


def test_the_search_works_or_says_that_it_needs_a_server(page: Page, site: Path) -> None:
    banner = page.locator(".ts-from-files")
    expect(banner).to_contain_text(SERVER)
    if not (site / "draft" / "assets" / "javascripts" / "iframe-worker.js").exists():
        expect(banner).to_contain_text("The search, the playground")
        return
    expect(banner).not_to_contain_text("search")
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").fill("TS-PAR-001")
    page.keyboard.press("End")  # the page looks at the words when a key is let go
    found = page.locator(".md-search-result__link[href*='TS-PAR-001']").first
    found.wait_for()
    found.click()
    page.wait_for_url(re.compile(r"TS-PAR-001.*/index\.html|/index\.html.*TS-PAR-001"))


def test_the_playground_says_that_it_needs_a_server(page: Page, site: Path) -> None:
    page.goto((site / "draft" / "playground" / "index.html").as_uri())
    expect(page.locator("[data-part=status]")).to_contain_text("from a web server only")


def test_a_page_that_is_served_does_not_speak_of_files(chromium: Browser, server: str) -> None:
    context = chromium.new_context()
    served = context.new_page()
    served.goto(f"{server}/draft/")
    served.wait_for_load_state("load")
    expect(served.locator(".ts-from-files")).to_have_count(0)
    context.close()
