"""People who cannot see well or use no mouse: axe finds nothing serious on pages of each kind, in both colours."""

from __future__ import annotations

from typing import Any

import pytest
from site_visit import ROOT, Visit
from trainspec_site.npm import AXE, AssetError

PAGES = {
    "home": "draft/",
    "chapter": "draft/v1/10-checkpoints/",
    "requirement": "draft/rules/PAR/TS-PAR-001/",
    "table": "draft/rules/",
    "metrics": "draft/catalog/",
    "figures": "draft/figures/",
    "formulas": "draft/reference/collectives/",
    "guide": "draft/guide/validate/",
    "playground": "draft/playground/",
    "changes": "draft/changes/",
}
SERIOUS = {"serious", "critical"}


@pytest.fixture(scope="module")
def axe() -> str:
    try:
        return AXE.files(ROOT / "build" / "site-cache", "axe.min.js")["axe.min.js"].decode("utf-8")
    except AssetError as error:
        pytest.skip(f"axe is not there: {error}")


def serious(visit: Visit, axe: str) -> dict[str, list[str]]:
    """The rules that the page breaks, with what breaks them."""
    visit.page.evaluate(axe)
    found: dict[str, Any] = visit.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return {
        entry["id"]: [node["html"][:200] for node in entry["nodes"][:3]]
        for entry in found["violations"]
        if entry["impact"] in SERIOUS
    }


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("address", PAGES.values(), ids=PAGES)
def test_nothing_serious(visit: Visit, axe: str, address: str, scheme: Any) -> None:
    visit.page.emulate_media(color_scheme=scheme)
    page = visit.open(address)
    if page.locator(".md-header").count():
        page.wait_for_selector(".md-version")
    assert serious(visit, axe) == {}


def test_nothing_serious_on_paper(visit: Visit, axe: str) -> None:
    """It is twenty times as long as any other page: contrast, which takes minutes there, is that of the pages."""
    visit.open("draft/print/")
    visit.page.evaluate(axe)
    rules = ["image-alt", "link-name", "document-title", "html-has-lang", "duplicate-id-aria", "empty-heading"]
    found = visit.page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
    assert [entry["id"] for entry in found["violations"]] == []


def test_the_check_notices_an_image_without_words(visit: Visit, axe: str) -> None:
    visit.open("draft/").evaluate("document.body.append(document.createElement('img'))")
    assert "image-alt" in serious(visit, axe)


def test_the_keyboard_reaches_the_content_first(visit: Visit) -> None:
    page = visit.open("draft/v1/01-documents/")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.className")
    assert "md-skip" in focused
