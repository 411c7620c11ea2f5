"""Primus and FlagScale: arguments of Megatron-LM in sections of YAML become plans, without defaults of Megatron-LM."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers.megatron_sections import read_flagscale, read_primus
from trainspec_validate.interop.recognise import recognise

PRIMUS = """\
work_group: ${PRIMUS_TEAM:amd}
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: llama.yaml
    overrides:
      train_iters: ${PRIMUS_STEPS:50}
      micro_batch_size: 2
      global_batch_size: 128
      seq_length: 8192
      lr: 1.0e-5
      lr_decay_style: cosine
      tensor_model_parallel_size: 4
      overlap_grad_reduce: true
"""
FLAGSCALE = """\
system:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  sequence_parallel: true
  use_distributed_optimizer: true
  precision:
    bf16: true
model:
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  seq_length: 4096
  seed: ${experiment.seed}
  micro_batch_size: 1
  global_batch_size: 64
  train_iters: 1000
  optimizer:
    clip_grad: 1.0
    lr_scheduler:
      lr: 3.0e-4
      min_lr: 3.0e-5
      lr_warmup_iters: 20
      lr_decay_style: cosine
data:
  split: 1
"""


def flagscale(text: str = FLAGSCALE) -> Fragment:
    return read_flagscale(ForeignText("7b.yaml", text))


def test_overrides_of_primus_are_read_and_what_they_leave_out_is_open() -> None:
    text = ForeignText("pretrain.yaml", PRIMUS)
    assert recognise(text).name == "primus-megatron-yaml"
    fragment = read_primus(text)
    assert_sound(fragment)
    assert fragment.facts["batch"] == {"global_sequences": 128, "micro_sequences": 2, "global_tokens": 1_048_576}
    assert fragment.facts["parallelism"] == {"tensor": 4}
    assert at(fragment, "communication", "overlap_gradients") is True
    assert {"parallelism.pipeline", "parallelism.sharding", "precision.compute", "job.num_steps"} <= unknown_keys(
        fragment
    )


def test_modules_of_other_programs_and_of_several_are_refused() -> None:
    with pytest.raises(ForeignFormatError) as caught:
        recognise(ForeignText("pretrain.yaml", PRIMUS.replace("framework: megatron", "framework: torchtitan")))
    assert caught.value.help is not None
    assert "settings of Primus" in caught.value.help
    second = PRIMUS.partition("modules:\n")[2].replace("pre_trainer:", "post_trainer:")
    with pytest.raises(ForeignFormatError, match="no one module"):
        read_primus(ForeignText("two.yaml", PRIMUS + second))


def test_sections_of_flagscale_are_read_by_the_last_name() -> None:
    assert recognise(ForeignText("7b.yaml", FLAGSCALE)).name == "flagscale-megatron-yaml"
    fragment = flagscale()
    assert_sound(fragment)
    assert fragment.facts["parallelism"] == {
        "tensor": 2,
        "pipeline": 4,
        "sequence": True,
        "sharding": "optimizer",
    }
    assert at(fragment, "optimizer", "learning_rate") == {
        "kind": "cosine",
        "peak": 3e-4,
        "final": 3e-5,
        "warmup_steps": 20,
    }
    assert at(fragment, "precision", "compute") == "bf16"
    assert {"parallelism.context", "model.tied_embeddings", "job.seed"} <= unknown_keys(fragment)
    assert "seed: the source refers to ${experiment.seed}" in remarks_of(fragment)


def test_parts_of_unlike_degrees_are_open() -> None:
    fragment = flagscale(FLAGSCALE.replace("  precision:\n", "  hetero:\n    enable_hetero: true\n  precision:\n"))
    assert not {"tensor", "pipeline", "sequence"} & fragment.facts["parallelism"].keys()
    assert at(fragment, "model", "num_layers") == 32
    recompute = "  recompute_granularity: full\n"
    each = recompute + "  recompute_granularity_per_stage_micro_batch: [[1, 4, 1]]\n"
    changed = [flagscale(FLAGSCALE.replace("  precision:\n", f"{more}  precision:\n")) for more in (recompute, each)]
    assert [at(one, "memory", "activation_policy") for one in changed] == ["full", None]


def test_meshes_go_before_the_settings_of_the_whole_job() -> None:
    def fragment(more: str) -> Fragment:
        lines = "".join(f"    {line}\n" for line in ("enable_hetero: true", *more.splitlines()))
        parts = f"  expert_tensor_parallel_size: 2\n  hetero:\n{lines}  precision:\n"
        return flagscale(FLAGSCALE.replace("  precision:\n", parts))

    alike = "hetero_process_meshes: [2,1,1,4,1, 2,1,1,4,1]\n"
    own = "expert_tensor_parallel_size_per_process_mesh:"
    assert at(fragment(alike), "parallelism", "expert_tensor") == 2
    assert at(fragment(f"{alike}{own} [1, 1]"), "parallelism", "expert_tensor") == 1
    for unlike in ("[1, 2]", "[]", "$MESHES"):
        assert at(fragment(f"{alike}{own} {unlike}"), "parallelism", "expert_tensor") is None
    assert at(fragment(alike), "batch", "micro_sequences") is not None
    assert at(fragment(alike.replace("4", "2", 1)), "batch", "micro_sequences") is None


@pytest.mark.parametrize(("more", "size"), [("", None), ("    padded_vocab_size: 100096\n", 100096)])
def test_a_tokenizer_of_flagscale_counts_its_own_words(more: str, size: int | None) -> None:
    data = f"data:\n  tokenizer:\n    tokenizer_type: AquilaTokenizerFS\n    vocab_size: 100008\n{more}"
    text = "system:\n  tensor_model_parallel_size: 1\nmodel:\n  num_layers: 8\n  hidden_size: 64\n"
    assert at(flagscale(text + data), "model", "vocabulary_size") == size
