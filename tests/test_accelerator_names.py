"""Names of accelerators as submitters, drivers, schedulers and bus listings write them, and what they mean."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.readers._accelerators import by_product
from trainspec_validate.model.accelerator_names import meant_by
from trainspec_validate.model.catalog import accelerators

# Every accelerator_model_name in systems/*.json of mlcommons/training_results v3.1 to v5.1 and inference_results v4.1;
# empty where the catalog has no such product, or the name leaves open which one it is.
SUBMITTED = {
    "AMD Instinct MI300X 192GB HBM3": "amd-mi300x-192gb",
    "AMD Instinct MI300X-NPS1-SPX-192GB-750W": "amd-mi300x-192gb",
    "AMD Instinct MI325X 256GB HBM3E": "amd-mi325x-256gb",
    "AMD Instinct MI325X 256GB HBM3E DLC": "amd-mi325x-256gb",
    "AMD Instinct MI325X 256GB HBM3e": "amd-mi325x-256gb",
    "AMD Instinct MI350X": "amd-mi350x-288gb",
    "AMD Instinct MI355X": "amd-mi355x-288gb",
    "AMD MI300X-NPS1-SPX-192GB-750W": "amd-mi300x-192gb",
    "AMD Radeon RX 7900 XTX": "amd-rx-7900-xtx-24gb",
    "H100 NVL Tensor Core GPU (PCIe)": "nvidia-h100-nvl-94gb",
    "Intel Gaudi2": "intel-gaudi2-96gb",
    "Intel(R) Gaudi(R) 2 AI Accelerator": "intel-gaudi2-96gb",
    "N/A": "",
    "NVIDIA A100 - PCIe - 80 GB": "nvidia-a100-pcie-80gb",
    "NVIDIA A100-PCIe-80GB": "nvidia-a100-pcie-80gb",
    "NVIDIA A100-SXM-40GB": "nvidia-a100-sxm-40gb",
    "NVIDIA A100-SXM-80GB": "nvidia-a100-sxm-80gb",
    "NVIDIA A100-SXM4-80GB": "nvidia-a100-sxm-80gb",
    "NVIDIA A10G": "",
    "NVIDIA A30": "",
    "NVIDIA B200-SXM-180GB": "nvidia-b200-sxm-180gb",
    "NVIDIA Blackwell GPU (B200-SXM-180GB)": "nvidia-b200-sxm-180gb",
    "NVIDIA Blackwell GPU (GB200)": "nvidia-gb200-186gb",
    "NVIDIA Blackwell Ultra GPU (B300-SXM-270GB)": "nvidia-b300-sxm-288gb",
    "NVIDIA Blackwell Ultra GPU (GB300)": "nvidia-gb300-288gb",
    "NVIDIA GH200 Grace Hopper Superchip 144GB": "nvidia-gh200-144gb",
    "NVIDIA GH200 Grace Hopper Superchip 96GB": "nvidia-gh200-96gb",
    "NVIDIA GH200-GraceHopper-Superchip": "",
    "NVIDIA GeForce RTX 4090": "nvidia-rtx-4090-24gb",
    "NVIDIA H100 80GB HBM3": "nvidia-h100-sxm-80gb",
    "NVIDIA H100-NVL-94GB": "nvidia-h100-nvl-94gb",
    "NVIDIA H100-PCIe-80GB": "nvidia-h100-pcie-80gb",
    "NVIDIA H100-SXM-80GB": "nvidia-h100-sxm-80gb",
    "NVIDIA H100-SXM5-80GB": "nvidia-h100-sxm-80gb",
    "NVIDIA H100-SXM5-96GB": "",
    "NVIDIA H200 NVL 141GB": "nvidia-h200-nvl-141gb",
    "NVIDIA H200-NVL-141GB": "nvidia-h200-nvl-141gb",
    "NVIDIA H200-SXM-141GB": "nvidia-h200-sxm-141gb",
    "NVIDIA H200-SXM-141GB-CTS": "nvidia-h200-sxm-141gb",
    "NVIDIA H200-SXM5-141GB": "nvidia-h200-sxm-141gb",
    "NVIDIA Jetson AGX Orin 64G": "",
    "NVIDIA L4": "nvidia-l4-24gb",
    "NVIDIA L40": "",
    "NVIDIA L40S": "nvidia-l40s-48gb",
    "NVIDIA RTX A5000": "nvidia-rtx-a5000-24gb",
    "NVIDIA RTX A5000 GPU": "nvidia-rtx-a5000-24gb",
    "NVIDIA RTX Pro 6000 SE PCIe 96GB": "nvidia-rtx-pro-6000-server-96gb",
    "TPU v5e": "google-tpu-v5e",
    "TPU v6": "",
    "TPU-trillium": "google-tpu-v6e",
    "TPU-v5e": "google-tpu-v5e",
    "TPU-v5p": "google-tpu-v5p",
    "Tesla T4": "",
    "UntetherAI speedAI240 Preview": "",
    "UntetherAI speedAI240 Slim": "",
}
TOLD = {
    "NVIDIA A100 80GB PCIe": "nvidia-a100-pcie-80gb",
    "NVIDIA A100-SXM4-80GB MIG 1g.10gb": "",
    "Tesla V100-SXM2-32GB": "nvidia-v100-sxm2-32gb",
    "Tesla V100-SXM2-16GB": "",
    "Tesla V100-SXM3-32GB": "",
    "Tesla V100-PCIE-32GB": "",
    "NVIDIA H100 PCIe": "nvidia-h100-pcie-80gb",
    "NVIDIA H200": "nvidia-h200-sxm-141gb",
    "NVIDIA H800 PCIe": "",
    "NVIDIA GH200 480GB": "nvidia-gh200-96gb",
    "NVIDIA B300 SXM6 AC": "nvidia-b300-sxm-288gb",
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "nvidia-rtx-pro-6000-server-96gb",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "",
    "NVIDIA RTX A5000 Laptop GPU": "",
    "NVIDIA GeForce RTX 4090 D": "",
    "AMD Instinct MI300X OAM": "amd-mi300x-192gb",
    "AMD INSTINCT MI250X (MCM) OAM AC MBA": "amd-mi250x-128gb",
    "AMD Instinct MI250X / MI250": "",
    "GA100 [A100 SXM4 80GB]": "nvidia-a100-sxm-80gb",
    "Aldebaran/MI200 [Instinct MI250X/MI250]": "",
    "nvidia_a100-sxm4-80gb": "nvidia-a100-sxm-80gb",
    "nvidia_h100_80gb_hbm3": "nvidia-h100-sxm-80gb",
    "tesla_v100-sxm2-32gb": "nvidia-v100-sxm2-32gb",
    "NVIDIA-H100-80GB-HBM3": "nvidia-h100-sxm-80gb",
    "TPU v5 lite": "google-tpu-v5e",
    "TPU7x": "google-tpu-v7x",
    "NVIDIA A100-SXM-64GB": "",
}


@pytest.mark.parametrize("name", SUBMITTED)
def test_a_name_of_a_submission(name: str) -> None:
    found = meant_by(name).entry
    assert (found.name if found else "") == SUBMITTED[name]


@pytest.mark.parametrize("name", TOLD)
def test_a_name_of_a_driver_a_scheduler_or_a_bus(name: str) -> None:
    found = by_product(name)
    assert (found.entry.name if found and found.entry else "") == TOLD[name]


@pytest.mark.parametrize(
    ("name", "alternatives"),
    [
        ("a100", ("nvidia-a100-sxm-40gb", "nvidia-a100-sxm-80gb", "nvidia-a100-pcie-40gb", "nvidia-a100-pcie-80gb")),
        ("NVIDIA A100-SXM4", ("nvidia-a100-sxm-40gb", "nvidia-a100-sxm-80gb")),
        ("h100", ("nvidia-h100-sxm-80gb", "nvidia-h100-pcie-80gb", "nvidia-h100-nvl-94gb")),
        ("NVIDIA GH200-GraceHopper-Superchip", ("nvidia-gh200-96gb", "nvidia-gh200-144gb")),
        ("nvidia-tesla-v100", ("nvidia-v100-sxm2-32gb",)),
    ],
)
def test_what_a_name_leaves_open_is_told(name: str, alternatives: tuple[str, ...]) -> None:
    assert (meant_by(name).entry, meant_by(name).alternatives) == (None, alternatives)
    match = by_product(name)
    assert match is not None
    assert (match.entry, match.alternatives) == (None, alternatives)


def test_memory_decides_between_sizes() -> None:
    for size, name in ((40e9, "nvidia-a100-sxm-40gb"), (85.9e9, "nvidia-a100-sxm-80gb")):
        found = meant_by("NVIDIA A100-SXM4", size).entry
        assert found is not None
        assert found.name == name
    assert meant_by("NVIDIA A100-SXM4", 64e9).entry is None


@pytest.mark.parametrize("name", accelerators())
def test_every_name_and_title_of_the_catalog_means_its_row_or_is_open(name: str) -> None:
    entry = accelerators()[name]
    assert meant_by(name).entry is entry
    found = meant_by(entry.title.partition(" (")[0], entry.memory_bytes)
    assert found.entry is entry or name in found.alternatives
