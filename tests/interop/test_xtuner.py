"""xtuner: literal assignments of its Python configurations become a plan; no code of them is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers._literal_assignments import MAX_CHARACTERS, assignments
from trainspec_validate.interop.recognise import recognise

JOB = """\
import torch
from torch.optim import AdamW
from xtuner.model import SupervisedFinetune

path = "a/model"
max_length = 2048
pack = True
sequence_parallel_size = 2
batch_size = 1
accumulative_counts = 16
accumulative_counts *= sequence_parallel_size
lr = 2e-4
optim_type = AdamW
model = dict(
    type=SupervisedFinetune,
    llm=dict(pretrained_model_name_or_path=path, quantization_config=dict(load_in_4bit=True)),
    lora=dict(r=64, lora_alpha=16, bias="none"),
)
train_dataset = dict(max_length=max_length, pack_to_max_length=pack)
train_dataloader = dict(batch_size=batch_size, num_workers=4, dataset=train_dataset)
optim_wrapper = dict(
    optimizer=dict(type=optim_type, lr=lr, betas=(0.9, 0.999)),
    clip_grad=dict(max_norm=1),
    accumulative_counts=accumulative_counts,
    dtype="float16",
)
param_scheduler = [dict(type=LinearLR, start_factor=1e-5), dict(type=CosineAnnealingLR, eta_min=0.0)]
train_cfg = dict(type=TrainLoop, max_epochs=3)
randomness = dict(seed=7)
if pack:
    hooks = [1]
"""


def read(text: str) -> Fragment:
    source = ForeignText("job.py", text)
    found = recognise(source)
    assert found.name == "xtuner-python"
    fragment = found.read(source)
    assert_sound(fragment)
    return fragment


def test_a_tuning() -> None:
    wanted = {
        ("model", "name"): "a-model",
        ("model", "sequence_length"): 2048,
        ("parallelism", "context"): 2,
        ("batch", "micro_sequences"): 1,
        ("batch", "accumulation_steps"): 32,
        ("lora", "rank"): 64,
        ("lora", "alpha"): 16,
        ("memory", "activation_policy"): "full",
        ("memory", "num_loader_workers"): 4,
        ("optimizer", "name"): "adamw",
        ("optimizer", "clipping", "threshold"): 1,
        ("optimizer", "learning_rate", "kind"): "cosine",
        ("optimizer", "learning_rate", "peak"): 2e-4,
        ("optimizer", "learning_rate", "final"): 0,
        ("job", "seed"): 7,
    }
    fragment = read(JOB)
    assert {pointer: at(fragment, *pointer) for pointer in wanted} == wanted
    left = {"precision.compute", "parallelism.sharding", "parallelism.num_accelerators", "lora.targets"}
    assert left <= unknown_keys(fragment)


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        ("batch_size = 1\n", "batch_size = size()\n", ("batch.micro_sequences",)),
        ("batch_size = 1\n", "batch_size = 1\nif lr:\n    batch_size = 2\n", ("batch.micro_sequences",)),
        ("lr = 2e-4\n", "for lr in [1e-4]:\n    pass\n", ("optimizer.learning_rate.peak",)),
        ("max_length = 2048", "max_length = int(2048 - 576)", ("model.sequence_length",)),
        ("type=SupervisedFinetune", "type=DPO", ("batch.micro_sequences", "model.sequence_length")),
        ("param_scheduler = [", "param_scheduler = build([", ("optimizer.learning_rate.kind",)),
        ("import torch\n", "with read_base():\n    from .base import *\n", ("memory.activation_policy", "batch.ramp")),
        ("import torch\n", "exec(open('a').read())\n", ("memory.activation_policy", "batch.ramp")),
    ],
)
def test_a_value_that_code_decides_stays_open(old: str, new: str, keys: tuple[str, ...]) -> None:
    assert old in JOB
    text = JOB.replace(old, new)
    if "build(" in text:
        text = text.replace("eta_min=0.0)]", "eta_min=0.0)])")
    fragment = read(text)
    assert set(keys) <= unknown_keys(fragment)
    assert not [key for key in keys if at(fragment, *key.split(".")) is not None]


def test_one_scheduler_and_an_optimizer_of_another_library() -> None:
    start = JOB.index("param_scheduler = [")
    end = JOB.index("train_cfg")
    text = JOB[:start] + "param_scheduler = dict(type=CosineAnnealingLR, eta_min=1e-6)\n" + JOB[end:]
    fragment = read(text.replace("optim_type = AdamW\n", "optim_type = PagedAdamW32bit\n"))
    rate = at(fragment, "optimizer", "learning_rate")
    assert (rate["kind"], rate["final"], rate["warmup_steps"]) == ("cosine", 1e-6, 0)
    assert at(fragment, "optimizer", "name") == "adamw"


def test_no_code_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    read(JOB.replace("import torch\n", f"open({str(mark)!r}, 'w').close()\nlr2 = open({str(mark)!r}, 'w')\n"))
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "a = (\n",
        "a = " + "-" * 100_000 + "1\n",
        "a = " + "(" * 5_000 + ")" * 5_000 + "\n",
        "a = 1\n" * (MAX_CHARACTERS // 6 + 1),
        "a = [" + "1, " * 60_000 + "]\n",
        "a = " + "+".join(["b"] * 20_000) + "\n",
        "a = 1\0\n",
        "a = (" + "-\n" * 100_000 + "1)\n",
        "a = x" + ".b" * 100_000 + "\n",
    ],
)
def test_a_file_that_is_no_small_python_is_refused(text: str) -> None:
    with pytest.raises(ForeignFormatError):
        assignments(text)


@pytest.mark.parametrize("text", ["a = x" + ".b" * 800, "a = 2 **" + " " * 250_000 + "3", "a = " + "x()." * 200 + "y"])
def test_code_that_is_long_or_deep_is_no_value(text: str) -> None:
    assert assignments(f"{text}\n")[0] == {"a": "${code}"}


def test_nested_names_do_not_grow() -> None:
    doubled = "x0 = dict(a=1, b=1)\n" + "".join(f"x{k + 1} = dict(a=x{k}, b=x{k})\n" for k in range(200))
    assert len(str(assignments(doubled)[1])) < 10_000
    source = ForeignText("job.py", f"{JOB}{doubled}")
    assert recognise(source).read(source).format == "xtuner-python"
