"""Writes predicted bus bandwidths of a cluster as thresholds, at the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure

_PROGRAMS = ("aicr", "cvs", "nvcre")
"""Of `interop.thresholds`, named here so that --help loads nothing."""


@click.command(
    epilog="""\b
Examples:
  trainspec thresholds cluster.yaml --to cvs --num-nodes 2 --output thresholds.json
  trainspec thresholds cluster.yaml --to aicr
"""
)
@click.argument("cluster", type=click.Path(dir_okay=False))
@click.option("--to", "program", type=click.Choice(_PROGRAMS), required=True, help="Program that measures.")
@click.option("--node-group", metavar="NAME", help="Node group.  [default: the largest]")
@click.option(
    "--num-nodes",
    type=click.IntRange(1, 1_000_000),
    metavar="NUMBER",
    help="Nodes of the benchmark.  [default: all of the group]",
)
@click.option(
    *("-o", "--output"),
    type=click.Path(dir_okay=False),
    callback=terminal.or_standard_output,
    help="File to write; standard output without it.",
)
@click.option("--force", is_flag=True, help="Overwrite what is there, and write although the validator finds errors.")
def command(  # noqa: PLR0913
    *, cluster: str, program: str, node_group: str | None, num_nodes: int | None, output: str | None, force: bool
) -> None:
    """Write the least bus bandwidths that are predicted for a cluster, as thresholds of a program that measures them.

    aicr is NVIDIA's AI Cluster Runtime, nvcre its Cluster Readiness Engine, cvs AMD's Cluster Validation Suite. Each
    takes a section of its own configuration. aicr and cvs subtract a tolerance, which the figures make up for.
    """
    from trainspec_validate.cli.commands import files  # noqa: PLC0415 - `--help` goes without
    from trainspec_validate.interop.thresholds import PROGRAMS, NotPredictable, predicted  # noqa: PLC0415

    profile: Any = files.document(cluster, "ClusterProfile", allow_errors=force)
    try:
        test = predicted(profile, node_group, num_nodes)
        text = PROGRAMS[program].write(test)
    except NotPredictable as error:
        raise Failure(f"{cluster}: {error}") from error
    for note in test.notes:
        terminal.tell(f"note: {note}")
    if output is None:
        terminal.emit_document(text)
    else:
        files.write({Path(output): text}, force=force)
