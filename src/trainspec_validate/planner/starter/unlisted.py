"""Figures that starters assume where the catalog has none, and which of them a person must fill in."""

from __future__ import annotations

from dataclasses import replace

from trainspec_validate.model.catalog import CatalogAccelerator

OTHER = CatalogAccelerator(
    name="my-accelerator",
    title="accelerators without a row in the catalog",
    vendor="other",
    memory_bytes=0,
    source="",
    peak_flops_per_second={},
)
"""An accelerator that the catalog does not have: every figure is to be filled in."""
_MEMORY_BYTES = 80e9
_PEAK_FLOPS_PER_SECOND = 300e12
NARROW = ("bf16", "fp16")
"""Formats that a starter plan computes in."""


def missing_figures(accelerator: CatalogAccelerator) -> tuple[str, ...]:
    """Keys of the accelerator that the catalog has no figure for and that plans are judged by.

    >>> missing_figures(OTHER)
    ('model', 'memory_bytes', 'memory_bandwidth_bytes_per_second', 'peak_rates')
    """
    given = {
        "model": accelerator is not OTHER,
        "memory_bytes": accelerator.memory_bytes,
        "memory_bandwidth_bytes_per_second": accelerator.memory_bandwidth_bytes_per_second,
        "peak_rates": any(name in accelerator.peak_flops_per_second for name in NARROW),
    }
    return tuple(key for key, value in given.items() if not value)


def assumed(accelerator: CatalogAccelerator) -> CatalogAccelerator:
    """The accelerator with memory and a 16-bit rate, by which a plan and a policy are sized until they are known."""
    rates = dict(accelerator.peak_flops_per_second)
    if not any(name in rates for name in NARROW):
        rates["bf16"] = _PEAK_FLOPS_PER_SECOND
    return replace(accelerator, memory_bytes=accelerator.memory_bytes or _MEMORY_BYTES, peak_flops_per_second=rates)
