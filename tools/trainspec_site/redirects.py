"""Gives each requirement a short address: a page that leads to its place in its chapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta name="robots" content="noindex">
<link rel="icon" href="data:,">
<link rel="canonical" href="{address}">
<script src="{home}{file}"></script>
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
</head>
<body><h1>{title}</h1><p><a href="{address}">{title}</a></p></body>
</html>
"""
FILE = "moved.js"
SCRIPT = """\
const page = location.protocol === "file:" ? "index.html" : ""; // no server finds the page of a folder
const to = new URL(document.querySelector("link[rel=canonical]").href);
to.pathname += page;
to.hash = to.hash || location.hash;
location.replace(to);
"""


def write_script(folder: Path) -> None:
    """Write the script that all these pages share."""
    (folder / FILE).write_text(SCRIPT, encoding="utf-8")


def redirect(title: str, address: str, home: str) -> str:
    """A page that leads to an address at once, with the place that the reader asked for where it names none itself.

    It works from a server, from files, and with a link where scripts are switched off. `home` leads from there to the
    folder of the shared script.
    """
    return PAGE.format(title=escape(title), address=escape(address), home=home, file=FILE)


def redirects(entries: Iterable[Mapping[str, Any]], version: str = "") -> dict[str, str]:
    """The page of each requirement by its path, one folder below its script; `version` leads from there to its text."""
    return {
        f"{entry['id']}/index.html": redirect(
            f"{entry['id']}: {entry['title']}", f"../{version}v1/{entry['chapter']}/#{entry['id']}", "../"
        )
        for entry in entries
    }
