"""Ranks of launchers: each count follows from what the command says, and a count that stays open has its reason."""

from __future__ import annotations

import pytest
from plan_files import assert_sound, at, remarks_of

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import huggingface, megatron
from trainspec_validate.interop.recognise import recognise

TRAINER = (
    "--per_device_train_batch_size 2 --gradient_accumulation_steps 4 --do_train True --warmup_steps 10 --bf16 True"
)
SHAPE = "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --micro-batch-size 2 --lr 1e-4"
RANKS = ("parallelism", "num_accelerators")


def started(launcher: str, before: str = "") -> Fragment:
    return huggingface.read_trainer(ForeignText("run.sh", f"{before}\n{launcher} run_clm.py {TRAINER}\n"))


def reasons(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, entry.pointer)): entry.reason for entry in fragment.unknown}


@pytest.mark.parametrize(
    ("launcher", "ranks"),
    [
        ("deepspeed --num_gpus 8 --num_nodes 2", 16),
        ("deepspeed --include worker-0:0,1@worker-1:3", 3),
        ("mpirun -x A -np 16 --bind-to none python", 16),
        ("mpiexec --n 4 python", 4),
        ("torchrun --nproc_per_node 8", 8),
        ("torchrun --master_addr $HEAD --nproc_per_node 8", 8),
    ],
)
def test_ranks_that_a_launcher_is_given(launcher: str, ranks: int) -> None:
    fragment = started(launcher)
    assert_sound(fragment)
    assert at(fragment, *RANKS) == ranks
    assert at(fragment, "batch", "global_sequences") == ranks * 8


@pytest.mark.parametrize(
    ("launcher", "why"),
    [
        ("deepspeed --num_gpus 8", "8 accelerators of each host in /job/hostfile, or of this one alone"),
        ("deepspeed --num_gpus 8 --hostfile conf/hosts", "each host in conf/hosts, which is not read"),
        ("deepspeed", "it takes every accelerator"),
        ("deepspeed --exclude localhost:0", "but those that exclude names"),
        ("deepspeed --include localhost:$A", "localhost:$A, which is not resolved"),
        ("torchrun --nproc_per_node $(nvidia-smi -L | wc -l)", "nproc_per_node: the source refers to $(nvidia-smi"),
        (
            "torchrun --nproc_per_node 8 --nnodes $NODES",
            "8 processes of each node; nnodes: the source refers to $NODES",
        ),
        ("torchrun $LAUNCH --nproc_per_node 8", "8 processes of each node: $LAUNCH may say how many nodes"),
        ("torchrun", "1 process of each node by default"),
        ("accelerate launch --num_processes $N", "num_processes: the source refers to $N"),
        ("accelerate launch", "accelerate is given no num_processes"),
        ("mpirun -np $RANKS python", "mpirun is given a number of tasks that is not resolved"),
        ("python3", "python3 starts one process"),
    ],
)
def test_ranks_that_are_not_known_have_their_reason(launcher: str, why: str) -> None:
    fragment = started(launcher)
    assert_sound(fragment)
    assert at(fragment, *RANKS) is None
    assert why in reasons(fragment)["parallelism.num_accelerators"]
    assert why in reasons(fragment)["parallelism.data"]


def test_nodes_of_the_environment_are_no_default_of_torchrun() -> None:
    fragment = started("torchrun --nproc_per_node 8", "export PET_NNODES=4")
    assert at(fragment, *RANKS) is None
    assert "PET_NNODES" in reasons(fragment)["parallelism.num_accelerators"]


def actors(options: str) -> Fragment:
    return megatron.read(ForeignText("run.sh", f"ray job submit -- python3 train.py {options} {SHAPE}\n"))


def test_ranks_of_actors_that_ray_places() -> None:
    sizes = "--actor-num-nodes 4 --actor-num-gpus-per-node 8 --rollout-num-gpus 16 --tensor-model-parallel-size 2"
    fragment = actors(f"{sizes} --context-parallel-size 1 --pipeline-model-parallel-size 1")
    assert_sound(fragment)
    assert at(fragment, *RANKS) == 32
    assert at(fragment, "parallelism", "data") == 16
    half = actors("--actor-num-nodes 4")
    assert at(half, *RANKS) is None
    assert "actor_num_nodes 4; the other one of the two" in reasons(half)["parallelism.num_accelerators"]


def test_packed_micro_batches_have_no_number_of_sequences() -> None:
    fragment = actors("--use-dynamic-batch-size --max-tokens-per-gpu 4096")
    assert at(fragment, "batch", "micro_sequences") is None
    assert "max_tokens_per_gpu" in reasons(fragment)["batch.micro_sequences"]
    assert at(actors(""), "batch", "micro_sequences") == 2


def test_expert_tensor_ranks_are_kept_where_the_model_is_in_another_file() -> None:
    options = "--expert-tensor-parallel-size 1 --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2"
    text = f"torchrun --nproc_per_node 8 pretrain_gpt.py $MODEL_ARGS {options} --context-parallel-size 1\n"
    assert at(megatron.read(ForeignText("run.sh", text)), "parallelism", "expert_tensor") == 1


POD = """apiVersion: v1
kind: {kind}
metadata: {{name: train}}
spec:
  {more}
  containers:
  - name: main
    image: a/b
    env:
    - {{name: MICRO, value: "2"}}
    - {{name: FROM, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}
{command}
"""
WORDS = [*SHAPE.replace("--micro-batch-size 2", "--micro-batch-size $(MICRO)").split(), "--bf16"]
LISTED = f"""    command: ["torchrun", "--nproc_per_node=8"]
    args: {["pretrain_gpt.py", *WORDS]!r}"""
BLOCK = "\n".join(
    ["    command:", *(f"    - {word!r}" for word in ["torchrun", "--nproc_per_node=8", "pretrain_gpt.py", *WORDS])]
)
SHELL = f"""    command: ["bash", "-lc"]
    args:
    - |
      set -e
      torchrun --nproc_per_node=8 pretrain_gpt.py {SHAPE.replace("2 --lr", "$MICRO --lr")} --bf16"""


@pytest.mark.parametrize("command", [LISTED, BLOCK, SHELL])
@pytest.mark.parametrize("first", ["", "kind: Service\nmetadata: {name: head}\n---\n"])
def test_commands_of_a_pod(command: str, first: str) -> None:
    text = ForeignText("pod.yaml", first + POD.format(kind="Pod", more="restartPolicy: Never", command=command))
    assert recognise(text).name == "megatron-arguments"
    fragment = megatron.read(text)
    assert_sound(fragment)
    assert at(fragment, "model", "num_layers") == 8
    assert at(fragment, "batch", "micro_sequences") == 2
    assert at(fragment, "precision", "compute") == "bf16"
    assert at(fragment, *RANKS) == 8


@pytest.mark.parametrize(("kind", "more"), [("PyTorchJob", "nprocPerNode: 8"), ("Job", "parallelism: 4")])
def test_a_manifest_of_several_pods_decides_on_the_nodes(kind: str, more: str) -> None:
    fragment = megatron.read(ForeignText("job.yaml", POD.format(kind=kind, more=more, command=LISTED)))
    assert at(fragment, *RANKS) is None
    assert f"to the {kind} of the manifest" in reasons(fragment)["parallelism.num_accelerators"]


def test_variables_of_a_pod_that_come_from_elsewhere_stay_open() -> None:
    command = LISTED.replace("$(MICRO)", "$(FROM)")
    fragment = megatron.read(ForeignText("pod.yaml", POD.format(kind="Pod", more="x: 1", command=command)))
    assert at(fragment, "batch", "micro_sequences") is None
    assert "$(FROM)" in remarks_of(fragment)


@pytest.mark.parametrize("option", ["--deepspeed ds.json", "--fsdp $FSDP"])
def test_arguments_of_the_program_go_before_the_launcher_in_what_is_sharded(option: str) -> None:
    command = "accelerate launch --num_processes 8 --multi_gpu train.py --per_device_train_batch_size 2 --bf16 True"
    text = f"{command} --gradient_accumulation_steps 1 {option}\n"
    given = ForeignText("train.sh", text)
    fragment = recognise(given).read(given)
    assert at(fragment, "parallelism", "sharding") is None
    assert "parallelism.sharding" in reasons(fragment)
    plain = ForeignText("train.sh", text.replace(option, ""))
    assert at(recognise(plain).read(plain), "parallelism", "sharding") == "none"
