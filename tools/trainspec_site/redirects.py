"""Gives each requirement a short address: a page that leads to its place in its chapter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
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
<script>{script}</script>
<noscript><meta http-equiv="refresh" content="0; url={address}"></noscript>
</head>
<body><h1>{title}</h1><p><a href="{address}">{title}</a></p></body>
</html>
"""
SCRIPT = """\
const page = location.protocol === "file:" ? "index.html" : ""; // no server finds the page of a folder
const to = new URL(document.querySelector("link[rel=canonical]").href);
to.pathname += page;
to.hash = to.hash || location.hash;
location.replace(to);"""


def redirect(title: str, address: str) -> str:
    """A page that leads to an address at once, with the place that the reader asked for where it names none itself.

    It works from a server, from files, and with a link where scripts are switched off.
    """
    return PAGE.format(title=escape(title), address=escape(address), script=SCRIPT)


def redirects(entries: Iterable[Mapping[str, Any]], below: str = "../") -> dict[str, str]:
    """The page of each requirement by its path; `below` leads from there to the folder of the version."""
    return {
        f"{entry['id']}/index.html": redirect(
            f"{entry['id']}: {entry['title']}", f"{below}v1/{entry['chapter']}/#{entry['id']}"
        )
        for entry in entries
    }
