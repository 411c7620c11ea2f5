"""Words of commands, bounds of zero and offloads in imported configurations, and refusals that say what to give."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.document import document
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.readers import axolotl, huggingface, megatron, torchtitan, torchtune
from trainspec_validate.interop.readers._plan_parts import word_value
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.model.catalog import pcie_bandwidth

SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 512 --lr 1e-4"


def of_megatron(more: str, program: str = "pretrain_gpt.py") -> Fragment:
    return megatron.read(ForeignText("run.sh", f"torchrun --nproc_per_node 8 {program} {SHAPE} {more}\n"))


def of_trainer(more: str) -> Fragment:
    settings = "per_device_train_batch_size: 1\nlogging_steps: 1\nsave_steps: 5\nbf16: true\nlearning_rate: 1.0e-4\n"
    return huggingface.read_trainer(ForeignText("a.yaml", f"{settings}{more}"))


def reasons(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


@pytest.mark.parametrize("word", ["1e3", "1000.0", "1__000", "0x10", "1_000_"])
def test_a_count_that_int_refuses_is_unknown(word: str) -> None:
    fragment = of_megatron(f"--seq-length {word} --micro-batch-size 1")
    assert "sequence_length" not in fragment.facts["model"]
    assert "int()" in reasons(fragment)["model.sequence_length"]
    assert any(remark.message.startswith("seq_length: ") for remark in fragment.remarks)


def test_samples_that_int_refuses_leave_the_schedule_open() -> None:
    fragment = of_megatron("--seq-length 128 --global-batch-size 8 --micro-batch-size 1 --lr-warmup-samples 1e3")
    assert "int()" in reasons(fragment)["optimizer.learning_rate.warmup_steps"]


def test_the_length_of_a_trainer_job_is_no_decimal_number() -> None:
    run = "python run_clm.py --per_device_train_batch_size 1 --max_steps 1e3 --save_steps 5 --logging_steps 1"
    fragment = huggingface.read_trainer(ForeignText("run.sh", run))
    assert "int()" in reasons(fragment)["job.num_steps"]


def test_a_count_that_int_accepts_is_read() -> None:
    fragment = of_megatron("--seq-length 1_024 --micro-batch-size +1")
    assert fragment.facts["model"]["sequence_length"] == 1024
    assert fragment.facts["batch"]["micro_sequences"] == 1
    assert (word_value("1_0"), word_value("1__0"), word_value("10_")) == (10, "1__0", "10_")


def test_bert_with_untied_tables_depends_on_the_models() -> None:
    more = "--seq-length 128 --micro-batch-size 1 --untie-embeddings-and-output-weights"
    fragment = of_megatron(more, "pretrain_bert.py")
    assert "tied_embeddings" not in fragment.facts["model"]
    assert "legacy models" in reasons(fragment)["model.tied_embeddings"]
    assert of_megatron(f"{more} --use-mcore-models", "pretrain_bert.py").facts["model"]["tied_embeddings"] is False
    assert of_megatron(more).facts["model"]["tied_embeddings"] is False


def test_an_example_of_megatron_is_not_said_to_be_foreign() -> None:
    why = reasons(of_megatron("--seq-length 128 --train-iters 5", "examples/multimodal/train.py"))
    assert "none of the programs of Megatron-LM that this reader knows" in why["parallelism.pipeline"]


def test_a_bound_of_zero_is_reported() -> None:
    for fragment in (of_trainer("max_grad_norm: 0\n"), of_megatron("--seq-length 8 --clip-grad 0 --train-iters 5")):
        assert "clipping" not in fragment.facts["optimizer"]
        assert any("gradients are not clipped" in remark.message for remark in fragment.remarks)


def test_activations_that_are_offloaded_leave_the_offload_open() -> None:
    assert "activation_offloading" in reasons(of_trainer("activation_offloading: true\n"))["memory.offload"]
    assert "memory.offload" not in reasons(of_trainer("activation_offloading: false\n"))
    base = "base_model: a/b\nmicro_batch_size: 1\nactivation_offloading: true\n"
    both = axolotl.read(ForeignText("a.yaml", f"{base}fsdp_version: 2\nfsdp_config:\n  offload_params: true\n"))
    assert "activation_offloading" in reasons(both)["memory.offload"]
    recipe = "model:\n  _component_: torchtune.models.llama3.llama3_8b\noptimizer:\n  _component_: torch.optim.AdamW\n"
    tuned = torchtune.read(
        ForeignText("a.yaml", f"{recipe}fsdp_cpu_offload: true\nenable_activation_offloading: true\n")
    )
    assert "enable_activation_offloading" in reasons(tuned)["memory.offload"]
    known = "the source states parameters on the host, gradients on the host, optimizer on the host"
    assert known in reasons(tuned)["memory.offload"]


def test_torchtitan_states_what_its_defaults_decide() -> None:
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nsteps = 10\nlocal_batch_size = 1\n[parallelism]\n'
    fragment = torchtitan.read(ForeignText("a.toml", text))
    assert "selective or none" in reasons(fragment)["memory.activation_policy"]
    assert fragment.facts["optimizer"]["learning_rate"]["final"] == 0.0
    assert ("optimizer", "learning_rate", "final") in fragment.defaults
    zero = torchtitan.read(ForeignText("a.toml", text.replace("steps = 10", "steps = 10\nmax_norm = 0.0")))
    assert "every gradient" in reasons(zero)["optimizer.clipping"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("model_name: a\nout_dir: b\ntrain:\n  global_batch_size: 512\n  micro_batch_size: 4\n", "LitGPT"),
        ("from xtuner.engine.runner import TrainLoop\nbatch_size = 1\n", "xtuner"),
        ("deepspeed main.py --actor_model_name_or_path a --critic_model_name_or_path b\n", "DeepSpeed-Chat"),
        ("#!/bin/bash\n#SBATCH --nodes=4\nsrun python own.py\n", "Slurm"),
        ("model:\n  d_model: 64\nmax_duration: 1ep\nglobal_train_batch_size: 64\n", "OLMo"),
        ("python -m EasyLM.models.llama.llama_train --mesh_dim='-1,64,1'\n", "EasyLM"),
        ("colossalai run --nproc_per_node 8 train.py --plugin zero2\n", "Colossal-AI"),
        ("from __gin__ import dynamic_registration\nBATCH_SIZE = 4\n", "gin"),
        ("from olmo_core.train import TrainerConfig\n", "OLMo-core"),
        ("import nemo_run as run\nfrom nemo.collections import llm\n", "NeMo 2"),
        ("uv run -m skyrl_train.entrypoints.main_base trainer.policy.model.path=a\n", "SkyRL"),
        ("gconfig:\n  n_samples: 4\nactor:\n  path: a\ntotal_train_epochs: 1\n", "AReaL"),
        ("type: sft\nmicro_batch_size: 1\nmodel:\n  name_or_path: a\ndeepspeed:\n  x: 1\n", "ArcticTraining"),
        ("model:\n  component_key: model\n  variant_key: gpt2\n", "Modalities"),
        ("[model]\nname = 'a'\n[orchestrator]\nbatch_size = 4\n", "prime-rl"),
        ('{"per_device_train_batch_size": 1, "do_train": true, "tensor_parallel_degree": 4}\n', "PaddleNLP"),
        ("python -m paddle.distributed.launch run.py --per_device_train_batch_size 1 --recompute 1\n", "PaddleNLP"),
    ],
)
def test_a_refusal_says_what_to_give(text: str, told: str) -> None:
    with pytest.raises(ForeignFormatError) as raised:
        recognise(ForeignText("a", text))
    assert told in str(raised.value.help)
    assert "give " in str(raised.value.help)
    assert "Levanter" not in str(raised.value.help)


def test_keys_that_are_unknown_for_one_reason_share_a_comment() -> None:
    text = 'ARGS="--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128"\n'
    fragment = megatron.read(ForeignText("run.sh", text))
    written = document(merge([fragment]))
    plain = " ".join(line.strip().lstrip("# ") for line in written.splitlines())
    assert plain.count("the script that reads in these arguments may set it") <= 4
    for entry in fragment.unknown:
        assert str(entry.pointer[-1]) in plain


def test_rates_of_pcie_follow_from_the_encoding() -> None:
    rates = {generation: pcie_bandwidth(generation, 16) for generation in (3, 4, 5)}
    assert rates == {3: 15.75e9, 4: 31.5e9, 5: 63e9}
    for generation, gigatransfers in ((3, 8), (4, 16), (5, 32)):
        assert rates[generation] == pytest.approx(gigatransfers * 1e9 / 8 * 16 * 128 / 130, rel=1e-3)


def test_moments_in_eight_bits_stay_with_axolotl() -> None:
    base = "base_model: a/b\nmicro_batch_size: 1\nbf16: true\nlearning_rate: 1.0e-4\n"
    fragment = axolotl.read(
        ForeignText("a.yaml", f"{base}optimizer: adamw_bnb_8bit\nload_in_8bit: true\nadapter: lora\n")
    )
    assert fragment.facts["precision"]["optimizer_state"] == "int8"
    assert "int8" in reasons(fragment)["precision.frozen_parameters"]
    assert not any("goes before it: load_in_8bit" in remark.message for remark in fragment.remarks)
    four = axolotl.read(
        ForeignText("a.yaml", f"{base}optimizer: adamw_torch_4bit\nload_in_4bit: true\nadapter: qlora\n")
    )
    assert "optimizer_state" not in four.facts["precision"]
    assert "NF4 or FP4" in reasons(four)["precision.frozen_parameters"]


def test_recomputation_of_llama_factory_has_a_switch_of_its_own() -> None:
    job = "finetuning_type: lora\nlora_target: all\nquantization_bit: 8\n"
    for more in ("", "gradient_checkpointing: false\n", "disable_gradient_checkpointing: false\n"):
        why = reasons(of_trainer(f"{job}{more}"))
        assert "disable_gradient_checkpointing" in why["memory.activation_policy"]
        assert why["optimizer.name"].startswith("adamw by default of transformers")
        assert why["lora.targets"].startswith("lora_target 'all': every linear layer")
        assert "int8" in why["precision.frozen_parameters"]
    stated = of_trainer(f"{job}gradient_checkpointing: true\n")
    assert stated.facts["memory"]["activation_policy"] == "full"


@pytest.mark.parametrize(
    "line",
    [
        "N=$(echo 'a (b' | tr -d ' ')",
        'N=$(echo "a ) b")',
        'N=${M:-"a}b"}',
        "N=$(cat <<E\nit's\nE\n)",
        'N="${M:-it\'s}"',
    ],
)
def test_brackets_between_quotes_end_no_substitution(line: str) -> None:
    run = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE} --seq-length 128 --micro-batch-size 1\n"
    fragment = megatron.read(ForeignText("run.sh", f"{line}\n{run}"))
    assert fragment.facts["model"]["num_layers"] == 4
    assert fragment.facts["parallelism"]["num_accelerators"] == 8


@pytest.mark.parametrize("quote", ["'", '"'])
def test_an_unclosed_quote_names_its_line_and_the_earlier_quote(quote: str) -> None:
    with pytest.raises(ForeignFormatError) as raised:
        of_megatron(f"--seq-length 128 --micro-batch-size 1\necho {quote}done")
    assert raised.value.line == 2
    assert "earlier quote" in str(raised.value.help)
