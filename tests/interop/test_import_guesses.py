"""No value of an import is a guess: what an unread argument, a missing file or an outer script decides stays open."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import huggingface, maxtext, megatron, torchtitan
from trainspec_validate.interop.refused import join

STORED = ("parameters", "gradients", "reduction", "optimizer_state")


def trainer(*lines: str) -> Fragment:
    text = "\n".join(["per_device_train_batch_size: 4", "do_train: true", "save_steps: 10", *lines])
    return huggingface.read_trainer(ForeignText("args.yaml", text + "\n"))


def script(*options: str) -> Fragment:
    words = " ".join(["--per_device_train_batch_size 4 --do_train True --save_steps 10", *options])
    return huggingface.read_trainer(ForeignText("run.sh", f"torchrun --nproc_per_node 8 run_clm.py {words}\n"))


@pytest.mark.parametrize(
    "option", ["--grad_checkpoint True", "--use_gradient_checkpointing True", "--enable_activation_checkpointing 1"]
)
def test_a_switch_of_another_name_leaves_recomputation_open(option: str) -> None:
    told = "--dataloader_num_workers 4"
    assert at(script(told), "memory", "activation_policy") == "none"
    fragment = script(told, option)
    assert_sound(fragment)
    assert at(fragment, "memory", "activation_policy") is None
    assert "memory.activation_policy" in unknown_keys(fragment)


@pytest.mark.parametrize("option", ["--use_llm_lora 16", "--lora_dim 8", "--peft_config lora.json"])
def test_adapters_by_another_name_leave_stored_formats_and_the_adapters_open(option: str) -> None:
    fragment = script("--bf16 True --deepspeed zero.json", option)
    assert_sound(fragment)
    assert all(at(fragment, "precision", key) is None for key in STORED)
    assert {"lora", "precision.parameters", "precision.frozen_parameters"} <= unknown_keys(fragment)


@pytest.mark.parametrize("option", ["--use_llm_lora 0", "--use_lora False", "--lora_dim 0"])
def test_adapters_that_are_off_change_nothing(option: str) -> None:
    fragment = script("--bf16 True", option)
    assert at(fragment, "precision", "parameters") == "fp32"
    assert "lora" not in unknown_keys(fragment)


@pytest.mark.parametrize("option", ["--freeze_backbone True", "--tune_mm_mlp_adapter True", "--vit_freeze 1"])
def test_a_part_that_is_frozen_leaves_the_trained_parameters_open(option: str) -> None:
    assert "num_parameters_trained" in unknown_keys(script(option))
    assert "num_parameters_trained" not in unknown_keys(script(option.rsplit(maxsplit=1)[0] + " False"))


def test_a_variant_of_adapters_that_is_off_leaves_the_adapters_on() -> None:
    fragment = trainer("use_dora: false", "lora_r: 16", "lora_alpha: 32", "lora_target_modules: [q_proj, v_proj]")
    assert_sound(fragment)
    assert fragment.facts["lora"] == {"rank": 16, "alpha": 32.0, "targets": ["query", "value"]}
    assert at(fragment, "precision", "parameters") is None


def test_a_scale_over_the_root_of_the_rank_is_no_alpha_of_a_plan() -> None:
    fragment = trainer("lora_r: 16", "lora_alpha: 32", "lora_target_modules: [q_proj]", "use_rslora: true")
    assert fragment.facts["lora"] == {"rank": 16, "targets": ["query"]}
    assert "lora.alpha" in unknown_keys(fragment)


@pytest.mark.parametrize(
    "line", ["accelerate_config_file: a.yaml", "deepspeed_config: ds.json", "fsdp_config_path: f.json"]
)
def test_a_file_that_an_argument_names_leaves_open_what_it_may_set(line: str) -> None:
    assert at(trainer("bf16: true"), "optimizer", "clipping", "threshold") == 1.0
    fragment = trainer("bf16: true", line)
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") == "bf16"
    assert all(at(fragment, "precision", key) is None for key in (*STORED, "high_precision_operations"))
    assert at(fragment, "optimizer", "clipping") is None
    way = (
        " and settings of FSDP alone fit no format"
        if line.startswith("fsdp")
        else "which is not read: import it as well"
    )
    assert way in remarks_of(fragment)


def test_arguments_in_a_section_are_read_with_their_lines() -> None:
    text = (
        "model:\n  max_seq_length: 2048\nlora:\n  r: 8\n  target_modules: [q_proj]\n"
        "training:\n  per_device_train_batch_size: 2\n  gradient_accumulation_steps: 4\n  learning_rate: 0.0002\n"
        "  save_steps: 500\n"
    )
    fragment = huggingface.read_trainer(ForeignText("config.yaml", text))
    assert_sound(fragment)
    assert at(fragment, "batch", "micro_sequences") == 2
    assert at(fragment, "batch", "accumulation_steps") == 4
    assert at(fragment, "optimizer", "learning_rate", "peak") == pytest.approx(2e-4)
    assert at(fragment, "optimizer", "learning_rate", "kind") is None, "the program may have a default of its own"
    assert at(fragment, "communication", "overlap_gradients") is None
    assert [remark.line for remark in fragment.remarks if "checkpoint every 500" in remark.message] == [10]


def test_sequence_parallelism_depends_on_a_degree_that_an_outer_script_sets() -> None:
    options = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --sequence-parallel"
    outer = megatron.read(ForeignText("conf.sh", f'MODEL_ARGS="{options}"\n'))
    assert at(outer, "parallelism", "sequence") is None
    assert "parallelism.sequence" in unknown_keys(outer)
    alone = megatron.read(ForeignText("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {options}\n"))
    assert at(alone, "parallelism", "sequence") is False
    split = megatron.read(
        ForeignText("run.sh", f"torchrun --nproc_per_node 8 pretrain_gpt.py {options} --tensor-model-parallel-size 2\n")
    )
    assert at(split, "parallelism", "sequence") is True


MESH = (
    "ici_expert_parallelism: 1",
    "ici_context_parallelism: 1",
    "ici_fsdp_parallelism: 8",
    "per_device_batch_size: 4",
)


@pytest.mark.parametrize(
    ("lines", "degree"),
    [(MESH, 8), (("ici_expert_parallelism: 8", *MESH[1:]), None), (("dcn_data_parallelism: 1", *MESH), None)],
)
def test_copies_of_a_data_axis_that_takes_what_is_left_are_told(lines: tuple[str, ...], degree: int | None) -> None:
    text = "\n".join(
        ["model_name: llama3-70b", "max_target_length: 4096", "steps: 10", "dcn_data_parallelism: -1", *lines]
    )
    if "dcn_data_parallelism: 1" in lines:
        text = text.replace("dcn_data_parallelism: -1\n", "")
    fragment = maxtext.read(ForeignText("job.yml", text + "\n"))
    assert_sound(fragment)
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert at(fragment, "parallelism", "sharding_degree") == degree
    unknown = "ici_expert_parallelism: 8" in lines
    assert ("parallelism.sharding_degree" in unknown_keys(fragment)) == unknown


@pytest.mark.parametrize("switch", ["true", "false"])
def test_the_older_switch_of_float8(switch: str) -> None:
    text = (
        f'[model]\nname = "llama3"\nflavor = "8B"\n[training]\nsteps = 10\n[float8]\nenable_float8_linear = {switch}\n'
    )
    fragment = torchtitan.read(ForeignText("job.toml", text))
    assert_sound(fragment)
    expected = {"format": "fp8-hybrid", "scaling": "current"} if switch == "true" else {}
    recipe = at(fragment, "precision", "recipe") or {}
    assert {key: recipe.get(key) for key in expected} == expected
    assert bool(recipe) == (switch == "true")


@pytest.mark.parametrize("loaded", ["", " --torch_dtype bfloat16"])
def test_fsdp_without_a_strategy_leaves_sharding_and_stored_formats_open(loaded: str) -> None:
    fragment = script("--bf16 True --fsdp 'auto_wrap'" + loaded)
    assert_sound(fragment)
    assert at(fragment, "precision", "compute") == "bf16"
    assert all(at(fragment, "precision", key) is None for key in STORED)
    assert {"parallelism.sharding", "precision.parameters", "precision.optimizer_state"} <= unknown_keys(fragment)


def test_fsdp_inside_a_branch_leaves_what_follows_from_it_open() -> None:
    words = "--per_device_train_batch_size 1 --do_train True --save_steps 5 --bf16 True"
    lines = [f"args=({words})", "if [ $USE -ne 0 ]; then", '  args+=( --fsdp "full_shard auto_wrap" )', "fi"]
    lines.append('torchrun --nproc_per_node 8 train.py "${args[@]}"')
    fragment = huggingface.read_trainer(ForeignText("run.sh", "\n".join(lines) + "\n"))
    assert at(fragment, "parallelism", "sharding") is None
    [why] = [entry.reason for entry in fragment.unknown if entry.pointer == ("parallelism", "sharding")]
    assert why.startswith("parameters or another one, which is not given")
    assert all(at(fragment, "precision", key) is None for key in ("parameters", "gradients", "reduction"))


def test_every_matrix_of_a_list_on_the_command_line_is_read() -> None:
    fragment = script("--lora_r 16 --lora_alpha 32 --lora_target_modules q_proj k_proj down_proj --bf16 True")
    assert at(fragment, "lora", "targets") == ["down", "key", "query"]


@pytest.mark.parametrize("option", ["--max_completion_length 512", "--reward_model_path a/b", "--num_generations 4"])
def test_trainers_of_trl_have_defaults_of_their_own(option: str) -> None:
    fragment = script("--dataloader_num_workers 4", option)
    assert_sound(fragment)
    open_keys = {"optimizer.learning_rate.peak", "memory.activation_policy", "precision.compute"}
    assert open_keys <= unknown_keys(fragment)
    assert at(fragment, "optimizer", "clipping", "threshold") == 1.0
    stated = script(
        "--dataloader_num_workers 4 --learning_rate 3e-6 --gradient_checkpointing False --bf16 True", option
    )
    assert at(stated, "optimizer", "learning_rate", "peak") == 3e-6
    assert at(stated, "precision", "compute") == "bf16"


def test_a_program_of_trl_is_known_by_its_name() -> None:
    words = "--per_device_train_batch_size 4 --do_train True --save_steps 10 --bf16 True"
    for name, peak in (("examples/scripts/dpo.py", None), ("run_clm.py", 5e-5)):
        fragment = huggingface.read_trainer(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {name} {words}\n"))
        assert at(fragment, "optimizer", "learning_rate", "peak") == peak


@pytest.mark.parametrize(
    ("options", "frozen"),
    [
        ("--tune_language_model True --tune_vision_tower True --tune_mm_projector True", ""),
        ("--tune_language_model False --tune_vision_tower True --tune_mm_projector True", "tune_language_model"),
        ("--tune_mm_llm True --tune_mm_vision False --tune_mm_mlp True", "tune_mm_vision"),
        ("--mm_tunable_parts mm_mlp_adapter", "mm_tunable_parts"),
        ("--mm_tunable_parts mm_vision_tower,mm_mlp_adapter,mm_language_model", ""),
    ],
)
def test_parts_with_a_switch_each_are_frozen_where_it_is_off(options: str, frozen: str) -> None:
    reasons = [e.reason for e in script(options).unknown if e.pointer == ("num_parameters_trained",)]
    assert reasons == ([f"{frozen} leaves a part of the model as it is"] if frozen else [])


def test_ranks_that_ms_swift_takes_from_the_environment() -> None:
    words = "--model a/b --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --tuner_type full"
    for prefix, ranks in (("NPROC_PER_NODE=4", 4), ("NNODES=2 NPROC_PER_NODE=8", 16), ("NPROC_PER_NODE=$N", None)):
        fragment = huggingface.read_trainer(ForeignText("run.sh", f"{prefix} \\\nswift sft {words}\n"))
        assert at(fragment, "parallelism", "num_accelerators") == ranks
        assert at(fragment, "batch", "global_sequences") == (ranks * 8 if ranks else None)


DOCUMENT = """STAGE=2
cat > ds.json {mark}
{{"zero_optimization": {{"stage": $STAGE}}, "bf16": {{"enabled": true}}, "gradient_clipping": 0.5}}
EOF
deepspeed train.py --deepspeed ds.json --bf16 True --per_device_train_batch_size 4 --do_train True --save_steps 10
"""


def test_a_configuration_that_the_script_writes_is_read() -> None:
    fragment = huggingface.read_trainer(ForeignText("run.sh", DOCUMENT.format(mark="<<EOF")))
    assert_sound(fragment)
    assert at(fragment, "parallelism", "sharding") == "gradients"
    assert at(fragment, "optimizer", "clipping", "threshold") == 0.5
    assert at(fragment, "precision", "optimizer_state") == "fp32"


def test_a_configuration_whose_variables_stay_as_they_are_is_not_read() -> None:
    fragment = huggingface.read_trainer(ForeignText("run.sh", DOCUMENT.format(mark="<<'EOF'")))
    assert at(fragment, "parallelism", "sharding") is None
    assert "which is not read" in remarks_of(fragment)


def test_a_value_that_the_script_does_not_hold_is_open_and_the_others_are_read() -> None:
    text = DOCUMENT.replace("STAGE=2", "").format(mark="<<EOF")
    fragment = huggingface.read_trainer(ForeignText("run.sh", text))
    assert_sound(fragment)
    assert at(fragment, "parallelism", "sharding") is None
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "${STAGE}" in reasons["parallelism", "sharding"]
    assert "${STAGE}" in reasons["communication", "overlap_gradients"]
    assert at(fragment, "optimizer", "clipping", "threshold") == 0.5


def test_items_that_a_loop_appends_leave_the_other_options_known() -> None:
    words = "--per_device_train_batch_size 1 --do_train --save_steps 5 --bf16 --max_steps 10"
    lines = ["parts=(a b c)", f"args=({words})", 'for part in "${parts[@]}"; do', "  args+=( data/$part )", "done"]
    lines += ['for more in "$@"; do', "  args+=( $more )", "done", 'torchrun --nproc_per_node 8 train.py "${args[@]}"']
    fragment = huggingface.read_trainer(ForeignText("run.sh", "\n".join(lines) + "\n"))
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "job", "num_steps") == 10
    assert at(fragment, "batch", "micro_sequences") == 1


@pytest.mark.parametrize("option", ["--sequence_parallel_size 4", "--seq_parallel_size 8", "--sp_size $SP"])
def test_ranks_that_split_one_sequence_leave_the_data_degree_open(option: str) -> None:
    fragment = script("--bf16 True", option)
    assert_sound(fragment)
    assert at(fragment, "parallelism", "num_accelerators") == 8
    assert at(fragment, "batch", "global_sequences") is None
    assert {"parallelism.context", "parallelism.data", "batch.global_sequences"} <= unknown_keys(fragment)
    assert at(script("--seq_parallel_size 1"), "parallelism", "data") == 8


@pytest.mark.parametrize(
    ("option", "axis"),
    [
        ("--tensor_parallel_size 4", "tensor"),
        ("--tp_size 2", "tensor"),
        ("--model-parallel-size $MP", "tensor"),
        ("--tensor_model_parallel_size 2", "tensor"),
        ("--pipeline_parallel_size 2", "pipeline"),
        ("--pp_degree 2", "pipeline"),
        ("--cp_size 2", "context"),
        ("--ulysses_size 4", "context"),
        ("--context_parallel_degree 2", "context"),
        ("--ring_attn_size 2", "context"),
        ("--sequence_parallel", "context"),
        ("--expert_parallel_size 8", "expert"),
        ("--ep_size 8", "expert"),
    ],
)
def test_ranks_that_a_program_splits_in_its_own_way_leave_open_what_follows(option: str, axis: str) -> None:
    plain = script("--bf16 True --gradient_accumulation_steps 2")
    assert at(plain, "parallelism", "data") == 8
    assert at(plain, "communication", "overlap_gradients") is True
    fragment = script("--bf16 True --gradient_accumulation_steps 2", option)
    assert_sound(fragment)
    assert at(fragment, "parallelism", "num_accelerators") == 8
    left = {"parallelism.data", "parallelism.sharding", "batch.global_sequences", "communication.overlap_gradients"}
    assert left | {f"parallelism.{axis}"} <= unknown_keys(fragment)


@pytest.mark.parametrize(
    "option",
    ["--tensor_parallel_size 1", "--pp_size 0", "--vllm_tensor_parallel_size 4", "--sequence_parallel False"],
)
def test_what_splits_no_ranks_of_the_training_leaves_the_data_degree(option: str) -> None:
    fragment = script("--bf16 True", option)
    assert at(fragment, "parallelism", "data") == 8
    assert at(fragment, "communication", "overlap_gradients") is True


def test_a_second_micro_batch_of_another_size_leaves_it_open() -> None:
    fragment = script("--micro_train_batch_size 16")
    assert_sound(fragment)
    assert {"batch.micro_sequences", "batch.global_sequences"} <= unknown_keys(fragment)
    assert at(script("--micro_train_batch_size 4"), "batch", "micro_sequences") == 4


def test_sharding_that_the_arguments_state_stays_where_ranks_are_split() -> None:
    fragment = script("--bf16 True --fsdp full_shard", "--tp_size 2")
    assert at(fragment, "parallelism", "sharding") == "parameters"
    assert "parallelism.data" in unknown_keys(fragment)


CUT_SHORT = "--per_device_train_batch_size 4 --gradient_acc 8 --learning 3e-5 --max_grad 0.5 --do_train --save_steps 5"


def cut_short(program: str, *options: str) -> Fragment:
    words = " ".join([CUT_SHORT, *options])
    return huggingface.read_trainer(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {program} {words}\n"))


def test_options_that_are_cut_short_are_completed_as_argparse_does() -> None:
    fragment = cut_short("run_clm.py")
    assert_sound(fragment)
    assert at(fragment, "batch", "accumulation_steps") == 8
    assert at(fragment, "batch", "global_sequences") == 256
    assert at(fragment, "optimizer", "learning_rate", "peak") == 3e-5
    assert at(fragment, "optimizer", "clipping", "threshold") == 0.5
    assert "--gradient_acc is read as the beginning of gradient_accumulation_steps" in remarks_of(fragment)


def test_a_beginning_that_a_program_of_its_own_may_know_leaves_the_option_open() -> None:
    fragment = cut_short("train.py")
    assert_sound(fragment)
    left = {"batch.accumulation_steps", "optimizer.learning_rate.peak", "optimizer.clipping"}
    assert left <= unknown_keys(fragment)
    assert at(cut_short("train.py", "--learning_rate 1e-4"), "optimizer", "learning_rate", "peak") == 1e-4


def test_a_beginning_and_the_whole_option_of_another_value_leave_it_open() -> None:
    fragment = cut_short("run_clm.py", "--learning_rate 1e-4")
    assert at(fragment, "optimizer", "learning_rate", "peak") is None
    assert at(cut_short("run_clm.py", "--learning_rate 3e-5"), "optimizer", "learning_rate", "peak") == 3e-5


def test_a_beginning_of_several_options_is_none() -> None:
    fragment = script("--warmup 5 --bf16 True --fp16_full_eval True")
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, "optimizer", "learning_rate", "warmup_steps") is None


def test_whole_numbers_of_yaml_are_those_that_the_program_reads() -> None:
    lines = ["warmup_steps: 010", "max_steps: 1:40", "gradient_accumulation_steps: 1_0", "learning_rate: 2e-5"]
    fragment = trainer(*lines)
    assert at(fragment, "optimizer", "learning_rate", "warmup_steps") == 8
    assert at(fragment, "job", "num_steps") == 100
    assert at(fragment, "batch", "accumulation_steps") == 10
    assert at(fragment, "optimizer", "learning_rate", "peak") == 2e-5


@pytest.mark.parametrize("text", ["08", "0o10"])
def test_digits_that_are_text_for_the_program_are_no_number(text: str) -> None:
    fragment = trainer(f"gradient_accumulation_steps: {text}")
    assert at(fragment, "batch", "accumulation_steps") == text
    assert "where a whole number of at least 1 belongs" in remarks_of(fragment)
    assert "accumulation_steps" not in join([fragment]).facts["batch"]


def test_steps_that_the_arguments_leave_to_a_variable_are_not_those_of_the_epochs() -> None:
    fragment = script("--max_steps $MAX_STEPS --num_train_epochs 3")
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert reasons["job", "num_steps"].startswith("max_steps goes before the epochs: the source refers to")


def test_a_rate_that_the_configuration_of_deepspeed_may_state_is_not_called_missing() -> None:
    command = "deepspeed pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --micro-batch-size 1"
    fragment = megatron.read(
        ForeignText("run.sh", f"{command} --seq-length 128 --deepspeed --deepspeed_config a.json\n")
    )
    reasons = {entry.pointer: entry.reason for entry in fragment.unknown}
    assert "the configuration of DeepSpeed may state one" in reasons["optimizer", "learning_rate"]


def test_a_configuration_of_ms_swift_states_its_stage_by_name() -> None:
    words = "swift sft --model a/B-7B --per_device_train_batch_size 1 --learning_rate 1e-5 --deepspeed"
    for name, wanted in (("zero0", "none"), ("zero2_offload", "gradients"), ("zero3", "parameters"), ("ds.json", None)):
        fragment = huggingface.read_trainer(ForeignText("run.sh", f"NPROC_PER_NODE=8 {words} {name}\n"))
        assert at(fragment, "parallelism", "sharding") == wanted
        assert ("import it as well" in remarks_of(fragment)) is (wanted is None)


@pytest.mark.parametrize(
    ("option", "is_open"), [("", True), ("--tuner_type full", False), ("--train_type full", False)]
)
def test_ms_swift_trains_adapters_by_default(option: str, *, is_open: bool) -> None:
    words = f"swift sft --model a/B-7B --per_device_train_batch_size 1 --learning_rate 1e-5 {option}"
    fragment = huggingface.read_trainer(ForeignText("run.sh", f"NPROC_PER_NODE=8 {words}\n"))
    assert ("lora" in unknown_keys(fragment)) is is_open


def of_megatron(command: str) -> Fragment:
    return megatron.read(ForeignText("run.sh", command + "\n"))


SWIFT = "megatron sft --model a/B-14B --tensor_model_parallel_size 4 --micro_batch_size 1 --global_batch_size 16"


def test_adapters_of_megatron_programs_are_read() -> None:
    adapter = "--tuner_type lora --lora_rank 8 --lora_alpha 32 --target_modules all-linear"
    fragment = of_megatron(f"{SWIFT} {adapter}")
    assert at(fragment, "lora", "rank") == 8
    assert at(fragment, "lora", "alpha") == 32
    assert "lora.targets" in unknown_keys(fragment)
    assert "lora" in unknown_keys(of_megatron(f"{SWIFT} --tuner_type lora"))
    for option in ("--tuner_type full", "--kv_lora_rank 512 --q_lora_rank 1536", ""):
        plain = of_megatron(f"{SWIFT} {option}")
        assert at(plain, "lora") is None
        assert "lora" not in unknown_keys(plain)


def test_megatron_of_ms_swift_takes_its_ranks_from_the_environment() -> None:
    fragment = of_megatron(f"NNODES=2 NPROC_PER_NODE=4 {SWIFT}")
    assert at(fragment, "parallelism", "num_accelerators") == 8
    assert at(of_megatron(SWIFT), "parallelism", "num_accelerators") is None


PARTS = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 128 --position-embedding-type rope"
SIZES = "--micro-batch-size 1 --global-batch-size 8 --pipeline-model-parallel-size 2 --context-parallel-size 2"


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--context-parallel-algo hybrid_cp_algo", "parallelism.context_method"),
        ("--ulysses-degree-in-cp 2", "parallelism.context_method"),
        ("--adaptive-recompute-enable", "memory.activation_policy"),
        ("--optimizer-selection fused_ema_adamw", "optimizer.name"),
        ("--schedules-method dualpipev", "parallelism.schedule"),
        ("--some-other-option 3", ""),
    ],
)
def test_an_unknown_option_of_a_fork_leaves_the_default_of_its_topic_open(option: str, key: str) -> None:
    start = f"torchrun --nproc_per_node 8 pretrain_gpt.py {PARTS} {SIZES}"
    topics = ["parallelism.context_method", "memory.activation_policy", "optimizer.name", "parallelism.schedule"]
    fragment = of_megatron(f"{start} --lr 1e-4 --train-iters 10 {option}")
    for topic in topics:
        assert (topic in unknown_keys(fragment)) is (topic == key)
        assert (at(fragment, *topic.split(".")) is None) is (topic == key)


def test_positions_come_from_a_checkpoint() -> None:
    start = f"torchrun --nproc_per_node 8 pretrain_gpt.py {PARTS} {SIZES}"
    assert at(of_megatron(start), "model", "positions") == "rotary"
    assert "model.positions" in unknown_keys(of_megatron(f"{start} --use-checkpoint-args"))


@pytest.mark.parametrize("length", [60, 118])
def test_a_name_of_an_alternative_is_whole_or_marked_as_cut(length: int) -> None:
    name = "a" * length
    before = f"M=org/{name}-240k\nif [ $B ]; then M=org/{name}-480k; fi\n"
    words = "--per_device_train_batch_size 4 --model_name_or_path $M --bf16 True --do_train True --save_steps 10"
    text = f"{before}torchrun --nproc_per_node 8 run_clm.py {words}\n"
    fragment = huggingface.read_trainer(ForeignText("run.sh", text))
    reason = next(entry.reason for entry in fragment.unknown if entry.pointer == ("model", "name"))
    shown = f"org/{name}-240k" if length == 60 else f"org/{name[:116]}..."
    assert f"{shown} (line 1)" in reason
