"""Zensical builds the same pages from the same file as MkDocs, and finds nothing to object to."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from site_visit import PATIENCE_MILLISECONDS, ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ROOT / "build" / "site-pages"
TARGET = ROOT / "build" / "site-zensical"
MADE_AFTERWARDS = {Path("print/index.html")}
"""What `make site` adds to the pages that MkDocs builds."""
BUILD_SECONDS = 600
REQUIREMENT = re.compile(r'<h3 id="(TS-[A-Z]{3}-\d{3})"')


@pytest.fixture(scope="module")
def twin(built: Path) -> Path:
    """The folder that Zensical built from the pages that `make site` gave to MkDocs."""
    if importlib.util.find_spec("zensical") is None:
        pytest.skip("Zensical is not installed: run make site-test")
    shutil.rmtree(TARGET, ignore_errors=True)
    environment = os.environ | {
        "TRAINSPEC_DOCS": PAGES.relative_to(ROOT).as_posix(),
        "TRAINSPEC_SITE": TARGET.relative_to(ROOT).as_posix(),
        "PYTHONPATH": str(ROOT / "tools"),
    }
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return TARGET


def pages(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*.html")}


def test_it_builds_the_same_pages(twin: Path, built: Path) -> None:
    assert pages(twin) == pages(built) - MADE_AFTERWARDS


def test_its_chapters_have_the_same_requirements_with_their_facts(twin: Path, built: Path) -> None:
    found = 0
    for chapter in sorted((built / "v1").glob("*/index.html")):
        other = (twin / chapter.relative_to(built)).read_text(encoding="utf-8")
        identifiers = REQUIREMENT.findall(chapter.read_text(encoding="utf-8"))
        assert REQUIREMENT.findall(other) == identifiers
        assert other.count('class="ts-facts"') == len(identifiers)
        found += len(identifiers)
    assert found > 400


def test_its_downloads_are_the_same(twin: Path, built: Path) -> None:
    names = [path.relative_to(built) for folder in ("v1", "schemas", "figures") for path in (built / folder).rglob("*")]
    files = [name for name in names if name.suffix in {".json", ".yaml", ".svg"}]
    assert len(files) > 30
    assert [name for name in files if (twin / name).read_bytes() != (built / name).read_bytes()] == []


@pytest.fixture
def address(twin: Path) -> Iterator[str]:
    """Address of a file server of what Zensical built."""
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(twin))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_its_tables_narrow(chromium: Browser, address: str) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page, errors = context.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{address}/catalog/")
    page.get_by_label("contains").fill("DCGM_FI_DEV_GPU_UTIL")
    assert page.locator(".ts-filterable tbody tr:visible").count() == 1
    context.close()
    assert errors == []
