"""Published rows that contradict themselves are caught by name, and pass when the slip is mended."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from overlay import overlay  # noqa: E402

from trainspec_validate.documents.load import load_text  # noqa: E402
from trainspec_validate.documents.types import TrainingPlan, read  # noqa: E402
from trainspec_validate.pipeline.validation import validate  # noqa: E402
from trainspec_validate.rules import NotApplicable, all_rules  # noqa: E402

VECTORS = ROOT / "tests" / "vectors"

# File: the places that are reported, and the correction.
BAD: dict[str, tuple[set[tuple[str, str]], dict[str, Any]]] = {
    "llama3-405b-data-4": (
        {("TS-PAR-001", "parallelism.num_accelerators"), ("TS-BAT-001", "batch.global_sequences")},
        {"parallelism": {"data": 8}},
    ),
    "qwen3-235b-gb300": ({("TS-BAT-001", "batch.global_sequences")}, {"batch": {"accumulation_steps": 64}}),
    "gpt-oss-120b-h100": (
        {("TS-BAT-001", "batch.global_sequences"), ("TS-PAR-012", "batch.accumulation_steps")},
        {"batch": {"accumulation_steps": 8}},
    ),
    **{
        f"megascale-table2-{row}": (
            {("TS-PAR-028", "performance.model_flops_utilisation")},
            {"performance": {"model_flops_per_second": aggregate}},
        )
        for row, aggregate in {
            "megatron-256": 42.3e15,
            "megatron-512": 79.7e15,
            "megatron-1024": 142.8e15,
            "megascale-12288": 2116.3e15,
        }.items()
    },
    "deepspeed-elasticity": (
        {("TS-BAT-017", "batch.elastic.data_degrees"), ("TS-BAT-017", "batch.elastic.micro_sequences")},
        {"batch": {"elastic": {"data_degrees": [1, 2, 4, 8], "micro_sequences": [2]}}},
    ),
}


def judged(document: Any, directory: Path) -> set[tuple[str, str]]:
    path = directory / "plan.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")
    found = validate([path]).findings
    mine = [f for f in found if f.requirement.startswith(("TS-PAR", "TS-BAT", "TS-DOC"))]
    return {(f.requirement, ".".join(str(step) for step in f.pointer)) for f in mine}


def test_every_vector_is_in_the_table() -> None:
    assert {path.stem for path in (VECTORS / "published_bad").glob("*.yaml")} == set(BAD)


@pytest.mark.parametrize("name", BAD)
def test_published_row_is_caught_and_its_correction_passes(name: str, tmp_path: Path) -> None:
    text = (VECTORS / "published_bad" / f"{name}.yaml").read_text(encoding="utf-8")
    document = load_text(text, name).data
    places, correction = BAD[name]
    assert judged(document, tmp_path) == places
    assert judged(overlay(document, correction), tmp_path) == set()


IDENTITIES = ("TS-PAR-001", "TS-BAT-001", "TS-PAR-023", "TS-PAR-024", "TS-PAR-028")
PERFORMANCE = (
    "step_seconds",
    "tokens_per_second",
    "tokens_per_second_per_accelerator",
    "model_flops_per_second",
    "model_flops_per_second_per_accelerator",
    "peak_flops_per_second",
    "model_flops_utilisation",
)


def runs() -> Iterator[dict[str, str]]:
    with (VECTORS / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def plan_of(row: dict[str, str]) -> TrainingPlan:
    """A plan with the figures of a row; what it lacks is chosen so that only given figures are compared."""
    degrees = {key: int(row[key] or 1) for key in ("tensor", "pipeline", "context")}
    ranks = int(row["num_accelerators"])
    data = int(row["data"] or ranks // (degrees["tensor"] * degrees["pipeline"] * degrees["context"]))
    micro = int(row["micro_sequences"] or 1)
    steps = int(row["accumulation_steps"] or int(row["global_sequences"]) // (data * micro))
    data_of: dict[str, Any] = {
        "apiVersion": "trainspec/v1",
        "kind": "TrainingPlan",
        "metadata": {"name": row["row_id"], "sources": [{"title": row["model"], "reference": row["source"]}]},
        "model": {
            "name": "m",
            "family": "other",
            "num_parameters": 1e9,
            "sequence_length": int(row["sequence_length"]),
        },
        "parallelism": {"num_accelerators": ranks, "data": data, **degrees},
        "batch": {
            "global_sequences": int(row["global_sequences"]),
            "micro_sequences": micro,
            "accumulation_steps": steps,
        },
        "precision": {"compute": "bf16", "parameters": "bf16", "gradients": "fp32", "reduction": "fp32"},
        "performance": {"kind": "published", **{key: float(row[key]) for key in PERFORMANCE if row[key]}},
    }
    plan = read("TrainingPlan", data_of)
    assert isinstance(plan, TrainingPlan)
    return plan


def violated(rule: Callable[..., Iterator[Any]], plan: TrainingPlan) -> bool:
    try:
        return bool(list(rule(plan)))
    except NotApplicable:
        return False


def test_replay_of_published_tables_flags_exactly_the_rows_that_contradict_themselves() -> None:
    rules = {identifier: all_rules()[identifier].function for identifier in IDENTITIES}
    flagged = {
        (row["row_id"], identifier)
        for row in runs()
        for identifier, function in rules.items()
        if violated(function, plan_of(row))
    }
    assert flagged == {
        ("nemo_bridge-231", "TS-BAT-001"),
        ("nemo_bridge-249", "TS-BAT-001"),
        *((f"megascale_t2-{number}", "TS-PAR-028") for number in ("001", "002", "004", "016")),
    }
