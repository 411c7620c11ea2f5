"""Writes the formulas of step time and of operations."""

from __future__ import annotations

from appendix_machines import shape, switched
from appendix_text import Formula, Given

from trainspec_validate.performance.costs import (
    kernel_efficiency,
    kernel_traffic,
    layout,
    step_compute,
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
        step_time.model_flops_per_step,
        ("tokens of the step x operations of a token", "operations", "spec/v1/04-performance.md"),
        (GPT3, STAGES, "megatron-2021-hardware"),
        printed=(1e18, "x 1e18 operations"),
    ),
    Formula(
        step_time.model_flops_utilisation,
        ("operations / (seconds x ranks x peak)", "share", "arXiv:2204.02311, appendix B"),
        (GPT3, STAGES, 31.92, 312e12, "megatron-2021-hardware"),
    ),
)


def step_formulas() -> list[Formula]:
    """Computing, messages and operations, in this order."""
    return [*COMPUTE_FORMULAS, *STEP_FORMULAS, *FLOPS_FORMULAS]
