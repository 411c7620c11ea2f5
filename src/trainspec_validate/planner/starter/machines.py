"""Lists the customary node around each accelerator, and the figures assumed where the catalog has none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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


@dataclass(frozen=True, slots=True)
class Build:
    """A customary node: a first guess that a person replaces, not a statement about any product."""

    num_per_node: int = 8
    num_ranks: int = 1
    """Ranks on one accelerator."""
    topology: str = "switched"
    """How the accelerators of a domain are joined."""
    max_domain: int | None = None
    """Accelerators that one domain joins; None for those of one node."""
    host_link: str = "{technology: pcie, generation: 5, num_lanes: 16}"
    """The link of one accelerator; empty where it is not customary to know."""
    num_nics: int = 8
    nic: str = "{technology: infiniband, generation: ndr, rate: 50e9, transport: infiniband}"
    library: str = "nccl"
    format: str = "bf16"
    utilisation: float = 0.35
    """Share of the peak that a step is assumed to reach."""

    @property
    def network(self) -> Mapping[str, str]:
        """Technology, generation, rate and transport of the network interfaces."""
        pairs = (item.split(": ") for item in self.nic.strip("{}").split(", "))
        return dict(pairs)


_PCIE_3 = "{technology: pcie, generation: 3, num_lanes: 16}"
_PCIE_4 = "{technology: pcie, generation: 4, num_lanes: 16}"
_HDR = "{technology: infiniband, generation: hdr, rate: 25e9, transport: infiniband}"
_SLINGSHOT = "{technology: slingshot, generation: 11, rate: 25e9, transport: slingshot}"
_ROCE = "{technology: ethernet, rate: 50e9, transport: rocev2}"
_SLOW_ROCE = "{technology: ethernet, rate: 25e9, transport: rocev2}"
_DCN = "{technology: dcn, rate: 25e9, transport: dcn}"

_NVIDIA = Build()
_AMD = Build(topology="full-mesh", nic=_ROCE, library="rccl")
_INTEL = Build(topology="full-mesh", nic=_SLOW_ROCE, library="hccl")
# Published runs of MaxText reach 46 to 72 %: maxtext_v5p and maxtext_v5e in benchmarks/published/training_runs.csv
_TPU = Build(4, topology="torus", host_link="", num_nics=2, nic=_DCN, library="xla", utilisation=0.4)
_RACK = replace(_NVIDIA, num_per_node=4, num_nics=4, max_domain=72, host_link="{technology: nvlink-c2c}")
_EFA = "{technology: efa, generation: v3, rate: 25e9, transport: efa-srd}"
_CARDS = replace(_NVIDIA, num_nics=2, host_link=_PCIE_4)
_NEW_CARDS = replace(_NVIDIA, num_nics=4)
_SUPERCHIPS = replace(_NVIDIA, num_per_node=4, topology="full-mesh", num_nics=4, host_link="{technology: nvlink-c2c}")
_DESKTOP = replace(_NVIDIA, num_per_node=1, num_nics=1, host_link="{technology: coherent}", nic=_SLOW_ROCE)
_AWS = Build(16, topology="torus", host_link="", num_nics=16, nic=_EFA, library="neuron-ccl")
_HUAWEI = Build(host_link="", nic=_SLOW_ROCE, library="hccl")
_SLOWER_ROCE = "{technology: ethernet, rate: 12.5e9, transport: rocev2}"
_WAFER = Build(1, host_link="", num_nics=12, nic=_SLOWER_ROCE, library="other")
_IPU = Build(4, topology="other", host_link="", num_nics=1, nic="{technology: ethernet, rate: 12.5e9, transport: tcp}")

_BY_NAME: Mapping[str, Build] = {
    "nvidia-v100-sxm2-32gb": replace(_NVIDIA, topology="hybrid-mesh", host_link=_PCIE_3, num_nics=4, nic=_HDR),
    "nvidia-a100-sxm-40gb": replace(_NVIDIA, host_link=_PCIE_4, nic=_HDR),
    "nvidia-a100-sxm-80gb": replace(_NVIDIA, host_link=_PCIE_4, nic=_HDR),
    "nvidia-a100-pcie-40gb": _CARDS,
    "nvidia-a100-pcie-80gb": _CARDS,
    "nvidia-a10-24gb": _CARDS,
    "nvidia-rtx-a5000-24gb": _CARDS,
    "nvidia-l4-24gb": _CARDS,
    "nvidia-l40s-48gb": _CARDS,
    "nvidia-rtx-4090-24gb": _CARDS,
    "nvidia-h100-nvl-94gb": _NEW_CARDS,
    "nvidia-h200-nvl-141gb": _NEW_CARDS,
    "nvidia-rtx-pro-6000-server-96gb": _NEW_CARDS,
    "nvidia-gh200-96gb": _SUPERCHIPS,
    "nvidia-gh200-144gb": _SUPERCHIPS,
    "nvidia-gb10-128gb": _DESKTOP,
    "nvidia-gb200-186gb": _RACK,
    "nvidia-gb300-288gb": _RACK,
    "amd-mi250x-128gb": replace(
        _AMD,
        num_per_node=4,
        num_ranks=2,
        topology="hybrid-mesh",
        host_link=_PCIE_4,
        num_nics=4,
        nic=_SLINGSHOT,
    ),
    "amd-mi210-64gb": replace(_AMD, num_nics=2, host_link=_PCIE_4),
    "amd-mi300a-128gb": replace(_AMD, num_per_node=4, num_nics=4, host_link="", nic=_SLINGSHOT),
    "amd-rx-7900-xtx-24gb": replace(_AMD, num_nics=2, host_link=_PCIE_4),
    "intel-gaudi2-96gb": replace(_INTEL, host_link=_PCIE_4),
    "aws-trainium3": replace(_AWS, num_per_node=4, num_nics=4, topology="switched", max_domain=144),
    "huawei-ascend-910c-128gb": replace(_HUAWEI, num_ranks=2),
    "google-tpu-v4": replace(_TPU, max_domain=4096),
    "google-tpu-v5e": replace(_TPU, max_domain=256),
    "google-tpu-v5p": replace(_TPU, max_domain=8960),
    "google-tpu-v6e": replace(_TPU, max_domain=256),
    "google-tpu-v7x": replace(_TPU, max_domain=9216),
}
_BY_VENDOR: Mapping[str, Build] = {
    "nvidia": _NVIDIA,
    "amd": _AMD,
    "intel": _INTEL,
    "google": _TPU,
    "aws": _AWS,
    "graphcore": replace(_IPU, library="gcl"),
    "huawei": _HUAWEI,
    "cerebras": _WAFER,
}


def build_of(accelerator: CatalogAccelerator) -> Build:
    """The customary node around an accelerator, computing in the 16-bit format that it has."""
    build = _BY_NAME.get(accelerator.name) or _BY_VENDOR.get(accelerator.vendor, _NVIDIA)
    return build if "bf16" in accelerator.peak_flops_per_second else replace(build, format="fp16")
