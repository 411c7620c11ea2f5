"""Reads a stream of any text format, line by line, into records, refusals and losses."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby
from typing import BinaryIO, Final, Protocol, cast

from trainspec_validate.system.budget import Limit, Meter
from trainspec_validate.telemetry.formats.copies import without_copies
from trainspec_validate.telemetry.formats.ends import with_ends
from trainspec_validate.telemetry.formats.format import StreamFormat
from trainspec_validate.telemetry.formats.frames import frames
from trainspec_validate.telemetry.formats.items import Found, Given, Item, Losses, Record, Refusal
from trainspec_validate.telemetry.formats.native import read_lines
from trainspec_validate.telemetry.formats.processes import processes_of
from trainspec_validate.telemetry.formats.rhythm import with_rhythm
from trainspec_validate.telemetry.formats.source import (
    FREE_SECONDS,
    MAX_LINE_BYTES,
    MOST_SECONDS,
    SourceError,
    cut_off,
    lines_of,
)
from trainspec_validate.telemetry.formats.transcript import Transcript
from trainspec_validate.telemetry.formats.unread import num_reports, says_lost

_MOST_BLANK: Final = Limit("a stream", 5_000_000, "blank lines in a row")


class Reader(Protocol):
    """Interface of a module of this package for its format: a class `Reader` that takes a transcript."""

    def line(self, offset: int, text: str) -> Iterable[Found]:
        """Records of a line that is not blank; it may wait for later ones."""
        ...

    def end(self) -> Iterable[Found]:
        """Records that are left when the file ends."""
        ...


class BinaryReader(Protocol):
    """The same for a format whose files have no lines."""

    def record(self, number: int, content: bytes) -> Iterable[Found]:
        """Records of a record; they may wait for later ones."""
        ...

    def end(self) -> Iterable[Found]:
        """Records that are left when the file ends."""
        ...


def pieces(stream: BinaryIO, format: StreamFormat) -> Iterator[tuple[int, bytes | Refusal]]:  # noqa: A002
    """Input of a reader of a format, one after another: lines with the bytes before them, or numbered records."""
    yield from frames(stream) if format.is_binary else lines_of(stream)


def read(
    lines: Iterable[tuple[int, bytes | Refusal]],
    name: str,
    format: StreamFormat,  # noqa: A002
    given: Given | None = None,
) -> Iterator[Item]:
    """Everything that the lines of a stream give, in their order; the last item holds the losses.

    `lines` are lines without their end, each with the bytes before it, or what `pieces` gives. Memory does not grow
    with the file beyond what the format makes necessary, such as one document of OTLP that is spread over lines.

    Raises:
        ValueError: files of the format have no lines.
    """
    if not format.module:
        raise ValueError(f"{format.name} has no lines; `parquet.read` reads it")
    transcript = Transcript(format, name, given or Given(), clock=format.clock)
    meter = Meter(MOST_SECONDS, FREE_SECONDS)
    lines = meter.read(lines, _size)
    if format.module == "native":
        entries = read_lines(cast("Iterable[tuple[int, bytes]]", lines), transcript)
    else:
        entries = _by_reader(lines, transcript)
        if format.has_rhythm:
            entries = with_rhythm(entries, transcript)
    offset = 0
    for found in meter.given(entries):
        offset = found[0]
        transcript.num_refusals += isinstance(found[1], Refusal)
        yield found
    if transcript.ends is not None:
        step, total = transcript.ends
        transcript.lose("incident", "total", f"the log ends at step {step:,} of {total:,}", offset)
    yield offset, transcript.losses()


def _by_reader(lines: Iterable[tuple[int, bytes | Refusal]], transcript: Transcript) -> Iterator[Found]:
    """What the reader of a format finds in lines without copies and, where programs print them, without a prefix."""
    form = transcript.format
    lines = without_copies(lines, form.mark)
    reader = importlib.import_module(f"{__package__}.{form.module}").Reader(transcript)
    if form.is_binary:
        yield from _of_records(lines, reader)
        return
    processes, lines = processes_of(lines, transcript) if form.is_printed else (None, lines)
    lines = processes.taken(lines) if processes else lines
    if form.is_console:
        lines = with_ends(lines, form.mark, partial(transcript.lose, "incident"), transcript.note_end)
    yield from _found(processes.of_one(lines) if processes else lines, reader, transcript)


def _size(piece: tuple[int, bytes | Refusal]) -> int:
    return 0 if isinstance(piece[1], Refusal) else len(piece[1])


def _of_records(pieces: Iterable[tuple[int, bytes | Refusal]], reader: BinaryReader) -> Iterator[Found]:
    number = 0
    try:
        for number, piece in pieces:
            if isinstance(piece, Refusal):
                yield number, piece
            else:
                yield from reader.record(number, piece)
    except SourceError as error:
        yield number, cut_off(error)
    yield from reader.end()


def _found(lines: Iterable[tuple[int, bytes | Refusal]], reader: Reader, transcript: Transcript) -> Iterator[Found]:
    offset = num_blank = 0
    mark, is_console = transcript.format.mark, transcript.format.is_console
    try:
        for offset, raw in lines:
            text = raw if isinstance(raw, Refusal) else _text(raw, mark)
            if isinstance(text, Refusal):
                yield offset, text
            elif text and not text.isspace():
                num_blank = 0
                for part in _parts(text, str(mark, "ascii")) if is_console and "\r" in text else (text,):
                    yield from _of_line(offset, part, reader, transcript)
                if mark:
                    transcript.saves.take(text)
            else:
                num_blank += 1
                _MOST_BLANK.check(num_blank)
    except SourceError as error:
        yield offset, cut_off(error)
    yield from reader.end()


def _parts(text: str, mark: str) -> Iterator[str]:
    r"""The texts that a terminal shows on a line one after another; those without a mark stay together.

    >>> list(_parts("10%\r20%\riter 5: loss 2.5\r30%", "iter "))
    ['10%\r20%', 'iter 5: loss 2.5', '30%']
    """
    for is_marked, parts in groupby(text.split("\r"), key=lambda part: mark in part):
        if is_marked:
            yield from parts
        else:
            yield "\r".join(parts)


def _of_line(offset: int, text: str, reader: Reader, transcript: Transcript) -> Iterator[Found]:
    """What a reader finds in a line; reports of steps that it does not read are counted."""
    if not text or text.isspace():
        return
    num_passed = transcript.num_passed
    yield from reader.line(offset, text)
    is_passed = transcript.num_passed > num_passed
    num_unread = num_reports(text) - (not is_passed) if transcript.format.counts_unread else 0
    if num_unread <= 0 and is_passed and _prints_losses(transcript.format) and says_lost(text):
        transcript.lose("unread", "losses", "lines with a loss that is not finite and no step", offset)
    if num_unread > 0:
        transcript.lose("unread", "reports", "reports of a step and a loss that are not read", offset, num_unread)


def _prints_losses(format: StreamFormat) -> bool:  # noqa: A002
    """Whether a line that has a loss, and is passed over, may be of the same program or of another one."""
    return format.counts_unread or format.name == "trainer-log"


def _text(raw: bytes, mark: bytes) -> str | Refusal:
    if len(raw) > MAX_LINE_BYTES:
        remedy = "write one record on each line"
        remedy += ", or break the document into lines, as `jq .` does" if raw.lstrip().startswith(b"{") else ""
        return Refusal(f"the line is longer than {MAX_LINE_BYTES // 1024**2} MiB", remedy, "size")
    try:
        return raw.decode("utf-8-sig" if raw.startswith(b"\xef\xbb\xbf") else "utf-8")
    except UnicodeDecodeError as error:
        if mark and _is_whole(raw[raw.find(mark) :] if mark in raw else b""):
            # Progress bars that several processes write at once tear their characters.
            return raw.decode("utf-8", errors="replace")
        return Refusal(f"byte 0x{raw[error.start]:02x} is not UTF-8", "write UTF-8", "syntax")


def _is_whole(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def records(items: Iterable[Item]) -> Iterator[Record]:
    """The records among items."""
    return (entry for _, entry in items if not isinstance(entry, Refusal | Losses))
