"""Writes a document of the machine that the command runs on."""

from __future__ import annotations

import click

from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands.import_ import MAX_NUM_NODES, valid_name
from trainspec_validate.cli.commands.imported import hand_over
from trainspec_validate.interop.discover import LocalMachine
from trainspec_validate.interop.discover import discover as describe
from trainspec_validate.interop.merge import Choice
from trainspec_validate.interop.refused import join


@click.command(
    epilog="""\b
Examples:
  trainspec discover --num-nodes 16 --name hall-a > cluster.yaml
  srun --ntasks 1 trainspec discover --output node.yaml
"""
)
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    callback=terminal.or_standard_output,
    help="Where to write, instead of stdout.",
)
@click.option("--num-nodes", type=click.IntRange(1, MAX_NUM_NODES), help="Nodes like this one in the cluster.")
@click.option("--name", metavar="NAME", help="Name of the document.")
@click.option("--force", is_flag=True, help="Overwrite what is there.")
def command(output: str | None, num_nodes: int | None, name: str | None, force: bool) -> None:
    """Describe this machine as one node of a cluster profile.

    Asks the kernel and the tools of the accelerators, and changes nothing. Facts that neither reports become
    a comment that starts with `unknown`. Host names, serial numbers and addresses are not written.
    """
    choice = Choice(num_nodes, valid_name(name))
    fragments = describe(LocalMachine())
    hand_over(join(fragments, choice), fragments, output, force=force, command="discover")
