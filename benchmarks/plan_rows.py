"""Reads the plans out of published rows, and names the machine that represents each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from training_sets import Run

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.performance.costs.layout import Layout
from trainspec_validate.performance.costs.memory import FORMAT_BYTES, model_state
from trainspec_validate.performance.costs.transformer import parameters
from trainspec_validate.performance.derived.job import JobNodes
from trainspec_validate.performance.forecast.facts import ModelFacts, machine_facts
from trainspec_validate.performance.forecast.outlook import Recompute
from trainspec_validate.planner.request import precision_of, usual_reserve
from trainspec_validate.planner.space import (
    MAX_VIRTUAL_STAGES,
    ORDERS,
    RECOMPUTATIONS,
    Choice,
    Goal,
    divisors,
    even_split,
)

CLUSTERS = Path(__file__).resolve().parent.parent / "examples" / "clusters"


@dataclass(frozen=True, slots=True)
class Told:
    """Facts in a publication about its layouts, other than the degrees."""

    machine: str
    chunks: bool
    """Whether the number of chunks is published; `training_sets` has it then."""
    sharding_stages: tuple[int, ...]
    order: tuple[str, ...] = ORDERS[0]
    micro: bool = False
    """Whether the micro-batch is published; `training_sets` has it then."""


TOLD = {
    # arXiv:2407.21783, sections 3.3.2 and 3.3.3: order of axes, FSDP that shards optimizer and gradients.
    "llama3_t4": Told("meta-llama3-24k", False, (2,), ORDERS[1]),
    # arXiv:2104.04473, section 5.1, and the script that `published_software` names; no sharding.
    "megatron2021_t1": Told("dgx-a100 infiniband", True, (0,), micro=True),
    # arXiv:2205.05198, section 6: three chunks for 175B and 530B, none else; one copy of the model.
    "korthikanti2022_t5": Told("dgx-a100 infiniband", True, (0,)),
    # NVIDIA/Megatron-LM README of 2024: distributed optimizer; a DGX H100 machine with 400 Gb/s as Eos has it.
    "megatron_h100_2024": Told("nvidia-eos", False, (1,)),
    # arXiv:2402.15627, section 6.1, read in notes: six chunks; sharded optimizer.
    "megascale_t2": Told("dgx-a100 rocev2", True, (1, 2)),
}


def dgx_a100(transport: str, num_nodes: int) -> ClusterProfile:
    """DGX A100 nodes: NVLink 3 at 300 GB/s one way, eight interfaces of 200 Gb/s (arXiv:2104.04473, section 5)."""
    link = {"technology": "nvlink", "topology": "switched", "domain_num_accelerators": 8}
    nic = {"name": "compute", "role": "compute", "fabric": "fabric", "num_per_node": 8, "num_accelerators_served": 1}
    technology = "infiniband" if transport == "infiniband" else "ethernet"
    node = {
        "name": "dgx-a100",
        "num_nodes": num_nodes,
        "num_accelerators_per_node": 8,
        "accelerator": {"model": "nvidia-a100-sxm-80gb"},
        "scale_up": {**link, "bandwidth_bytes_per_second": 300e9, "in_network_reduction": False},
        "nics": [{**nic, "technology": technology, "rate_bytes_per_second": 25e9}],
    }
    document = {
        "apiVersion": "trainspec/v1",
        "kind": "ClusterProfile",
        "metadata": {"name": f"dgx-a100-{transport}"},
        "num_nodes": num_nodes,
        "num_accelerators": 8 * num_nodes,
        "node_groups": [node],
        "fabrics": [{"name": "fabric", "transport": transport, "topology": "fat-tree"}],
    }
    found = read("ClusterProfile", document)
    if not isinstance(found, ClusterProfile):
        raise TypeError("a profile was written, and something else was read")
    return found


def profile_of(machine: str, num_ranks: int) -> ClusterProfile:
    """The profile of a machine: an example of this project, or nodes of DGX A100."""
    name, _, transport = machine.partition(" ")
    if transport:
        return dgx_a100(transport, -(-num_ranks // 8))
    found = read("ClusterProfile", load_file(CLUSTERS / f"{name}.yaml").data)
    if not isinstance(found, ClusterProfile):
        raise TypeError(f"{name} is no cluster profile")
    return found


def goal_of(run: Run) -> Goal:
    """Ranks, batch, sequence length and model of a run, on its machine, in the formats of the planner."""
    layout, precision = run.work.layout, precision_of("bf16")
    cluster = profile_of(TOLD[run.dataset].machine, layout.num_ranks)
    facts = ModelFacts(
        shape=run.work.shape,
        num_parameters=parameters(run.work.shape).total,
        state=model_state("bf16", "fp32", "fp32", "fp32"),
        compute_formats=("bf16",),
        reduction_bytes=FORMAT_BYTES[precision.reduction],
        parameter_bytes=FORMAT_BYTES[precision.parameters],
    )
    nodes = JobNodes(cluster.node_groups[0], 0)
    machine = machine_facts(cluster, nodes, cluster.fabrics[0], layout.num_ranks)
    return Goal(
        model=facts,
        machine=machine,
        num_ranks=layout.num_ranks,
        global_sequences=layout.data * layout.micro_sequences * layout.num_micro_batches,
        sequence_length=layout.sequence_length,
        reserve_bytes=usual_reserve(machine.accelerator),
    )


def published_choices(run: Run, row: dict[str, str]) -> Iterator[Choice]:
    """Every choice that agrees with what was published of a run."""
    told, base = TOLD[run.dataset], run.work.layout
    per_rank = base.micro_sequences * base.num_micro_batches
    micros = (base.micro_sequences,) if told.micro or row["micro_sequences"] else divisors(per_rank)
    for micro, stage, recompute in product(micros, told.sharding_stages, recomputations(row)):
        plain = replace(
            base,
            micro_sequences=micro,
            num_micro_batches=per_rank // micro,
            sharding_stage=stage if base.data * base.context > 1 else 0,
            schedule="1f1b" if base.pipeline > 1 else "none",
            num_virtual_stages=1,
        )
        for chunks in _chunks(run, told):
            layout = _chunked(plain, chunks, run.work.shape.num_layers)
            if layout is not None:
                yield Choice(layout, recompute, told.order)


def recomputations(row: dict[str, str]) -> tuple[Recompute, ...]:
    """Activations that a row recomputes, or all where the source does not say."""
    return tuple(policy for policy in RECOMPUTATIONS if row["recompute"] in {policy, ""})


def _chunks(run: Run, told: Told) -> tuple[int, ...]:
    layout, layers = run.work.layout, run.work.shape.num_layers
    if layout.pipeline == 1:
        return (1,)
    if not told.chunks:
        return tuple(range(1, min(MAX_VIRTUAL_STAGES, -(-layers // layout.pipeline)) + 1))
    return (layout.num_virtual_stages,)


def _chunked(layout: Layout, chunks: int, num_layers: int) -> Layout | None:
    """The layout with so many chunks; None where they cannot be filled or the schedule cannot run them."""
    count = layout.pipeline * chunks
    if count == num_layers + 2:
        # Llama 3: the first and the last chunk hold the tables alone.
        split: tuple[int, ...] = (0, *(1,) * num_layers, 0)
    elif count <= num_layers:
        split = even_split(num_layers, count) if layout.pipeline > 1 else ()
    else:
        return None
    if chunks == 1:
        return replace(layout, stage_layers=split)
    if layout.num_micro_batches % layout.pipeline:
        return None
    return replace(layout, schedule="interleaved-1f1b", num_virtual_stages=chunks, stage_layers=split)
