"""Judges what was gathered from the nodes of a cluster against its profile."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.settings import UNCOVERED, UNJUDGED, FailOn
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.system.boundary import InputError

if TYPE_CHECKING:
    from trainspec_validate.cli.commands.acceptance_statement import Judge
    from trainspec_validate.interop.collect import Tool
    from trainspec_validate.model.finding import Report, Unjudged
    from trainspec_validate.pipeline.acceptance import Gathered

_WAYS = ("local", "ssh", "slurm", "kubernetes")
"""Of `interop.collect`, named here so that --help loads nothing."""

_KEY = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog="""\b
Examples:
  trainspec accept cluster.yaml --from gathered/
  trainspec accept cluster.yaml --over ssh --node 'node[01-16]' --into gathered/
  trainspec accept cluster.yaml --over slurm --into gathered/ --also 'dcgmi.txt=dcgmi diag -r 3'
  trainspec accept cluster.yaml --from gathered/ --fail-on unjudged
  trainspec accept cluster.yaml --from gathered/ --output accepted.yaml --statement statement.json
  trainspec accept cluster.yaml --from gathered/ --verify accepted.yaml
  trainspec accept cluster.yaml --from gathered/ --statement statement.json --signing-key key.pem
  trainspec accept cluster.yaml --from gathered/ --verify statement.json --public-key key.pub.pem
  trainspec accept cluster.yaml --from gathered/ --countersign statement.json --signing-key other.pem

\b
Exit codes:
  0  nothing that was read differs
  1  a node differs, did not answer or is absent; with --fail-on unjudged also where something was not judged; or
     --verify or --countersign found another result or signature
  2  wrong use, or a file that cannot be read
  3  a mistake of ours; please report it
"""
)
@click.argument("profile", type=click.Path(dir_okay=False), metavar="PROFILE")
@click.option(
    "--from",
    "directory",
    type=click.Path(file_okay=False),
    metavar="DIR",
    help="Directory with one directory of files for each node.",
)
@click.option("--over", type=click.Choice(_WAYS), help="Run the tools of all nodes now, through a shell on each.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="LIST",
    help="Nodes for --over, such as node[01-16], or pods.",
)
@click.option("--into", type=click.Path(file_okay=False), metavar="DIR", help="New directory for what --over gathers.")
@click.option("--also", multiple=True, metavar="FILE=COMMAND", help="One more command for --over to run on each node.")
@click.option(
    "--timeout",
    "timeout_seconds",
    type=click.FloatRange(1, 86_400),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time that a node may take with --over.",
)
@click.option(
    "--fail-on",
    type=FailOn(click.Choice([UNJUDGED, UNCOVERED])),
    multiple=True,
    metavar="WORDS",
    help="Kind of entry that makes the exit code 1 next to findings: unjudged (facts that no file states), uncovered "
    "(facts that this tool has no formula or figure for). Repeatable.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    callback=terminal.no_standard_output,
    help="Where to write profile and nodes.",
)
@click.option(
    "--statement",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    callback=terminal.no_standard_output,
    help="Where to write the in-toto statement on the result.",
)
@click.option("--signing-key", type=_KEY, metavar="FILE", help="Sign it: private key in PEM, on an elliptic curve.")
@click.option(
    "--countersign",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Add the signature of --signing-key to what --statement wrote.",
)
@click.option(
    "--verify",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Compare with what --output or --statement wrote. Repeatable.",
)
@click.option(
    "--public-key",
    "public_keys",
    type=_KEY,
    multiple=True,
    metavar="FILE",
    help="Key in PEM that must have signed what --verify names. Repeatable.",
)
@click.option(
    "--format",
    "notation",
    type=click.Choice(["concise", "full", "json", "sarif", "junit"]),
    help="Form of the report. Default: full at a terminal, else concise.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there, and accept in spite of errors of the profile.")
def command(  # noqa: PLR0913
    *,
    profile: str,
    output: str | None,
    statement: str | None,
    signing_key: Path | None,
    countersign: Path | None,
    verify: tuple[Path, ...],
    public_keys: tuple[Path, ...],
    notation: str | None,
    fail_on: tuple[str, ...],
    force: bool,
    **source: Any,
) -> None:
    """Compare what was gathered from the nodes of a cluster with its profile, and name node, device and number.

    The files of a node are what its tools printed: nvidia-smi -q, nvidia-smi nvlink --status, ibstat, ibv_devinfo,
    dcgmi diag, nccl-tests, nvbandwidth, HPL, kernel logs, trainspec discover, and other formats of trainspec import.
    Streams of a short training run, among them or next to the nodes, are judged too. With --from nothing is run. With
    --over the tools that print the state of a node are run on each, and leave nothing there.

    With --signing-key the statement is in a DSSE envelope, with a signature of each party. It is signed and verified
    only where profile and files give the same one. A profile with errors is refused before anything is run.
    """
    from trainspec_validate.cli.commands import acceptance_statement  # noqa: PLC0415

    _check_options(statement, signing_key, countersign, verify, public_keys)
    keys = acceptance_statement.keys(signing_key, public_keys)
    _refuse_places([Path(name) for name in (output, statement) if name is not None], force=force)
    gathered, report = _examined(Path(profile), _Source(**source), output or f"{profile} with nodes", force=force)
    texts = {} if output is None else {output: gathered.text}
    if statement is not None:
        texts[statement] = acceptance_statement.signed(gathered, report, output, keys.private)
    _write({Path(name): text for name, text in texts.items()}, force=force)
    _print(report, notation)
    is_same = _holds(acceptance_statement.Judge(gathered, report, keys), verify, countersign)
    _end(gathered, report, fail_on, is_same=is_same)


def _print(report: Report, notation: str | None) -> None:
    from trainspec_validate.report import render  # noqa: PLC0415

    terminal.emit(render(report, notation or ("full" if terminal.is_terminal(sys.stdout) else "concise")))


def _end(gathered: Gathered, report: Report, fail_on: Sequence[str], *, is_same: bool) -> None:
    """Set the exit code.

    Raises:
        Failure: a file could not be read.
    """
    from trainspec_validate.cli.request import fails  # noqa: PLC0415

    if gathered.failures:
        raise Failure(*gathered.failures)
    if not is_same or fails(report, ("note", *fail_on)):
        click.get_current_context().exit(terminal.FINDINGS)


def _refuse_places(paths: Sequence[Path], *, force: bool) -> None:
    """Refuse places that nothing can be written to, before anything is gathered."""
    from trainspec_validate.cli.commands import files  # noqa: PLC0415

    files.refuse_present(paths, force=force)
    files.refuse_unplaced(paths)


def _errors(profile: Path, *, is_allowed: bool) -> list[Unjudged]:
    """What errors of a profile leave open, where they are allowed.

    Raises:
        Failure: there are errors, or the profile cannot be read.
    """
    from trainspec_validate.pipeline.acceptance_profile import errors, unjudged  # noqa: PLC0415

    try:
        found = errors(profile)
    except InputError as error:
        raise Failure.of(error) from error
    if found and not is_allowed:
        raise Failure(*found, "correct the profile, or accept in spite of its errors with --force")
    return [unjudged(profile, found)] if found else []


def _examined(profile: Path, source: _Source, name: str, *, force: bool) -> tuple[Gathered, Report]:
    """What the files of the nodes show, and the report on it, with the errors of the profile where they are allowed."""
    from trainspec_validate.pipeline.acceptance import gather  # noqa: PLC0415

    first = _errors(profile, is_allowed=force)
    try:
        gathered = gather(profile, source.directory_of_nodes(profile))
        gathered, report = _judged(gathered, name)
    except InputError as error:
        raise Failure.of(error) from error
    return gathered, replace(report, unjudged=(*first, *report.unjudged))


def _check_options(
    statement: str | None,
    signing_key: Path | None,
    countersign: Path | None,
    verify: Sequence[Path],
    public_keys: Sequence[Path],
) -> None:
    if signing_key is not None and statement is None and countersign is None:
        raise click.UsageError("--signing-key wants --statement FILE, or --countersign FILE")
    if countersign is not None and signing_key is None:
        raise click.UsageError("--countersign wants --signing-key FILE")
    if countersign is not None and statement is not None:
        raise click.UsageError("give either --statement FILE, for a new statement, or --countersign FILE")
    if public_keys and not verify:
        raise click.UsageError("--public-key wants --verify STATEMENT")


def _holds(judge: Judge, verify: Sequence[Path], countersign: Path | None) -> bool:
    """Whether all that the call verifies holds; only then a statement is signed."""
    is_verified = judge.is_verified(verify)
    if countersign is None:
        return is_verified
    text = judge.countersigned(countersign) if is_verified else None
    if text is None:
        terminal.tell(f"{countersign.as_posix()}: not signed")
        return False
    _write({countersign: text}, force=True)
    return True


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the files of the nodes come from: a directory, or the nodes themselves."""

    directory: str | None
    over: str | None
    nodes: tuple[str, ...]
    into: str | None
    also: tuple[str, ...]
    timeout_seconds: float

    def directory_of_nodes(self, profile: Path) -> Path:
        """The directory with the files of the nodes, which are gathered now where the call says so."""
        if (self.directory is None) == (self.over is None):
            raise click.UsageError("give either --from DIR, or --over and --into DIR")
        if self.directory is not None:
            if self.into or self.also or self.nodes:
                raise click.UsageError("--into, --also and --node belong to --over; --from runs nothing")
            return Path(self.directory)
        if self.into is None:
            raise click.UsageError("--over wants --into DIR: a new directory for what the nodes print")
        place = Path(self.into)
        if place.is_symlink() and not place.exists():
            raise InputError(f"{place.as_posix()}: the link leads nowhere; remove it, or give --into a new directory")
        if place.exists() and (not place.is_dir() or any(place.iterdir())):
            raise InputError(f"{place.as_posix()}: is there already; --into wants a new directory")
        self._collect(profile, place)
        return place

    def _collect(self, profile: Path, place: Path) -> None:
        """Gather from all nodes, and tell which did not answer, and why."""
        from trainspec_validate.interop.collect import collect  # noqa: PLC0415

        seconds = self.timeout_seconds
        for answer in collect(self._named(profile), str(self.over), place, self._tools(), timeout_seconds=seconds):
            if answer.failure:
                terminal.tell(f"{answer.node}: did not answer: {answer.failure}")
            elif not answer.num_files:
                terminal.tell(f"{answer.node}: answered, and none of the tools printed anything")
            for name in answer.unfinished:
                why = "its command printed nothing or too much, took too long or was killed"
                terminal.tell(f"{answer.node}: {name}: left out: {why}")

    def _tools(self) -> list[Tool]:
        """The commands for each node, with those of the user."""
        from trainspec_validate.interop.collect import TOOLS, Tool  # noqa: PLC0415

        tools = {tool.file: tool for tool in TOOLS}
        for one in self.also:
            name, equals, words = one.partition("=")
            if not equals or not words.strip():
                raise click.UsageError(f"--also {one!r} is no FILE=COMMAND, such as 'dcgmi.txt=dcgmi diag -r 3'")
            tools[name] = Tool(name, words, max(1, int(self.timeout_seconds)), is_asked=True)
        return list(tools.values())

    def _named(self, profile: Path) -> list[str]:
        """The nodes that the options, the place of the call or the profile name."""
        from trainspec_validate.interop.collect import named  # noqa: PLC0415
        from trainspec_validate.pipeline.acceptance import declared_nodes  # noqa: PLC0415

        if self.nodes:
            return named(self.nodes)
        if self.over == "local":
            return [platform.node()]
        allocated = os.environ.get("SLURM_JOB_NODELIST", "") if self.over == "slurm" else ""
        found = named([allocated]) if allocated else declared_nodes(profile)
        if not found:
            raise click.UsageError("the profile names no nodes in `layout.nodes`; name them with --node")
        return found


def _write(texts: Mapping[Path, str], *, force: bool) -> None:
    from trainspec_validate.cli.commands.files import cannot_write  # noqa: PLC0415
    from trainspec_validate.system.atomic import write_all  # noqa: PLC0415

    contents = {path: text.encode("utf-8", "backslashreplace") for path, text in texts.items()}
    try:
        write_all(contents, overwrite=force, with_directories=False)
    except OSError as error:
        raise cannot_write(next(iter(texts)), error) from error


def _judged(gathered: Gathered, name: str) -> tuple[Gathered, Report]:
    """What is gathered with the streams that cannot be read, and the report on it."""
    from trainspec_validate.pipeline.acceptance import REQUIREMENTS  # noqa: PLC0415
    from trainspec_validate.pipeline.acceptance_runs import judged  # noqa: PLC0415
    from trainspec_validate.pipeline.inputs import Given  # noqa: PLC0415

    document = Given(name, gathered.text.encode(), is_document=True)
    report, failures = judged(document, REQUIREMENTS, (*gathered.streams, *gathered.streams_of_no_node))
    open_ = (*report.unjudged, *gathered.left_out, *gathered.unjudged)
    report = replace(report, unjudged=open_, left_out=())  # the requirements are those of the command, not of an option
    return replace(gathered, failures=(*gathered.failures, *failures)), report
