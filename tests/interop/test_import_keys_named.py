"""Every key of a configuration, known or not, is a fact, an unknown or named in a remark."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import megatron, mlperf_system
from trainspec_validate.interop.recognise import by_name

FIXTURES = Path(__file__).parent / "fixtures"
MAPPINGS = [
    ("axolotl-yaml", "plans/axolotl-lora.yaml"),
    ("deepspeed-json", "plans/deepspeed-zero2.json"),
    ("huggingface-accelerate", "plans/accelerate-hsdp.yaml"),
    ("huggingface-model-config", "plans/hf-moe-config.json"),
    ("huggingface-trainer-arguments", "plans/hf-trainer.yaml"),
    ("maxtext-settings", "plans/maxtext-hybrid.yml"),
    ("megatron-bridge-yaml", "plans/bridge-moe.yaml"),
    ("nemo-megatron-yaml", "plans/nemo-gpt.yaml"),
    ("torchtune-yaml", "plans/torchtune-lora.yaml"),
    ("astra-sim-network", "network/network.yml"),
    ("mlperf-system", "network/mlperf-system.json"),
    ("slurm-topology-yaml", "network/topology.yaml"),
    ("topograph-model", "network/model.yaml"),
]
MADE_UP = "zz_made_up"


def said(fragment: Fragment) -> str:
    told = [*(remark.message for remark in fragment.remarks), *(entry.reason for entry in fragment.unknown)]
    return " ".join([*told, repr(fragment.facts)])


def mappings(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """Every mapping that holds settings, from the outermost one to the second level."""
    if isinstance(value, list):
        for item in value:
            yield from mappings(item, depth)
    elif isinstance(value, dict):
        yield value
        if depth < 1:
            for item in value.values():
                if isinstance(item, dict):
                    yield from mappings(item, depth + 1)


def written(name: str, data: Any) -> ForeignText:
    return ForeignText(name, json.dumps(data) if name.endswith("json") else yaml.safe_dump(data, sort_keys=False))


@pytest.mark.parametrize(("format_name", "path"), MAPPINGS)
def test_a_key_that_is_not_known_is_named(format_name: str, path: str) -> None:
    data = yaml.safe_load((FIXTURES / path).read_text(encoding="utf-8"))
    read = by_name(format_name).read
    places = 1 if format_name in {"slurm-topology-yaml", "topograph-model"} else len(list(mappings(data)))
    for place in range(places):
        changed = copy.deepcopy(data)
        list(mappings(changed))[place][MADE_UP] = 7
        assert MADE_UP in said(read(written(path, changed))), place


def test_every_key_of_a_system_description_changes_the_answer() -> None:
    data = json.loads((FIXTURES / "network/mlperf-system.json").read_text(encoding="utf-8"))
    for key in data:
        value = data[key] if isinstance(data[key], dict | list) else f"{data[key]} {MADE_UP}"
        before, after = {**data, key: ""}, {**data, key: value}
        first, second = (mlperf_system.read(written("s.json", each)) for each in (before, after))
        assert said(first) != said(second) or not value, key


def test_each_entry_of_a_software_stack_is_read_or_named() -> None:
    data = json.loads((FIXTURES / "network/mlperf-system.json").read_text(encoding="utf-8"))
    data["other_software_stack"] = {"cudnn_version": "9.13.1.26", "nccl_version": "v2.28.3-1", "vllm": "0.5.1"}
    told = said(mlperf_system.read(written("s.json", data)))
    assert "cudnn_version 9.13.1.26" in told
    assert "vllm 0.5.1" in told
    assert "2.28.3-1" in told


@pytest.mark.parametrize(
    ("nodes", "title", "used"),
    [(2, "Theia (1x NVIDIA GB300 NVL72)", 8), (128, "Theia (8x NVIDIA GB300 NVL72)", 64), (18, "Rack NVL72", None)],
)
def test_accelerators_that_a_submission_uses_of_a_rack(nodes: int, title: str, used: int | None) -> None:
    data = json.loads((FIXTURES / "network/mlperf-system.json").read_text(encoding="utf-8"))
    rack = {
        "number_of_nodes": nodes,
        "accelerators_per_node": 4,
        "system_name": title,
        "accelerator_model_name": "NVIDIA Blackwell Ultra GPU (GB300)",
        "accelerator_interconnect": "NVLINK Gen5 1800 GB/s + NVSWITCH Gen5",
    }
    fragment = mlperf_system.read(written("s.json", {**data, **rack}))
    scale_up = fragment.facts["node_groups"][0]["scale_up"]
    assert scale_up["domain_num_accelerators"] == 72
    assert scale_up.get("used_num_accelerators") == used


SHAPE = "  --num-layers: 14\n  --hidden-size: 64\n  --num-attention-heads: 4\n  --seq-length: 128\n"


def test_a_layout_in_a_yaml_file_is_no_pipe_of_a_shell() -> None:
    layout = "  --pipeline-model-parallel-size: 4\n  --pipeline-model-parallel-layout: Et*2|(tt|)*5t|tmL\n"
    text = f"MODEL_ARGS:\n{SHAPE}{layout}"
    parallelism = megatron.read(ForeignText("model_config.yaml", text)).facts["parallelism"]
    assert parallelism["stage_layers"] == [2, 2, 2, 2, 2, 2, 1, 1]
    assert parallelism["num_virtual_stages"] == 2


def test_experts_of_a_hybrid_model_are_kept() -> None:
    more = (
        "  --num-experts: 512\n  --moe-router-topk: 10\n  --expert-model-parallel-size: 8\n  --is-hybrid-model: true\n"
    )
    fragment = megatron.read(ForeignText("model_config.yaml", f"MODEL_ARGS:\n{SHAPE}{more}"))
    assert fragment.facts["model"]["family"] == "other"
    assert fragment.facts["model"]["experts"]["num_experts"] == 512
    assert ("model", "experts", "num_layers") in {entry.pointer for entry in fragment.unknown}
