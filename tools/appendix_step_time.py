"""Writes the page of step time: where steps go, kernels, bubbles, messages and operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from appendix_machines import peak_flops, shape, switched
from appendix_text import MIB, Formula, Given, digits, fixed, formulas, page, percent, section, signed_percent, table

from benchmarks import score_memory, training_sets
from trainspec_validate.performance.costs import (
    eager,
    kernel_efficiency,
    kernel_traffic,
    layout,
    memory,
    model_flops,
    step_compute,
    step_errors,
    step_time,
    step_traffic,
    transformer,
)

GPT3 = Given("gpt3", transformer.Shape(96, 12288, 96, 96, 128, 49152, 51200), "GPT-3 175B")
LLAMA = Given("llama", shape("llama3-8b"), "Llama 3.1 8B")
STAGES = Given(
    "stages",
    layout.Layout(data=16, tensor=8, pipeline=8, num_micro_batches=96, sequence_length=2048),
    "16 data x 8 tensor x 8 pipeline ranks, 96 micro-batches of one sequence of 2,048 tokens",
)
LAYER = transformer.Shape(1, 4096, 32, 32, 128, 16384, 50368)
SUMS = Given("sums", layout.Layout(num_micro_batches=96), "96 micro-batches whose gradients a kernel adds up in fp32")
WORK = Given(
    "work",
    step_compute.Work(LAYER, layout.Layout(sequence_length=2048), 312e12, 0.869, 2e12, generation="ampere"),
    "one layer of h = 4,096 and its tables on an A100, 2,048 tokens",
)
DATA = layout.Layout(data=8, sharding_stage=3, micro_sequences=2, sequence_length=8192)
SHARDED = Given(
    "sharded",
    step_compute.Work(shape("llama3-8b"), DATA, 989e12, 0.803, 3.35e12),
    "Llama 3.1 8B on a node of eight H100, ZeRO-3, two sequences of 8,192 tokens for each rank",
)
NODE = Given("node", {"data": switched(8, "infiniband")}, "the data axis over NVLink 4, whose switches reduce")
ONCE = step_traffic.Transfer("tensor", "all-reduce", 1e6, 4, "none")
ACCELERATORS = "stas00/ml-engineering@744d01e1:compute/accelerator/README.md"


CALIBRATION = step_compute.CALIBRATION
COMPUTE_FORMULAS = (
    Formula(
        step_compute.passes,
        (
            "products / (peak x measured share x sustained) + attention + bytes / memory",
            "s",
            f"kernels below; sustained {CALIBRATION.sustained_matmul} is fitted",
        ),
        (WORK,),
        taking=".forward",
        printed=(1e-3, "ms"),
    ),
    Formula(
        step_compute.passes,
        ("backward: twice the products, and what is repeated", "s", "as above"),
        (WORK,),
        taking=".backward",
        printed=(1e-3, "ms"),
    ),
    Formula(
        kernel_efficiency.matmul_fraction,
        ("best measured product / dense peak", "share", ACCELERATORS),
        ("nvidia-h100-sxm-80gb", "bf16"),
    ),
    Formula(
        kernel_efficiency.attention_fraction,
        ("measured rate / dense peak, by kernel and length", "share", "Dao-AILab/flash-attention, assets"),
        ("flash-2", "ampere", 128, 2048),
    ),
    Formula(
        kernel_traffic.layer_traffic,
        (
            "each kernel reads its inputs and writes its outputs once",
            "bytes",
            "counted from arXiv:2205.05198, section 4.1",
        ),
        (LLAMA,),
        taking=".forward",
        printed=(1024, "KiB per token and layer"),
    ),
    Formula(
        kernel_traffic.weight_traffic,
        (
            "sharded: gathered once forward, gathered and reduced backward; else a sum read and written unless fused",
            "bytes",
            "arXiv:2304.11277, section 3.2; NVIDIA/Megatron-LM@de7dc40f:megatron/model/distributed.py",
        ),
        (SUMS,),
        {"fused_accumulation": False},
        taking=".backward",
        printed=(1, "bytes per weight and micro-batch"),
    ),
    Formula(
        step_compute.steady_share,
        (
            "1 - ((v - 1) p + p - 1) / (v m); 1F1B 1 - (p - 1) / (2 m)",
            "share",
            "NVIDIA/Megatron-LM@bc000690:megatron/core/pipeline_parallel/schedules.py",
        ),
        (STAGES,),
    ),
    Formula(
        step_compute.idle_ratio,
        (
            "1F1B (p - 1) / m; interleaved (p - 1) / (v m); more below",
            "ratio",
            "arXiv:2104.04473, section 2.2; deepseek-ai/DualPipe@89f5de17",
        ),
        (STAGES,),
    ),
    Formula(transformer.pipeline_idle_ratio, ("(p - 1) / (v m)", "ratio", "arXiv:2104.04473, section 2.2"), (8, 16, 4)),
)


AUTOCAST = Given("autocast", memory.ModelState(4, 0, 4, 8), "weights, gradients and both moments of AdamW in fp32")
LAYERS = "huggingface/transformers@00227283:src/transformers/models; the count is ours"
EAGER_FORMULAS = (
    Formula(
        eager.eager_layer_traffic,
        ("each operation reads its inputs and writes its output once", "bytes", LAYERS),
        (LLAMA, 4),
        taking=".forward",
        printed=(1024, "KiB per token and layer"),
    ),
    Formula(
        eager.eager_layer_traffic,
        ("backward: the same of its operations", "bytes", LAYERS),
        (LLAMA, 4),
        taking=".backward",
        printed=(1024, "KiB per token and layer"),
    ),
    Formula(
        eager.eager_layer_bytes,
        ("what each operation keeps for its gradient", "bytes", LAYERS),
        (LLAMA, 4),
        printed=(1024, "KiB per token and layer"),
    ),
    Formula(
        eager.eager_weight_bytes,
        ("cast of a weight, or its gradient back: 4 + 2 under autocast", "bytes", "the count is ours"),
        (4,),
        printed=(1, "bytes per weight and pass"),
    ),
    Formula(
        eager.foreach_bytes_per_parameter,
        (
            "5 gradient + 4 weight + 14 moment + the copy of 16 bits",
            "bytes",
            "pytorch/pytorch:torch/optim/adamw.py; the count is ours",
        ),
        (AUTOCAST,),
        printed=(1, "bytes per parameter"),
    ),
)


HIDDEN = step_compute.CALIBRATION.hidden_communication
STEP_FORMULAS = (
    Formula(
        step_traffic.transfers,
        (
            "messages of one rank by axis, see the table of messages",
            "messages",
            "arXiv:1909.08053; arXiv:1910.02054; arXiv:2104.04473",
        ),
        (GPT3, STAGES),
        taking="len",
        printed=(1.0, "kinds of messages"),
    ),
    Formula(
        step_traffic.rank_parameters,
        ("dense / (t p) + experts / (expert ranks x p)", "parameters", "arXiv:2104.04473, section 2"),
        (GPT3, STAGES),
        taking=".dense",
        printed=(1e9, "billion"),
    ),
    Formula(
        step_traffic.recomputed,
        (
            "count x (1 + share / 2) for messages of forward passes",
            "messages",
            "arXiv:2205.05198, section 5; the count is ours",
        ),
        (Given("once", (ONCE,), "four all-reduces of tensor ranks in a step"), 1.0),
        taking="[0].count",
        printed=(1.0, "messages"),
    ),
    Formula(
        step_time.step_time,
        (
            "compute of the slowest rank + idle x that of the others and messages inside + exposed + optimizer + stall",
            "s",
            f"windows of passes; {HIDDEN} of what is hidden is still paid, fitted",
        ),
        (SHARDED, NODE),
        taking=".seconds",
    ),
)


FLOPS_FORMULAS = (
    Formula(
        transformer.attention_flops_per_token,
        ("12 L a s; causal 6 L a s", "operations/token", "arXiv:2204.02311, appendix B"),
        (LLAMA, 8192),
        options={"causal": True},
        printed=(1e9, "billion operations"),
    ),
    Formula(
        transformer.model_flops_per_token,
        (
            "6 (N - N_input) + attention",
            "operations/token",
            "arXiv:2204.02311, appendix B; mosaicml/llm-foundry@8c8dd48f",
        ),
        (70.55e9, 32.21e9, 1050673152),
        printed=(1e9, "billion operations"),
    ),
    Formula(
        transformer.megatron_2022_flops_per_token,
        ("6 (M + V h) + 12 L a s", "operations/token", "arXiv:2205.05198, appendix A"),
        (GPT3, 2048),
        printed=(1e9, "billion operations"),
    ),
    Formula(
        transformer.megatron_2021_flops_per_token,
        ("8 M + 6 V h + 16 L a s", "operations/token", "arXiv:2104.04473, equation 3"),
        (GPT3, 2048),
        printed=(1e9, "billion operations"),
    ),
    Formula(
        model_flops.model_flops_per_step,
        ("tokens of the step x operations of a token", "operations", "spec/v1/04-performance.md"),
        (GPT3, STAGES, "megatron-2021-hardware"),
        printed=(1e18, "x 1e18 operations"),
    ),
    Formula(
        model_flops.model_flops_utilisation,
        ("operations / (seconds x ranks x peak)", "share", "arXiv:2204.02311, appendix B"),
        (GPT3, STAGES, 31.92, 312e12, "megatron-2021-hardware"),
    ),
)


def step_formulas() -> list[Formula]:
    """Computing, layers without a compiler, messages and operations, in this order."""
    return [*COMPUTE_FORMULAS, *EAGER_FORMULAS, *STEP_FORMULAS, *FLOPS_FORMULAS]


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
    for convention in get_args(model_flops.Convention):
        cells = []
        for given, length in ((GPT3, 2048), (LLAMA, 8192)):
            one = layout.Layout(sequence_length=length)
            flops = model_flops.model_flops_per_step(given.value, one, convention) / length
            cells.append(digits(flops / 1e9, 4))
        used = model_flops.model_flops_utilisation(GPT3.value, STAGES.value, 31.92, 312e12, convention)
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


def families() -> Iterator[tuple[str, ...]]:
    """Error of the model by kind of job, each publication predicted without itself."""
    for name, band in step_errors.BANDS.items():
        yield name, str(band.num_runs), percent(band.mean_error), f"{fixed(band.low, 2)} to {fixed(band.high, 2)}"


def plain() -> Iterator[tuple[str, ...]]:
    """Plain loops of PyTorch: predicted and measured step, and memory of the device."""
    steps_of = {run.row: run for run in training_sets.load()[0]}
    for row, cell in score_memory.plain_cells():
        run = steps_of[row["row_id"]]
        seconds = run.predicted()
        yield (
            f"`{row['name']}`",
            *(fixed(seconds, 3), fixed(run.seconds, 3), signed_percent(seconds / run.seconds - 1)),
            *(fixed(cell.predicted), fixed(cell.published), signed_percent(cell.error)),
        )


def _steps() -> list[str]:
    found = step_compute.CALIBRATION
    times = ("predicted s", "published s", "error")
    return [
        *section(
            "Where a step goes",
            "Published runs of `benchmarks/published/training_runs.csv`. Ranks are data x tensor x pipeline x context; "
            "shares are of the predicted step. `benchmarks/published_documents.py` writes the plan and the profile of "
            "a run, and assumes what its publication leaves open; kernels and overlap are those of its framework "
            "(`software.RELEASES`).",
            f"Four constants are fitted to these and other runs: products reach {found.sustained_matmul} of the best "
            f"measured product, those of experts {found.sustained_experts} of that, those below 16 bits "
            f"{found.sustained_narrow}, and a step still pays {found.hidden_communication} of the time of hidden "
            "messages. So the last column is no held-out error.",
            table(("run", "model", "on", "ranks", "compute", "bubble", *AXES, "optimizer", *times), steps()),
        ),
        *section(
            "Error by family",
            "Each publication is predicted with constants that were fitted without it. Eight of ten runs of a family "
            "took that many times as long as predicted. A kind of job with fewer than four measured runs has no band. "
            "`step_errors.BANDS` is scored by `benchmarks/score_step_time.py`.",
            table(("family", "runs", "mean error", "eight of ten"), families()),
        ),
        *section(
            "Plain PyTorch",
            "Loops of `benchmarks/measured/plain_training.py` on one H200, in which nothing is compiled, predicted for "
            "`--framework pytorch` by the bytes that `eager` counts for each operation. No constant is fitted to them; "
            "they were at hand when the counts were made.",
            table(
                ("run", "predicted s", "measured s", "error", "predicted GiB", "measured GiB", "error"),
                plain(),
            ),
        ),
    ]


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
