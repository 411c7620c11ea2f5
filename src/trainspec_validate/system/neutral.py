r"""Makes text safe to print: nothing in it moves a cursor, hides, or is taken for a command.

Build systems read commands out of the log of a job: `::error::` at the start of a line, `##[error]`, `##vso[` and
`##teamcity[` anywhere in it. Text from a document or a file name must not become one. The first letter of a command,
and each letter that a terminal would obey or hide, is written as its number: `\x23#[error]`, `\x3a:error::`, `\x1b[2J`
and `\u202e` in text, with the escapes of the notation in JSON and in XML, where the value is preserved.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

Notation = Literal["text", "json", "markup", "commands"]
"""How a letter can be written as a number; `commands` are our own and stay, with data that was made safe before."""

COMMANDS = (
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group", "notice", "remove-matcher"),
    *("save-state", "set-env", "set-output", "stop-commands", "warning"),
)
"""Of GitHub: https://docs.github.com/actions/reference/workflow-commands-for-github-actions"""
_COLOR = r"\x1b\[[0-9;]{0,16}m|\x1b\]8;;[^\x00-\x1f\x7f-\x9f]*\x1b\\"
"""Colour, and a link, as this package writes them."""
# `::: ` is no command, it has no name; it marks related places in reports.
_C = f"(?:{_COLOR})*"
_COMMAND = re.compile(
    rf"^((?:[^\S\n]|{_COLOR})*):(?={_C}:(?!{_C}:{_C} ))"
    rf"|#(?={_C}#{_C}(?:\[|vso\[|teamcity\[))"
    rf"|:(?={_C}:{_C}(?:{'|'.join(COMMANDS)})(?:::| ))",
    re.IGNORECASE | re.MULTILINE,
)
_ODD = re.compile(r"[^\n\t\x20-\x7e]+")
_ODD_OR_COLOR = re.compile(rf"({_COLOR})|[^\n\t\x20-\x7e]")
_OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""One line of text that is not ours: `\x1b` for what a terminal would obey or hide, line breaks included."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _number(char) for char in text)


def neutral(text: str, notation: Notation = "text", *, color: bool = False) -> str:
    """The text of any number of lines without what a terminal or a build system obeys; colour stays if it is ours."""
    escape = _ESCAPES[notation]
    if color:
        text = _ODD_OR_COLOR.sub(lambda found: found[0] if found[1] else _letters(found[0], escape), text)
    else:
        text = _ODD.sub(lambda found: _letters(found[0], escape), text)
    if notation == "commands" or not (color or "##" in text or "::" in text):
        return text
    return _COMMAND.sub(lambda found: (found[1] or "") + escape(found[0][-1]), text)


def hazard(text: str) -> str:
    """Commands in a text, made printable, that a log would obey; empty where there are none."""
    found = _OBEYED.search(text) or _COMMAND.search(text)
    return printable(text[found.end() - 1 : found.end() + 12].split("\n", maxsplit=1)[0]) if found else ""


def _letters(text: str, escape: Callable[[str], str]) -> str:
    return text if text.isprintable() else "".join(char if char.isprintable() else escape(char) for char in text)


def _number(char: str) -> str:
    written = char.encode("unicode_escape").decode("ascii")
    return written if written != char else f"\\x{ord(char):02x}"


def _in_json(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _in_markup(char: str) -> str:
    code = ord(char)
    # XML has no way to write what is below; in HTML nothing but tabs and line breaks is white space there.
    return _number(char) if code < 0x20 or 0xD800 <= code <= 0xDFFF or code & 0xFFFE == 0xFFFE else f"&#{code};"


_ESCAPES: dict[Notation, Callable[[str], str]] = {
    "text": _number,
    "json": _in_json,
    "markup": _in_markup,
    "commands": _number,
}
