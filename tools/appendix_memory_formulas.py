"""Writes the formulas of memory."""

from __future__ import annotations

from appendix_machines import shape
from appendix_text import GIB, MIB, Formula, Given

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
VIT_B = Given("vit", model_families.VisionShape(12, 768, 3072, 224, 16, 3, 1000), "ViT-B/16, 224 pixels")
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
        (VIT_B,),
        printed=(1e6, "million"),
    ),
    Formula(
        model_families.vision_flops_per_sample,
        (
            "6 (n L (4 h^2 + 2 h f) + 2 n^2 h L + c p^2 h (n - 1) + h classes)",
            "operations",
            "arXiv:2204.02311, appendix B",
        ),
        (VIT_B,),
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
            Given("mamba", model_families.StateSpaceShape(1, 5120, 16, time_step_rank=160), "of Mamba 2.8B"),
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
    for function, text, section, policy in rows:
        source = f"{KORTHIKANTI}, section {section}" if section[0].isdigit() else section
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
