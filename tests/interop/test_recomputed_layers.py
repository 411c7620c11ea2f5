"""Recomputation of a part of the layers is no `activation_policy: full`.

NVIDIA/Megatron-LM: `recompute_method: block` recomputes the first `recompute_num_layers` layers of each chunk,
`uniform` recomputes all layers in groups of that size.
"""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.recognise import recognise

SHAPE = "--num-layers 16 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --bf16"
RUN = "--micro-batch-size 1 --global-batch-size 8 --train-iters 1000 --lr 1e-4 --pipeline-model-parallel-size 4"
POLICY = "memory.activation_policy"
FULL = "--recompute-granularity full"
BLOCK = f"{FULL} --recompute-method block"


def read(name: str, text: str) -> Fragment:
    found = ForeignText(name, text)
    fragment = recognise(found).read(found)
    assert_sound(fragment)
    return fragment


def policy(fragment: Fragment) -> str | None:
    found = at(fragment, "memory", "activation_policy")
    assert (found is None) == (POLICY in unknown_keys(fragment))
    return found if found is None else str(found)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (f"{BLOCK} --recompute-num-layers 0", "none"),
        (f"{BLOCK} --recompute-num-layers 1", None),
        (f"{BLOCK} --recompute-num-layers 3", None),
        (f"{BLOCK} --recompute-num-layers 4", "full"),
        (f"{BLOCK} --recompute-num-layers 3 --decoder-first-pipeline-num-layers 7", None),
        (f"{BLOCK} --recompute-num-layers 4 --decoder-first-pipeline-num-layers 7", None),
        (f"{BLOCK} --recompute-num-layers 7 --decoder-first-pipeline-num-layers 7", "full"),
        (f"{BLOCK} --recompute-num-layers 1 --num-layers-per-virtual-pipeline-stage 2", None),
        (f"{BLOCK} --recompute-num-layers 2 --num-layers-per-virtual-pipeline-stage 2", "full"),
        (f"{BLOCK} --recompute-num-layers $N", None),
        (BLOCK, None),
        (f"{FULL} --recompute-method $M --recompute-num-layers 1", None),
        (f"{FULL} --recompute-method other --recompute-num-layers 1", None),
        (f"{FULL} --recompute-num-layers 1", None),
        (f"{FULL} --recompute-method uniform --recompute-num-layers 0", None),
        (f"{FULL} --recompute-method uniform --recompute-num-layers 1", "full"),
        (f"{FULL} --recompute-method uniform --recompute-num-layers 2", "full"),
        (f"{FULL} --recompute-method uniform", "full"),
        ("--activations-checkpoint-method block --activations-checkpoint-num-layers 1", None),
        ("--activations-checkpoint-method uniform --activations-checkpoint-num-layers 1", "full"),
        ("--recompute-granularity selective --recompute-num-layers 0", "selective"),
        ("--recompute-num-layers 0", "none"),
    ],
)
def test_layers_of_megatron(options: str, wanted: str | None) -> None:
    assert policy(read("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} {RUN} {options}\n")) == wanted


PRIMUS = """work_group: a
framework: megatron
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: mixtral_8x22B_v0.1.yaml
    overrides:
      train_iters: 50
      micro_batch_size: 2
      global_batch_size: 256
      seq_length: 8192
      recompute_granularity: full
      recompute_method: METHOD
      recompute_num_layers: NUMBER
"""
NEMO = """name: megatron_gpt
trainer:
  devices: 8
  num_nodes: 1
  precision: bf16
  max_steps: 500
model:
  micro_batch_size: 1
  global_batch_size: 8
  hidden_size: 64
  num_layers: 4
  activations_checkpoint_granularity: full
  activations_checkpoint_method: METHOD
  activations_checkpoint_num_layers: NUMBER
  optim: {name: adam}
"""
BRIDGE = """model:
  tensor_model_parallel_size: 1
  recompute_granularity: full
  recompute_method: METHOD
  recompute_num_layers: NUMBER
train:
  train_iters: 20
  global_batch_size: 8
  micro_batch_size: 1
optimizer:
  lr: 0.00025
scheduler:
  lr_warmup_iters: 10
"""


@pytest.mark.parametrize("text", [PRIMUS, NEMO, BRIDGE], ids=["Primus", "NeMo", "Megatron-Bridge"])
@pytest.mark.parametrize(
    ("method", "number", "wanted"), [("block", 0, "none"), ("block", 1, None), ("uniform", 1, "full")]
)
def test_layers_in_yaml(text: str, method: str, number: int, wanted: str | None) -> None:
    assert policy(read("job.yaml", text.replace("METHOD", method).replace("NUMBER", str(number)))) == wanted


def test_fewer_layers_for_some_micro_batches() -> None:
    more = "  num_micro_batches_with_partial_activation_checkpoints: 2\n  optim:"
    text = NEMO.replace("METHOD", "uniform").replace("NUMBER", "1").replace("  optim:", more)
    assert policy(read("job.yaml", text)) is None
