"""Whatever a plan that fits its schema says, a writer writes a file that its program can parse, or refuses."""

from __future__ import annotations

import ast
import json
import subprocess
import tomllib
from typing import Any

import yaml
from export_jobs import job, unknown_requirements
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.interop.document import Job, export_all

AXES = ("data", "tensor", "pipeline", "context", "expert")
placements = st.lists(
    st.fixed_dictionaries(
        {"axis": st.sampled_from(AXES), "within": st.sampled_from(["scale-up-domain", "node", "fabric"])},
        optional={"fabric_tier": st.sampled_from(["leaf", "spine", "none-such"])},
    ),
    max_size=3,
)
parallelism = st.fixed_dictionaries(
    {axis: st.sampled_from([1, 2, 3, 4, 16]) for axis in AXES},
    optional={
        "num_accelerators": st.sampled_from([1, 7, 8, 64, 96]),
        "order": st.lists(st.sampled_from(AXES), max_size=5, unique=True),
        "sharding": st.sampled_from(["none", "optimizer", "gradients", "parameters"]),
        "sharding_degree": st.sampled_from([1, 2, 5, 16]),
        "num_virtual_stages": st.sampled_from([1, 2]),
        "stage_layers": st.lists(st.integers(0, 40), max_size=4),
        "schedule": st.sampled_from(["none", "gpipe", "1f1b", "interleaved-1f1b", "zero-bubble", "dual-pipe", "other"]),
        "rank_order": st.sampled_from(["topology", "scheduler", "alphabetical"]),
        "placements": placements,
    },
)
collectives = st.lists(
    st.fixed_dictionaries(
        {
            "operation": st.sampled_from(["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "broadcast"]),
            "axis": st.sampled_from(AXES),
            "algorithm": st.sampled_from(["automatic", "ring", "tree", "in-network", "in-network-tree", "torus"]),
        },
        optional={"protocol": st.sampled_from(["low-latency", "simple"]), "max_bytes": st.sampled_from([0, 1e6])},
    ),
    max_size=4,
)
communication = st.fixed_dictionaries(
    {"collectives": collectives},
    optional={
        "bucket_bytes": st.floats(1e4, 1e12),
        "timeout_seconds": st.floats(0.001, 86400),
        "overlap_gradients": st.booleans(),
        "gradient_averaging": st.sampled_from(["divide-before", "divide-after", "weighted"]),
        "library": st.fixed_dictionaries(
            {"name": st.sampled_from(["nccl", "rccl", "x"])}, optional={"version": st.text(min_size=1, max_size=9)}
        ),
    },
)
topology_files = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    degrees = draw(parallelism)
    product = degrees["data"] * degrees["tensor"] * degrees["pipeline"] * degrees["context"]
    plan: dict[str, Any] = {
        "parallelism": {"num_accelerators": product} | degrees,
        "communication": draw(communication),
        "precision.compute": draw(st.sampled_from(["bf16", "fp16", "fp32", "tf32"])),
        "precision.reduction": draw(st.sampled_from(["bf16", "fp32", "fp8"])),
    }
    cluster = {
        "node_groups.0.host.topology_file": draw(topology_files),
        "node_groups.0.scale_up.domain_num_accelerators": draw(st.sampled_from([4, 8, 32])),
        "node_groups.0.accelerator.model": draw(st.sampled_from(["nvidia-h100-sxm-80gb", "amd-mi300x-192gb"])),
        "fabrics.0.transport": draw(st.sampled_from(["infiniband", "rocev2", "efa-srd", "tcp", "other"])),
    }
    policies = [None, {}, {"grace": {"preemptible": True, "notice_seconds": 30}}, {"restart.max_restarts": 0}]
    return job(plan, cluster, draw(st.sampled_from(policies)))


def parses(name: str, text: str) -> bool:
    if name.endswith(".json"):
        return isinstance(json.loads(text), dict)
    if name.endswith(".toml"):
        return bool(tomllib.loads(text))
    if name.endswith(".yaml"):
        found = yaml.safe_load(text)
        if name == "megatron-bridge.yaml":
            return {"model", "ddp", "train", "mixed_precision"} <= found.keys()
        return found.get("kind", found.get("distributed_type")) in {"JobSet", "TrainJob", "FSDP", "MULTI_GPU"}
    if name.endswith(".py"):
        return bool(ast.parse(text).body)
    return subprocess.run(["bash", "-n"], input=text.encode(), check=False).returncode == 0


@examples(60)
@given(jobs())
def test_every_file_parses(given_job: Job) -> None:
    written, refused = export_all(given_job)
    assert written or refused
    for entry in written.values():
        assert parses(entry.name, entry.text), entry.text
        assert not unknown_requirements(entry.text + " ".join(entry.left_out))
    assert {name: (entry.text, entry.left_out) for name, entry in written.items()} == {
        name: (entry.text, entry.left_out) for name, entry in export_all(given_job)[0].items()
    }
