"""What the tests of the site share: a site with two versions behind a server, and a browser.

`make site-test` builds the site first; without it, and without Chromium, the tests say so and are skipped.
"""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from site_visit import BUILT, OLDER, PATIENCE_MILLISECONDS, Visit

if TYPE_CHECKING:
    from playwright.sync_api import Browser


class Quiet(SimpleHTTPRequestHandler):
    """A file server that knows the page for what is missing, as hosts of static files do, and says nothing."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        page = Path(self.directory) / "404.html"
        if code != HTTPStatus.NOT_FOUND:
            super().send_error(code, message, explain)
            return
        content = page.read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the version that `make site` built."""
    if not os.environ.get("TRAINSPEC_SITE_BUILT"):
        pytest.skip("the site is not built: run make site-test")
    return BUILT


@pytest.fixture(scope="session")
def site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built version, with an older one beside it, as they are published."""
    pytest.importorskip("mike")
    from trainspec_site import build, versions

    folder = tmp_path_factory.mktemp("site")
    extra = build.settings()["extra"]
    old = folder / "old"
    shutil.copytree(built, old, ignore=shutil.ignore_patterns("playground", "TS-*", "rules"))
    versions.publish(old, versions.Version(OLDER, "Approved"), folder / "published")
    new = versions.Version(extra["specification_version"], extra["status"])
    versions.publish(built, new, folder / "store", folder / "published")
    versions.export(folder / "store", folder / "www")
    build.write_top(folder / "www")
    return folder / "www"


@pytest.fixture(scope="session")
def server(site: Path) -> Iterator[str]:
    """Address of a file server of the site on this machine."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=served.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    served.server_close()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser."""
    pytest.importorskip("playwright", reason="playwright is not installed: run make site-test")
    from trainspec_site import browser

    program = browser.find()
    if program is None:
        pytest.skip("Chromium is not installed")
    with browser.opened(program) as opened:
        yield opened


@pytest.fixture
def visit(chromium: Browser, server: str) -> Iterator[Visit]:
    """A fresh page; afterwards no request may have left the host, and the console has no error."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    seen = Visit(context.new_page(), server)
    context.on("request", lambda request: _note(seen, request.url))
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("console", lambda message: message.type == "error" and seen.errors.append(message.text))
    yield seen
    context.close()
    assert not seen.outside
    assert not seen.errors


def _note(seen: Visit, address: str) -> None:
    if not address.startswith((seen.base, "data:", "blob:")):
        seen.outside.append(address)
