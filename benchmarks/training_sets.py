"""Published training runs as work for the step time model: rows, and what their publications say about the software.

A row of `published/training_runs.csv` without figures takes them from the row of the same name in
`tests/vectors/published_runs.csv`. What no publication prints is assumed here, in one place and the same for all rows:

- micro-batch: all sequences of a data rank where there is one pipeline stage, else one sequence;
- chunks of an interleaved schedule: two, for Megatron-LM on H100 alone; all others are published, but for Llama 3,
  where eight follow from stages of eight layers whose chunks hold one (arXiv:2407.21783, section 3.3.2);
- node: eight accelerators, as in DGX A100 and DGX H100, whose NICs carry 200 and 400 Gb/s for each accelerator.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from published_software import CASES_OF_2021, SOFTWARE, Software

from trainspec_validate.performance.costs.kernel_efficiency import matmul_fraction
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.network import Link, Network
from trainspec_validate.performance.costs.step_time import Work
from trainspec_validate.performance.costs.transformer import (
    Shape,
    attention_flops_per_token,
    megatron_2021_flops_per_token,
    model_flops_per_token,
    parameters,
)

ROOT = Path(__file__).resolve().parent
RUNS = ROOT / "published" / "training_runs.csv"
VECTORS = ROOT.parent / "tests" / "vectors" / "published_runs.csv"
NODE = 8

LEFT_OUT = {
    "maxtext_v4, maxtext_v5e, maxtext_tiering, palm": "no published matrix product and attention kernel for TPU",
    "nemo_bridge": "its half-precision rows are mixtures of experts",
    "mlperf_v4.0, mlperf_v4.1, mlperf_v5.0": "the format of matrix products is not in the logs; several used fp8",
}
"""Collections of runs of which no row is in the file, and why."""

# Dense peak, memory bandwidth, scale-up link in one direction: vendor data sheets, as in the catalog.
HARDWARE: dict[str, tuple[float, float, float]] = {
    "nvidia-a100-sxm-40gb": (312e12, 1.555e12, 300e9),
    "nvidia-a100-sxm-80gb": (312e12, 2.0e12, 300e9),
    "nvidia-h100-sxm-80gb": (989e12, 3.35e12, 450e9),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One published run."""

    row: str
    dataset: str
    accelerator: str
    work: Work
    networks: Mapping[str, Network]
    seconds: float
    """Published step time, or the one that its published rate implies."""


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


def load() -> tuple[tuple[Run, ...], tuple[tuple[str, str], ...]]:
    """The runs to score, and the excluded rows with their reasons."""
    every = list(rows())
    kept = tuple(_run(row) for row in every if not row["excluded"])
    return kept, tuple((row["row_id"], row["excluded"]) for row in every if row["excluded"])


def _run(row: dict[str, str]) -> Run:
    name = f"{row['dataset']} {row['variant']}"
    software = SOFTWARE.get(name) or SOFTWARE[row["dataset"]]
    if row["dataset"] == "korthikanti2022_t5" and int(row["num_layers"]) in {96, 105}:
        software = replace(software, chunks=3)
    if row["row_id"] in CASES_OF_2021:
        micro, chunks = CASES_OF_2021[row["row_id"]]
        software = replace(software, chunks=chunks, overlap_data=row["pipeline"] == "1")
        row = {**row, "micro_sequences": str(micro)}
    layout = _layout(row, software)
    shape = shape_of(row, gated_ffn=software.gated_ffn, tied_embeddings=software.tied_embeddings)
    peak, bandwidth, link = HARDWARE[row["accelerator"]]
    work = Work(
        shape,
        layout,
        peak,
        matmul_fraction(row["accelerator"], "bf16"),
        software.memory_bandwidth or bandwidth,
        generation="ampere" if "a100" in row["accelerator"] else "hopper",
        fused_attention=software.attention != "unfused",
        attention_kernel=software.attention,
        recompute="selective" if row["recompute"] == "selective" else "none",
        recomputed_share=_share(row),
        overlap_gradients=software.overlap_data,
        overlap_parameters=software.overlap_data,
        overlap_tensor=software.overlap_tensor,
        overlap_input_gradients=software.overlap_input_gradients,
        overlap_pipeline=software.overlap_pipeline,
        overlap_warm_up=software.overlap_warm_up,
        fused_accumulation=software.fused_accumulation,
        loss_bytes_per_entry=software.loss_bytes_per_entry,
        gradient_bytes=software.gradient_bytes,
    )
    nic = software.nic or (25e9 if "a100" in row["accelerator"] else 50e9)
    networks = _networks(layout, Link(link, 0.0), Link(nic, 0.0), software.transport)
    return Run(row["row_id"], row["dataset"], row["accelerator"], work, networks, _seconds(row, shape))


def _share(row: dict[str, str]) -> float:
    """Torchtitan's selective modes repeat every other layer, or every other product (its docs/performance.md)."""
    if row["dataset"].startswith("torchtitan") and row["recompute"].startswith("selective"):
        return 0.5
    return 1.0 if row["recompute"] == "full" else 0.0


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


def _layout(row: dict[str, str], software: Software) -> Layout:
    tensor, pipeline, context = (int(row[axis] or 1) for axis in ("tensor", "pipeline", "context"))
    data = int(row["num_accelerators"]) // (tensor * pipeline * context)
    each = int(row["global_sequences"]) / data
    micro = int(row["micro_sequences"] or (1 if pipeline > 1 else max(1, round(each))))
    chunks = software.chunks if pipeline > 1 else 1
    return Layout(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        sequence_parallel=software.sequence_parallel and tensor > 1,
        schedule="1f1b" if chunks == 1 else "interleaved-1f1b",
        num_virtual_stages=chunks,
        sharding_stage=2 if row["sharding"] == "grad-op" else software.sharding_stage,
        sharding_degree=NODE if row["sharding"] == "hybrid" else None,
        micro_sequences=micro,
        num_micro_batches=max(1, round(each / micro)),
        sequence_length=int(row["sequence_length"]),
    )


def _networks(layout: Layout, link: Link, nic: Link, transport: str) -> dict[str, Network]:
    """Groups of adjacent ranks first in a node: tensor, context, data or shards, and stages last."""

    def group(num_ranks: int, stride: int) -> Network:
        together = max(1, min(num_ranks, NODE // stride))
        return Network(num_ranks, -(-num_ranks // together), link, nic, transport=transport, domain_num_ranks=NODE)

    shards = min(layout.num_shards, layout.data * layout.context)
    degrees = {
        "tensor": (layout.tensor, 1),
        "context": (layout.context, layout.tensor),
        "data": (shards, layout.tensor),
        "replica": (layout.data * layout.context // shards, layout.tensor * shards),
        "pipeline": (min(2, layout.pipeline), layout.num_ranks // layout.pipeline),
    }
    return {axis: group(*degree) for axis, degree in degrees.items() if degree[0] > 1}


def _seconds(row: dict[str, str], shape: Shape) -> float:
    """The step: printed, or from tokens per second, or from a rate in the operations that its source counts."""
    if row["step_seconds"]:
        return float(row["step_seconds"])
    length, ranks = int(row["sequence_length"]), int(row["num_accelerators"])
    tokens = int(row["global_sequences"]) * length / ranks
    if row["tokens_per_second_per_accelerator"]:
        return tokens / float(row["tokens_per_second_per_accelerator"])
    if row["dataset"].startswith("megatron2021"):
        flops = megatron_2021_flops_per_token(shape, length)
    else:
        attention = attention_flops_per_token(shape, length, causal=True)
        table = 0 if shape.tied_embeddings else shape.embedding_parameters
        flops = model_flops_per_token(parameters(shape).total, attention, table)
    return tokens * flops / float(row["flops_per_second_per_accelerator"])
