"""Writes a stream in the formats of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.files import refuse_present
from trainspec_validate.cli.commands.lookup import pick
from trainspec_validate.cli.commands.stream_files import Inputs, Told, print_json, print_lines, tell
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.pipeline.files import STDIN
from trainspec_validate.system.atomic import new_file
from trainspec_validate.system.boundary import reason_of
from trainspec_validate.telemetry.formats import Given, Record, SourceError
from trainspec_validate.telemetry.formats.items import Loss
from trainspec_validate.telemetry.formats.otlp.write import Signal, write

TARGETS = {
    "otlp": "OpenTelemetry, OTLP/JSON 1: metrics and logs, lossless both ways",
    "otlp-metrics": "OpenTelemetry, OTLP/JSON 1: metrics alone",
    "otlp-logs": "OpenTelemetry, OTLP/JSON 1: events as logs alone",
    "prometheus": "Prometheus text 0.0.4: the last value of each series",
    "parquet": "Parquet 2, the twin of a stream, lossless both ways",
}

SIGNALS: dict[str, Signal] = {"otlp": "all", "otlp-metrics": "metrics", "otlp-logs": "logs"}


def stream_of(path: str, inputs: Inputs) -> Told | None:
    """The stream in a file; None where it is none."""
    if path != STDIN and not Path(path).is_file():
        return None
    found = inputs.stream_format(path)
    return Told(path, "standard input" if path == STDIN else path, found) if found else None


def run(file: Told, inputs: Inputs, wanted: str, output: str | None, *, force: bool) -> int:
    """Write a stream in one format, report what was refused and lost, and return the exit code.

    Raises:
        click.UsageError: there is no such format, or it needs a file.
        Failure: the stream cannot be read, or the output is there already or cannot be written.
    """
    name = pick(wanted, {entry: entry for entry in TARGETS}, "format of streams")
    if name == "parquet" and output is None:
        raise click.UsageError("--to parquet writes no text; name its file with --output")
    path = Path(output) if output is not None else None
    if path is not None:
        refuse_present([path], force=force)
    lost: tuple[Loss, ...] = ()
    try:
        if name == "parquet" and path is not None:
            _parquet(file, inputs, path)
        elif name == "prometheus":
            lost = _prometheus(file, inputs, path)
        else:
            _otlp(file, inputs, name, path)
    except SourceError as error:
        raise Failure(f"{error} ({error.help})") from None
    except OSError as error:
        shown = path.as_posix() if path else "standard output"
        raise Failure(f"{shown}: cannot be written: {reason_of(error)}") from error
    except ValueError as error:
        raise Failure(f"{file.path}: {error}") from None
    file.losses += lost
    tell([file])
    return terminal.FINDINGS if file.num_refused else terminal.OK


def _parquet(file: Told, inputs: Inputs, path: Path) -> None:
    """Write the twin; a file is read twice, first for its columns."""
    from trainspec_validate.telemetry.formats import parquet  # noqa: PLC0415

    keys = None
    if file.path != STDIN:
        keys = parquet.keys_of(Told(file.path, file.shown, file.format).records(inputs, Given()))
    with new_file(path, is_output=True) as out:
        parquet.write(file.records(inputs, Given()), out, keys)


def _prometheus(file: Told, inputs: Inputs, path: Path | None) -> tuple[Loss, ...]:
    from trainspec_validate.telemetry.formats.prometheus.write import Snapshot  # noqa: PLC0415

    snapshot = Snapshot()
    snapshot.take(file.records(inputs, Given()))
    _write((line.encode() for line in snapshot.lines()), path, terminal.emit_document)
    return snapshot.tally.losses()


def _otlp(file: Told, inputs: Inputs, name: str, path: Path | None) -> None:
    records: Iterator[Record] = file.records(inputs, Given())
    signals: set[bytes] = set()

    def lines() -> Iterator[bytes]:
        for line in write(records, SIGNALS[name]):
            signals.add(line[:14])
            yield line + b"\n"

    _write(lines(), path, print_json)
    if len(signals) > 1:
        note = "a file of two signals; a receiver that takes one needs --to otlp-metrics and --to otlp-logs"
        terminal.tell(f"note: {note}")


def _write(lines: Iterable[bytes], path: Path | None, show: Callable[[str], None]) -> None:
    if path is None:
        print_lines(lines, show)
        return
    with new_file(path, is_output=True) as out:
        out.writelines(lines)
