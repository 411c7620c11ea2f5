"""Records the software of published runs, and their micro-batches and virtual pipeline stages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from trainspec_validate.performance.costs.kernel_efficiency import AttentionKernel
from trainspec_validate.performance.costs.kernel_traffic import LOSS_BYTES_PER_ENTRY, SEPARATE_LOSS_BYTES_PER_ENTRY


@dataclass(frozen=True, slots=True)
class Software:
    """What holds for all rows of a collection, or for a variant of it."""

    attention: AttentionKernel
    gated_ffn: bool = False
    tied_embeddings: bool = False
    chunks: int = 1
    sequence_parallel: bool = False
    overlap_tensor: bool = False
    overlap_input_gradients: bool = False
    overlap_pipeline: bool = True
    overlap_warm_up: bool = True
    fused_accumulation: bool = True
    loss_bytes_per_entry: float = LOSS_BYTES_PER_ENTRY
    overlap_data: bool = True
    sharding_stage: int = 3
    gradient_bytes: float = 4
    memory_bandwidth: float | None = None
    """Where the accelerator is not the usual one."""
    nic: float | None = None
    """Bytes per second for each accelerator, where the publication tells."""
    transport: str = "infiniband"


CASES_OF_2021 = {
    "megatron2021_t1-001": (16, 1),
    "megatron2021_t1-002": (16, 1),
    "megatron2021_t1-003": (16, 1),
    "megatron2021_t1-004": (8, 1),
    "megatron2021_t1-005": (4, 1),
    "megatron2021_t1-006": (2, 3),
    "megatron2021_t1-007": (2, 2),
    "megatron2021_t1-008": (1, 2),
    "megatron2021_t1-009": (1, 3),
    "megatron2021_t1-010": (1, 1),
}
"""Sequences of a micro-batch and chunks of a rank: NVIDIA/Megatron-LM@de7dc40f:examples/sc21/run_table_1.sh.

The same script takes the data-parallel module of PyTorch, which reduces gradients during the backward pass, for the
four models on one stage; the others have a module of their own, which does not (megatron/model/distributed.py).
"""

_megatron = partial(Software, loss_bytes_per_entry=SEPARATE_LOSS_BYTES_PER_ENTRY)

SOFTWARE: dict[str, Software] = {
    # arXiv:2104.04473: scores are not fused with their product (section 4.2); fp16 gradients, reduced after the
    # backward pass; DGX A100 with 8 HDR links (section 5). Stages wait for their messages, and a kernel adds gradients
    # up: NVIDIA/Megatron-LM@de7dc40f:megatron/p2p_communication.py and megatron/model/distributed.py.
    "megatron2021_t1": _megatron(
        "unfused",
        tied_embeddings=True,
        overlap_data=False,
        overlap_pipeline=False,
        fused_accumulation=False,
        sharding_stage=0,
        gradient_bytes=2,
    ),
    "megatron2021_t2": _megatron(
        "unfused",
        tied_embeddings=True,
        overlap_data=False,
        overlap_pipeline=False,
        fused_accumulation=False,
        sharding_stage=0,
        gradient_bytes=2,
    ),
    "megatron2021_t2 ZeRO-3": Software("unfused", tied_embeddings=True, gradient_bytes=2),
    # arXiv:2205.05198, section 6: interleaving of 3 for 175B and 530B; one model copy. Input gradients are summed
    # beside those of weights, stages wait:
    # NVIDIA/Megatron-LM@bbab79f8:megatron/mpu/layers.py and p2p_communication.py.
    "korthikanti2022_t5": _megatron(
        "unfused", tied_embeddings=True, overlap_input_gradients=True, overlap_pipeline=False, sharding_stage=0
    ),
    "korthikanti2022_t5 sequence parallel": _megatron(
        "unfused",
        tied_embeddings=True,
        sequence_parallel=True,
        overlap_input_gradients=True,
        overlap_pipeline=False,
        sharding_stage=0,
    ),
    # arXiv:2402.15627, section 6.1: same interleaving (6) in both; MegaScale overlaps (section 3.2); 8 x 200 Gb/s RoCE;
    # the other is NVIDIA/Megatron-LM@285068c8, as of 2022 in megatron/core/tensor_parallel/layers.py and
    # megatron/p2p_communication.py.
    "megascale_t2 Megatron-LM": _megatron(
        "flash-2",
        chunks=6,
        sequence_parallel=True,
        overlap_input_gradients=True,
        overlap_pipeline=False,
        overlap_data=False,
        sharding_stage=1,
        transport="rocev2",
    ),
    "megascale_t2 MegaScale": _megatron(
        "flash-2", chunks=6, sequence_parallel=True, overlap_tensor=True, sharding_stage=1, transport="rocev2"
    ),
    # NVIDIA/Megatron-LM README of 2024: overlap of data, tensor and pipeline messages; Transformer Engine attention.
    # Nothing hides the messages of a pipeline that fills or drains: @bc000690:megatron/core/pipeline_parallel/
    # schedules.py; 4295be1a of November 2024 brings it.
    "megatron_h100_2024": _megatron(
        "flash-3", chunks=2, sequence_parallel=True, overlap_tensor=True, overlap_warm_up=False, sharding_stage=1
    ),
    # arXiv:2407.21783, section 3.3: chunks of one layer, FSDP that shards optimizer and gradients and keeps weights
    # between passes, 8 x 400 Gb/s RoCE. Gradients add up in fp32 over micro-batches (section 3.3.2), which FSDP does
    # after the product: pytorch/pytorch, torch/distributed/fsdp/_fully_shard/_fsdp_param.py.
    "llama3_t4": Software(
        "flash-3",
        gated_ffn=True,
        chunks=8,
        sequence_parallel=True,
        fused_accumulation=False,
        sharding_stage=2,
        transport="rocev2",
    ),
    # mosaicml/llm-foundry scripts/train/benchmarking: attention in Triton and gradients reduced in 16 bits, as the
    # default of the mixed precision, PURE, has it (submit_benchmarks.py), RoCE (README.md).
    "llmfoundry": Software("flash-1", tied_embeddings=True, gradient_bytes=2, transport="rocev2"),
    # pytorch/torchtitan@395a52627:docs/performance.md; fabric not stated.
    "torchtitan_a100_202404": Software("flash-2", gated_ffn=True),
    # pytorch/torchtitan benchmarks/llama3_h100_202412_torchtitan.md: HBM2e of 2.4 TB/s, 400 Gb/s; limited to 500 W,
    # which the model does not know.
    "torchtitan_h100_202412": Software("flash-2", gated_ffn=True, memory_bandwidth=2.4e12, transport="rocev2"),
    # foundation-model-stack/fms-fsdp README: attention of PyTorch (FlashAttention-2), 400 Gb/s for each node.
    "fms_fsdp": Software("flash-2", gated_ffn=True, gradient_bytes=2, nic=6.25e9, transport="rocev2"),
}
