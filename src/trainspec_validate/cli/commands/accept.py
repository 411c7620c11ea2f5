"""Judges what was gathered from the nodes of a cluster against its profile."""

from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.system.boundary import InputError

if TYPE_CHECKING:
    from trainspec_validate.model.finding import Report
    from trainspec_validate.pipeline.acceptance import Gathered

_PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"


@click.command(
    epilog="""\b
Examples:
  trainspec accept cluster.yaml --from gathered/
  trainspec accept cluster.yaml --from gathered/ --output accepted.yaml --statement accepted.json
  trainspec accept cluster.yaml --from gathered/ --verify accepted.yaml

\b
Exit codes:
  0  every node is as declared, in what the files state
  1  a node differs, did not answer or is absent; or --verify found another result
  2  wrong use, or a file that cannot be read
  3  a mistake of ours; please report it
"""
)
@click.argument("profile", type=click.Path(dir_okay=False), metavar="PROFILE")
@click.option(
    "--from",
    "directory",
    required=True,
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Directory with one directory of files for each node.",
)
@click.option("--output", type=click.Path(dir_okay=False), metavar="FILE", help="Where to write profile and nodes.")
@click.option("--statement", type=click.Path(dir_okay=False), metavar="FILE", help="Where to write what is to sign.")
@click.option("--verify", type=click.Path(dir_okay=False), metavar="FILE", help="Compare with what --output wrote.")
@click.option(
    "--format",
    "notation",
    type=click.Choice(["concise", "full", "json", "sarif", "junit"]),
    help="Form of the report. Default: full at a terminal, else concise.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def command(  # noqa: PLR0913
    *,
    profile: str,
    directory: str,
    output: str | None,
    statement: str | None,
    verify: str | None,
    notation: str | None,
    force: bool,
) -> None:
    """Compare what was gathered from the nodes of a cluster with its profile, and name node, device and number.

    The files of a node are what its tools printed: nvidia-smi -q, nvidia-smi nvlink --status, ibstat, ibv_devinfo,
    dcgmi diag, nccl-tests, kernel logs, trainspec discover, and the other formats of trainspec import. Nothing is run.
    """
    from trainspec_validate.cli.commands import files  # noqa: PLC0415
    from trainspec_validate.pipeline.acceptance import gather  # noqa: PLC0415
    from trainspec_validate.report import render  # noqa: PLC0415

    written = [Path(name) for name in (output, statement) if name is not None]
    files.refuse_present(written, force=force)
    try:
        gathered = gather(Path(profile), Path(directory))
        report = _judged(gathered, output or f"{profile} with nodes")
    except InputError as error:
        raise Failure("\n".join(map(str, error.args))) from error
    texts = {} if output is None else {output: gathered.text}
    if statement is not None:
        texts[statement] = _statement(gathered, report, output or "accepted.yaml")
    for name, text in texts.items():
        _write(Path(name), text, force=force)
    terminal.emit(render(report, notation or ("full" if terminal.is_terminal(sys.stdout) else "concise")))
    is_same = verify is None or _is_same(Path(verify), gathered)
    if gathered.failures:
        raise Failure("\n".join(gathered.failures))
    if report.findings or not is_same:
        sys.exit(terminal.FINDINGS)


def _write(path: Path, text: str, *, force: bool) -> None:
    from trainspec_validate.cli.commands.files import cannot_write  # noqa: PLC0415
    from trainspec_validate.system.atomic import write_atomically  # noqa: PLC0415

    try:
        write_atomically(path, text, overwrite=force)
    except OSError as error:
        raise cannot_write(path, error) from error


def _judged(gathered: Gathered, name: str) -> Report:
    """The report on the profile with its nodes."""
    from trainspec_validate.checking.selection import Selection  # noqa: PLC0415
    from trainspec_validate.pipeline.acceptance import REQUIREMENTS  # noqa: PLC0415
    from trainspec_validate.pipeline.inputs import Given  # noqa: PLC0415
    from trainspec_validate.pipeline.validation import Terms, examine  # noqa: PLC0415

    given = (Given(name, gathered.text.encode(), is_document=True),)
    report = examine([], Terms(Selection(select=REQUIREMENTS), given=given))
    return replace(report, unjudged=(*report.unjudged, *gathered.unjudged))


def _statement(gathered: Gathered, report: Report, name: str) -> str:
    """An in-toto statement about the bytes of the document, for the parties to sign."""
    from trainspec_validate.report.places import dumps  # noqa: PLC0415

    found = sorted({finding.requirement for finding in report.findings})
    digest = sha256(gathered.text.encode()).hexdigest()
    predicate = {"result": "FAILED" if found else "PASSED", "configuration": [], "failedTests": found}
    return dumps(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": Path(name).name, "digest": {"sha256": digest}}],
            "predicateType": _PREDICATE,
            "predicate": predicate,
        }
    )


def _is_same(path: Path, gathered: Gathered) -> bool:
    """Whether a document is that of these files; tells the first line that differs."""
    from trainspec_validate.documents.load import LoadError, read_file  # noqa: PLC0415

    try:
        before = read_file(path).decode("utf-8", "replace")
    except LoadError as error:
        raise Failure(f"{path.as_posix()}: {error.message}") from error
    if before == gathered.text:
        terminal.tell(f"{path.as_posix()}: verified, sha256 {sha256(before.encode()).hexdigest()}")
        return True
    lines = zip([*before.split("\n"), ""], [*gathered.text.split("\n"), ""], strict=False)
    number = next((n for n, (one, other) in enumerate(lines, 1) if one != other), 1)
    terminal.tell(f"{path.as_posix()}:{number}: differs from what the profile and the files give")
    return False
