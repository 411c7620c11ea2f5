"""Detects the format of a stream by its content, behind a prefix of its lines too."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.telemetry.formats.ends import END_BYTES
from trainspec_validate.telemetry.formats.format import FORMATS, StreamFormat
from trainspec_validate.telemetry.formats.prefixes import Prefix, prefix_for, prefixes_of
from trainspec_validate.telemetry.formats.source import HEAD_BYTES


def detect_beyond(pieces: Iterable[bytes], found: StreamFormat | None = None) -> StreamFormat | None:
    """The format of a log whose first record comes after other output; `found` where no piece of the text has one.

    `found` is of an engine, whose lines come before those of the program that runs it. Lines that are cut between two
    pieces do not count, which leaves the format to the next record.

    >>> detect_beyond([b"+ shift" + bytes([10]) * 9, b':::MLLOG {"key": "init_start"}']).name
    'mllog'
    """
    crash = FORMATS["crash-log"]
    marked = [entry for entry in FORMATS.values() if entry.mark and entry is not crash]
    found = None if found is crash else found
    start = last = b""
    prefixes: list[Prefix] | None = [] if found else None
    for piece in pieces:
        prefixes = [each for each in prefixes_of(piece) if each.is_certain] if prefixes is None else prefixes
        for text in (piece, *(prefix.without(piece) for prefix in prefixes)):
            before = marked[: marked.index(found)] if found else marked
            shown = text.replace(b"\r", b"\n")
            fits = next((entry for entry in before if entry.mark in shown and entry.looks_like(shown)), None)
            if fits and not fits.is_of_engine:
                return fits
            found = fits or found
        start, last = start or piece, last[-END_BYTES:] + piece
    return found or (crash if crash.looks_like(last) or _ends_behind_prefix(crash, start, last) else None)


def detect(head: bytes) -> StreamFormat | None:
    """The format of a file by its first bytes, uncompressed; its name does not count. None where no format fits.

    >>> detect(b':::MLLOG {"key": "init_start"}').name
    'mllog'
    """
    head = head[:HEAD_BYTES].removeprefix(b"\xef\xbb\xbf")
    found, crash = _of_text(head), FORMATS["crash-log"]
    if found is not None and found is not crash:
        return found
    for prefix in prefixes_of(head):
        printed = _of_text(prefix.without(head))
        if printed is not None and printed.is_printed and printed is not crash:
            return printed
    return found or (crash if _ends_behind_prefix(crash, head, head) else None)


def _ends_behind_prefix(crash: StreamFormat, start: bytes, text: bytes) -> bool:
    """Whether a text, whose lines have the prefix of those of a start, ends with the end of a program."""
    prefix = prefix_for(start, None, has_times=False)
    return prefix is not None and crash.looks_like(prefix.without(text))


def _of_text(head: bytes) -> StreamFormat | None:
    """The format of a text whose lines have no prefix."""
    shown = head.replace(b"\r", b"\n")  # as a terminal begins a line anew
    return next((entry for entry in FORMATS.values() if entry.looks_like(shown if entry.is_console else head)), None)
