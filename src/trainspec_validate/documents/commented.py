"""Writes figures and comments into documents that people edit further."""

from __future__ import annotations

import json
import re

from trainspec_validate.documents.schema import schema_file
from trainspec_validate.model.quantities import in_words

SITE = "https://trainspec.org/schemas/v1"
_LONG_SECONDS = 600
_FIGURE = re.compile(r"[ -]*(\w+): ([0-9.]+(?:e[0-9]+)?)")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._+/-]*(?: [A-Za-z0-9(][A-Za-z0-9._+/()-]*)*")
_WORDS = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf"})
_UNITS = {"_flops_per_second": "{flop}/s", "_bytes_per_second": "By/s", "_bytes": "By", "_seconds": "s"}


def head(kind: str, title: str, *, chosen: bool = False) -> str:
    """The first lines: what editors read, what the comments mean, and what selects the schema."""
    search = "# chosen: by a search, with what the best other value would take.\n" if chosen else ""
    return f"""\
# yaml-language-server: $schema={SITE}/{schema_file(kind)}
# {title}
# Comments say where a figure comes from. catalog: published, with source in `trainspec catalog`.
# derived: follows from other figures here. replace: a customary value; put in your own. fill in: not known here.
{search}apiVersion: trainspec/v1
kind: {kind}
"""


def figure(value: float) -> str:
    """A number that a person can read: whole and small as it is, large in powers of a thousand.

    >>> figure(64), figure(7.9771), figure(207692.3), figure(494.5e12)
    ('64', '7.977', '207700', '494.5e12')
    """
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    if abs(value) < 1e4:
        return f"{value:.4g}"
    if abs(value) < 999950:
        return str(int(float(f"{value:.4g}")))
    exponent = 3
    while abs(value) >= 1000 * 10**exponent:
        exponent += 3
    return f"{value / 10**exponent:.6g}e{exponent}"


def as_text(value: str) -> str:
    """A text as a document writes it: in quotes where it could be read as a number, a word of YAML, or a structure.

    >>> as_text("nccl"), as_text("MI300X (OAM)"), as_text("2.30"), as_text("no"), as_text("a: b")
    ('nccl', 'MI300X (OAM)', '"2.30"', '"no"', '"a: b"')
    """
    if _PLAIN.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return "".join(_letter(letter) for letter in quoted)


def _letter(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"


def said(text: str, comment: str) -> str:
    """The comment, with the figure of its line in the units that people say, where those are others."""
    match = _FIGURE.fullmatch(text)
    unit = next((unit for suffix, unit in _UNITS.items() if match and match[1].endswith(suffix)), "")
    words = in_words(float(match[2]), unit) if match and unit and comment else ""
    if not words or words in comment or (unit == "s" and float(match[2] if match else 0) < _LONG_SECONDS):
        return comment
    tag, colon, rest = comment.partition(": ")
    return f"{tag}: {words}, {rest}" if colon else f"{tag}: {words}"


def body(lines: list[tuple[str, str]]) -> str:
    """Lines with their comments, the comments of neighbouring lines one below the other."""
    lines = [(text, said(text, comment)) for text, comment in lines]
    width = min(72, max((len(text) for text, comment in lines if comment), default=0))
    written = (f"{text:<{width}}  # {comment}".rstrip() if comment else text for text, comment in lines)
    return "".join(f"{line}\n" for line in written)
