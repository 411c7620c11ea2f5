"""Builds the whole site, from the pages to the folder that a file server shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from trainspec_site import (
    as_files,
    compact,
    plain_pages,
    playground_assets,
    print_page,
    stage,
    stream_examples,
    versions,
)
from trainspec_site.npm import AssetError
from trainspec_site.redirects import redirect, redirects, write_script

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "build"
NOT_PRINTED = ("playground.md", "rules/index.md")


class _Settings(yaml.SafeLoader):
    """mkdocs.yml, whose `!ENV [NAME, value]` is the value."""


_Settings.add_constructor("!ENV", lambda loader, node: loader.construct_sequence(node)[-1])  # type: ignore[arg-type]


def settings() -> dict[str, Any]:
    """The configuration in mkdocs.yml, without variables of the environment."""
    found: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), _Settings)  # noqa: S506
    return found


def build_version(site: Path) -> versions.Version:
    """Build the pages of the working tree into a folder, with the page for printing."""
    extra = settings()["extra"]
    version = versions.Version(extra["specification_version"], extra["status"])
    repository = os.environ.get("TRAINSPEC_REPOSITORY", extra["repository"]).rstrip("/")
    pages = WORK / "site-pages"
    stage.stage(ROOT, pages, f"{repository}/blob/main" if repository else "")
    _write_what_npm_gives(pages / "assets")
    environment = os.environ | {
        "TRAINSPEC_DOCS": str(pages.relative_to(ROOT)),
        "TRAINSPEC_SITE": str(site.relative_to(ROOT)),
        "TRAINSPEC_URL": f"{settings()['site_url']}{version.name}/",
        "TRAINSPEC_EDIT": f"{repository}/edit/main/spec/{{path}}" if repository else "",
        "PYTHONPATH": str(ROOT / "tools"),
        "NO_MKDOCS_2_WARNING": "1",
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stderr}site: mkdocs found the mistakes above")
    _remove_unused(site / "assets")
    as_files.write_index(site)
    plain_pages.write(pages, site, settings()["nav"])
    _write_whole(site, version)
    compact.compact(site)
    stream_examples.lay_out(site)
    return version


def _remove_unused(assets: Path) -> None:
    """Remove what the theme brings and no page loads: source maps, and stemmers of other languages."""
    for path in (*assets.rglob("*.map"), *(assets / "javascripts" / "lunr").rglob("*.js")):
        path.unlink()


def _write_what_npm_gives(assets: Path) -> None:
    """Without npm the site is whole but for two things, and its pages say so."""
    cache = WORK / "site-cache"
    try:
        playground_assets.write(ROOT, assets / "playground", cache)
    except AssetError as error:
        print(f"site: the playground has no validator: {error}", file=sys.stderr)
    try:
        as_files.write_worker(assets / "javascripts", cache)
    except AssetError as error:
        print(f"site: no search where pages are opened as files: {error}", file=sys.stderr)


def _write_whole(site: Path, version: versions.Version) -> None:
    pages = [page for page in print_page.pages_in_order(settings()["nav"]) if page not in NOT_PRINTED]
    addresses = [print_page.address_of(page) for page in pages]
    text = print_page.whole_page(site, addresses, f"TrainSpec {version.name}", version.status)
    (site / "print").mkdir()
    (site / "print" / "index.html").write_text(text, encoding="utf-8")


def write_top(site: Path) -> None:
    """Write the files above the versions: the addresses that findings and schemas name, and the page for errors."""
    latest = site / "latest"
    entries = stage.requirements(ROOT)
    write_script(site)
    for path, text in redirects(entries, "latest/").items():
        (site / path).parent.mkdir()
        (site / path).write_text(text, encoding="utf-8")
    for chapter in sorted({str(entry["chapter"]) for entry in entries}):
        page = redirect(f"TrainSpec: {chapter}", f"../../latest/v1/{chapter}/", "../../")
        (site / "v1" / chapter).mkdir(parents=True)
        (site / "v1" / chapter / "index.html").write_text(page, encoding="utf-8")
    (site / "index.html").write_text(redirect("TrainSpec", "latest/", ""), encoding="utf-8")
    listed = (latest / plain_pages.FILE).read_text(encoding="utf-8")
    (site / plain_pages.FILE).write_text(plain_pages.with_base(listed, "latest/"), encoding="utf-8")
    shutil.copytree(latest / "schemas", site / "schemas")
    shutil.copy(latest / "404.html", site / "404.html")


def main() -> int:
    """Build into site/, with the versions that the branch of this repository holds."""
    built, store, site = WORK / "site-version", WORK / "site-store", ROOT / "site"
    shutil.rmtree(built, ignore_errors=True)
    version = build_version(built)
    versions.publish(built, version, store, ROOT)
    versions.export(store, site)
    write_top(site)
    print(f"site: version {version.title} in {site.relative_to(ROOT)}/")
    return 0
