"""Turns the name of a file into a URI."""

from __future__ import annotations

import re
from urllib.parse import quote

from trainspec_validate.report.places import relative

_DRIVE = re.compile(r"[A-Za-z]:/")


def location_of(path: str, base: str) -> dict[str, str]:
    """A SARIF artifact location: relative to the root of the sources where the path is relative."""
    path = relative(path, base)
    if path.startswith("//"):
        return {"uri": f"file:{_quoted(path)}"}
    if path.startswith("/"):
        return {"uri": f"file://{_quoted(path)}"}
    if _DRIVE.match(path):
        return {"uri": f"file:///{path[:2]}{_quoted(path[2:])}"}
    if path == "<stdin>":
        return {"uri": _quoted(path)}
    return {"uri": _quoted(path), "uriBaseId": "%SRCROOT%"}


def _quoted(path: str) -> str:
    return quote(path, safe="/", errors="surrogatepass")
