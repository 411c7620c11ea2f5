"""Finds the files of an import, and turns read failures into messages."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import known as known_words
from trainspec_validate.cli.commands import stream_import, tables
from trainspec_validate.cli.commands.imported import hand_over, num_facts
from trainspec_validate.cli.commands.stream_files import Inputs
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.documents.types import KINDS
from trainspec_validate.interop.formats import Format
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import Choice
from trainspec_validate.interop.open import decoded, foreign_text
from trainspec_validate.interop.recognise import by_name, formats, recognise
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.together import together
from trainspec_validate.pipeline.files import STDIN, File, files_of
from trainspec_validate.system.boundary import InputError, untrusted
from trainspec_validate.system.budget import Limit

MAX_FILES = int(Limit("an import", 1_000, "files").most)
MAX_NUM_NODES = 1_000_000
_MAX_NAME = 128
_MAX_NAMED = 4
"""Files that an error names."""


def _show_formats(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    kinds = list(KINDS)
    found = sorted(formats().values(), key=lambda entry: (kinds.index(entry.kind), entry.name))
    rows = [(entry.name, entry.kind, entry.title) for entry in found]
    tables.show(("format", "makes a", "what it is"), [*rows, *stream_import.rows()])
    context.exit(terminal.OK)


def _nothing(fragments: Sequence[Fragment]) -> str:
    """A message for files that were read and have no value of a document, with what was read of them."""
    named = ", ".join(entry.name for entry in fragments[:_MAX_NAMED])
    read = "; ".join(remark.message for entry in fragments for remark in entry.remarks[:_MAX_NAMED])
    return f"nothing was imported: {named} states no value that a document takes{': ' if read else ''}{read[:1000]}"


@click.command(
    epilog="""\b
Examples:
  trainspec import topology.conf system.json --name hall-a > cluster.yaml
  ibnetdiscover | trainspec import - --output fabric.yaml
  trainspec import logs/ --output observed.yaml --check
  trainspec import mlperf.log --known run=r-7 --output stream.jsonl
"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--format", "format_name", metavar="NAME", help="Format of every file, if its content does not show it.")
@click.option(
    *("-o", "--output"),
    metavar="FILE",
    type=click.Path(dir_okay=False),
    callback=terminal.or_standard_output,
    help="Where to write, instead of stdout.",
)
@click.option("--num-nodes", type=click.IntRange(1, MAX_NUM_NODES), help="Nodes of the cluster; wins over the files.")
@click.option("--name", metavar="NAME", help="Name of the document; wins over the files.")
@click.option(
    "--known",
    multiple=True,
    metavar="KEY=VALUE",
    help="Facts missing from a stream: run, attempt, emitter, host, rank, start, utc_offset, or a quantity of the job.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_formats,
    help="List the formats that are read, and leave.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
@click.option("--check", is_flag=True, help="Validate what was written; exit 1 when it has an error.")
def command(  # noqa: PLR0913, PLR0917 - one parameter per option
    files: tuple[str, ...],
    format_name: str | None,
    output: str | None,
    num_nodes: int | None,
    name: str | None,
    known: tuple[str, ...],
    force: bool,
    check: bool,
) -> None:
    """Write one document or stream from files of other programs.

    The format is recognised by content. A value that no file states becomes a comment that starts with `unknown`.
    Logs and telemetry become a metric stream; values that it cannot hold are reported on standard error.
    A directory means the files in it; `-` is standard input.
    """
    if check and output is None:
        raise click.UsageError("--check needs --output")
    inputs, paths = Inputs(), _listed(files)
    streams = stream_import.found(paths, _names([path for path, _ in paths]), inputs, format_name, _document_format)
    if streams:
        if num_nodes is not None or name is not None:
            raise click.UsageError("--num-nodes and --name are about documents; streams take --known")
        code = stream_import.run(streams, inputs, known_words.given(known), output, force=force)
        click.get_current_context().exit(max(code, _judge(output)) if check and output else code)
    if known:
        raise click.UsageError("--known is about streams; none of the files is one")
    fragments = _fragments(paths, format_name, inputs)
    if not any(num_facts(fragment.facts) for fragment in fragments):
        raise Failure(_nothing(fragments))
    if num_nodes is not None and any(fragment.kind != "ClusterProfile" for fragment in fragments):
        raise click.UsageError("--num-nodes is about clusters; no other kind of document has it")
    try:
        merged = join(fragments, Choice(num_nodes, valid_name(name)))
    except ForeignFormatError as error:
        raise Failure(_told("", error)) from None
    hand_over(merged, fragments, output, force=force)
    if check and output:
        click.get_current_context().exit(_judge(output))


def valid_name(name: str | None) -> str | None:
    """The name that a person gave, if documents take it.

    Raises:
        click.UsageError: they do not.
    """
    from trainspec_validate.interop.shape import fitting  # noqa: PLC0415

    if name is not None and fitting("ClusterProfile", {"metadata": {"name": name}})[1]:
        raise click.UsageError(f"{name!r} is no name; letters, digits, '.', '_', '+' and '-', {_MAX_NAME} at most")
    return name


def _listed(arguments: Sequence[str]) -> list[tuple[str, bool]]:
    """Every path with whether it was named itself.

    Raises:
        Failure: there are too many.
    """
    paths = list(islice(_paths(arguments), MAX_FILES + 1))
    if len(paths) > MAX_FILES:
        raise Failure(f"more than {MAX_FILES:,} files; name fewer")
    if not paths:
        raise Failure(f"{', '.join(arguments)}: no file was found")
    return paths


def _document_format(name: str, head: bytes) -> str:
    """The format of a document that starts so; nothing where none fits."""
    text = ForeignText(name, head.decode("utf-8", "replace"))
    return next((entry.name for entry in formats().values() if entry.looks_like(text)), "")


def _fragments(paths: Sequence[tuple[str, bool]], format_name: str | None, inputs: Inputs) -> list[Fragment]:
    """What every file says.

    Raises:
        Failure: a file cannot be read, or nothing in a directory can; every such file has its line.
    """
    chosen = None
    try:
        chosen = by_name(format_name) if format_name is not None else None
    except ForeignFormatError as error:
        raise click.UsageError(str(error)) from None
    found, failures, skipped = list[tuple[Fragment, ForeignText]](), list[str](), list[str]()
    names = _names([path for path, _ in paths])
    for (path, explicit), shown in zip(paths, names, strict=True):
        try:
            found.append(_read(path, shown, chosen, inputs))
        except ForeignFormatError as error:
            (failures if explicit else skipped).append(_told(path, error))
    if failures and found:
        others = ", ".join(text.name for _, text in found[:_MAX_NAMED])
        failures.append(f"nothing was imported; {others} can be imported without these files")
    if failures or not found:
        raise Failure(*(failures or skipped))
    for line in skipped:
        terminal.tell(f"left out: {line}")
    try:
        return together(found)
    except ForeignFormatError as error:
        raise Failure(_told("", error)) from None


def _read(path: str, name: str, chosen: Format | None, inputs: Inputs) -> tuple[Fragment, ForeignText]:
    with untrusted(lambda reason, remedy: ForeignFormatError(reason, None, remedy)):
        text = _text(path, name, inputs)
        fragment = (chosen or recognise(text)).read(text)
        if chosen and fragment.facts == _of_nothing(chosen, name):
            reason = f"states nothing that {chosen.name} has; defaults of the program alone are no import"
            raise ForeignFormatError(reason, None, "name another --format, or leave it out")
        return fragment, text


def _of_nothing(chosen: Format, name: str) -> Mapping[str, Any]:
    """The facts that a format makes of a file without settings: labels, and defaults of its program."""
    try:
        return chosen.read(ForeignText(name, "{}")).facts
    except ForeignFormatError:
        return {}


def _text(path: str, name: str, inputs: Inputs) -> ForeignText:
    if path == STDIN:
        return decoded(inputs.stdin().read(MAX_BYTES + 1), name)
    return foreign_text(Path(path), name)


def _paths(arguments: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Every path with whether it was named itself; a directory stands for the files in it, not for those below."""
    for argument in arguments:
        if argument == STDIN:
            yield argument, True
            continue
        found = files_of(argument, lambda _: True, deep=False)
        for file in found:
            if isinstance(file, File):
                yield (file.name, False) if file.found else (argument, True)
            elif Path(argument).is_dir() or glob.has_magic(argument):
                raise Failure(str(file))
            else:
                yield argument, True  # reading it says what is wrong


def _names(paths: Sequence[str]) -> list[str]:
    """What documents call each file: its last part, the whole path where two share it."""
    short = ["standard input" if path == STDIN else Path(path).name for path in paths]
    return [name if short.count(name) == 1 else Path(path).as_posix() for name, path in zip(short, paths, strict=True)]


def _told(path: str, error: ForeignFormatError) -> str:
    line = f":{error.line}" if error.line else ""
    place = f"{path}{line}: " if path else ""
    return f"{place}{error}" + (f" ({error.help})" if error.help else "")


def _judge(path: str) -> int:
    """Findings of the written document on standard error, and the exit code that they mean.

    What no file tells is no finding: the document says so. A document of which no rule could judge anything does not
    pass either.
    """
    from trainspec_validate.documents.schema import ABSENT  # noqa: PLC0415
    from trainspec_validate.model.finding import Severity  # noqa: PLC0415
    from trainspec_validate.model.requirements import load_index  # noqa: PLC0415
    from trainspec_validate.pipeline.validation import validate  # noqa: PLC0415 - only a check pays for the rules
    from trainspec_validate.report import concise  # noqa: PLC0415
    from trainspec_validate.report.options import Options  # noqa: PLC0415
    from trainspec_validate.report.summary import JUDGED  # noqa: PLC0415

    try:
        report = validate([path])
    except InputError as error:
        raise Failure.of(error) from error
    lacks = [found.message for found in report.findings if found.requirement == ABSENT]
    known = tuple(found for found in report.findings if found.requirement != ABSENT)
    if lacks:
        terminal.tell(f"{path}: unknown, and needed by the document: {'; '.join(lacks)}")
    outcomes = tuple(outcome for outcome in report.outcomes if outcome.requirement != ABSENT)
    terminal.tell_lines(concise.render(replace(report, findings=known, outcomes=outcomes), Options()))
    form = {r.id for r in load_index().by_id.values() if r.check in {"schema", "load"}}
    if not any(outcome.verdict in JUDGED and outcome.requirement not in form for outcome in report.outcomes):
        terminal.tell(f"{path}: no rule could judge anything of it")
        return terminal.FINDINGS
    return terminal.FINDINGS if any(found.severity is Severity.ERROR for found in known) else terminal.OK
