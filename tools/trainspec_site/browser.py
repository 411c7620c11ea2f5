"""Finds and starts Chromium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
PDF_SECONDS = 300


def find() -> str | None:
    """Path of an installed Chromium: that of the system, else that of Playwright."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


@contextmanager
def opened(program: str) -> Iterator[Browser]:
    """The browser without a window; it is closed at the end."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


def print_to_pdf(program: str, page: Path, target: Path) -> None:
    """Print a file to a PDF, with an outline of its headings and the numbers of pages.

    Its tags would make it three times as large; the pages of the site are what assistive technology reads.
    """
    footer = '<div style="font-size:8px;width:100%;text-align:center"><span class="pageNumber"></span></div>'
    with opened(program) as browser:
        tab = browser.new_page()
        tab.set_default_timeout(PDF_SECONDS * 1000)
        tab.goto(page.resolve().as_uri())
        tab.pdf(
            path=str(target), format="A4", outline=True, tagged=False, display_header_footer=True,
            header_template="<span></span>", footer_template=footer,
            margin={"top": "16mm", "bottom": "16mm", "left": "14mm", "right": "14mm"},
        )  # fmt: skip
