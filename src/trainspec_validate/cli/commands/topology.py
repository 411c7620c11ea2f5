"""Shows the graph of a machine at the command line, and the roles of ranks in it."""

from __future__ import annotations

import json
from typing import Any

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.terminal import Failure


@click.command(
    epilog="""\b
Examples:
  trainspec topology cluster.yaml
  trainspec topology cluster.yaml --plan plan.yaml
  trainspec topology cluster.yaml --plan plan.yaml --rank 13 --format json
"""
)
@click.argument("cluster", type=click.Path())
@click.option("--plan", type=click.Path(), help="Training plan whose groups are laid over the machine.")
@click.option("--rank", type=click.IntRange(0, 10_000_000), help="Show what one rank of the plan is in each group.")
@click.option(
    "--node-group",
    metavar="NAME",
    help="Node group.  [default: that of the plan, else the largest]",
)
@click.option("--format", "style", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(cluster: str, plan: str | None, rank: int | None, node_group: str | None, style: str) -> None:
    """Show blocks of ranks with what leaves them, bisection, narrow exits and unlike nodes of a cluster.

    With a plan also the network of each parallel group, and with a rank its neighbours in rings, trees and stages.
    """
    from trainspec_validate.cli.commands import files, topology_report  # noqa: PLC0415 - `--help` goes without

    if rank is not None and plan is None:
        raise click.UsageError("--rank needs --plan")
    profile, assumed = _profile(cluster)
    job: Any = files.document(plan, "TrainingPlan", allow_errors=True) if plan else None
    other = _other_cluster(plan, job, cluster, profile) if plan else []
    try:
        told = topology_report.told(profile, job, rank, node_group)
    except ValueError as error:
        raise Failure(f"{plan or cluster}: {error}") from error
    told["assumptions"] = [*other, *told["assumptions"], *assumed]
    if style == "json":
        terminal.emit(json.dumps(told, indent=2, ensure_ascii=False) + "\n", "json")
    else:
        terminal.emit(topology_report.text(told))


def _profile(path: str) -> tuple[Any, list[str]]:
    """The profile of a cluster, with what was assumed where it lacks required keys, as the import of one node does."""
    from trainspec_validate.cli.commands import files  # noqa: PLC0415 - `--help` goes without
    from trainspec_validate.cli.commands.partial_profile import partial_profile  # noqa: PLC0415 - `--help` goes without

    try:
        return files.document(path, "ClusterProfile", allow_errors=True), []
    except Failure:
        found = partial_profile(path)
        if found is None:
            raise
        return found


def _other_cluster(plan: str, job: Any, cluster: str, profile: Any) -> list[str]:
    """That the plan is for another cluster, whose groups are laid over this one all the same."""
    from trainspec_validate.pipeline.engine import Member  # noqa: PLC0415 - `--help` goes without
    from trainspec_validate.pipeline.references import other_cluster  # noqa: PLC0415 - `--help` goes without

    told = other_cluster(Member(plan, job), Member(cluster, profile))
    return [told] if told else []
