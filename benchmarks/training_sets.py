"""Published training runs as documents, and what the documents predict: the path of `trainspec plan` and `validate`.

A row of `published/training_runs.csv` without figures takes them from the row of the same name in
`tests/vectors/published_runs.csv`. `published_documents` writes the plan and the profile of a row; everything else is
`forecast.predict`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from published_documents import cluster_of, plan_of

from trainspec_validate.documents.types import ClusterProfile, TrainingPlan, changed
from trainspec_validate.performance.costs.network import Network
from trainspec_validate.performance.costs.step_compute import CALIBRATION, Calibration
from trainspec_validate.performance.costs.step_time import Work
from trainspec_validate.performance.costs.transformer import (
    Shape,
    attention_flops_per_token,
    megatron_2021_flops_per_token,
    model_flops_per_token,
    parameters,
)
from trainspec_validate.performance.forecast.facts import Unpredictable
from trainspec_validate.performance.forecast.outlook import networks_of, outlook, work_of
from trainspec_validate.performance.forecast.predict import Prediction, predict, software_named

ROOT = Path(__file__).resolve().parent
RUNS = ROOT / "published" / "training_runs.csv"
VECTORS = ROOT.parent / "tests" / "vectors" / "published_runs.csv"

LEFT_OUT = {
    "maxtext_v4, maxtext_tiering, palm": "no sequence length, or no batch size and layout",
    "Nemotron 3 of Megatron-Bridge": "hybrids of attention and state space, for which there is no step time model",
}
"""Collections of runs of which no row is in the file, and why."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One published run, with what its documents predict."""

    row: str
    dataset: str
    published: str
    accelerator: str
    plan: TrainingPlan
    cluster: ClusterProfile
    prediction: Prediction
    seconds: float
    """Published step time, or the one that its published rate implies."""

    def predicted(self, calibration: Calibration = CALIBRATION, *, named: bool = True) -> float:
        """Predicted seconds; without `named` as if the plan named no framework."""
        found, settings = self.prediction, self.prediction.settings
        if not named:
            software = software_named(changed(self.plan, framework=None))
            settings = replace(settings, software=software, framework_named=False)
        return outlook(found.model, found.machine, found.layout, settings, calibration).step.seconds

    @property
    def family(self) -> str:
        """The family whose band holds for the run."""
        return self.prediction.outlook.family

    @property
    def work(self) -> Work:
        """The step as one rank sees it."""
        found = self.prediction
        return work_of(found.model, found.machine, found.layout, found.settings)

    @property
    def networks(self) -> Mapping[str, Network]:
        """The network of each axis with several ranks."""
        return networks_of(self.prediction.machine, self.prediction.layout, self.prediction.settings)


def vectors() -> Iterator[dict[str, str]]:
    """Published rows whose identities the rules are tested with."""
    with VECTORS.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def rows() -> Iterator[dict[str, str]]:
    """Rows of the file, completed with the vectors."""
    figures = {row["row_id"]: row for row in vectors()}
    with RUNS.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            known = figures.get(row["row_id"], {})
            merged = {**known, **{key: value or known.get(key, "") for key, value in row.items()}}
            rate = "flops_per_second_per_accelerator"
            merged[rate] = row[rate] or known.get(f"model_{rate}", "")
            yield merged


@cache
def load() -> tuple[tuple[Run, ...], tuple[tuple[str, str], ...]]:
    """The runs to score, and the excluded rows with their reasons."""
    kept, excluded = list[Run](), list[tuple[str, str]]()
    for row in rows():
        if row["excluded"]:
            excluded.append((row["row_id"], row["excluded"]))
        else:
            kept.append(_run(row))
    return tuple(kept), tuple(excluded)


def _run(row: dict[str, str]) -> Run:
    plan, cluster = plan_of(row), cluster_of(row)
    try:
        found = predict(plan, cluster)
    except Unpredictable as error:
        raise ValueError(f"{row['row_id']}: {error}") from error
    seconds = _seconds(row, found.model.shape)
    return Run(row["row_id"], row["dataset"], row["published"], row["accelerator"], plan, cluster, found, seconds)


def shape_of(row: dict[str, str], *, gated_ffn: bool = False, tied_embeddings: bool = False) -> Shape:
    """The dimensions of a row; heads share the hidden size."""
    hidden, heads = int(row["hidden_size"]), int(row["num_heads"])
    return Shape(
        num_layers=int(row["num_layers"]),
        hidden_size=hidden,
        num_heads=heads,
        num_key_value_heads=int(row["num_key_value_heads"] or heads),
        head_size=hidden // heads,
        ffn_hidden_size=int(row["ffn_hidden_size"]),
        vocabulary_size=int(row["vocabulary_size"]),
        gated_ffn=gated_ffn,
        tied_embeddings=tied_embeddings,
    )


def _seconds(row: dict[str, str], shape: Shape) -> float:
    """The step: printed, or from tokens per second, or from a rate in the operations that its source counts."""
    if row["step_seconds"]:
        return float(row["step_seconds"])
    length, ranks = int(row["sequence_length"]), int(row["num_accelerators"])
    tokens = int(row["global_sequences"]) * length / ranks
    if row["tokens_per_second_per_accelerator"]:
        return tokens / float(row["tokens_per_second_per_accelerator"])
    return tokens * _flops(row["flops_convention"], shape, length) / float(row["flops_per_second_per_accelerator"])


def _flops(convention: str, shape: Shape, length: int) -> float:
    """Operations of a token as a source counts them.

    MaxText counts the matrices of the layers, one table and full attention:
    AI-Hypercomputer/maxtext@76bd53b0:MaxText/maxtext_utils.py.
    """
    if convention == "megatron-2021-hardware":
        return megatron_2021_flops_per_token(shape, length)
    attention = attention_flops_per_token(shape, length, causal=convention != "maxtext")
    table = 0 if shape.tied_embeddings else shape.embedding_parameters
    return model_flops_per_token(parameters(shape).total, attention, table)
