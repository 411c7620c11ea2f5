"""Finds the streams among the files of a command, and reports refusals and losses of a conversion."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import tables
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.pipeline.detect import detect, of_content
from trainspec_validate.pipeline.files import STDIN, File
from trainspec_validate.system.boundary import InputError, untrusted, waiting
from trainspec_validate.system.neutral import printable
from trainspec_validate.telemetry.formats import (
    FORMATS,
    Given,
    Item,
    Loss,
    Losses,
    Record,
    Refusal,
    SourceError,
    StreamFormat,
    head_bytes,
    opened,
    pieces,
    read,
    uncompressed,
)
from trainspec_validate.telemetry.formats.source import head_of, rejoined

_MAX_TOLD = 20
_MAX_LINES_BACK = 10_000
_PRINTED_BYTES = 1_000_000


class Inputs:
    """The files of a command; standard input is read once, from its start."""

    def __init__(self) -> None:
        self._start: bytes | None = None

    def head(self, path: str) -> bytes:
        """The first bytes of a file, uncompressed; none where it cannot be read, which reading it reports."""
        try:
            with untrusted(SourceError):
                if path == STDIN:
                    return head_bytes(uncompressed(BytesIO(self.start())))
                return head_of(Path(path))
        except SourceError:
            return b""

    def start(self) -> bytes:
        """The first bytes of standard input."""
        if self._start is None:
            self._start = head_bytes(standard_input())
        return self._start

    def stdin(self) -> BinaryIO:
        """Standard input with the bytes that were read of it already."""
        return rejoined(self._start or b"", standard_input())

    def stream_format(self, path: str) -> StreamFormat | None:
        """The format of a file that is a stream."""
        try:
            source = of_content(path, self.start()) if path == STDIN else detect(File(Path(path), path))
        except InputError:
            return None  # reading it says what is wrong
        return FORMATS.get(source.format)


def standard_input() -> BinaryIO:
    """The bytes of standard input.

    Raises:
        Failure: it is closed.
    """
    if sys.stdin is None:
        raise Failure("standard input is closed; name a file, or pipe one into the command")
    return waiting(sys.stdin.buffer)


@dataclass(slots=True)
class Told:
    """Result of one file, as it is read."""

    path: str
    shown: str
    format: StreamFormat
    num_records: int = 0
    refused: list[str] = field(default_factory=list)
    num_refused: int = 0
    losses: tuple[Loss, ...] = ()
    _numbers: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_MAX_LINES_BACK))

    def records(self, inputs: Inputs, given: Given) -> Iterator[Record]:
        """The records of the file; what it refuses and loses is kept for the summary.

        Raises:
            Failure: the file cannot be read.
        """
        try:
            for place, entry in self._read_items(inputs, given):
                if isinstance(entry, Losses):
                    self.losses = entry.entries
                elif isinstance(entry, Refusal):
                    self._refuse(place, entry)
                else:
                    self.num_records += 1
                    yield entry
        except SourceError as error:
            raise Failure(f"{self.path}: {error}" + (f" ({error.help})" if error.help else "")) from None

    def _read_items(self, inputs: Inputs, given: Given) -> Iterator[Item]:
        """What the file gives; whatever its content makes a reader raise is a `SourceError`."""
        with untrusted(SourceError):
            yield from self._items(inputs, given)

    def _items(self, inputs: Inputs, given: Given) -> Iterator[Item]:
        if not self.format.module:
            from trainspec_validate.telemetry.formats import parquet  # noqa: PLC0415

            if self.path == STDIN:
                raise SourceError("Parquet cannot be read from standard input", "name a file")
            yield from parquet.read(Path(self.path))
        elif self.path == STDIN:
            yield from self._read(uncompressed(inputs.stdin()), given)
        else:
            with opened(Path(self.path)) as stream:
                yield from self._read(stream, given)

    def _read(self, stream: BinaryIO, given: Given) -> Iterator[Item]:
        return read(self._numbered(pieces(stream, self.format)), self.shown, self.format, given)

    def _numbered(self, lines: Iterable[tuple[int, bytes | Refusal]]) -> Iterator[tuple[int, bytes | Refusal]]:
        """The lines; the numbers of the latest are known."""
        for number, (offset, line) in enumerate(lines, 1):
            self._numbers.append((offset, number))
            yield offset, line

    def _place(self, offset: int) -> str:
        number = next((line for start, line in reversed(self._numbers) if start == offset), None)
        if self.format.is_binary:
            return f"{self.path}: {'record' if self.format.module else 'row'} {offset}"
        return f"{self.path}:{number}" if number else f"{self.path}: byte {offset}"

    def _refuse(self, offset: int, refusal: Refusal) -> None:
        self.num_refused += 1
        if self.num_refused <= _MAX_TOLD:
            help_text = f" ({refusal.help})" if refusal.help else ""
            self.refused.append(f"refused: {self._place(offset)}: {refusal.message}{help_text}")


def print_lines(lines: Iterable[bytes], show: Callable[[str], None]) -> None:
    """Write lines to standard output, some at a time."""
    waiting, size = list[bytes](), 0
    for line in lines:
        waiting.append(line)
        size += len(line)
        if size > _PRINTED_BYTES:
            show(b"".join(waiting).decode())
            waiting, size = [], 0
    show(b"".join(waiting).decode())


def print_json(text: str) -> None:
    """Write lines of JSON to standard output."""
    terminal.emit(text, "json")


def summary(files: Iterable[Told]) -> str:
    """A table of the files with their counts, then what was refused and lost of each."""
    files = list(files)
    rows = [(file.shown, file.format.name, str(file.num_records), str(file.num_refused)) for file in files]
    table, lines = tables.plain(("source", "format", "records", "refused"), rows, frozenset({2, 3})), []
    for file in files:
        lines += file.refused
        if file.num_refused > len(file.refused):
            lines.append(f"{file.num_refused - len(file.refused):,} more of {file.shown} are refused")
        for loss in file.losses[: _MAX_TOLD * 3]:
            times = f" ({loss.num:,} times)" if loss.num > 1 else ""
            lines.append(f"{'incident' if loss.reason == 'incident' else 'lost'}: {file.shown}: {loss.message}{times}")
        more = len(file.losses) - _MAX_TOLD * 3
        if more > 0:
            lines.append(f"{more:,} more things of {file.shown} are lost")
    return f"{table}{''.join(f'{printable(line)}{chr(10)}' for line in lines)}"


def tell(files: Iterable[Told]) -> None:
    """Write the summary to standard error."""
    terminal.tell_lines(summary(files))
