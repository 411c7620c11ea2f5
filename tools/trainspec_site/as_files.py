"""Makes the search work on pages that are read as files, without a server."""

from __future__ import annotations

from pathlib import Path

from trainspec_site.npm import IFRAME_WORKER

WORKER = "iframe-worker.js"
SEARCH = Path("search", "search_index.json")


def write_worker(scripts: Path, cache: Path) -> None:
    """Write what stands in for a worker, which browsers do not start from a file, beside the scripts of the pages.

    Raises:
        AssetError: npm cannot fetch it, or its digest differs.
    """
    files = IFRAME_WORKER.files(cache, "shim/index.js", "LICENSE")
    notice = files["LICENSE"].decode("utf-8").strip()
    (scripts / WORKER).write_bytes(f"/*!\n{notice}\n*/\n".encode() + files["shim/index.js"])


def write_index(site: Path) -> None:
    """Write the index of the search as a script too; a page that is a file cannot fetch it."""
    index = site / SEARCH
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")
