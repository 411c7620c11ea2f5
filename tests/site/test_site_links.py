"""Every link of the built site leads to a file and to a place in that file, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import os
import posixpath
import re
from functools import cache
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from site_visit import ROOT

TAG = re.compile(r"<(?P<tag>[a-z0-9]+)\b(?P<attributes>[^>]*)>")
ATTRIBUTE = re.compile(r'\b(?P<key>href|src|id|name)="(?P<value>[^"]*)"')
LOADING = {"script", "img", "link", "iframe", "source"}
PLACEHOLDER = re.compile(r"//[^/]+/OWNER\b|\bexample\.(?:com|org)\b")
MAX_BYTES = 30_000_000
MAX_FIRST_PAGE_BYTES = 300_000
LEADING = {"canonical", "alternate", "edit", "prev", "next"}


@cache
def page(path: Path) -> tuple[frozenset[str], tuple[tuple[str, str, str], ...]]:
    """The ids of a page, and its references as tag, relation and address."""
    ids, references = set(), []
    text = re.sub(r"<script>.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for found in TAG.finditer(text):
        relation = re.search(r'\brel="?([a-z]+)', found["attributes"])
        for attribute in ATTRIBUTE.finditer(found["attributes"]):
            if attribute["key"] in {"id", "name"}:
                ids.add(unescape(attribute["value"]))
            else:
                references.append((found["tag"], relation[1] if relation else "", unescape(attribute["value"])))
    return frozenset(ids), tuple(references)


def target(origin: Path, address: str, top: Path) -> Path:
    path = unquote(urlsplit(address).path)
    base = posixpath.dirname(origin.relative_to(top).as_posix())
    found = Path(os.path.normpath(top / base / path)) if path else origin
    return found / "index.html" if found.is_dir() else found


def test_no_page_shows_the_marks_of_a_block_of_code(built: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(built.rglob("*.html"))}
    broken = [path.as_posix() for path, text in texts.items() if "excerpt=" in text or "```" in text]
    assert texts
    assert broken == []


def test_links_lead_somewhere(built: Path) -> None:
    broken = []
    for origin in sorted(built.rglob("*.html")):
        if origin.name == "404.html":
            continue  # its addresses are those of the published site
        for tag, relation, address in page(origin)[1]:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc or relation == "canonical":
                continue
            file = target(origin, address, built)
            if not file.is_relative_to(built):
                continue  # to the versions beside this one
            known = file.is_file() and (not parts.fragment or file.suffix != ".html" or parts.fragment in page(file)[0])
            if not known:
                broken.append(f"{origin.relative_to(built)}: <{tag}> {address}")
    assert broken == []


def test_no_link_leads_to_a_placeholder(built: Path) -> None:
    lost = [
        f"{path.relative_to(built)}: {address}"
        for path in sorted(built.rglob("*.html"))
        for tag, _, address in page(path)[1]
        if tag == "a" and PLACEHOLDER.search(address)
    ]
    assert lost == []
    texts = [
        path.relative_to(built) for path in built.rglob("*.md") if "](https://github.com/OWNER" in path.read_text()
    ]
    assert texts == []


def test_the_size_of_a_version_is_bounded(built: Path) -> None:
    assert sum(path.stat().st_size for path in built.rglob("*") if path.is_file()) < MAX_BYTES
    text = (built / "index.html").read_text(encoding="utf-8")
    shown = {
        target(built / "index.html", address, built)
        for tag, relation, address in page(built / "index.html")[1]
        if tag in LOADING and relation not in LEADING and not urlsplit(address).netloc
    }
    assert len(text.encode()) + sum(file.stat().st_size for file in shown if file.is_file()) < MAX_FIRST_PAGE_BYTES


def test_nothing_is_loaded_from_elsewhere(built: Path) -> None:
    loaded = [
        f"{path.relative_to(built)}: {address}"
        for path in sorted(built.rglob("*.html"))
        for tag, relation, address in page(path)[1]
        if tag in LOADING and relation not in LEADING and urlsplit(address).netloc
    ]
    assert loaded == []


def test_every_requirement_has_its_short_address_and_its_page(built: Path) -> None:
    index = json.loads((built / "v1" / "requirements.json").read_text(encoding="utf-8"))
    for entry in index["requirements"]:
        short = (built / entry["id"] / "index.html").read_text(encoding="utf-8")
        assert f"url=../v1/{entry['chapter']}/#{entry['id']}" in short
        assert entry["id"] in page(built / "v1" / entry["chapter"] / "index.html")[0]
        area = entry["id"].split("-")[1]
        assert (built / "rules" / area / entry["id"] / "index.html").is_file()


def test_the_title_of_a_page_is_its_heading(built: Path) -> None:
    for name, words in {"rules/PAR/TS-PAR-001": "TS-PAR-001 world-size", "changes": "Changes"}.items():
        text = (built / name / "index.html").read_text(encoding="utf-8")
        assert f"<title>{words}" in text


@pytest.mark.parametrize("name", ["metrics", "accelerators", "links", "models"])
def test_a_table_is_there_for_programs(built: Path, name: str) -> None:
    as_json = json.loads((built / "v1" / f"{name}.json").read_text(encoding="utf-8"))
    as_yaml = yaml.safe_load((ROOT / "spec" / "v1" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert as_json == json.loads(json.dumps(as_yaml, default=str))


def test_the_schemas_are_those_of_the_repository(built: Path) -> None:
    names = sorted(path.relative_to(ROOT / "schemas") for path in (ROOT / "schemas").rglob("*.json"))
    assert names
    for name in names:
        assert (built / "schemas" / name).read_bytes() == (ROOT / "schemas" / name).read_bytes()
