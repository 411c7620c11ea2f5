"""Writes starter documents to disk."""

from __future__ import annotations

from pathlib import Path

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.files import write
from trainspec_validate.cli.commands.lookup import accelerator as find_accelerator
from trainspec_validate.cli.commands.lookup import complete_accelerator, pick
from trainspec_validate.planner.starter import FILES, MAX_NUM_NODES, OTHER, documents, missing_figures

_SHORT = {Path(file).stem: kind for kind, file in FILES.items()}


@click.command(
    epilog="""\b
Examples:
  trainspec init --accelerator nvidia-h100-sxm-80gb --num-nodes 16
  trainspec init cluster --accelerator l40s --directory profiles
  trainspec init --accelerator other
"""
)
@click.argument("kinds", nargs=-1, metavar="[cluster|plan|checkpoint]...")
@click.option(
    "--accelerator",
    default="nvidia-h100-sxm-80gb",
    show_default=True,
    metavar="NAME",
    shell_complete=complete_accelerator,
    help="Accelerator of the catalog (`trainspec catalog`), or `other` to fill in its figures.",
)
@click.option(
    "--num-nodes",
    type=click.IntRange(1, MAX_NUM_NODES),
    default=2,
    show_default=True,
    help="Nodes of the cluster and of the job.",
)
@click.option(
    "--directory",
    type=click.Path(file_okay=False),
    default=".",
    show_default="working directory",
    help="Where to write.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def command(kinds: tuple[str, ...], accelerator: str, num_nodes: int, directory: str, force: bool) -> None:
    """Write commented starter documents: cluster.yaml, plan.yaml, checkpoint.yaml, or those that are named.

    They validate together. Comments say which figures come from the catalog and which to replace.
    """
    names = {**_SHORT, **{kind: kind for kind in FILES}}
    wanted = [pick(kind, names, "kind", "`trainspec schema`") for kind in kinds] or list(FILES)
    known = OTHER if accelerator.casefold() == "other" else find_accelerator(accelerator)
    target = Path(directory)
    try:
        written = documents(dict.fromkeys(wanted), known, num_nodes)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    texts = {target / file: text for file, text in written.items()}
    write(texts, force=force, advice="--force overwrites, --directory writes elsewhere")
    missing = missing_figures(known)
    if missing:
        place = (target / FILES["ClusterProfile"]).as_posix()
        terminal.tell(f"fill in: {', '.join(missing)} of the accelerator, in {place}")
    files = " ".join(path.as_posix() for path in texts)
    terminal.tell(f"next: replace the figures that say so, then run: trainspec-validate {files}")
