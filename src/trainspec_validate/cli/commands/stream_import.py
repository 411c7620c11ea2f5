"""Imports streams of other formats: several files into one metric stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.files import cannot_write, refuse_present
from trainspec_validate.cli.commands.stream_files import Inputs, Told, print_json, print_lines, tell
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.types.stream import encode_record
from trainspec_validate.system.atomic import new_file
from trainspec_validate.telemetry.formats import FORMATS, Given, Record
from trainspec_validate.telemetry.formats.format import StreamFormat
from trainspec_validate.telemetry.formats.native import Placed

KIND = "MetricStream"
_NATIVE = "metric-stream"
_PRINTED_AT_START = frozenset({"megatron-arguments", "huggingface-trainer-arguments"})
"""Formats of documents that the program of a log, or its launcher, prints before its first step."""
_PROFILE_OF_STREAM = {"nvidia-smi-xml": "nvidia-smi-log-xml"}
"""Formats of streams whose files also describe a machine, which is what they are read for where none is named."""


def rows() -> list[tuple[str, str, str]]:
    """The formats of streams as lines of a table: name, kind of the document, what it is."""
    return sorted((entry.name, KIND, entry.title) for entry in FORMATS.values() if entry.name != _NATIVE)


def found(
    paths: Sequence[tuple[str, bool]],
    names: Sequence[str],
    inputs: Inputs,
    wanted: str | None,
    is_document: Callable[[str, bytes], str],
) -> list[Told]:
    """The streams among the files; empty where the files are to be read as documents.

    `is_document` gives the format of a document that starts so, or nothing.

    Raises:
        click.UsageError: a file fits both, or streams and documents are named together.
    """
    if wanted is not None:
        chosen = FORMATS.get(wanted)
        return [Told(path, name, chosen) for (path, _), name in zip(paths, names, strict=True)] if chosen else []
    streams, others = list[Told](), list[str]()
    for (path, explicit), name in zip(paths, names, strict=True):
        kind = inputs.stream_format(path)
        document = is_document(name, inputs.head(path)) if kind and not kind.is_binary else ""
        if document and inputs.head(path).startswith(b"#!"):
            kind = None  # lines of a log in a script are comments or text of it
        kind, document = _usual(path, kind, document)
        if kind and document and explicit:
            raise click.UsageError(f"{path} fits several formats: {document}, {kind.name}; name one with --format")
        if kind and not document:
            streams.append(Told(path, name, kind))
        elif explicit or document or is_document(name, inputs.head(path)):
            others.append(path)
    if streams and others:
        if any(explicit for path, explicit in paths if path in {told.path for told in streams}):
            both = f"{streams[0].path} is a stream, {others[0]} is none"
            raise click.UsageError(f"streams and documents are two commands: {both}")
        return []
    return streams


def _usual(path: str, kind: StreamFormat | None, document: str) -> tuple[StreamFormat | None, str]:
    """What a file is read as that is a stream and a document, where one of them is usual; the other is told."""
    if kind and document in _PRINTED_AT_START:
        terminal.tell(f"{path}: is read as {kind.name}; --format {document} reads its arguments")
        return kind, ""
    if kind and document == _PROFILE_OF_STREAM.get(kind.name):
        terminal.tell(f"{path}: is read as {document}; --format {kind.name} reads the errors of its devices")
        return None, document
    return kind, document


def run(files: Sequence[Told], inputs: Inputs, given: Given, output: str | None, *, force: bool) -> int:
    """Write one stream of all files, report what was refused and lost, and return the exit code.

    Raises:
        Failure: a file cannot be read, or the output is there already or cannot be written.
    """
    already = next((file.path for file in files if file.format.name == _NATIVE), None)
    if already is not None:
        raise Failure(f"{already}: this already is a metric stream (validate it with trainspec-validate)")
    lines = (encode_record(record) + b"\n" for record in _records(files, inputs, given))
    if output is None:
        print_lines(lines, print_json)
    else:
        _save(Path(output), lines, force=force)
    tell(files)
    num_records = sum(file.num_records for file in files)
    if not num_records:
        raise Failure("nothing was converted: no file has a value that the catalog knows")
    terminal.tell(f"next: trainspec-validate {output or 'FILE'}")
    return terminal.FINDINGS if any(file.num_refused for file in files) else terminal.OK


def _records(files: Sequence[Told], inputs: Inputs, given: Given) -> Iterator[Record]:
    """The records of all files; where there are several, each names its emitter and attempt."""
    placed = Placed() if len(files) > 1 else None
    for file in files:
        for record in file.records(inputs, given):
            yield placed.place(record) if placed else record


def _save(path: Path, lines: Iterable[bytes], *, force: bool) -> None:
    refuse_present([path], force=force)
    whole = iter(lines)
    first = next(whole, None)
    if first is None:
        return
    try:
        with new_file(path, is_output=True) as file:
            file.writelines(chain([first], whole))
    except OSError as error:
        raise cannot_write(path, error) from error
