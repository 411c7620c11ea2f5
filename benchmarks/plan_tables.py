"""Lays out the tables of the planner's benchmarks and counts their processor time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.planner.space import Choice

Result = TypeVar("Result")


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """A result and the processor seconds that it took; other processes of a busy machine do not count."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Plain text: columns as wide as their widest entry, the first one to the left and the others to the right."""
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    return "\n".join(_line(row, widths) for row in [head, *rows])


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()


def short(choice: Choice) -> str:
    """A choice on a line: degrees, chunks, micro-batch, sharding, recomputation, and the axis that is outermost."""
    w = choice.layout
    expert = f"e{w.expert}/{w.expert_tensor_degree} " if w.expert > 1 or w.expert_tensor_degree != w.tensor else ""
    shards = f"z{w.sharding_stage}" + (f"/{w.sharding_degree}" if w.sharding_stage and w.sharding_degree else "")
    outermost = choice.order[-1][:1] if w.pipeline > 1 and w.data > 1 else "-"
    chunks = f"v{w.num_virtual_stages} b{w.micro_sequences}"
    return f"{_degrees(w)} {expert}{chunks} {shards} {choice.recompute[:4]} {outermost}"


def _degrees(layout: Layout) -> str:
    return f"t{layout.tensor} c{layout.context} p{layout.pipeline} d{layout.data}"


LEGEND = (
    "Plans: t tensor, c context, p pipeline, d data, e experts/tensor ranks of one, v chunks, b sequences of a "
    "micro-batch,\nz what copies share (0 nothing, 1 optimizer, 2 gradients, 3 weights)/ranks of a copy, "
    "recomputation, outermost axis."
)
