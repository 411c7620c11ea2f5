"""What a source leaves open stays open: roles of interfaces, layers of two parts, metrics that a log lacks."""

from __future__ import annotations

import json

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import deepspeed, huggingface, megatron, mlperf_system
from trainspec_validate.interop.readers._plan_parts import Draft

SHEET = {
    "submitter": "A",
    "division": "closed",
    "status": "onprem",
    "system_name": "A",
    "number_of_nodes": "4",
    "accelerators_per_node": "8",
    "accelerator_model_name": "Intel(R) Gaudi(R) 2 AI Accelerator",
    "accelerator_interconnect": "24x 100Gb/s Ethernet",
    "accelerator_interconnect_topology": "10x L3 Fat Tree",
    "host_networking_topology": "L3 Fat Tree",
    "framework": "PyTorch 2.1.1",
}
SHAPE = "--num-layers 70 --hidden-size 64 --num-attention-heads 4 --seq-length 128"


def sheet(networking: str) -> Fragment:
    return mlperf_system.read(ForeignText("a.json", json.dumps({**SHEET, "host_networking": networking})))


def reasons(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


def test_an_interface_without_a_role_gets_none() -> None:
    plain = sheet("2x ConnectX-5 100Gb/s Ethernet")
    assert "nics" not in plain.facts["node_groups"][0]
    assert "2x ConnectX-5" in reasons(plain)["node_groups.0.nics"]
    remote = sheet("2x ConnectX-5 100Gb/s RoCE")
    assert remote.facts["node_groups"][0]["nics"][0]["role"] == "compute"
    assert "states no role" in remote.derived["node_groups", 0, "nics", 0, "role"]
    stated = sheet("Compute: 8x ConnectX-7 IB NDR 400Gb/s")
    assert stated.facts["node_groups"][0]["nics"][0]["role"] == "compute"
    assert ("node_groups", 0, "nics", 0, "role") not in stated.derived


def test_texts_of_two_keys_are_quoted_apart() -> None:
    how = sheet("8x ConnectX-7 IB NDR 400Gb/s").derived["fabrics", 0, "topology"]
    assert how == "host_networking_topology says L3 Fat Tree; accelerator_interconnect_topology says 10x L3 Fat Tree"


@pytest.mark.parametrize(
    ("config", "quoted"),
    [
        (
            {"model_type": "m2m_100", "encoder_layers": 12, "decoder_layers": 12, "num_hidden_layers": 12},
            "encoder_layers 12, decoder_layers 12",
        ),
        ({"model_type": "t5", "num_layers": 12, "num_decoder_layers": 6}, "num_layers 12, num_decoder_layers 6"),
        ({"model_type": "odd", "is_encoder_decoder": True, "num_hidden_layers": 6}, "num_hidden_layers 6"),
    ],
)
def test_layers_of_an_encoder_and_a_decoder_are_unknown(config: dict[str, object], quoted: str) -> None:
    data = {**config, "architectures": ["A"], "d_model": 64, "hidden_size": 64, "vocab_size": 100}
    fragment = huggingface.read_model(ForeignText("config.json", json.dumps(data)))
    assert "num_layers" not in fragment.facts.get("model", {})
    assert quoted in reasons(fragment)["model.num_layers"]


def test_stages_that_a_method_splits_are_unknown() -> None:
    text = (
        f"torchrun --nproc_per_node 8 --nnodes 3 pretrain_gpt.py {SHAPE} --pipeline-model-parallel-size 12 "
        "--pp-partition-method 'type:transformer|embedding'\n"
    )
    fragment = megatron.read(ForeignText("run.sh", text))
    assert "type:transformer|embedding" in reasons(fragment)["parallelism.stage_layers"]


def test_settings_that_a_plan_has_a_place_for_name_it() -> None:
    data = {
        "train_batch_size": 64,
        "zero_optimization": {"stage": 1},
        "fp16": {"enabled": False, "loss_scale": 0},
        "step_batch_size_schedule": [4, 8],
        "pp_partition_method": "uniform",
    }
    told = [remark.message for remark in deepspeed.read(ForeignText("ds.json", json.dumps(data))).remarks]
    for place in ("precision.loss_scaling: fp16.loss_scale", "batch.ramp: step_batch", "parallelism.stage_layers: pp_"):
        assert any(f"a plan states it in {place}" in message for message in told)


def test_a_remark_appears_once() -> None:
    draft = Draft({})
    for _ in range(2):
        draft.remark("odd", 3)
    draft.remark("other")
    messages = [(remark.message, remark.line) for remark in draft.fragment("x", ForeignText("x", "")).remarks]
    assert messages == [("odd", 3), ("other", None)]
