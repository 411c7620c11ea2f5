"""Gives the published efficiency of matrix products and attention on an accelerator."""

from __future__ import annotations

from math import log2
from typing import Literal

AttentionKernel = Literal["unfused", "flash-1", "flash-2", "flash-3"]
Generation = Literal["ampere", "hopper"]

MATMUL_FRACTION: dict[tuple[str, str], float] = {
    ("nvidia-a100-sxm-40gb", "bf16"): 0.869,
    ("nvidia-a100-sxm-80gb", "bf16"): 0.869,
    ("nvidia-h100-sxm-80gb", "bf16"): 0.803,
    ("nvidia-h100-sxm-80gb", "fp8"): 0.709,
    ("nvidia-h200-sxm-141gb", "bf16"): 0.803,
    ("nvidia-h200-sxm-141gb", "fp8"): 0.734,
    ("nvidia-b200-sxm-180gb", "bf16"): 0.776,
    ("nvidia-b200-sxm-180gb", "fp8"): 0.763,
    ("nvidia-gb200-186gb", "bf16"): 0.729,
    ("nvidia-gb200-186gb", "fp8"): 0.723,
    ("nvidia-b300-sxm-288gb", "bf16"): 0.786,
    ("nvidia-b300-sxm-288gb", "fp8"): 0.745,
    ("amd-mi300x-192gb", "bf16"): 0.514,
    ("amd-mi325x-256gb", "bf16"): 0.604,
    ("amd-mi355x-288gb", "bf16"): 0.680,
    ("intel-gaudi2-96gb", "bf16"): 0.969,
    ("intel-gaudi2-96gb", "fp8"): 0.955,
    ("intel-gaudi3-128gb", "bf16"): 0.741,
    ("intel-gaudi3-128gb", "fp8"): 0.769,
    ("google-tpu-v6e", "bf16"): 0.901,
    ("google-tpu-v7x", "bf16"): 0.829,
}
"""Best measured matrix product over the dense peak, by catalog name and format of the product.

The best shape of a sweep, on an idle machine: stas00/ml-engineering@744d01e1:compute/accelerator/README.md (MAMF).
TPUs: 827.5e12 of 918e12 on v6e, 956.4e12 of 1153.5e12 on a core of v7x (AI-Hypercomputer/tpu-recipes@c8cfe2f6:
microbenchmarks/README.md, microbenchmarks/ironwood/README.md).
"""

TPU_MATMUL_FRACTION = 0.95
"""Share of the dense peak that a matrix product gets close to on a TPU, of which no product alone was published:
jax-ml/scaling-book@0296c23d:roofline.md, the note that "TPUs can get closer to 95% in normal use"."""

SEQUENCE_LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
_PEAK: dict[Generation, float] = {"ampere": 312e12, "hopper": 989e12}
_TFLOPS: dict[tuple[str, Generation, int], tuple[float, ...]] = {
    ("flash-2", "ampere", 64): (88, 119, 140, 156, 165, 171),
    ("flash-2", "ampere", 128): (99, 133, 155, 173, 182, 189),
    ("flash-2", "hopper", 64): (141, 192, 232, 257, 273, 284),
    ("flash-2", "hopper", 128): (163, 221, 265, 294, 308, 328),
    ("unfused", "ampere", 64): (15, 16, 17, 18, 18, 18),
    ("unfused", "ampere", 128): (23, 28, 32, 32, 34, 34),
    ("unfused", "hopper", 64): (26, 29, 31, 32, 32, 32),
    ("unfused", "hopper", 128): (40, 50, 57, 61, 63, 63),
    ("flash-2-forward", "hopper", 64): (180, 229, 262, 284, 295, 299),
    ("flash-2-forward", "hopper", 128): (191, 260, 298, 319, 333, 335),
    ("flash-3-forward", "hopper", 64): (197, 265, 371, 420, 460, 473),
    ("flash-3-forward", "hopper", 128): (292, 423, 521, 579, 602, 616),
}
"""Causal attention in 1e12 operations per second, masked half left out; forward and backward but where named.

Source: Dao-AILab/flash-attention, assets/*_fwd_bwd_benchmark.png and flash3_fp16_fwd.png (A100 80 GB SXM4, H100 80 GB
SXM5). At 16384 the value of "unfused" repeats that of 8192, the longest measured.
"""

FLASH_1_SHARE = 0.5
"""Speed of the first FlashAttention over that of the second: arXiv:2307.08691, abstract ("around 2x")."""

MEMORY_FRACTION = 0.636
"""Share of the memory bandwidth in the data sheet that kernels without matrix products reach.

Median of the 21 fused normalisation kernels with 2,048 columns or more in linkedin/Liger-Kernel@ead96b61:
benchmark/data/all_benchmark_data.csv (A100 and H100, forward, least bytes over time).
"""


def matmul_fraction(accelerator: str, number_format: str) -> float:
    """Best measured matrix product over the dense peak; accelerators by their name in the catalog.

    >>> matmul_fraction("nvidia-h100-sxm-80gb", "bf16")
    0.803

    Raises:
        ValueError: there is no published measurement for this accelerator and format.
    """
    like = "bf16" if number_format == "fp16" else number_format
    try:
        return MATMUL_FRACTION[accelerator, like]
    except KeyError:
        raise ValueError(f"no measured matrix product of {accelerator} in {number_format}") from None


def _interpolated(values: tuple[float, ...], sequence_length: int) -> float:
    place = min(max(log2(sequence_length / SEQUENCE_LENGTHS[0]), 0.0), len(values) - 1.0)
    index = min(int(place), len(values) - 2)
    return values[index] + (values[index + 1] - values[index]) * (place - index)


def attention_fraction(kernel: AttentionKernel, generation: Generation, head_size: int, sequence_length: int) -> float:
    """Causal attention, forward and backward, over the dense peak of the generation.

    Between measured lengths the value is linear in the logarithm; beyond them it stays. Heads narrower than 96 count
    as 64, others as 128. FlashAttention-3 was published forward only: its forward speed times the ratio that
    FlashAttention-2 is between both; on Ampere, where it does not run, FlashAttention-2 is taken.
    Source: `_TFLOPS`. Example: A100, heads of 128, 2,048 tokens reach 155 of 312e12 operations per second.

    >>> round(attention_fraction("flash-2", "ampere", 128, 2048), 3)
    0.497
    >>> round(attention_fraction("flash-3", "hopper", 128, 8192) * 989)
    557

    Raises:
        ValueError: the sequence is empty.
    """
    if sequence_length < 1:
        raise ValueError("a sequence has at least one token")
    width = 64 if head_size < 96 else 128
    name = "unfused" if kernel == "unfused" else "flash-2"
    share = _interpolated(_TFLOPS[name, generation, width], sequence_length) * 1e12 / _PEAK[generation]
    if kernel == "flash-1":
        return share * FLASH_1_SHARE
    if kernel == "flash-3" and generation == "hopper":
        faster = _interpolated(_TFLOPS["flash-3-forward", generation, width], sequence_length)
        return share * faster / _interpolated(_TFLOPS["flash-2-forward", generation, width], sequence_length)
    return share
