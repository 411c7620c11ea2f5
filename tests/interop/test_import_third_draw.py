"""What a third draw of files of public repositories showed: values that another setting, or other code, decides."""

from __future__ import annotations

import pytest
from plan_files import at, how, unknown_keys

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers.megatron import read as read_script
from trainspec_validate.interop.readers.nemo import read_bridge, read_nemo
from trainspec_validate.interop.readers.torchtitan import read as read_job

SHAPE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 --max-position-embeddings 512"


def script(program: str, arguments: str) -> Fragment:
    line = f"torchrun --nproc_per_node 8 --nnodes 1 {program} {SHAPE} --micro-batch-size 4 {arguments}\n"
    return read_script(ForeignText("run.sh", line))


def test_activations_that_the_program_moves_leave_the_offload_open() -> None:
    text = "model:\n  tensor_model_parallel_size: 1\n  {}\ntrain:\n  train_iters: 8\n  global_batch_size: 64\n"
    text += "optimizer:\n  optimizer_cpu_offload: true\n"
    moved = read_bridge(ForeignText("a.yaml", text.format("fine_grained_activation_offloading: true")))
    assert at(moved, "memory", "offload") is None
    assert "memory.offload" in unknown_keys(moved)
    stays = read_bridge(ForeignText("a.yaml", text.format("fine_grained_activation_offloading: false")))
    assert [entry["what"] for entry in at(stays, "memory", "offload")] == ["optimizer"]


@pytest.mark.parametrize(
    ("section", "num_steps"), [("", 50), ("\n  sft:\n    max_steps: 400\n    max_epochs: 1", None)]
)
def test_the_section_of_an_algorithm_ends_a_job_of_nemo_aligner(section: str, num_steps: int | None) -> None:
    text = f"name: a\ntrainer:\n  devices: 8\n  num_nodes: 1\n  precision: bf16\n  max_steps: 50{section}\n"
    text += "model:\n  micro_batch_size: 1\n  global_batch_size: 8\n  encoder_seq_length: 2048\n"
    text += "  optim:\n    lr: 1e-4\n    sched:\n      name: CosineAnnealing\n"
    found = read_nemo(ForeignText("a.yaml", text))
    assert at(found, "job", "num_steps") == num_steps
    assert at(found, "job", "num_tokens") == (None if num_steps is None else 50 * 8 * 2048)
    assert ("job.num_steps" in unknown_keys(found)) == (num_steps is None)


def test_a_sample_of_several_choices_is_several_sequences() -> None:
    race = script("tasks/main.py", "--task RACE --epochs 3 --fp16")
    for key in ("micro_sequences", "global_sequences", "global_tokens"):
        assert at(race, "batch", key) is None
    assert "batch.micro_sequences" in unknown_keys(race)
    pairs = script("tasks/main.py", "--task MNLI --epochs 3 --fp16")
    assert (at(pairs, "batch", "micro_sequences"), at(pairs, "batch", "global_sequences")) == (4, 32)


def job(head: str, more: str = "") -> Fragment:
    text = f'[job]\n{head}\n[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 4\n{more}\n'
    return read_job(ForeignText("job.toml", text))


def test_a_configuration_with_defaults_of_its_own_leaves_them_open() -> None:
    plain = job("")
    assert at(plain, "precision", "compute") == "bf16"
    module = 'custom_config_module = "mine.config"'
    own = job(module, '[parallelism]\nfsdp_reshard_after_forward = "always"')
    assert at(own, "precision") is None
    assert "precision.compute" in unknown_keys(own)
    assert at(own, "parallelism", "sharding") == "parameters"
    assert at(own, "batch", "micro_sequences") == 4
    assert how(own, "parallelism.sharding") == "FSDP reshards after forward: always"
    stated = job(module, 'mixed_precision_param = "bfloat16"')
    assert at(stated, "precision", "compute") == "bf16"
