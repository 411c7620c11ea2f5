"""Visits the site for tests, and lists the versions of it that they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "build" / "site-version"
OLDER = "0.9"
PATIENCE_MILLISECONDS = 300_000
"""After which something will not come; nothing that works takes as long, on any machine."""


@dataclass
class Visit:
    """A page of the browser, with everything that should not have happened on it."""

    page: Page
    base: str
    outside: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, address: str) -> Page:
        self.page.goto(f"{self.base}/{address}")
        return self.page
