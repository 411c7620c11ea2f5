"""Configurations of DeepSpeed that a script of Megatron-DeepSpeed writes itself."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import read

ARGUMENTS = (
    "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 4 "
    "--global-batch-size 64 --train-iters 100 --lr 1e-4 --min-lr 1e-5 --lr-decay-style cosine --clip-grad 2.0 "
    "--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --zero-stage 2 --no-pipeline-parallel"
)
BODY = (
    '{"train_batch_size": $BATCH, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 2, '
    '"overlap_comm": true}, "fp16": {"enabled": true, "initial_scale_power": 12}, "gradient_clipping": 1.0}'
)


def script(body: str = BODY, after: str = "", more: str = "--fp16") -> Fragment:
    fragment = read(
        ForeignText(
            "run.sh",
            f"BATCH=64\nDS=$OUT/ds.json\ncat <<EOT > $DS\n{body}\nEOT\n{after}\n"
            f"deepspeed --include localhost:0,1,2,3 pretrain_gpt.py {ARGUMENTS} {more} --deepspeed "
            "--deepspeed_config $DS\n",
        )
    )
    assert_sound(fragment)
    return fragment


def test_a_configuration_that_the_script_writes_is_read() -> None:
    fragment = script()
    precision = at(fragment, "precision")
    assert [precision[key] for key in ("compute", "parameters", "gradients", "reduction")] == ["fp16"] * 4
    assert (precision["master_parameters"], precision["optimizer_state"]) == ("fp32", "fp32")
    assert precision["loss_scaling"]["initial_scale"] == 4096
    assert at(fragment, "optimizer", "clipping", "threshold") == 1.0
    assert at(fragment, "communication", "overlap_gradients") is True
    assert at(fragment, "batch", "global_tokens") == 64 * 2048


def test_a_variable_that_changes_after_the_document_leaves_it_unread() -> None:
    fragment = script(after="BATCH=128")
    assert {"precision.compute", "batch.global_tokens"} <= unknown_keys(fragment)


def test_arguments_and_configuration_that_differ_leave_the_value_open() -> None:
    fragment = script(BODY.replace("$BATCH", "1024"))
    assert at(fragment, "batch", "global_sequences") is None
    assert "64 by the arguments, 1024 by ds.json" in remarks_of(fragment)
    halves = script(more="--bf16")
    assert at(halves, "precision", "compute") is None


def test_overlap_is_off_with_a_module_of_pipeline_stages() -> None:
    fragment = read(
        ForeignText(
            "run.sh",
            f"cat <<EOT > ds.json\n{BODY.replace('$BATCH', '64')}\nEOT\ndeepspeed pretrain_gpt.py "
            f"{ARGUMENTS.replace(' --no-pipeline-parallel', '')} --fp16 --deepspeed --deepspeed_config ds.json\n",
        )
    )
    assert at(fragment, "communication", "overlap_gradients") is False


@pytest.mark.parametrize("more", ['"curriculum_learning": {"enabled": true, "curriculum_type": "seqlen"}'])
def test_a_curriculum_leaves_the_tokens_of_a_step_open(more: str) -> None:
    fragment = script(BODY.replace('"fp16"', f'{more}, "fp16"'))
    assert at(fragment, "batch", "global_sequences") == 64
    assert {"batch.global_tokens"} <= unknown_keys(fragment)
    assert "a curriculum may train on shorter sequences first" in remarks_of(fragment)
    off = script(BODY.replace('"fp16"', f'{more.replace("true", "false")}, "fp16"'))
    assert at(off, "batch", "global_tokens") == 64 * 2048
