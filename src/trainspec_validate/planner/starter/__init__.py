"""Starts documents, for an accelerator of the catalog and a number of nodes."""

from __future__ import annotations

from collections.abc import Iterable

from trainspec_validate.model.catalog import CatalogAccelerator
from trainspec_validate.planner.starter.machines import OTHER, assumed, build_of, missing_figures

__all__ = ["FILES", "MAX_NUM_NODES", "OTHER", "documents", "missing_figures"]

FILES = {"ClusterProfile": "cluster.yaml", "TrainingPlan": "plan.yaml", "CheckpointPolicy": "checkpoint.yaml"}
"""File that each kind is written to."""
MAX_NUM_NODES = 1_000_000
_MAX_RANKS = 1_000_000
"""A degree of parallelism is at most a million, and the data degree may be the number of ranks."""


def documents(kinds: Iterable[str], accelerator: CatalogAccelerator, num_nodes: int) -> dict[str, str]:
    """Text of a starter document of each kind, by file name; together they validate.

    Raises:
        ValueError: the number of nodes is not between 1 and a million, or the job has more than a million ranks.
    """
    from trainspec_validate.planner.starter import cluster, plan, policy  # noqa: PLC0415 - the models behind the figures
    from trainspec_validate.planner.starter.sizing import sizes  # noqa: PLC0415

    if not 1 <= num_nodes <= MAX_NUM_NODES:
        raise ValueError(f"{num_nodes} nodes; starters are made for 1 to {MAX_NUM_NODES}")
    writers = {
        "ClusterProfile": cluster.document,
        "TrainingPlan": plan.document,
        "CheckpointPolicy": policy.document,
    }
    build = build_of(assumed(accelerator))
    most = _MAX_RANKS // (build.num_per_node * build.num_ranks)
    if num_nodes > most:
        raise ValueError(
            f"{num_nodes} nodes of {accelerator.name} have more than {_MAX_RANKS:,} ranks; use at most {most:,} nodes"
        )
    figures = sizes(accelerator, num_nodes)
    return {FILES[kind]: writers[kind](figures) for kind in kinds}
