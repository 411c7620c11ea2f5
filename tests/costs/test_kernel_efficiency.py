"""Measured kernels come back as measured, and bytes of a layer as counted by hand."""

from __future__ import annotations

import doctest
import math
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainspec_validate.performance.costs import kernel_efficiency, kernel_traffic
from trainspec_validate.performance.costs.kernel_efficiency import MEMORY_FRACTION, attention_fraction, matmul_fraction
from trainspec_validate.performance.costs.kernel_traffic import WeightTraffic, layer_traffic, weight_traffic
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.transformer import Shape

# Percent of the memory bandwidth in the data sheet, forward, from 2,048 columns: layer norm of Liger and of PyTorch on
# A100, RMS norm of Liger on A100, both layer norms on H100.
# linkedin/Liger-Kernel@ead96b61:benchmark/data/all_benchmark_data.csv
NORMS = (
    *(65.9, 74.7, 79.7, 81.7, 57.4, 54.0, 51.1, 52.0),
    *(41.1, 53.0, 63.6, 69.1, 72.2),
    *(68.7, 78.5, 84.6, 86.7, 53.6, 60.5, 52.5, 52.2),
)
KERNELS = ("unfused", "flash-1", "flash-2", "flash-3")
GENERATIONS = ("ampere", "hopper")


@pytest.mark.parametrize(("module", "least"), [(kernel_efficiency, 3), (kernel_traffic, 2)])
def test_worked_examples(module: object, least: int) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted >= least
    assert result.failed == 0


def test_memory_fraction_is_the_median_of_its_source() -> None:
    assert len(NORMS) == 21
    assert median(NORMS) / 100 == pytest.approx(MEMORY_FRACTION)


@pytest.mark.parametrize(
    ("accelerator", "number_format", "measured", "peak"),
    [
        ("nvidia-a100-sxm-80gb", "bf16", 271.2, 312),
        ("nvidia-h100-sxm-80gb", "fp16", 794.5, 989),
        ("nvidia-b200-sxm-180gb", "fp8", 3432.5, 4500),
        ("intel-gaudi2-96gb", "bf16", 418.7, 432),
    ],
)
def test_matrix_products(accelerator: str, number_format: str, measured: float, peak: float) -> None:
    assert matmul_fraction(accelerator, number_format) == pytest.approx(measured / peak, abs=6e-4)


def test_unmeasured_product() -> None:
    with pytest.raises(ValueError, match="no measured matrix product of google-tpu-v4 in bf16"):
        matmul_fraction("google-tpu-v4", "bf16")


@pytest.mark.parametrize(
    ("kernel", "generation", "head_size", "sequence_length", "tflops"),
    [
        ("flash-2", "ampere", 64, 512, 88),
        ("flash-2", "ampere", 128, 16384, 189),
        ("flash-2", "hopper", 128, 4096, 294),
        ("flash-1", "ampere", 128, 8192, 91),
        ("unfused", "hopper", 64, 2048, 31),
        ("flash-3", "ampere", 128, 2048, 155),
        # forward 579 of the third, 319 of the second; both passes 294 of the second
        ("flash-3", "hopper", 128, 4096, 294 * 579 / 319),
        # half way between 1024 and 2048 on a logarithmic scale
        ("flash-2", "ampere", 128, 1448, (133 + 155) / 2),
    ],
)
def test_attention_as_measured(
    kernel: str, generation: str, head_size: int, sequence_length: int, tflops: float
) -> None:
    peak = {"ampere": 312, "hopper": 989}[generation]
    found = attention_fraction(kernel, generation, head_size, sequence_length)  # type: ignore[arg-type]
    assert found * peak == pytest.approx(tflops, rel=1e-3)


@given(
    st.sampled_from(KERNELS),
    st.sampled_from(GENERATIONS),
    st.integers(1, 512),
    st.integers(1, 2**24),
    st.integers(1, 8),
)
def test_longer_sequences_are_never_slower(kernel: str, generation: str, head: int, length: int, factor: int) -> None:
    short = attention_fraction(kernel, generation, head, length)  # type: ignore[arg-type]
    longer = attention_fraction(kernel, generation, head, length * factor)  # type: ignore[arg-type]
    assert 0 < short < 1
    # FlashAttention-3 is a product of three measured curves, which need not rise everywhere.
    assert longer >= short * (0.97 if kernel == "flash-3" else 1 - 1e-12)


def test_an_empty_sequence() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        attention_fraction("flash-2", "ampere", 128, 0)


def test_layer_of_grouped_queries_and_gate() -> None:
    # Llama 70B: h = a = 8192, keys and values 1024 each, f = 28672, two matrices into it.
    llama = Shape(80, 8192, 64, 8, 128, 28672, 128256, gated_ffn=True)
    q = 8192 + 2 * 1024
    forward = 14 * 8192 + 2 * q + 2 * 8192 + 4 * 28672 + 2 * 28672
    backward = 20 * 8192 + 4 * q + 4 * 8192 + 8 * 28672 + 3 * 28672
    assert layer_traffic(llama).forward == 2 * forward
    assert layer_traffic(llama).backward == 2 * backward
    split = layer_traffic(llama, 8, sequence_parallel=True)
    assert split.forward == pytest.approx(2 * (4 * 8192 + (forward - 4 * 8192) / 8))
    assert layer_traffic(llama, 8).forward == pytest.approx(2 * (14 * 8192 + (forward - 14 * 8192) / 8))


def test_layers_with_experts_count_what_a_token_visits() -> None:
    moe = Shape(4, 1024, 8, 8, 128, 4096, 1000, True, False, 16, 2, 1, 512, 3)
    dense = Shape(4, 1024, 8, 8, 128, (4096 + 3 * (2 + 1) * 512) // 4, 1000, True)
    assert layer_traffic(moe).forward == pytest.approx(layer_traffic(dense).forward)


def test_small_micro_batches_move_weights_more_often() -> None:
    alone, several = Layout(), Layout(num_micro_batches=4)
    assert weight_traffic(several) == weight_traffic(alone, fused_accumulation=False) == WeightTraffic(0.0, 0.0)
    assert weight_traffic(several, 4, fused_accumulation=False) == WeightTraffic(0.0, 2 + 4 + 4)
    sharded = Layout(data=8, sharding_stage=3)
    assert weight_traffic(sharded, 4, 2) == WeightTraffic(2.0, 2 + 4), "gathered twice, and read to be reduced"
    assert weight_traffic(replace(sharded, data=1), 4, 2) == WeightTraffic(0.0, 0.0), "nobody to gather from"


def test_no_tensor_rank() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        layer_traffic(Shape(1, 8, 1, 1, 8, 32, 100), 0)


def test_every_measured_share_is_one() -> None:
    assert all(0 < share < 1 and math.isfinite(share) for share in kernel_efficiency.MATMUL_FRACTION.values())
