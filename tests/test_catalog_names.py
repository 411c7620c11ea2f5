"""The catalog finds accelerators by the names that people use, and the schema offers its names to editors."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import generate
import pytest

from tests.every import every
from trainspec_validate.model.accelerator_names import accelerators_named
from trainspec_validate.model.catalog import accelerators, links

SCHEMA = Path(__file__).resolve().parents[1] / "schemas" / "v1" / "cluster-profile.schema.json"


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("h100", ["nvidia-h100-sxm-80gb"]),
        ("H100 PCIe", ["nvidia-h100-pcie-80gb"]),
        ("H100 NVL", ["nvidia-h100-nvl-94gb"]),
        ("gh200", ["nvidia-gh200-96gb", "nvidia-gh200-144gb"]),
        ("ascend", ["huawei-ascend-910b-64gb", "huawei-ascend-910c-128gb"]),
        ("NVIDIA H100 80GB HBM3", ["nvidia-h100-sxm-80gb"]),
        ("NVIDIA A100 - PCIe - 80 GB", ["nvidia-a100-pcie-80gb"]),
        ("NVIDIA A100-SXM4-80GB", ["nvidia-a100-sxm-80gb"]),
        ("Tesla V100-SXM2-32GB", ["nvidia-v100-sxm2-32gb"]),
        ("AMD Instinct MI300X", ["amd-mi300x-192gb"]),
        ("mi300", ["amd-mi300a-128gb", "amd-mi300x-192gb"]),
        ("mi999", []),
        ("h10", []),
        ("", []),
        ("-", []),
    ],
)
def test_words_name_accelerators(words: str, names: list[str]) -> None:
    assert [entry.name for entry in accelerators_named(words)] == names


@every("name", accelerators())
def test_every_name_names_itself(name: str) -> None:
    assert name in {entry.name for entry in accelerators_named(name)}


def test_scale_up_links_of_accelerators_are_in_the_table() -> None:
    for entry in accelerators().values():
        if entry.scale_up and entry.vendor != "graphcore":
            assert (entry.scale_up["technology"], entry.scale_up["generation"]) in links().scale_up, entry.name


def test_the_schema_offers_names_of_the_catalog() -> None:
    definitions = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
    offered = definitions["Accelerator"]["properties"]
    assert offered["model"]["examples"] == list(accelerators())
    assert set(offered["vendor"]["examples"]) == {entry.vendor for entry in accelerators().values()}
    assert {"v5p", "5"} <= set(definitions["ScaleUp"]["properties"]["generation"]["examples"])
    assert {"ndr", "v3"} <= set(definitions["Nic"]["properties"]["generation"]["examples"])


@pytest.mark.parametrize(("name", "num_runs"), [("src/data.json", 1), ("spec/page.md", 0)])
def test_files_that_follow_from_packaged_data_are_generated_after_it(
    name: str, num_runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[list[str]] = []

    def noted(command: list[str]) -> int:
        runs.append(command)
        return 0

    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "outputs", lambda: {tmp_path / name: "new"})
    monkeypatch.setattr(generate.subprocess, "call", noted)
    monkeypatch.setattr(sys, "argv", ["generate.py"])
    assert generate.main() == 0
    assert (tmp_path / name).read_text(encoding="utf-8") == "new"
    assert [command[-1] for command in runs] == ["--once"] * num_runs
    assert generate.main() == 0
    assert len(runs) == num_runs
