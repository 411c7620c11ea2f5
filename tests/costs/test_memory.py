"""Model state against the published table of ZeRO, measured jobs, and the formulas of pipeline schedules."""

from __future__ import annotations

import doctest

import pytest

from trainspec_validate.performance.costs import memory
from trainspec_validate.performance.costs.memory import (
    attention_score_bytes,
    micro_batches_in_flight,
    model_state,
    sharded_bytes_per_parameter,
)

# arXiv:1910.02054, Table 1: GB per device by data degree; 7.5, 128, 1000 billion parameters; stages 1, 2, 3.
ZERO_TABLE = {
    1: ((120, 120, 120), (2048, 2048, 2048), (16000, 16000, 16000)),
    4: ((52.5, 41.3, 30), (896, 704, 512), (7000, 5500, 4000)),
    16: ((35.6, 21.6, 7.5), (608, 368, 128), (4750, 2875, 1000)),
    64: ((31.4, 16.6, 1.88), (536, 284, 32), (4187, 2218, 250)),
    256: ((30.4, 15.4, 0.47), (518, 263, 8), (4046, 2054, 62.5)),
    1024: ((30.1, 15.1, 0.12), (513, 257, 2), (4011, 2013, 15.6)),
}
CELLS = [
    (billions, degree, stage, printed)
    for degree, rows in ZERO_TABLE.items()
    for billions, row in zip((7.5, 128, 1000), rows, strict=True)
    for stage, printed in enumerate(row, start=1)
]


def test_examples() -> None:
    result = doctest.testmod(memory)
    assert result.attempted >= 5
    assert result.failed == 0


@pytest.mark.parametrize(("billions", "degree", "stage", "printed"), CELLS)
def test_zero_table(billions: float, degree: int, stage: int, printed: float) -> None:
    state = model_state("fp16", "fp32", "fp16", "fp32")
    predicted = sharded_bytes_per_parameter(state, stage, degree) * billions
    digits = len(str(printed).partition(".")[2])
    # The table's smallest cell, 0.12, is a rounded 0.117; whole numbers are cut, not rounded.
    last_digit = 10.0**-digits / (2 if digits else 1)
    assert abs(predicted - printed) <= max(0.005 * printed, last_digit)


@pytest.mark.parametrize(
    ("formats", "num_moments", "expected"),
    [
        (("bf16", "fp32", "fp32", "fp32"), 2, 18),  # Megatron-LM, stas00/ml-engineering
        (("fp32", None, "fp32", "fp32"), 2, 16),  # torchtitan
        (("fp32", None, "fp32", "bf16"), 2, 12),  # torchtitan with bf16 moments
        (("bf16", "fp32", "fp32", "int8"), 2, 12),  # 8-bit Adam
        (("bf16", "fp32", "bf16", "fp32"), 1, 12),  # momentum or Lion
        (("fp32", None, "fp32", "fp32"), 0, 8),  # plain descent
    ],
)
def test_published_bytes_per_parameter(formats, num_moments, expected) -> None:
    assert model_state(*formats, num_moments).total == expected


def test_distributed_optimizer_of_megatron() -> None:
    # NVIDIA/Megatron-LM theoretical_memory_usage.py: 18 without, 6 + 12/d with the distributed optimizer.
    state = model_state("bf16", "fp32", "fp32", "fp32")
    assert sharded_bytes_per_parameter(state, 1, 8) == pytest.approx(6 + 12 / 8)


def test_the_difference_that_sharding_makes() -> None:
    # pytorch/torchtitan, Llama 3.1 8B: 77.0 GiB on 8 and 62.0 on 128 GPUs, both compiled; activations cancel.
    state = model_state("fp32", None, "fp32", "fp32")
    saved = sharded_bytes_per_parameter(state, 3, 8) - sharded_bytes_per_parameter(state, 3, 128)
    assert saved * 8.03e9 / 2**30 == pytest.approx(77.0 - 62.0, rel=0.10)


@pytest.mark.parametrize(
    ("schedule", "stages", "micro_batches", "chunks", "expected"),
    [
        ("gpipe", 4, 128, 1, 128),
        ("1f1b", 4, 128, 1, 4),
        ("1f1b", 16, 8, 1, 8),
        ("interleaved-1f1b", 4, 128, 2, 6),
        ("interleaved-1f1b", 4, 128, 3, 5),
        ("interleaved-1f1b", 4, 5, 1, 5),
        ("1f1b", 1, 8, 1, 1),
        ("dual-pipe", 4, 8, 1, None),
    ],
)
def test_in_flight(schedule, stages, micro_batches, chunks, expected) -> None:
    assert micro_batches_in_flight(schedule, stages, micro_batches, chunks) == expected


def test_scores_of_gpt_3() -> None:
    # arXiv:2205.05198: the score term is 80/(34 + 80) of a layer's activations.
    hidden = 34 * 2048 * 12288
    scores = attention_score_bytes(96, 2048, 1)
    assert scores / (scores + hidden) == pytest.approx(80 / 114)


@pytest.mark.parametrize(
    "call",
    [
        lambda: model_state("bf16", "fp32", "fp32", "fp32", -1),
        lambda: sharded_bytes_per_parameter(model_state("bf16", None, "bf16", "bf16"), 4, 8),
        lambda: sharded_bytes_per_parameter(model_state("bf16", None, "bf16", "bf16"), 1, 0.5),
        lambda: micro_batches_in_flight("1f1b", 0, 8),
        lambda: attention_score_bytes(0, 1, 1),
    ],
)
def test_nonsense_is_refused(call) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        call()
