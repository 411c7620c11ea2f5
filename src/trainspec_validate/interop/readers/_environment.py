"""Finds the environment variables that a launch script or a job description sets for the training program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from trainspec_validate.system.digits import is_digits

_HEAD = 1024 * 1024
_LIBRARIES = (
    r"(?:(?:NCCL|RCCL|TORCH|TORCH_NCCL|PYTORCH|TORCHINDUCTOR|CUDA|CUDNN|CUBLAS|NVTE|NVSHMEM|XLA|LIBTPU|JAX|HSA|HIP|ROCR"
    r"|MIOPEN|UCX|FI|OFI|OMPI_MCA|GLOO|SHARP|NEURON|PT_HPU|HCCL|ASCEND|OMP|KMP|TRITON|ACCELERATE|FSDP|MSCCL|UB)_[A-Z]"
    r"[A-Za-z0-9_]{1,80}|TF_XLA_FLAGS|GPU_MAX_HW_QUEUES)"
)
"""Variables of communication libraries, compilers and frameworks."""
_NO_SETTING = re.compile(r"_(?:HOME|PATH|DIR|DIRECTORY|ROOT)\Z")
"""Ends of names for places."""
_SET = re.compile(rf"(?<![\w$./{{-])(?P<name>{_LIBRARIES})(?:\\?[\"'])?(?:[ \t]{{0,4}}:[ \t]|\+?=(?!=))")
"""`NAME=value` of a shell or a list, `NAME: value` of YAML and JSON."""
_HANDED = re.compile(rf"(?:(?<!\S)(?:-x|-e|--env|setenv)[ =]|\bname:)[ \t]{{0,8}}[\"']?(?P<name>{_LIBRARIES})\b")
"""`-x NAME` of a launcher, `name: NAME` of Kubernetes."""
_GIVEN = re.compile(r"(?<!\S)(?:-x|-e|--env)[ =][\"']?(?P<name>[A-Z][A-Z0-9_]{2,80})=")
"""`--env NAME=value` of a launcher, whatever the name is."""
_LISTS = re.compile(r"(?m)^[ \t]*(?:export[ \t]+)?\w{0,40}ENV_?VARS?\w{0,40}\+?=(?P<list>[^\n]{0,4096})")
_LISTED = re.compile(r"(?<![\w$])(?P<name>[A-Z][A-Z0-9_]{2,80})=")
_COMMENT = re.compile(r"(?m)^[ \t]*(?:#(?!SBATCH|PBS|PJM)|//)[^\n]*")
_XLA_FLAG = re.compile(r"--(?P<name>xla_[a-z0-9_]{1,120})(?:=(?P<value>[^\s\"',]{0,200}))?")


def variables(text: str) -> list[str]:
    r"""Names of the variables that a text sets, in the order in which it names them.

    >>> variables("export NCCL_DEBUG=INFO\nmpirun -x UCX_TLS run $CUDA_HOME\n# XLA_FLAGS=a\nENV_VARS=A_B=1,NCCL_ALGO=0")
    ['NCCL_DEBUG', 'UCX_TLS', 'A_B', 'NCCL_ALGO']
    """
    head = _COMMENT.sub("", text[:_HEAD])
    found = sorted((place, name) for pattern in (_SET, _HANDED, _GIVEN) for place, name in _named(pattern, head))
    for listed in _LISTS.finditer(head):
        found += [(listed.start("list") + place, name) for place, name in _named(_LISTED, listed["list"])]
    names = dict.fromkeys(name for _, name in sorted(found))
    return [name for name in names if not _NO_SETTING.search(name)]


def _named(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, str]]:
    yield from ((found.start("name"), found["name"]) for found in pattern.finditer(text))


def xla_flags(value: str) -> dict[str, str]:
    """Flags of `XLA_FLAGS` with their values; the last one of a name counts.

    >>> xla_flags("--xla_gpu_deterministic_ops=true --xla_dump")
    {'xla_gpu_deterministic_ops': 'true', 'xla_dump': 'true'}
    """
    return {found["name"]: found["value"] or "true" for found in _XLA_FLAG.finditer(value)}


def held_by_xla(flags: dict[str, str], put: Callable[[tuple[str, str], object], None], *, sharded: bool) -> set[str]:
    """Give `put` what flags of XLA on GPUs say of a plan, as the export writes it; the names of those flags."""
    combined = f"xla_gpu_{'reduce_scatter' if sharded else 'all_reduce'}_combine_threshold_bytes"
    places = {
        "xla_gpu_enable_latency_hiding_scheduler": ("communication", "overlap_gradients"),
        "xla_gpu_deterministic_ops": ("precision", "deterministic"),
        "xla_gpu_nccl_termination_timeout_seconds": ("communication", "timeout_seconds"),
        combined: ("communication", "bucket_bytes"),
    }
    held = set()
    for name, place in places.items():
        value = flags.get(name, "")
        if value.lower() in {"true", "false"}:
            put(place, value.lower() == "true")
        elif is_digits(value) and 0 < len(value) < 13 and int(value):
            put(place, float(value))
        else:
            continue
        held.add(name)
    return held
