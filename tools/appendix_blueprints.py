"""Writes the page of blueprints: rows of collectives to copy, and the published jobs that the examples describe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from appendix_machines import MACHINES, ROOT, Machine
from appendix_text import digits, page, section, table

from trainspec_validate.documents.load import load_file
from trainspec_validate.performance.costs import collectives

RANKS = (128, 2_048)
OPERATIONS = ("all-reduce", "reduce-scatter", "all-gather")
AXES = ("tensor", "context", "expert", "pipeline", "data")
LARGEST_BYTES = 1 << 32
CHOICE_KEYS = 4
"""Keys of a row on its first line; limits of sizes follow on a second one."""
INTRODUCTION = """
A blueprint is a part of a document to start from: rows of collectives for common machines, and plans of published jobs
with their machine. Copy one, change what is yours, and validate it. This page is informative: it states no
requirement.
"""
PLACEMENT_TEXT = """
Communication in every layer belongs on the fastest links, communication once in a step can cross the fabric:

1. Tensor ranks fill a scale-up domain or an even part of it ([TS-TOP-019](../v1/03-placement.md#TS-TOP-019)).
2. Context and expert ranks come next in the order, then data and pipeline ranks
   ([TS-TOP-021](../v1/03-placement.md#TS-TOP-021)).
3. Data ranks stay below an oversubscribed tier, or reduce hierarchically
   ([TS-TOP-023](../v1/03-placement.md#TS-TOP-023)).
4. Ranks follow the topology where a job leaves one leaf ([TS-TOP-022](../v1/03-placement.md#TS-TOP-022)).
5. The time-out of collectives outlasts the failover of the fabric, and equals that of the policy
   ([TS-COM-003](../v1/05-communication.md#TS-COM-003), [TS-COM-004](../v1/05-communication.md#TS-COM-004)).
"""
ROWS_TEXT = """
Rows for data ranks that are all ranks of a job, as `collectives` under `communication` of a plan, by the choices of
`collectives.best` up to 4 GiB. Limits are rounded to powers of two: near a limit both choices take about as long. Leave
a row out to leave the choice to the library, which is right where a measurement on the machine says nothing else. Rows
with `low-latency-128` hold where links keep 128 bytes together ([TS-COM-031](../v1/05-communication.md#TS-COM-031)).
Names of algorithms and protocols are those of plans; the models take the constants of libraries
(NVIDIA/nccl@5067397c:src/graph/tuning.cc). [Collectives](collectives.md#ring-or-tree) has the unrounded sizes, other
numbers of ranks and the errors of the models.
"""
JOBS_TEXT = """
Plans of published runs with the profile of their machine, as `examples/plans` and `examples/clusters` of the repository
hold them. TP, CP, EP, PP and DP are the degrees of tensor, context, expert, pipeline and data parallelism. All pass
the validator; comments in them name what departs from a requirement.
"""


def write() -> str:
    """The page of blueprints."""
    machines = [line for machine in MACHINES for line in _blocks(machine)]
    headers = ("plan", "machine", "ranks", *("TP", "CP", "EP", "PP", "DP"), "sequences in a step")
    return page(
        "Blueprints",
        INTRODUCTION,
        ["## Placement", "", *PLACEMENT_TEXT.strip().split("\n"), ""],
        section("Rows of collectives", ROWS_TEXT, machines),
        section("Published jobs", JOBS_TEXT, table(headers, _jobs())),
    )


def _blocks(machine: Machine) -> Iterator[str]:
    for ranks in RANKS:
        yield from (f"### {machine.title}, {digits(ranks)} ranks", "", "```yaml")
        yield from ("communication:", "  collectives:")
        for operation in OPERATIONS:
            for row in rows(machine, operation, ranks):
                yield from _lines(row)
        yield from ("```", "")


def _lines(row: dict[str, Any]) -> Iterator[str]:
    words = [f"{key}: {value}" for key, value in row.items()]
    choice, limits = ", ".join(words[:CHOICE_KEYS]), ", ".join(words[CHOICE_KEYS:])
    yield f"    - {{{choice}{',' if limits else '}'}"
    if limits:
        yield f"       {limits}}}"


def rows(machine: Machine, operation: str, ranks: int) -> list[dict[str, Any]]:
    """Rows of a plan for an operation of data ranks: adjacent ranges, each with its choice.

    >>> [row.get("max_bytes") for row in rows(MACHINES[0], "all-reduce", 2_048)]
    [524288, 268435456, None]
    """
    found = collectives.crossovers(operation, machine.network(ranks), largest_bytes=LARGEST_BYTES)
    starts = [0, *(2 ** round(math.log2(size)) for size, _ in found[1:])]
    kept: list[dict[str, Any]] = []
    for (_, choice), low, high in zip(found, starts, [*starts[1:], None], strict=True):
        if low == high:  # a range that is shorter than the rounding
            continue
        row = {"operation": operation, "axis": "data", "algorithm": choice.algorithm}
        row |= {} if machine.network(ranks).library == "other" else {"protocol": choice.protocol}
        row |= {"min_bytes": low} if low else {}
        kept.append(row | ({"max_bytes": high} if high else {}))
    return kept


def _jobs() -> Iterable[tuple[str, ...]]:
    for path in sorted((ROOT / "examples" / "plans").glob("*.yaml")):
        plan: Any = load_file(path).data
        split, cluster = plan["parallelism"], plan.get("cluster", {})
        name = cluster.get("name") or cluster.get("file", "").rpartition("/")[2].removesuffix(".yaml")
        degrees = (digits(split.get(axis, 1)) for axis in AXES)
        batch = plan["batch"].get("global_sequences")
        yield (
            f"`{path.stem}`",
            f"`{name}`" if name else "",
            digits(split["num_accelerators"]),
            *degrees,
            digits(batch) if batch else "",
        )
