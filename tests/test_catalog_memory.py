"""The catalog has the memory that devices report to programs, not the rounded figure that they are sold by."""

from __future__ import annotations

import pytest

from trainspec_validate.model.catalog import accelerators

MIB = 2**20
REPORTED_MIB = {
    "nvidia-a100-sxm-40gb": 40960,
    "nvidia-a100-sxm-80gb": 81920,
    "nvidia-h100-sxm-80gb": 81559,
    "nvidia-h100-nvl-94gb": 95830,
    "nvidia-h200-sxm-141gb": 143771,
    "nvidia-b200-sxm-180gb": 183359,
    "nvidia-gb200-186gb": 189471,
    "nvidia-b300-sxm-288gb": 275040,
    "nvidia-gb300-288gb": 284208,
    "nvidia-l40s-48gb": 46068,
    "amd-mi300x-192gb": 206141652992 / MIB,
    "amd-mi355x-288gb": 309220868096 / MIB,
    "google-tpu-v6e": 33550237696 / MIB,
}
"""Outputs of nvidia-smi and rocm-smi, and of the runtime of a TPU; sources in accelerators.yaml."""


@pytest.mark.parametrize("name", REPORTED_MIB)
def test_memory_is_what_the_device_reports(name: str) -> None:
    assert accelerators()[name].memory_bytes == pytest.approx(REPORTED_MIB[name] * MIB, rel=1e-4)


def test_no_memory_is_a_rounded_figure_of_a_data_sheet() -> None:
    rounded = {name for name, entry in accelerators().items() if entry.memory_bytes % 1e9 == 0}
    assert rounded <= {"nvidia-gb10-128gb", "cerebras-wse-3"}  # neither has a tool that reports its total
