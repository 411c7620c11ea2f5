"""Environment variables of a job are held by the plan or named as not carried over, in one remark."""

from __future__ import annotations

import pytest

from trainspec_validate.interop.fragment import ForeignText, Fragment
from trainspec_validate.interop.readers import huggingface, maxtext, megatron

SHAPE = "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 128"
MEGATRON = f"torchrun --nproc_per_node 8 pretrain_gpt.py {SHAPE}\n"
TRAINER = "torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 4 --bf16 --save_steps 5\n"
MAXTEXT = "python3 MaxText/train.py MaxText/configs/base.yml per_device_batch_size=2 remat_policy=full\n"
READERS = [(megatron, MEGATRON), (huggingface, TRAINER), (maxtext, MAXTEXT)]
NAMES = (
    "NCCL_DEBUG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "LIBTPU_INIT_ARGS",
    "NCCL_TOPO_FILE",
)


def read(module: object, text: str) -> Fragment:
    reader = getattr(module, "read_trainer", None) or module.read  # type: ignore[attr-defined]
    fragment: Fragment = reader(ForeignText("run.sh", text))
    return fragment


def named(fragment: Fragment) -> list[str]:
    found = [remark.message for remark in fragment.remarks if remark.message.startswith("environment variables")]
    assert len(found) <= 1
    return found[0].partition(": ")[2].split(", ") if found else []


@pytest.mark.parametrize(("module", "command"), READERS)
@pytest.mark.parametrize(
    "form",
    [
        "export {}=1\n",
        "{}=1\n",
        'export {}="${{{}:-1}}"\n',
        "env {}=1 true\n",
        "#SBATCH --export=ALL,{}=1\n",
        "ENV_VARS=A=1,{}=2\n",
        'ENV_VARS=(\n  "{}=1"\n)\n',
        "if [[ $HOST ]]; then\n  export {}=1\nfi\n",
        "mpirun -x {} true\n",
        "docker run -e {}=1 image\n",
        "cat > job.yaml <<EOF\n- name: {}\n  value: 1\nEOF\n",
        "cat > job.yaml <<EOF\nenv:\n  {}: '1'\nEOF\n",
    ],
)
def test_a_variable_of_the_environment_is_named(module: object, command: str, form: str) -> None:
    for name in NAMES:
        assert name in named(read(module, form.replace("{}", name).replace("{{", "{").replace("}}", "}") + command))


@pytest.mark.parametrize(("module", "command"), READERS)
def test_what_only_uses_a_variable_or_is_a_comment_names_none(module: object, command: str) -> None:
    text = '# export NCCL_DEBUG=INFO\necho $NCCL_DEBUG ${CUDA_HOME}\n[ "$NCCL_ALGO" == Ring ]\nexport CUDA_HOME=/usr\n'
    assert named(read(module, text + command)) == []


def test_a_variable_of_a_launcher_is_named_whatever_it_is() -> None:
    assert named(read(megatron, f"launch --env MY_OWN_SWITCH=1 -- {MEGATRON}")) == ["MY_OWN_SWITCH"]


def test_names_of_a_list_count_whatever_they_are() -> None:
    fragment = read(maxtext, f'ENV_VARS="MY_SWITCH=1,NCCL_DEBUG=INFO"\n{MAXTEXT}')
    assert named(fragment) == ["MY_SWITCH", "NCCL_DEBUG"]


@pytest.mark.parametrize(
    ("value", "allocator", "left"),
    [
        ("expandable_segments:True", "expandable-segments", []),
        ("backend:cudaMallocAsync", "asynchronous", []),
        (
            "max_split_size_mb:512,expandable_segments:True",
            "expandable-segments",
            ["PYTORCH_CUDA_ALLOC_CONF"],
        ),
        ("max_split_size_mb:512", None, ["PYTORCH_CUDA_ALLOC_CONF"]),
    ],
)
def test_the_allocator_is_held(value: str, allocator: str | None, left: list[str]) -> None:
    fragment = read(megatron, f"export PYTORCH_CUDA_ALLOC_CONF={value}\n{MEGATRON}")
    assert fragment.facts.get("memory", {}).get("allocator") == allocator
    assert named(fragment) == left


def test_flags_of_xla_are_held_or_their_variable_is_named() -> None:
    held = (
        "--xla_gpu_enable_latency_hiding_scheduler=true --xla_gpu_deterministic_ops=true "
        "--xla_gpu_nccl_termination_timeout_seconds=900 --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728"
    )
    fragment = read(maxtext, f'export XLA_FLAGS="{held}"\n{MAXTEXT}')
    communication = {"overlap_gradients": True, "timeout_seconds": 900.0, "bucket_bytes": 134217728.0}
    assert fragment.facts["communication"] == communication
    assert fragment.facts["precision"]["deterministic"] is True
    assert named(fragment) == []
    assert named(read(maxtext, f'export XLA_FLAGS="{held} --xla_gpu_graph_level=0"\n{MAXTEXT}')) == ["XLA_FLAGS"]
    branched = f'if [[ $A ]]; then\n  export XLA_FLAGS="{held}"\nfi\n{MAXTEXT}'
    assert "communication" not in read(maxtext, branched).facts
    assert named(read(maxtext, branched)) == ["XLA_FLAGS"]
