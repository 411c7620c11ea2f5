"""Writes the page of memory: state by sharding, activations, micro-batches in flight, peaks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Literal

from appendix_machines import shape
from appendix_text import (
    GIB,
    MIB,
    Formula,
    Given,
    digits,
    fixed,
    formulas,
    page,
    percent,
    section,
    signed_percent,
    table,
)

from benchmarks import score_memory
from trainspec_validate.performance.costs import (
    activations,
    adapters,
    layout,
    memory,
    memory_overheads,
    model_families,
    optimizer_state,
    rank_memory,
    rank_state,
    stage_memory,
    transformer,
)

ADAM = memory.model_state("bf16", "fp32", "fp32", "fp32")
GPT3 = Given("gpt3", transformer.Shape(96, 12288, 96, 96, 128, 49152, 51200), "GPT-3 175B, 96 layers of 12,288")
LLAMA = Given("llama", shape("llama3-8b"), "Llama 3.1 8B")
ONE = Given("one", layout.Layout(sequence_length=2048), "one rank, one sequence of 2,048 tokens")
STAGES = Given(
    "stages",
    layout.Layout(tensor=8, pipeline=8, num_micro_batches=64, sequence_parallel=True, sequence_length=2048),
    "8 tensor ranks that split sequences too, 8 stages, 64 micro-batches of 2,048 tokens",
)
UNFUSED = Given(
    "unfused",
    activations.ActivationPolicy("none", fused_attention=False, dropout=True),
    "nothing recomputed, attention not fused, with dropout",
)
KEEP = Given("keep", activations.ActivationPolicy("none"), "nothing recomputed, fused attention")
FULL = Given("full", activations.ActivationPolicy("full"), "full recomputation")
MIXED = Given("mixed", ADAM, "Adam in mixed precision, fp32 gradients, 18 bytes per parameter")
SIXTEEN = Given(
    "sixteen",
    memory.model_state("fp16", "fp32", "fp16", "fp32"),
    "Adam in mixed precision, 16-bit gradients, 16 bytes per parameter",
)
KORTHIKANTI = "arXiv:2205.05198"


STATE_FORMULAS = (
    Formula(
        memory.model_state,
        (
            "weights + master + gradients + moments, each by its format",
            "bytes/parameter",
            "arXiv:1910.02054, section 3.1",
        ),
        ("bf16", "fp32", "fp32", "fp32"),
        taking=".total",
    ),
    Formula(
        memory.sharded_bytes_per_parameter,
        ("kept + (total - kept) / d", "bytes/parameter", "arXiv:1910.02054, table 1"),
        (SIXTEEN, 1, 64),
    ),
    Formula(
        model_families.vision_parameters,
        (
            "L (4 h^2 + 2 h f + 9 h + f) + c p^2 h + (n + 2) h + 2 h + (h + 1) classes",
            "parameters",
            "arXiv:2010.11929, section 3.1",
        ),
        (Given("vit", model_families.VisionShape(12, 768, 3072, 224, 16, 3, 1000), "ViT-B/16, 224 pixels"),),
        printed=(1e6, "million"),
    ),
    Formula(
        model_families.vision_flops_per_sample,
        (
            "6 (n L (4 h^2 + 2 h f) + 2 n^2 h L + c p^2 h (n - 1) + h classes)",
            "operations",
            "arXiv:2204.02311, appendix B",
        ),
        (Given("vit", model_families.VisionShape(12, 768, 3072, 224, 16, 3, 1000), "ViT-B/16, 224 pixels"),),
        printed=(1e9, "billion"),
    ),
    Formula(
        model_families.state_space_parameters,
        (
            "Mamba 3 h d + d (w + 3 n + 2 r + 3) + h; Mamba-2 h (3 d + 2 g n + H) + (w + 1) (d + 2 g n) + 3 H + d + h",
            "parameters",
            "arXiv:2312.00752; arXiv:2405.21060",
        ),
        (
            2560,
            Given("mamba", model_families.StateSpaceShape("mamba", 5120, 16, time_step_rank=160), "of Mamba 2.8B"),
        ),
        printed=(1e6, "million"),
    ),
    Formula(
        model_families.mtp_parameters,
        ("2 h^2 + 5 h + attention + feed-forward", "parameters", "arXiv:2412.19437, section 2.2"),
        (LLAMA,),
        printed=(1e6, "million"),
    ),
    Formula(
        adapters.adapter_parameters,
        ("r (m + n) for each matrix with an adapter of rank r", "parameters", "arXiv:2106.09685, section 4.1"),
        (LLAMA, 8, ("query", "value")),
    ),
    Formula(
        optimizer_state.factor_numbers,
        (
            "Adafactor m + n; Shampoo 2 m n (b/c + c/b), b and c the sides of a block; SOAP 2 m^2 + 2 n^2",
            "numbers of a matrix of m rows, n columns",
            "arXiv:1804.04235; arXiv:1802.09568; arXiv:2309.06497; arXiv:2409.11321",
        ),
        ("adafactor", 4096, 14336),
    ),
    Formula(
        optimizer_state.factors_per_parameter,
        ("the above over all matrices, by the parameters", "numbers/parameter", "as above"),
        ("shampoo", LLAMA),
    ),
    Formula(
        transformer.parameters,
        (
            "L (2 h (q + k) + 2 h f, gated 3 h f) + (2 L + 1) h + 2 V h",
            "parameters",
            "arXiv:2104.04473, equation 2, extended",
        ),
        (LLAMA,),
        taking=".total",
        printed=(1e9, "billion"),
    ),
    Formula(
        rank_state.rank_state,
        (
            "the above by stage; at ZeRO-3 also what is gathered, at ZeRO-2 of interleaved stages two whole chunks",
            "bytes",
            "arXiv:1910.02054; arXiv:2304.11277",
        ),
        (
            Given(
                "part",
                stage_memory.RankParameters(75e6, 0.0, 0.0, 0.0, 0.0),
                "75 million parameters of a layer, nothing else",
            ),
            Given("hundred", stage_memory.Stage(100, 0, 1, 1, 2), "a stage of 100 layers"),
            Given("shared", layout.Layout(data=64, sharding_stage=1), "64 ranks that share the optimizer"),
            SIXTEEN,
            Given("overheads", memory_overheads.Overheads(), "the defaults below"),
        ),
        taking=".optimizer",
        printed=(1e9, "GB"),
    ),
)


def _activation_formulas() -> list[Formula]:
    rows = [
        (
            activations.layer_bytes,
            "s b h (34 + 5 a s / h) / t, less what is recomputed or fused",
            "4.1, 4.2, 5",
            UNFUSED,
        ),
        (activations.recomputed_bytes, "the whole layer less what is kept", "5", FULL),
        (activations.gradient_bytes, "2 s b (2 f / t + h), gated 3 f", "own count from the shapes", KEEP),
        (activations.boundary_bytes, "2 s b h, over t with sequence parallelism", "4.2.2", KEEP),
        (activations.gathered_sequence_bytes, "2 s b h where tensor ranks split sequences", "4.2.2", KEEP),
        (activations.embedding_bytes, "s b h, the mask of a dropout", "4.3", UNFUSED),
        (activations.logits_bytes, "s b (4 h + bytes x V / t)", "4.3", KEEP),
    ]
    found = []
    for function, text, chapter, policy in rows:
        source = f"{KORTHIKANTI}, section {chapter}" if chapter[0].isdigit() else chapter
        where = STAGES if function is activations.gathered_sequence_bytes else ONE
        found.append(Formula(function, (text, "bytes", source), (GPT3, where, policy), printed=(MIB, "MiB")))
    return found


STAGE_FORMULAS = (
    Formula(
        memory.attention_score_bytes,
        ("5 a s^2 b", "bytes", f"{KORTHIKANTI}, section 4.1"),
        (96, 2048, 1),
        printed=(GIB, "GiB"),
    ),
    Formula(
        memory.micro_batches_in_flight,
        (
            "gpipe m; 1f1b min(m, p); interleaved p + (p - 1) / v",
            "micro-batches",
            "arXiv:2104.04473, section 2.2; arXiv:2205.05198",
        ),
        ("interleaved-1f1b", 35, 64, 3),
    ),
    Formula(
        stage_memory.in_flight,
        (
            "1f1b min(m, p - stage); others in the table below",
            "micro-batches",
            "arXiv:2104.04473; deepseek-ai/DualPipe",
        ),
        (STAGES, 3),
    ),
    Formula(
        stage_memory.rank_parameters,
        ("parts over t and over expert ranks; norms whole", "parameters", "NVIDIA/Megatron-LM@d98e8a64"),
        (LLAMA, 8, 1, 1),
        taking=".dense_layer",
        printed=(1e6, "million in a layer"),
    ),
    Formula(
        rank_memory.rank_memory,
        ("state + in flight x kept + one backward, or the loss", "bytes", f"arXiv:1910.02054; {KORTHIKANTI}"),
        (GPT3, STAGES, MIXED, KEEP),
        taking=".total",
        printed=(GIB, "GiB"),
    ),
    Formula(
        rank_memory.peak,
        ("the fullest stage, counted from 0", "stage", "as above"),
        (GPT3, STAGES, MIXED, KEEP),
        taking="[0]",
    ),
)


def memory_formulas() -> list[Formula]:
    """State, activations and stages, in this order."""
    return [*STATE_FORMULAS, *_activation_formulas(), *STAGE_FORMULAS]


Recompute = Literal["none", "full"]
RANKS = (1, 8, 64, 256, 1024)
SCHEDULES = ("gpipe", "1f1b", "interleaved-1f1b", "dual-pipe", *stage_memory.RELATIVE_ACTIVATIONS)
FORMATS = (
    ("bf16, fp32 gradients", ("bf16", "fp32", "fp32", "fp32", 2)),
    ("bf16, bf16 gradients", ("bf16", "fp32", "bf16", "fp32", 2)),
    ("fp32 throughout", ("fp32", None, "fp32", "fp32", 2)),
    ("bf16, no master copy", ("bf16", None, "bf16", "bf16", 2)),
    ("bf16, 8-bit moments", ("bf16", "fp32", "bf16", "int8", 2)),
    ("bf16, one moment", ("bf16", "fp32", "fp32", "fp32", 1)),
)
INTRODUCTION = """
The peak device memory of one rank in a step, by class: weights, gradients, optimizer,
activations, the loss, and what an implementation adds. [Error](#error) says how far off the sum is. This page is
informative: it states no requirement.

Words: s tokens of a sequence, b sequences of a micro-batch, h hidden size, a heads, f feed-forward width, V vocabulary,
L layers, t tensor ranks, p pipeline stages, v chunks of a rank, m micro-batches, d ranks that share one copy of the
state. How a job is divided is a `layout.Layout`.
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A typical layout of a model."""

    model: str
    layout: layout.Layout
    recompute: Recompute


def _sharded(model: str, recompute: Recompute, data: int, stage: int, micro_sequences: int = 1) -> Job:
    where = layout.Layout(data=data, sharding_stage=stage, micro_sequences=micro_sequences, sequence_length=8192)
    return Job(model, where, recompute)


def _staged(model: str, recompute: Recompute, data: int, pipeline: int) -> Job:
    """Eight tensor ranks that split sequences too, the optimizer shared, 16 micro-batches in a pipeline."""
    where = layout.Layout(
        data=data,
        tensor=8,
        pipeline=pipeline,
        sequence_parallel=True,
        sharding_stage=1,
        num_micro_batches=16 if pipeline > 1 else 1,
        sequence_length=8192,
    )
    return Job(model, where, recompute)


JOBS = (
    _sharded("llama3-8b", "none", 8, 3),
    _sharded("llama3-8b", "full", 8, 3),
    _sharded("llama3-8b", "full", 8, 1),
    _sharded("llama3-8b", "full", 128, 3, micro_sequences=2),
    _sharded("llama3-70b", "full", 64, 3),
    _staged("llama3-70b", "none", 8, 1),
    _staged("llama3-70b", "none", 16, 4),
    _sharded("llama3-405b", "full", 512, 3),
    _staged("llama3-405b", "none", 128, 16),
    _staged("llama3-405b", "full", 128, 16),
)


def schemes() -> Iterator[tuple[str, ...]]:
    """ZeRO stage and bytes of one parameter by number of ranks."""
    for stage in range(4):
        cells = [digits(memory.sharded_bytes_per_parameter(ADAM, stage, ranks)) for ranks in RANKS]
        yield f"ZeRO-{stage}", *cells


def formats() -> Iterator[tuple[str, ...]]:
    """Bytes of one parameter by formats, class by class."""
    for name, arguments in FORMATS:
        state = memory.model_state(*arguments)
        yield (
            name,
            *(digits(float(part)) for part in (state.weights, state.master, state.gradients, state.moments)),
            (digits(float(state.total))),
        )


def optimizers() -> Iterator[tuple[str, ...]]:
    """Bytes of one parameter that each optimizer keeps in fp32, with usual moments, for two models."""
    models = ("llama3-8b", "llama3-70b")
    for name, (_, usual, _) in optimizer_state.NUM_MOMENTS.items():
        factors = [optimizer_state.factors_per_parameter(name, shape(model)) for model in models]
        yield f"`{name}`", str(usual), *(digits(4 * (usual + each)) for each in factors)


def layers() -> Iterator[tuple[str, ...]]:
    """MiB that one layer keeps for one sequence of 8,192 tokens, by recomputation and split."""
    splits = ((1, False), (8, False), (8, True))
    for model in ("llama3-8b", "llama3-70b", "llama3-405b"):
        for recompute in ("none", "alternate", "full"):
            policy = activations.ActivationPolicy(recompute)
            cells = []
            for tensor, split in splits:
                where = layout.Layout(tensor=tensor, sequence_parallel=split, sequence_length=8192)
                cells.append(digits(activations.layer_bytes(shape(model), where, policy) / MIB))
            yield model, recompute, *cells


def unfused() -> Iterator[tuple[str, ...]]:
    """GPT-3, where attention is not fused: MiB of one layer by recomputation."""
    for recompute in ("none", "selective", "full"):
        policy = activations.ActivationPolicy(recompute, fused_attention=False, dropout=True)
        cells = []
        for tensor, split in ((1, False), (8, False), (8, True)):
            where = layout.Layout(tensor=tensor, sequence_parallel=split, sequence_length=2048)
            cells.append(digits(activations.layer_bytes(GPT3.value, where, policy) / MIB))
        yield recompute, *cells


def flights() -> Iterator[tuple[str, ...]]:
    """Micro-batches in flight by schedule, first, middle and last of 8 stages."""
    for schedule in SCHEDULES:
        chunks = 4 if schedule == "interleaved-1f1b" else 1
        where = layout.Layout(pipeline=8, num_micro_batches=32, schedule=schedule, num_virtual_stages=chunks)
        yield schedule, *(digits(stage_memory.in_flight(where, stage)) for stage in (0, 4, 7))


def peaks() -> Iterator[tuple[str, ...]]:
    """Model, layout and GiB by class of the fullest rank."""
    for job in JOBS:
        policy = activations.ActivationPolicy(job.recompute)
        _, full = rank_memory.peak(shape(job.model), job.layout, ADAM, policy)
        counts = f"{job.layout.data} x {job.layout.tensor} x {job.layout.pipeline}"
        rest = full.logits + full.communication + full.context + full.fragmentation
        parts = (full.weights, full.gradients, full.optimizer, full.activations, rest, full.total)
        sequences = str(job.layout.micro_sequences)
        cells = [fixed(part / GIB) for part in parts]
        yield job.model, counts, str(job.layout.sharding_stage), job.recompute, sequences, *cells


def overheads() -> Iterator[tuple[str, str]]:
    """Name and default of every overhead."""
    defaults = memory_overheads.Overheads()
    for field in fields(defaults):
        value = getattr(defaults, field.name)
        if field.name in {"context_bytes", "communication_bytes"}:
            text = f"{fixed(value / GIB, 2)} GiB"
        else:
            text = str(value).lower() if isinstance(value, bool) else digits(value)
        yield f"`{field.name}`", text


def measured() -> Iterator[tuple[str, ...]]:
    """Published memory next to the prediction with constants of the other tables."""
    for cell in score_memory.by_table(score_memory.measured()):
        yield cell.name, digits(cell.published), digits(cell.predicted), signed_percent(cell.error)


def _activation_sections() -> list[str]:
    splits = ("t = 1", "t = 8", "t = 8, sequences split")
    return [
        *section(
            "Activations of a layer",
            "MiB of one layer for one sequence of 8,192 tokens, fused attention. Selective recomputation saves nothing "
            "where attention is fused. The last column splits sequences over the tensor ranks too.",
            table(("model", "recomputation", *splits), layers()),
            "GPT-3, 2,048 tokens, attention that is not fused, with dropout:",
            table(("recomputation", *splits), unfused()),
        ),
        *section(
            "Micro-batches in flight",
            "Eight stages, 32 micro-batches, four chunks where interleaved; all layers of a rank count as one.",
            table(("schedule", "first stage", "stage 4", "last stage"), flights()),
        ),
    ]


def _peak_sections() -> list[str]:
    classes = ("weights", "gradients", "optimizer", "activations", "rest", "total")
    errors = score_memory.by_table(score_memory.measured())
    mean, worst = percent(score_memory.mean(errors)), percent(score_memory.worst(errors))
    return [
        *section(
            "Peak of a rank",
            "GiB of the fullest rank, sequences of 8,192 tokens, 18 bytes of state per parameter, default overheads. "
            "Ranks are data x tensor x pipeline; with tensor ranks sequences are split. Rest is the loss, collective "
            "buffers, the context and what the allocator reserves beyond its tensors. The optimizer's own working "
            "memory is not in it.",
            table(("model", "ranks", "ZeRO", "recomputation", "sequences", *classes), peaks()),
        ),
        *section(
            "Overheads",
            "Defaults of `memory_overheads.Overheads`; each has its source in the code.",
            table(("field", "default"), overheads()),
        ),
        *section(
            "Error",
            "Measured memory of torchtitan in GiB. The share that the allocator reserves is the one fitted number; "
            f"each table is predicted from the others. Mean error {mean}, worst {worst} "
            "(`benchmarks/score_memory.py`). An error is predicted over measured memory, less one. No job was a "
            "mixture of experts.",
            _others(errors),
            table(("row", "measured", "predicted", "error"), measured()),
        ),
    ]


def _others(tabulated: Sequence[score_memory.Cell]) -> str:
    """The error on jobs whose allocator is not in the measurement, and on all jobs together."""
    rows = score_memory.measured(adapters=True)
    bare = [score_memory.Cell(row.row["row"], row.measured_gib, row.tensors_gib) for row in rows]
    mean, worst = percent(score_memory.mean(bare)), percent(score_memory.worst(bare))
    every = percent(score_memory.mean([*tabulated, *bare]))
    return (
        f"Another {len(bare)} jobs, of torchtune, are compared by their tensors alone: mean error {mean}, worst "
        f"{worst}. Over all {len(tabulated) + len(bare)} jobs the mean is {every}."
    )


def write() -> str:
    """The page of memory."""
    widths = ("weights", "master", "gradients", "moments", "total")
    return page(
        "Memory",
        INTRODUCTION,
        section("Formulas", formulas(memory_formulas())),
        section(
            "State by format and sharding",
            "Bytes of one parameter, before sharding:",
            table(("formats, Adam", *widths), formats()),
            "Bytes of one parameter on each of the d ranks that share a copy, bf16 with fp32 gradients:",
            table(("scheme", *(f"d = {digits(ranks)}" for ranks in RANKS)), schemes()),
            "Bytes of optimizer state of one parameter in fp32, master weights left out, with the usual moments. Muon "
            "optimizer steps all parameters here; AdamW for the tables adds 4 bytes of each of theirs:",
            table(("optimizer", "moments", "llama3-8b", "llama3-70b"), optimizers()),
        ),
        _activation_sections(),
        _peak_sections(),
    )
