"""Reads a job from its documents and writes it for launchers and frameworks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import stream_export
from trainspec_validate.cli.commands.files import write
from trainspec_validate.cli.commands.lookup import pick
from trainspec_validate.cli.commands.stream_files import Inputs
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.interop.document import Exported, Job, NotExpressible, export_all, formats
from trainspec_validate.model.finding import Report, Severity
from trainspec_validate.system.boundary import InputError

ALL = "all"
_File = click.Path(dir_okay=False)


@click.command(
    epilog="""\b
Examples:
  trainspec export plan.yaml --to slurm --policy checkpoint.yaml
  trainspec export plan.yaml --to torchtitan --cluster cluster.yaml --output job.toml
  trainspec export plan.yaml --to all --output launch
  trainspec export stream.jsonl --to parquet --output stream.parquet
"""
)
@click.argument("plan", type=_File, required=False, metavar="FILE")
@click.option("wanted", "--to", metavar="FORMAT", help="Format, or `all`; --list shows what there is.")
@click.option("--cluster", type=_File, help="Cluster profile, where the plan refers to none.")
@click.option("--policy", type=_File, help="Checkpoint policy of the job.")
@click.option(
    *("-o", "--output"),
    type=click.Path(),
    callback=terminal.or_standard_output,
    help="File or directory to write; standard output without it.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there, and write although the validator finds errors.")
@click.option("listing", "--list", is_flag=True, help="List the formats.")
def command(  # noqa: PLR0913, PLR0917 - one parameter per option
    plan: str | None,
    wanted: str | None,
    cluster: str | None,
    policy: str | None,
    output: str | None,
    force: bool,
    listing: bool,
) -> None:
    """Write a plan for a launcher or framework, or a metric stream for another program of telemetry.

    Settings of a job follow from its documents. Content of the file that the format cannot express is
    reported on standard error.
    """
    if listing:
        _list()
        return
    if plan is None or wanted is None:
        raise click.UsageError("name a plan or a stream and, with --to, a format; --list shows the formats")
    _leave_with_stream(plan, wanted, output, others=bool(cluster or policy), force=force)
    several = wanted.casefold() == ALL
    if several and output is None:
        raise click.UsageError("--to all writes several files; name their directory with --output")
    name = (
        ALL if several else pick(wanted, {entry: entry for entry in formats()}, "format", "`trainspec export --list`")
    )
    job, report = _read(plan, cluster, policy)
    num_errors = len(report.at_or_above(Severity.ERROR))
    if num_errors:
        files = " ".join(path for path in (plan, cluster, policy) if path)
        found = f"{num_errors} error{'s' if num_errors > 1 else ''} in the documents, see: trainspec-validate {files}"
        if not force:
            raise Failure(f"{found}, or continue with --force")
        terminal.tell(f"note: {found}")
    exported, notes = _write(job, name)
    _put(exported, output, several=several, force=force)
    for note in notes:
        terminal.tell(f"note: {note}")


def _list() -> None:
    titles = {name: entry.title for name, entry in formats().items()} | stream_export.TARGETS
    width = max(map(len, titles))
    terminal.emit("".join(f"{name:<{width}}  {title}\n" for name, title in titles.items()))


def _leave_with_stream(path: str, wanted: str, output: str | None, *, others: bool, force: bool) -> None:
    """Write the stream in a file, and leave; go on where the file holds none.

    Raises:
        click.UsageError: documents of a job are named beside it.
    """
    inputs = Inputs()
    stream = stream_export.stream_of(path, inputs)
    if stream is None:
        return
    if others:
        raise click.UsageError("--cluster and --policy are about plans; this is a stream")
    click.get_current_context().exit(stream_export.run(stream, inputs, wanted, output, force=force))


def _read(plan: str, cluster: str | None, policy: str | None) -> tuple[Job, Report]:
    """The job behind the files, and what the validator says of them.

    Raises:
        Failure: a file cannot be read as its kind, or the plan's cluster is not there.
    """
    from trainspec_validate.pipeline.export import job_of  # noqa: PLC0415 - `--help` goes without
    from trainspec_validate.pipeline.validation import validate  # noqa: PLC0415

    try:
        report = validate([path for path in (plan, cluster, policy) if path])
        return job_of(report, plan, cluster, policy, remedy="name its file with --cluster"), report
    except InputError as error:
        raise Failure.of(error) from error


def _write(job: Job, wanted: str) -> tuple[list[Exported], list[str]]:
    """The files of one format or of all that can run the job, and what they leave out.

    Raises:
        Failure: no program that was asked for can run the job.
    """
    refused: dict[str, NotExpressible] = {}
    if wanted == ALL:
        written, refused = export_all(job)
    else:
        try:
            written = {wanted: formats()[wanted].write(job)}
        except NotExpressible as error:
            written, refused = {}, {wanted: error}
    if not written:
        raise Failure(*(f"{name}: {_reason(refusal)}" for name, refusal in refused.items()))
    notes = [f"{name}: not written: {_reason(refusal)}" for name, refusal in refused.items()]
    notes += [f"{name}: {note}" for name, entry in written.items() for note in entry.left_out]
    return list(written.values()), notes


def _reason(error: NotExpressible) -> str:
    return f"{error}; {error.help}" if error.help else str(error)


def _put(files: Iterable[Exported], output: str | None, *, several: bool, force: bool) -> None:
    """Print the text, or write it to a file or into a directory.

    Raises:
        Failure: a file is there already, or cannot be written.
    """
    if output is None:
        terminal.emit_document("".join(file.text for file in files))
        return
    target = Path(output)
    inside = several or target.is_dir() or output.endswith("/")
    texts = {target / file.name if inside else target: file.text for file in files}
    write(texts, force=force)
