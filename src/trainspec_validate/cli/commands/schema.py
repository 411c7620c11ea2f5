"""Prints the packaged JSON Schemas."""

from __future__ import annotations

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.lookup import pick
from trainspec_validate.documents.schema import schema_file
from trainspec_validate.documents.types import KINDS, SIDE_KINDS
from trainspec_validate.model.requirements import DATA_DIRECTORY

SHORT = {"cluster": "ClusterProfile", "plan": "TrainingPlan", "checkpoint": "CheckpointPolicy"}


@click.command(
    epilog="""\b
Example:
  trainspec schema ClusterProfile --draft 07 > cluster-profile.schema.json
"""
)
@click.argument("kind", required=False)
@click.option(
    "--draft",
    type=click.Choice(["2020-12", "07"]),
    default="2020-12",
    show_default=True,
    help="Draft of JSON Schema; editors often want 07.",
)
def command(kind: str | None, draft: str) -> None:
    """Print the JSON Schema of a kind of document; without KIND, list the kinds."""
    kinds = {name: name for name in (*KINDS, *SIDE_KINDS)}
    if kind is None:
        terminal.emit("".join(f"{name}\n" for name in kinds))
        return
    dashed = {schema_file(name).removesuffix(".schema.json"): name for name in kinds}
    file = schema_file(pick(kind, {**kinds, **dashed, **SHORT}, "kind", "`trainspec schema`"))
    directory = DATA_DIRECTORY / "schemas" / ("draft-07" if draft == "07" else "")
    terminal.emit((directory / file).read_text(encoding="utf-8"))
