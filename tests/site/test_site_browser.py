"""A reader in a browser: chooses a version, searches, follows permanent links, filters tables, reads on a phone."""

from __future__ import annotations

import os
import re

import pytest
from site_visit import OLDER, Visit
from trainspec_site.search_words import PLACES

FOUND = ".md-search-result__link"
PHONE = {"width": 360, "height": 740}
PAGES = [
    "",
    "v1/00-contract/",
    "v1/04-parallelism/",
    "reference/blueprints/",
    "rules/",
    "rules/PAR/TS-PAR-001/",
    "reference/metrics/",
    "catalog/",
    "figures/",
    "playground/",
]


def search(visit: Visit, words: str, wanted: str, best: int) -> None:
    """Search, and wait until an address is among the best that are found."""
    page = visit.open("draft/")
    page.locator("input.md-search__input").click()
    page.locator("input.md-search__input").fill(words)
    page.keyboard.press("End")  # the page looks at the words when a key is let go
    page.wait_for_function(
        """([wanted, best]) => [...document.querySelectorAll(".md-search-result__link")].slice(0, best)
        .some(link => link.href.includes(wanted))""",
        arg=[wanted, best],
    )


def test_the_front_page_leads_to_the_latest_version(visit: Visit) -> None:
    page = visit.open("")
    page.wait_for_url("**/latest/")
    assert page.locator("h1").first.inner_text().startswith("TrainSpec")


def test_the_selector_changes_the_version(visit: Visit) -> None:
    page = visit.open("draft/v1/01-documents/")
    page.locator(".md-version__current").focus()  # the list opens, as it does below a mouse
    page.locator(".md-version__link", has_text=OLDER).click()
    page.wait_for_url(f"**/{OLDER}/**")
    assert "/v1/01-documents/" in page.url


def test_the_status_is_on_every_page(visit: Visit) -> None:
    page = visit.open("draft/v1/01-documents/")
    assert page.locator(".ts-status").inner_text() == "Draft"


def test_only_a_version_that_is_not_the_latest_says_so(visit: Visit) -> None:
    page = visit.open("draft/v1/01-documents/")
    page.get_by_text("This is not the latest version.").wait_for()
    page = visit.open("latest/v1/01-documents/")
    page.wait_for_function("Object.keys(sessionStorage).some(key => key.endsWith('latest/.__outdated'))")
    assert not page.get_by_text("This is not the latest version.").is_visible()


def test_search_finds_a_requirement_by_its_id(visit: Visit) -> None:
    search(visit, "TS-PAR-001", "TS-PAR-001", 3)


def test_search_finds_a_requirement_by_words(visit: Visit) -> None:
    search(visit, "interval declared", "TS-CKP-001", 8)


def test_search_leads_to_the_place_that_explains_the_words(visit: Visit) -> None:
    page = visit.open("latest/")
    field = page.locator("input.md-search__input")
    field.click()
    wrong = {}
    for place, words in ((place, words) for place, phrases in PLACES.items() for words in phrases):
        field.fill("")
        page.keyboard.press("End")
        page.wait_for_function(f"!document.querySelector('{FOUND}')")
        field.fill(words)
        page.keyboard.press("End")
        page.locator(FOUND).or_(page.get_by_text("No matching documents")).first.wait_for()
        found = page.locator(FOUND).first.get_attribute("href") or "" if page.locator(FOUND).count() else ""
        if not found.partition("?")[0].partition("#")[0].endswith(f"/latest/{place.partition('#')[0]}"):
            wrong[words] = found
    assert wrong == {}


@pytest.mark.parametrize("address", ["TS-CKP-011/", "draft/TS-CKP-011/", "v1/10-saves/#TS-CKP-011"])
def test_a_permanent_link_lands_on_the_requirement(visit: Visit, address: str) -> None:
    page = visit.open(address)
    page.wait_for_url(re.compile(r"/(latest|draft)/v1/[\w-]+/#TS-CKP-011$"))
    heading = page.locator("#TS-CKP-011")
    heading.wait_for()
    page.wait_for_function("document.getElementById('TS-CKP-011').getBoundingClientRect().top < innerHeight")
    assert page.locator("#TS-CKP-011 + .ts-facts .ts-fact-level").inner_text() in {"MUST", "MUST NOT", "SHOULD"}


def test_the_facts_of_a_requirement_lead_to_its_page(visit: Visit) -> None:
    page = visit.open("draft/v1/04-parallelism/#TS-PAR-001")
    page.locator("#TS-PAR-001 + .ts-facts a").click()
    page.wait_for_url("**/rules/PAR/TS-PAR-001/")
    assert "Bad example" in page.locator("article").inner_text()


def rows(visit: Visit) -> int:
    return visit.page.locator(".ts-filterable tbody tr:visible").count()


def test_a_table_narrows_to_what_is_asked(visit: Visit) -> None:
    page = visit.open("draft/rules/")
    everything = rows(visit)
    page.get_by_label("level").select_option("SHOULD NOT")
    fewer = rows(visit)
    assert 0 < fewer < everything
    page.get_by_label("contains").fill("TS-PAR")
    assert rows(visit) < fewer
    page.get_by_label("level").select_option("all")
    page.get_by_label("contains").fill("no such requirement")
    assert rows(visit) == 0
    assert page.locator(".ts-filter output").inner_text() == f"0 of {everything}"


def test_the_catalog_of_metrics_narrows(visit: Visit) -> None:
    page = visit.open("draft/catalog/")
    everything = rows(visit)
    page.get_by_label("scope").select_option("device")
    assert 0 < rows(visit) < everything
    page.get_by_label("contains").fill("DCGM_FI_DEV_GPU_UTIL")
    assert rows(visit) == 1


def test_the_page_of_a_requirement_lists_its_chapter(visit: Visit) -> None:
    page = visit.open("draft/rules/CLU/TS-CLU-073/")
    links = page.get_by_role("navigation", name="Requirements of the chapter").get_by_role("link")
    assert links.first.inner_text() == "Chapter: observations"
    assert page.locator("[aria-current=page]").inner_text() == "TS-CLU-073 Condition of nodes"
    links.filter(has_text="TS-CLU-080").click()
    page.wait_for_url("**/rules/CLU/TS-CLU-080/")
    page.set_viewport_size(PHONE)
    assert not page.locator(".ts-neighbours").is_visible()


def test_an_example_can_be_copied(visit: Visit) -> None:
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = visit.open("draft/rules/PAR/TS-PAR-001/")
    page.locator("button[title='Copy to clipboard'], button[data-md-type=copy]").first.click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("parallelism:")


def test_dark_mode_is_kept(visit: Visit) -> None:
    page = visit.open("draft/")
    for _ in range(2):
        page.locator("form[data-md-component=palette] label:visible").click()
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"
    page = visit.open("draft/v1/01-documents/")
    assert page.locator("body").get_attribute("data-md-color-scheme") == "slate"


def test_a_page_that_is_not_there_says_so(visit: Visit) -> None:
    page = visit.open("draft/v1/no-such-chapter/")
    assert "404" in page.locator("h1").inner_text()
    assert page.get_by_role("link", name="All requirements").get_attribute("href")
    visit.errors = [text for text in visit.errors if "status of 404" not in text]


def test_each_page_can_be_edited(visit: Visit) -> None:
    from trainspec_site import build

    page = visit.open("draft/v1/01-documents/")
    if not os.environ.get("TRAINSPEC_REPOSITORY", build.settings()["extra"]["repository"]):
        assert page.locator("a[rel=edit]").count() == 0  # the repository has no address yet
        return
    address = page.locator("a[rel=edit]").get_attribute("href") or ""
    assert address.endswith("/edit/main/spec/v1/01-documents.md")


@pytest.mark.parametrize("address", PAGES)
def test_a_page_fits_a_phone(visit: Visit, address: str) -> None:
    visit.page.set_viewport_size(PHONE)
    page = visit.open(f"draft/{address}")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.locator("h1").first.is_visible()


def test_the_page_for_printing_has_every_requirement(visit: Visit) -> None:
    page = visit.open("draft/print/")
    numbers = page.locator("h3[id^=TS-]").count()
    table = visit.open("draft/rules/")
    assert numbers == table.locator(".ts-filterable tbody tr").count()


def test_the_whole_version_prints(visit: Visit) -> None:
    printed = visit.open("draft/print/").pdf(format="A4", tagged=False)
    assert printed.startswith(b"%PDF-")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) > 100
