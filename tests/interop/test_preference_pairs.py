"""Batches of preference training: programs on the Trainer make two sequences of a chosen and a rejected answer."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, how, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import axolotl
from trainspec_validate.interop.readers.huggingface import read_trainer

MICRO, WHOLE = "batch.micro_sequences", "batch.global_sequences"


def arguments(*lines: str) -> Fragment:
    text = "\n".join(["per_device_train_batch_size: 4", "gradient_accumulation_steps: 2", "world_size: 8", *lines])
    fragment = read_trainer(ForeignText("job.yaml", text + "\n"))
    assert_sound(fragment)
    return fragment


def script(command: str) -> Fragment:
    options = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --logging_steps 1 --save_steps 9"
    fragment = read_trainer(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {command} {options}\n"))
    assert_sound(fragment)
    return fragment


def command(words: str) -> Fragment:
    options = "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 --num_processes 8 --logging_steps 1"
    fragment = read_trainer(ForeignText("run.sh", f"{words} {options}\n"))
    assert_sound(fragment)
    return fragment


def configuration(*lines: str) -> Fragment:
    text = "\n".join(["base_model: example-org/Base-7B", "micro_batch_size: 4", "learning_rate: 1e-6", *lines])
    return axolotl.read(ForeignText("job.yml", text + "\n"))


@pytest.mark.parametrize(
    "fragment",
    [
        arguments("stage: dpo", "finetuning_type: full"),
        arguments("stage: dpo", "finetuning_type: full", "pref_loss: simpo"),
        arguments("stage: rm", "finetuning_type: full"),
        arguments("beta: 0.1", "loss_type: sigmoid"),
        script("main.py --stage dpo --finetuning_type full"),
        script("dpo.py"),
        script("reward_modeling.py"),
        script("-m trl.scripts.dpo"),
        command("trl dpo"),
        command("python -m trl dpo"),
        command("accelerate launch -m trl orpo"),
        command("uv run trl reward"),
        command("swift dpo"),
    ],
)
def test_a_pair_is_two_sequences(fragment: Fragment) -> None:
    assert at(fragment, "batch", "micro_sequences") == 8
    assert at(fragment, "batch", "global_sequences") == 128
    assert how(fragment, MICRO).startswith("4 pairs of a chosen and a rejected answer (")


@pytest.mark.parametrize("lines", [("rl: dpo",), ("rl: simpo",), ("reward_model: true",)])
def test_axolotl_takes_pairs(lines: tuple[str, ...]) -> None:
    assert at(configuration(*lines), "batch", "micro_sequences") == 8


@pytest.mark.parametrize(
    "fragment",
    [
        arguments("stage: $STAGE", "finetuning_type: full"),
        arguments("pref_loss: orpo", "finetuning_type: full"),
        arguments("stage: dpo"),
        arguments("beta: 0.1", "max_length: 1024"),
        script("run_dpo.py"),
        command("python open_instruct/reward_modeling.py"),
        script("-m pipeline.train_dpo"),
        command("trl $METHOD"),
        command("swift rlhf"),
        arguments("output_dir: out/zephyr-7b-dpo-full"),
        script("train.py --run_name llama-orpo"),
        configuration("rl: a_later_one"),
    ],
)
def test_counts_stay_open_where_a_sample_may_be_a_pair(fragment: Fragment) -> None:
    assert MICRO in unknown_keys(fragment)
    assert at(fragment, "batch", "global_sequences") is None


@pytest.mark.parametrize(
    "fragment",
    [
        arguments("stage: sft", "finetuning_type: full"),
        arguments("stage: kto", "finetuning_type: full"),
        arguments("beta: 0.04", "num_generations: 8"),
        script("sft.py"),
        command("trl kto"),
        command("trl sft"),
        command("swift sft"),
        command("swift rlhf --rlhf_type kto"),
        arguments("stage: sft", "finetuning_type: full", "output_dir: out/after-dpo"),
        configuration("rl: kto"),
        configuration(),
    ],
)
def test_other_samples_are_one_sequence(fragment: Fragment) -> None:
    assert at(fragment, "batch", "micro_sequences") == 4


def test_a_bound_of_the_prompt_is_no_length_of_a_sequence() -> None:
    options = "swift rlhf --rlhf_type grpo --max_length 4096"
    assert at(command("swift sft --max_length 4096"), "model", "sequence_length") == 4096
    fragment = command(f"{options} --max_completion_length 2048")
    assert "model.sequence_length" in unknown_keys(fragment)
    assert at(fragment, "batch", "global_tokens") is None


def test_what_a_model_says_of_itself_is_not_its_name() -> None:
    fragment = command("swift sft --model Qwen/Qwen3-8B --model_author someone --model_name robot")
    assert at(fragment, "model", "name") == "Qwen-Qwen3-8B"
    assert "model.name" in unknown_keys(command("swift sft --model_author someone --model_name robot"))
