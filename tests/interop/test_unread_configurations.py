"""What a configuration may set that a source names and that is not read is left open, not taken from defaults."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers import deepspeed, huggingface, maxtext, megatron
from trainspec_validate.interop.recognise import recognise

SETTINGS = "run_name=a per_device_batch_size=2 ici_tensor_parallelism=4"
SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128"
TRAINER = "train.py --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --save_steps 5 --learning_rate 1e-4"


def max_text(config: str, more: str = "") -> Fragment:
    return maxtext.read(ForeignText("run.sh", f"python3 MaxText/train.py {config} {SETTINGS} {more}\n"))


def trainer(text: str, name: str = "run.sh") -> Fragment:
    return huggingface.read_trainer(ForeignText(name, text))


def reasons(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


@pytest.mark.parametrize("config", ["MaxText/configs/gpu_smoke.yml", "configs/${CONFIG}.yml", "a/v5p/70b.yaml"])
def test_defaults_of_base_yml_hold_for_no_other_configuration(config: str) -> None:
    fragment = max_text(config)
    assert fragment.facts == {"metadata": {"name": "a"}, "parallelism": {"tensor": 4}}
    assert not fragment.defaults
    open_keys = reasons(fragment)
    for key in ("precision.compute", "parallelism.sharding", "parallelism.context", "batch.micro_sequences"):
        assert config in open_keys[key]
    assert any(config in remark.message and "import it as well" in remark.message for remark in fragment.remarks)


def test_a_choice_between_configurations_names_both() -> None:
    text = f"C=a.yml\nif [[ $X ]]; then\n  C=b.yml\nfi\npython3 MaxText/train.py $C {SETTINGS}\n"
    assert "a.yml or b.yml" in reasons(maxtext.read(ForeignText("run.sh", text)))["precision.compute"].replace(
        "b.yml or a.yml", "a.yml or b.yml"
    )


def test_defaults_of_base_yml_hold_where_it_is_named() -> None:
    for fragment in (max_text("MaxText/configs/base.yml"), max_text("")):
        assert fragment.facts["precision"]["compute"] == "bf16"
        assert fragment.facts["parallelism"]["sharding"] == "parameters"


def test_settings_of_the_command_stay_with_another_configuration() -> None:
    more = "dtype=float32 weight_dtype=float32 steps=5 remat_policy=full"
    facts = max_text("other.yml", more).facts
    assert facts["precision"]["compute"] == facts["precision"]["parameters"] == "fp32"
    assert facts["job"] == {"num_steps": 5}
    assert facts["memory"] == {"activation_policy": "full"}


def test_a_file_that_inherits_from_another_one_than_base_yml() -> None:
    text = "base_config: {}\nper_device_batch_size: 2\nici_tensor_parallelism: 4\n"
    other = maxtext.read(ForeignText("a.yml", text.format("mine.yml")))
    assert "precision" not in other.facts
    assert "mine.yml" in reasons(other)["precision.compute"]
    assert "precision" in maxtext.read(ForeignText("a.yml", text.format("base.yml"))).facts


@pytest.mark.parametrize("option", ["--config-file", "--config", "--model-config", "--train_config"])
def test_options_that_name_a_configuration_of_megatron(option: str) -> None:
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE}"
    plain = megatron.read(ForeignText("run.sh", f"{text}\n"))
    named = megatron.read(ForeignText("run.sh", f"{text} {option} conf/7b.yaml\n"))
    assert plain.defaults
    assert not named.defaults
    assert named.facts["model"]["num_layers"] == 4
    assert "conf/7b.yaml" in reasons(named)["optimizer.name"]


def test_a_file_in_place_of_all_arguments_of_megatron_leaves_them_open() -> None:
    """`args = load_yaml(args.yaml_cfg)`: NVIDIA/Megatron-LM, megatron/training/arguments.py."""
    named = megatron.read(ForeignText("run.sh", f"torchrun pretrain_gpt.py {SHAPE} --yaml-cfg conf/7b.yaml\n"))
    assert not named.defaults
    assert "model" not in named.facts
    assert "conf/7b.yaml" in reasons(named)["model.num_layers"]


@pytest.mark.parametrize("option", ["--deepspeed ds.json", "--config recipe.yaml"])
def test_what_a_configuration_next_to_the_trainer_may_set(option: str) -> None:
    fragment = trainer(f"torchrun --nproc_per_node 8 {TRAINER} {option} --bf16\n")
    for key in ("optimizer.name", "optimizer.clipping.threshold", "optimizer.learning_rate.final"):
        assert option.split()[1] in reasons(fragment)[key]
    assert fragment.facts["batch"]["global_sequences"] == 64
    assert fragment.facts["optimizer"]["learning_rate"]["peak"] == 1e-4
    assert fragment.facts["precision"]["compute"] == "bf16"


def test_a_configuration_that_is_given_fills_in_what_it_sets() -> None:
    script = trainer(f"torchrun --nproc_per_node 8 {TRAINER} --deepspeed ds.json --bf16\n")
    given = deepspeed.read(
        ForeignText(
            "ds.json", '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, "gradient_clipping": 0.5}'
        )
    )
    facts = merge([script, given]).facts
    assert facts["optimizer"]["clipping"] == {"kind": "global-norm", "threshold": 0.5}
    assert facts["parallelism"]["sharding"] == "gradients"


@pytest.mark.parametrize("option", ["--config_file acc.yaml", "--deepspeed_config_file ds.conf", ""])
def test_the_format_is_open_where_accelerate_may_set_it(option: str) -> None:
    fragment = trainer(f"accelerate launch {option} {TRAINER}\n")
    assert "compute" not in fragment.facts.get("precision", {})
    assert reasons(fragment)["precision.compute"].startswith("fp32 by default")
    launched = trainer(f"accelerate launch --mixed_precision bf16 {option} {TRAINER}\n")
    assert launched.facts["precision"]["compute"] == "bf16"


def test_a_file_of_arguments_without_a_format_states_none() -> None:
    text = "per_device_train_batch_size: 4\nlearning_rate: 1.0e-4\nlogging_steps: 1\nwarmup_ratio: 0.1\n"
    plain = trainer(text, "a.yaml")
    assert reasons(plain)["precision.compute"].startswith("fp32 by default")
    assert plain.facts["optimizer"]["clipping"]["threshold"] == 1.0
    own = trainer(f"{text}with_tracking: true\ncheckpointing_steps: epoch\n", "a.yaml")
    assert "clipping" not in own.facts["optimizer"]


def test_processes_with_several_nodes_are_open() -> None:
    text = f"uv run mason.py --num_nodes 4 --gpus 8 -- accelerate launch --num_processes 8 {TRAINER}\n"
    fragment = trainer(text)
    assert "num_accelerators" not in fragment.facts.get("parallelism", {})
    assert reasons(fragment)["parallelism.num_accelerators"].startswith("8 or 32: ")
    alone = trainer(f"accelerate launch --num_processes 8 {TRAINER}\n")
    assert alone.facts["parallelism"]["num_accelerators"] == 8


def test_a_checkpoint_that_is_not_read_decides_on_switches_of_the_model() -> None:
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --swiglu --group-query-attention --num-query-groups 2"
    plain = megatron.read(ForeignText("run.sh", f"{text}\n"))
    assert plain.facts["model"]["gated_ffn"] is True
    fragment = megatron.read(ForeignText("run.sh", f"{text} --use-checkpoint-args\n"))
    assert fragment.facts["model"]["num_layers"] == 4
    assert not fragment.facts["model"].keys() & {"gated_ffn", "num_key_value_heads", "ffn_hidden_size", "attention"}
    assert reasons(fragment)["model.gated_ffn"].startswith("true by the arguments, but use_checkpoint_args")
    assert reasons(fragment)["model.num_key_value_heads"].startswith("2 by the arguments")


def test_a_tokenizer_of_bert_starts_no_plain_decoder() -> None:
    text = f"deepspeed tasks/main.py {SHAPE} --task MNLI --tokenizer-type BertWordPieceLowerCase\n"
    assert megatron.read(ForeignText("run.sh", text)).facts["model"]["family"] == "other"


def test_lists_of_arguments_have_no_defaults_where_no_command_uses_them() -> None:
    text = f'MODEL_ARGS="{SHAPE} --micro-batch-size 1 --bf16"\n'
    fragment = megatron.read(ForeignText("conf.sh", text))
    assert fragment.facts["model"]["num_layers"] == 4
    assert fragment.facts["batch"] == {"micro_sequences": 1}
    assert not fragment.defaults
    assert "is not given" in reasons(fragment)["parallelism.tensor"]
    used = megatron.read(ForeignText("run.sh", f"{text}torchrun --nproc_per_node 8 pretrain_gpt.py $MODEL_ARGS\n"))
    assert used.facts["parallelism"]["tensor"] == 1


def test_the_file_of_deepspeed_decides_on_formats_of_its_fork_of_megatron() -> None:
    text = f"deepspeed pretrain_gpt.py {SHAPE} --fp16 --clip-grad 1.0 --deepspeed --deepspeed_config ds.json\n"
    fragment = megatron.read(ForeignText("run.sh", text))
    assert "precision" not in fragment.facts or "compute" not in fragment.facts["precision"]
    assert reasons(fragment)["precision.compute"].startswith("fp16 by the arguments, but ")
    assert "clipping" not in fragment.facts["optimizer"]


def test_python_configurations_of_torchtitan_are_refused_by_name() -> None:
    functions = "".join(
        f"def {name}() -> Trainer.Config:\n    return Trainer.Config()\n\n" for name in ("llama3_8b", "llama3_70b")
    )
    text = ForeignText("config_registry.py", f"from torchtitan.trainer import Trainer\n\n{functions}")
    with pytest.raises(
        ForeignFormatError, match="with 2 configurations: llama3_8b, llama3_70b; code is never executed"
    ):
        recognise(text)
    with pytest.raises(ForeignFormatError, match="fits no known format"):
        recognise(ForeignText("other.py", functions))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"transformer_layer_cls_to_wrap": "Block"}', "settings of FSDP alone"),
        ("apiVersion: batch/v1\nkind: Job\nspec: {}\n", "a manifest of Kubernetes"),
        ("trainer:\n  type: A\nmodel:\n  type: B\n", "nearest is nemo-megatron-yaml"),
        ("model:\n  path: a\ntrain:\n  steps: 8\n", "nearest is megatron-bridge-yaml"),
        ("torchrun train.py --job.config_file job.toml\n", "give that file"),
    ],
)
def test_a_refusal_names_what_the_file_looks_like(text: str, told: str) -> None:
    with pytest.raises(ForeignFormatError, match="fits no known format") as caught:
        recognise(ForeignText("file", text))
    assert told in str(caught.value.help)
    assert "`trainspec import --list`" in str(caught.value.help)


@pytest.mark.parametrize("before", ["X=" + "a" * 300_000, "A=b\n" * 70_000, "if a; then\n" * 30_000 + "fi\n" * 30_000])
def test_a_refusal_names_how_much_of_a_file_was_looked_at(before: str) -> None:
    with pytest.raises(ForeignFormatError, match="by its first 256 KiB") as caught:
        recognise(ForeignText("run.sh", f"{before}\ntorchrun pretrain_gpt.py --num-layers 4 --lr 1\n"))
    assert "--format" in str(caught.value.help)


def test_a_file_that_no_format_fits_is_not_asked_for() -> None:
    told = [remark.message for remark in trainer(f"{TRAINER} --fsdp full_shard --fsdp_config fsdp.json\n").remarks]
    assert any("fsdp.json" in message and "fit no format" in message for message in told)
    assert not any("import it as well" in message for message in told)


def test_a_file_of_deepspeed_is_no_idle_setting() -> None:
    command = f"torchrun pretrain_gpt.py {SHAPE} --micro-batch-size 1 --deepspeed --deepspeed_config ds.json\n"
    told = [remark.message for remark in megatron.read(ForeignText("run.sh", command)).remarks]
    assert any(message.startswith("deepspeed_config names the file ds.json") for message in told)
    assert not any("no value of the plan" in message and "deepspeed_config" in message for message in told)
