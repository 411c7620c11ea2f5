"""Lists which plans the software of a published run could run: `published/available_means.csv`.

Each line of the file is one means of a collection of runs, or of a variant of it, with its source.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from training_sets import Run

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.step_time import Work
from trainspec_validate.performance.forecast.outlook import Recompute
from trainspec_validate.planner.space import RECOMPUTATIONS

FILE = Path(__file__).resolve().parent / "published" / "available_means.csv"
AS_PUBLISHED = "as published"


@dataclass(frozen=True, slots=True)
class Means:
    """Capabilities of a piece of software; texts as in the file."""

    sharding: str
    """Sharding stages, with spaces between."""
    sequence_parallel: str
    context_parallel: str
    recomputation: str
    uneven_layers: str
    fewest_interleaved_stages: str
    overlap_gradients: str
    overlap_pipeline: str

    def allows(self, layout: Layout, num_layers: int) -> bool:
        """Whether the software could split layers and sequences like this."""
        chunks = layout.num_virtual_stages
        if layout.context > 1 and self.context_parallel == "no":
            return False
        if chunks > 1 and layout.pipeline < int(self.fewest_interleaved_stages):
            return False
        return self.uneven_layers == "yes" or num_layers % (layout.pipeline * chunks) == 0

    def forms(self, layout: Layout, run: Run, row: dict[str, str]) -> Iterator[tuple[Layout, Recompute]]:
        """The sharding, sequence parallelism and recomputation that the software had for a layout, least first."""
        split = run.work.layout.sequence_parallel if self.sequence_parallel == AS_PUBLISHED else None
        parallel = layout.tensor > 1 and (self.sequence_parallel == "yes" if split is None else split)
        alone = layout.data * layout.context == 1
        told = row["recompute"] if self.recomputation == AS_PUBLISHED else ""
        for stage in (0,) if alone else map(int, self.sharding.split()):
            for recompute in RECOMPUTATIONS:
                if told in {recompute, ""}:
                    yield replace(layout, sequence_parallel=parallel, sharding_stage=stage), recompute

    def own(self, work: Work, run: Work) -> Work:
        """Work of a layout with the kernels and the overlap of a run."""
        layout = work.layout
        gradients = layout.pipeline == 1 if self.overlap_gradients == "one stage" else self.overlap_gradients == "yes"
        chunked = layout.num_virtual_stages > 1
        return replace(
            work,
            fused_attention=run.fused_attention,
            attention_kernel=run.attention_kernel,
            overlap_gradients=gradients,
            overlap_parameters=gradients,
            overlap_tensor=run.overlap_tensor,
            overlap_input_gradients=run.overlap_input_gradients,
            overlap_warm_up=run.overlap_warm_up,
            fused_accumulation=run.fused_accumulation,
            loss_bytes_per_entry=run.loss_bytes_per_entry,
            overlap_pipeline=chunked if self.overlap_pipeline == "interleaved" else self.overlap_pipeline == "yes",
            gradient_bytes=run.gradient_bytes,
        )


@cache
def _every() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            name = f"{line['dataset']} {line['variant']}".strip()
            known = found.setdefault(name, {})
            if line["means"] in known or not line["source"]:
                raise ValueError(f"{FILE.name}: {name}, {line['means']}: listed twice, or without a source")
            known[line["means"]] = line["value"]
    return found


def means_of(row: dict[str, str]) -> Means:
    """The means that the software of a row had.

    Raises:
        ValueError: a line of the file has no source, or repeats one.
        KeyError: the file has nothing of the row.
    """
    every = _every()
    name = f"{row['dataset']} {row['variant']}"
    return Means(**(every[name] if name in every else every[row["dataset"]]))
