"""Defaults and habits of a program, which count only where the source shows that this program reads it."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import read
from trainspec_validate.interop.readers.nemo import read_nemo

OPTIONS = (
    "--num-layers 70 --hidden-size 12288 --num-attention-heads 96 --vocab-size 150528 "
    "--tokenizer-type icetk-glm-130B --model-parallel-size 8 --max-sequence-length 2048 --fp16"
)
LIST = f'MODEL_ARGS="{OPTIONS}"\n'
NEMO = """trainer:
  devices: 8
  num_nodes: 1
  precision: bf16
exp_manager:
  create_checkpoint_callback: true
model:
  micro_batch_size: 1
  global_batch_size: 8
  num_layers: 2
  hidden_size: 64
  num_attention_heads: 4
  optim:
    lr: 1.0e-4
"""


def why(fragment: Fragment, key: str) -> str:
    return next(entry.reason for entry in fragment.unknown if ".".join(map(str, entry.pointer)) == key)


def test_arguments_that_no_program_of_megatron_reads_have_none_of_its_habits() -> None:
    fragment = read(ForeignText("model_glm_130b.sh", LIST))
    assert_sound(fragment)
    for key in ("high_precision_operations", "nonfinite_action", "gradients", "master_parameters"):
        assert at(fragment, "precision", key) is None
    assert at(fragment, "precision", "loss_scaling") is None
    assert at(fragment, "precision", "compute") == "fp16"
    assert at(fragment, "model", "gated_ffn") is None


def test_a_size_that_is_stated_for_a_tokenizer_of_another_program_is_taken_as_it_is() -> None:
    assert at(read(ForeignText("glm.sh", LIST)), "model", "vocabulary_size") == 150528
    known = LIST.replace("icetk-glm-130B", "HuggingFaceTokenizer")
    assert at(read(ForeignText("glm.sh", known)), "model", "vocabulary_size") is None
    own = f"torchrun pretrain_gpt.py {OPTIONS}\n"
    assert at(read(ForeignText("glm.sh", own)), "model", "vocabulary_size") is None


def test_one_command_of_megatron_keeps_its_defaults() -> None:
    own = f"torchrun pretrain_gpt.py {OPTIONS} --micro-batch-size 1\n"
    fragment = read(ForeignText("gpt.sh", own))
    assert at(fragment, "precision", "loss_scaling", "growth_factor") == 2.0
    assert at(fragment, "model", "gated_ffn") is False


@pytest.mark.parametrize(
    "left", ["  precision: bf16\n", "exp_manager:\n  create_checkpoint_callback: true\n", "  optim:\n    lr: 1.0e-4\n"]
)
def test_a_file_without_what_programs_of_nemo_read_has_none_of_their_defaults(left: str) -> None:
    whole = read_nemo(ForeignText("gpt.yaml", NEMO))
    assert at(whole, "model", "gated_ffn") is False
    assert at(whole, "precision", "parameters") == "fp32"
    fragment = read_nemo(ForeignText("gpt.yaml", NEMO.replace(left, "")))
    assert_sound(fragment)
    assert at(fragment, "batch", "global_sequences") == 8
    assert {"model.gated_ffn", "model.tied_embeddings", "precision.parameters"} <= unknown_keys(fragment)
    assert "another program reads it, or completes it" in why(fragment, "model.gated_ffn")
    if "precision" in left:
        assert "precision.compute" in unknown_keys(fragment)


def test_a_file_that_does_not_describe_the_model_has_no_defaults_of_it() -> None:
    fragment = read_nemo(ForeignText("custom.yaml", NEMO.replace("  hidden_size: 64\n", "")))
    assert {"model.gated_ffn", "model.tied_embeddings"} <= unknown_keys(fragment)
