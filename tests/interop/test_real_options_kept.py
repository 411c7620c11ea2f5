"""Every real option of a format that is given a value is in the plan or named in what is said about it."""

from __future__ import annotations

import copy
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.recognise import by_name

FIXTURES = Path(__file__).parent / "fixtures"
NAMES: dict[str, str] = json.loads((FIXTURES / "option_names.json").read_text(encoding="utf-8"))
"""Names of options, from the sources and the configurations of each framework."""
BASES = {
    "deepspeed-json": "plans/deepspeed-zero2.json",
    "gpt-neox-yaml": None,
    "huggingface-accelerate": "plans/accelerate-hsdp.yaml",
    "huggingface-model-config": "plans/hf-moe-config.json",
    "huggingface-trainer-arguments": "plans/hf-trainer.yaml",
    "maxtext-settings": "plans/maxtext-hybrid.yml",
    "megatron-arguments": None,
    "mlperf-system": "network/mlperf-system.json",
    "torchtitan-toml": None,
}
NEOX = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "seq_length": 128,
    "pipe_parallel_size": 1,
    "model_parallel_size": 1,
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
}
TITAN = {"job": {"description": "a"}, "training": {"seq_len": 128}, "model": {"name": "llama3", "flavor": "8B"}}
SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128"


def base_of(format_name: str) -> dict[str, Any]:
    path = BASES[format_name]
    if path is None:
        return copy.deepcopy({"gpt-neox-yaml": NEOX, "torchtitan-toml": TITAN}.get(format_name, {}))
    data: dict[str, Any] = yaml.safe_load((FIXTURES / path).read_text(encoding="utf-8"))
    return data


def written(format_name: str, data: dict[str, Any]) -> ForeignText:
    if format_name == "megatron-arguments":
        options = " ".join(f"--{name} {value}" for name, value in data.items())
        return ForeignText("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} {options}\n")
    if format_name == "torchtitan-toml":
        tables = "".join(
            f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
            for table, keys in data.items()
        )
        assert tomllib.loads(tables) == data
        return ForeignText("job.toml", tables)
    return ForeignText("config.json" if format_name.endswith(("json", "system")) else "config.yaml", json.dumps(data))


def said(fragment: Fragment) -> str:
    told = [*(remark.message for remark in fragment.remarks), *(entry.reason for entry in fragment.unknown)]
    answer = (fragment.facts, sorted(map(repr, fragment.unknown)), fragment.derived)
    return " ".join([*told, *map(repr, answer)])


def placed(data: dict[str, Any], name: str, value: object) -> bool:
    """Whether the option is set anew: a section of a dotted name has to be a mapping."""
    *sections, last = name.split(".")
    for section in sections:
        data = data.setdefault(section, {})
        if not isinstance(data, dict):
            return False
    same = data.get(last) == value
    data[last] = value
    return not same


def is_named(name: str, text: str) -> bool:
    last = name.rpartition(".")[2]
    return any(form in text for form in {last, last.replace("-", "_"), last.replace("_", "-")})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["count", "word", "switch"])
@pytest.mark.parametrize("format_name", sorted(BASES))
def test_a_real_option_is_in_the_answer_or_named(format_name: str, kind: str) -> None:
    draw = random.Random(f"{format_name} {kind}")
    read = by_name(format_name).read
    before = said(read(written(format_name, base_of(format_name))))
    lost = []
    num_read = 0
    names = NAMES[format_name].split()
    for name in draw.sample(names, min(len(names), 150)):
        value = {"count": draw.randrange(2, 900), "word": f"w{draw.randrange(10**6)}x", "switch": True}[kind]
        data = base_of(format_name)
        if not placed(data, name, value):
            continue
        try:
            after = said(read(written(format_name, data)))
        except ForeignFormatError:
            continue
        num_read += 1
        if after == before and not is_named(name, after):
            lost.append(name)
    assert lost == []
    assert num_read > min(len(names), 150) // 2
