"""The only place for the short address of each requirement: a page that leads to its place in its chapter."""

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
<meta http-equiv="refresh" content="0; url={address}">
</head>
<body><h1>{title}</h1><p><a href="{address}">{title}</a></p></body>
</html>
"""


def redirect(title: str, address: str) -> str:
    """A page that sends the reader to an address at once, and shows a link where that is switched off."""
    return PAGE.format(title=escape(title), address=escape(address))


def redirects(entries: Iterable[Mapping[str, Any]], below: str = "../") -> dict[str, str]:
    """The page of each requirement by its path; `below` leads from there to the folder of the version."""
    return {
        f"{entry['id']}/index.html": redirect(
            f"{entry['id']}: {entry['title']}", f"{below}v1/{entry['chapter']}/#{entry['id']}"
        )
        for entry in entries
    }
