"""What an export or a launch script leaves out, or gives to other ranks, is unknown and never a smaller count."""

from __future__ import annotations

import pytest
from plan_files import at, how, unknown_keys

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText, Fragment
from trainspec_validate.interop.readers import huggingface, hwloc, maxtext, megatron
from trainspec_validate.interop.readers.nemo import read_nemo

SHAPE = "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 512 --max-position-embeddings 512"


def script(options: str, program: str = "pretrain_gpt.py") -> Fragment:
    text = f"torchrun --nproc_per_node 8 {program} {SHAPE} --micro-batch-size 2 {options}\n"
    return megatron.read(ForeignText("run.sh", text))


def export(cpuset: str, nodeset: str) -> Fragment:
    sets = f'cpuset="{cpuset}" complete_cpuset="0xff" nodeset="{nodeset}" complete_nodeset="0x3"'
    node = "".join(
        f'<object type="Package"><object type="NUMANode" os_index="{k}" local_memory="1073741824"/>'
        f'<object type="Core"><object type="PU" os_index="{k}"/></object></object>'
        for k in range(2)
    )
    text = f'<topology version="2.0"><object type="Machine" {sets}>{node}</object></topology>'
    return hwloc.read(ForeignText("node.xml", text))


def host(fragment: Fragment) -> dict[str, object]:
    return dict(fragment.facts["node_groups"][0].get("host", {}))


def test_an_export_of_a_part_of_a_machine_states_no_counts_of_the_whole() -> None:
    whole = {"num_sockets": 2, "num_numa_nodes": 2, "num_cores": 2, "memory_bytes": 2147483648.0}
    assert host(export("0xff", "0x3")) == whole
    assert host(export("0xff", "0x1")) == {key: whole[key] for key in ("num_sockets", "num_cores")}
    assert host(export("0x0f", "0x3")) == {key: whole[key] for key in ("num_numa_nodes", "memory_bytes")}


def test_commands_of_maxtext_that_convert_and_compare_are_no_training() -> None:
    sizes = "per_device_batch_size=1 max_target_length=4"
    modules = ("maxtext.checkpoint_conversion.to_maxtext", "tests.utils.forward_pass_logit_checker")
    text = "".join(f"python3 -m {module} base.yml {sizes}\n" for module in modules)
    with pytest.raises(ForeignFormatError, match="is no program that trains"):
        maxtext.read(ForeignText("convert.sh", text))
    trained = maxtext.read(ForeignText("run.sh", text + f"python3 -m MaxText.train base.yml {sizes} steps=9\n"))
    assert at(trained, "job", "num_steps") == 9


@pytest.mark.parametrize(("accelerator", "library"), [("gpu", "nccl"), ("tpu", None), ("cpu", None)])
def test_the_library_of_nemo_follows_from_the_accelerators(accelerator: str, library: str | None) -> None:
    shape = "  num_layers: 2\n  hidden_size: 64\n  num_attention_heads: 4\n  encoder_seq_length: 128\n"
    trainer = f"trainer:\n  devices: 2\n  num_nodes: 1\n  precision: 32\n  accelerator: {accelerator}\n"
    fragment = read_nemo(ForeignText("gpt.yaml", f"exp_manager:\n  name: a\n{trainer}model:\n{shape}  optim: {{}}\n"))
    assert at(fragment, "communication", "library", "name") == library
    assert ("communication.library.name" in unknown_keys(fragment)) is (library is None)


def test_ddp_of_pytorch_overlaps() -> None:
    fragment = script("--fp16 --DDP-impl torch")
    assert at(fragment, "communication", "overlap_gradients") is True
    assert "PyTorch" in how(fragment, "communication.overlap_gradients")
    assert at(script("--fp16 --DDP-impl local"), "communication", "overlap_gradients") is False


def test_an_encoder_with_ranks_of_its_own_opens_the_degrees() -> None:
    degrees = "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"
    assert at(script(degrees), "parallelism", "pipeline") == 2
    fragment = script(f"{degrees} --encoder-pipeline-model-parallel-size 2", "pretrain_t5.py")
    assert {"parallelism.tensor", "parallelism.pipeline", "parallelism.data"} <= unknown_keys(fragment)


def test_a_ramp_in_parts_of_samples_grows_at_the_first_whole_sample() -> None:
    stages = at(script("--global-batch-size 256 --rampup-batch-size 32 32 1953125"), "batch", "ramp")
    assert stages[1]["from_tokens"] == 279_018 * 512  # 1,953,125 / 7 is 279,017.86
    assert stages[-1]["from_tokens"] == 1_953_125 * 512


def test_whether_adam_of_another_program_decouples_weight_decay_is_unknown() -> None:
    options = "--global-batch-size 64 --train-iters 10 --lr 1e-4 --optimizer adam"
    fragment = script(options, "examples/tune.py")
    assert "optimizer.name" in unknown_keys(fragment)
    assert at(script(f"{options} --tensor-model-parallel-size 2", "train.py"), "optimizer", "name") == "adamw"
    assert at(script(f"{options}w", "examples/tune.py"), "optimizer", "name") == "adamw"


def test_autocast_of_pytorch_is_not_that_of_neuron_devices() -> None:
    command = "torchrun --nproc_per_node 32 tune.py --per_device_train_batch_size 1 --learning_rate 8e-4 --bf16"
    command += " --gradient_accumulation_steps 8 --output_dir out --do_train"
    kept = ("precision", "high_precision_operations")
    plain, neuron = (
        huggingface.read_trainer(ForeignText("tune.sh", f"{command} {more}\n")) for more in ("", "--zero_1")
    )
    assert at(plain, *kept) == ["softmax", "normalization", "loss"]
    assert at(neuron, *kept) is None
    assert ".".join(kept) in unknown_keys(neuron)
