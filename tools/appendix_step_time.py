"""Writes the page of step time: where steps go, kernels, bubbles, messages and operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from appendix_machines import peak_flops
from appendix_step_formulas import GPT3, LLAMA, STAGES, step_formulas
from appendix_text import MIB, digits, fixed, formulas, page, percent, section, signed_percent, table

from benchmarks import training_sets
from trainspec_validate.performance.costs import kernel_efficiency, layout, step_compute, step_time, step_traffic

RUNS = (
    "megatron2021_t1-001",
    "megatron2021_t1-007",
    "megatron2021_t1-010",
    "korthikanti2022_t5-003",
    "korthikanti2022_t5-004",
    "megascale_t2-005",
    "megatron_h100_2024-005",
    "megatron_h100_2024-009",
    "llama3_t4-001",
    "llama3_t4-002",
    "llama3_t4-003",
    "torchtitan_h100_202412-004",
    "fms_fsdp-004",
    "llmfoundry-001",
)
AXES = ("tensor", "context", "pipeline", "data")
KERNELS = (
    ("unfused", "ampere"),
    ("flash-1", "ampere"),
    ("flash-2", "ampere"),
    ("unfused", "hopper"),
    ("flash-2", "hopper"),
    ("flash-3", "hopper"),
)
BUBBLES = (
    ("gpipe", 1),
    ("1f1b", 1),
    ("interleaved-1f1b", 2),
    ("interleaved-1f1b", 4),
    ("zero-bubble", 1),
    ("dual-pipe", 1),
)
SIZES = ((4, 16), (8, 16), (8, 64), (16, 64), (16, 128))
INTRODUCTION = """
How long an optimizer step takes, and what it spends its time on: computing, waiting for other pipeline stages,
messages that computing does not hide, the optimizer, input. [Where a step goes](#where-a-step-goes) says how far off
the sum is. This page is informative: it states no requirement.

Words: h hidden size, a attention width, f feed-forward width, V vocabulary, L layers, s sequence length, t tensor
ranks, p pipeline stages, v chunks of a rank, m micro-batches, N parameters, M those of the layers' matrices.
"""


def steps() -> Iterator[tuple[str, ...]]:
    """Published runs: where the predicted step goes, and what was published."""
    known = {run.row: run for run in training_sets.load()[0]}
    titles = {row["row_id"]: row["model"] for row in training_sets.rows()}
    for row in RUNS:
        run = known[row]
        found, where = step_time.step_time(run.work, run.networks), run.work.layout
        inside = {axis: found.exposed_seconds.get(axis, 0.0) for axis in AXES}
        inside["data"] += found.exposed_seconds.get("replica", 0.0)
        parts = (found.compute_seconds, found.bubble_seconds, *inside.values(), found.optimizer_seconds)
        degrees = f"{where.data} x {where.tensor} x {where.pipeline} x {where.context}"
        shares = [percent(part / found.seconds, 0) for part in parts]
        accelerator = run.accelerator.split("-")[1].upper()
        totals = (fixed(found.seconds, 2), fixed(run.seconds, 2), signed_percent(found.seconds / run.seconds - 1))
        yield row, titles.get(row) or "", accelerator, degrees, *shares, *totals


def products() -> Iterator[tuple[str, ...]]:
    """Best measured matrix product over the peak, by accelerator."""
    names = dict.fromkeys(name for name, _ in kernel_efficiency.MATMUL_FRACTION)
    for name in names:
        cells = []
        for number_format in ("bf16", "fp8"):
            share = kernel_efficiency.MATMUL_FRACTION.get((name, number_format))
            peak = peak_flops(name, number_format) / 1e12 if share else 0.0
            cells.append(f"{percent(share)} of {digits(peak)}" if share else "none published")
        yield name, *cells


def attention() -> Iterator[tuple[str, ...]]:
    """Share of the peak of causal attention, forward and backward, heads of 128, by length."""
    for kernel, generation in KERNELS:
        lengths = kernel_efficiency.SEQUENCE_LENGTHS
        shares = (kernel_efficiency.attention_fraction(kernel, generation, 128, length) for length in lengths)  # type: ignore[arg-type]
        yield kernel, generation, *(percent(share) for share in shares)


def bubbles() -> Iterator[tuple[str, ...]]:
    """Idle over busy time by schedule."""
    for schedule, chunks in BUBBLES:
        cells = []
        for stages, micro_batches in SIZES:
            where = layout.Layout(
                pipeline=stages, num_micro_batches=micro_batches, schedule=schedule, num_virtual_stages=chunks
            )
            cells.append(percent(step_compute.idle_ratio(where)))
        yield schedule, str(chunks), *cells


def conventions() -> Iterator[tuple[str, ...]]:
    """Operations of a token by convention, and the utilisation that one published step then has."""
    for convention in get_args(step_time.Convention):
        cells = []
        for given, length in ((GPT3, 2048), (LLAMA, 8192)):
            one = layout.Layout(sequence_length=length)
            flops = step_time.model_flops_per_step(given.value, one, convention) / length
            cells.append(digits(flops / 1e9, 4))
        used = step_time.model_flops_utilisation(GPT3.value, STAGES.value, 31.92, 312e12, convention)
        yield convention, *cells, percent(used)


def messages() -> Iterator[tuple[str, ...]]:
    """Messages of one rank in a step of the worked job, at two sharding stages."""
    for stage in (0, 1):
        where = layout.Layout(
            *(16, 8, 8), num_micro_batches=96, sequence_length=2048, sequence_parallel=bool(stage), sharding_stage=stage
        )
        for sent in step_traffic.transfers(GPT3.value, where):
            moved = digits(sent.message_bytes / MIB)
            yield (
                f"ZeRO-{stage}",
                sent.axis,
                sent.operation,
                moved,
                digits(sent.count),
                sent.overlappable.replace("none", "nothing"),
            )


def _steps() -> list[str]:
    calibration = step_compute.CALIBRATION
    low, high = percent(calibration.low_factor, 0), percent(calibration.high_factor, 0)
    times = ("predicted s", "published s", "error")
    return section(
        "Where a step goes",
        "Published runs of `benchmarks/published/training_runs.csv`. Ranks are data x tensor x pipeline x context; "
        "shares are of the predicted step. What the publications leave open is assumed in "
        "`benchmarks/training_sets.py`.",
        f"Two constants are fitted to these and other runs: products reach {calibration.sustained_matmul} of the best "
        f"measured product, and a step still pays {calibration.hidden_communication} of the time of hidden messages. "
        "So the last column is no held-out error. Held out by dataset, one run in ten took less than "
        f"{low} of its prediction and one in ten more than {high} (`benchmarks/score_step_time.py`).",
        table(("run", "model", "on", "ranks", "compute", "bubble", *AXES, "optimizer", *times), steps()),
    )


def _messages() -> list[str]:
    return [
        *section(
            "Messages of a step",
            "GPT-3 on 16 data x 8 tensor x 8 pipeline ranks, 96 micro-batches of 2,048 tokens, fp32 gradients, one "
            "rank. With ZeRO-1 tensor ranks split sequences too. The last column is what a message can hide behind.",
            table(("sharding", "axis", "operation", "MiB", "count", "hides behind"), messages()),
        ),
        *section(
            "Pipeline bubbles",
            "Idle over busy time of a rank, p stages and m micro-batches.",
            table(("schedule", "chunks", *(f"p = {p}, m = {m}" for p, m in SIZES)), bubbles()),
        ),
    ]


def _kernels() -> list[str]:
    lengths = (digits(length) for length in kernel_efficiency.SEQUENCE_LENGTHS)
    memory = percent(kernel_efficiency.MEMORY_FRACTION)
    return section(
        "Kernels",
        "Best measured matrix product over the dense peak in 1e12 operations per second: the best shape of a sweep on "
        "an idle machine.",
        table(("accelerator", "bf16", "fp8"), products()),
        "Causal attention, forward and backward, heads of 128, as a share of the dense peak, by sequence length. "
        f"Kernels without products reach {memory} of the memory bandwidth in the data sheet.",
        table(("kernel", "generation", *lengths), attention()),
    )


def write() -> str:
    """The page of step time."""
    headers = ("convention", "GPT-3, 2,048 tokens", "Llama 3.1 8B, 8,192 tokens", "utilisation of the run")
    return page(
        "Step time",
        INTRODUCTION,
        section("Formulas", formulas(step_formulas())),
        _steps(),
        _messages(),
        _kernels(),
        section(
            "Operations by convention",
            "1e9 operations of one token. The run is GPT-3 on 1,024 A100, 1,536 sequences in 31.92 s: its utilisation "
            "depends on what is counted, so a figure without its convention says little.",
            table(headers, conventions()),
        ),
    )
