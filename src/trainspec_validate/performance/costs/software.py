"""Gives what a training framework does that a plan does not state: kernels, and which messages it overlaps."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from trainspec_validate.performance.costs.eager import EAGER_LOSS_BYTES_PER_ENTRY
from trainspec_validate.performance.costs.kernel_efficiency import AttentionKernel
from trainspec_validate.performance.costs.kernel_traffic import LOSS_BYTES_PER_ENTRY, SEPARATE_LOSS_BYTES_PER_ENTRY


@dataclass(frozen=True, slots=True)
class Software:
    """Kernels and overlap of a framework; the defaults are those of a plan that names no framework."""

    attention: AttentionKernel | None = None
    """Attention kernel; None means the fastest that is usual on the accelerator."""
    overlap_tensor: bool = False
    """Whether messages of tensor ranks are split and hidden behind the products next to them."""
    overlap_expert: bool = False
    """Whether all-to-all messages of experts are hidden behind computation of another micro-batch."""
    overlap_input_gradients: bool = False
    """Whether tensor ranks sum the gradients of a layer's inputs while they compute those of its weights."""
    overlap_pipeline: bool = True
    """Whether stages compute while they send and receive."""
    overlap_warm_up: bool = True
    """Whether they do so while the pipeline fills and drains too."""
    fused_accumulation: bool = True
    """Whether products add up the gradients of micro-batches themselves, without another kernel."""
    selective_share: float | None = None
    """Share of a forward pass that selective activation checkpointing repeats; None means unfused attention alone."""
    loss_bytes_per_entry: float = LOSS_BYTES_PER_ENTRY
    """Read and written for the loss, for each token and entry of the vocabulary."""
    selective_keeps: Literal["selective", "alternate", "products"] = "selective"
    """Activations that selective activation checkpointing keeps, as `activations.ActivationPolicy` names them."""
    eager: bool = False
    """Whether dense layers, the loss and the optimizer run operation by operation, as `eager` counts them."""


@dataclass(frozen=True, slots=True)
class Release:
    """A framework from one version on, until its next release in `RELEASES`."""

    name: str
    since: tuple[int, ...]
    software: Software
    source: str


_MEGATRON_2021 = Software(
    attention="unfused",
    overlap_pipeline=False,
    fused_accumulation=False,
    loss_bytes_per_entry=SEPARATE_LOSS_BYTES_PER_ENTRY,
)
_MEGATRON_2022 = replace(_MEGATRON_2021, overlap_input_gradients=True, fused_accumulation=True)
_MEGATRON_CORE = replace(_MEGATRON_2022, attention="flash-2")
_MEGATRON_CORE_2024 = replace(_MEGATRON_CORE, attention=None, overlap_pipeline=True, overlap_warm_up=False)

RELEASES: tuple[Release, ...] = (
    Release(
        "megatron-lm",
        (),
        _MEGATRON_2021,
        "NVIDIA/Megatron-LM@de7dc40f:megatron/p2p_communication.py, megatron/model/distributed.py; arXiv:2104.04473 "
        "section 4.2",
    ),
    Release("megatron-lm", (3,), _MEGATRON_2022, "NVIDIA/Megatron-LM@bbab79f8:megatron/mpu/layers.py"),
    Release("megatron-core", (), _MEGATRON_CORE, "NVIDIA/Megatron-LM@285068c8:megatron/core/tensor_parallel/layers.py"),
    Release(
        "megatron-core",
        (0, 5),
        _MEGATRON_CORE_2024,
        "NVIDIA/Megatron-LM@bc000690:megatron/core/pipeline_parallel/schedules.py",
    ),
    Release(
        "megatron-core",
        (0, 10),
        replace(_MEGATRON_CORE_2024, overlap_warm_up=True),
        "NVIDIA/Megatron-LM@4295be1a:megatron/core/pipeline_parallel/schedules.py",
    ),
    Release(
        "megatron-bridge",
        (),
        Software(overlap_tensor=True, overlap_input_gradients=True),
        "NVIDIA-NeMo/Megatron-Bridge@067f987d:docs/performance-guide.md (tp_comm_overlap, cross_entropy_fusion_impl)",
    ),
    Release(
        "nemo",
        (),
        Software(overlap_tensor=True, overlap_input_gradients=True),
        "NVIDIA/NeMo, recipes of the performance guide: tp_comm_overlap",
    ),
    Release(
        "torchtitan",
        (),
        Software(attention="flash-2", selective_share=0.5, selective_keeps="alternate"),
        "pytorch/torchtitan@395a5262:docs/performance.md: every other layer, or every other product",
    ),
    Release("fms-fsdp", (), Software(attention="flash-2"), "foundation-model-stack/fms-fsdp:README.md"),
    Release(
        "llm-foundry", (), Software(attention="flash-1"), "mosaicml/llm-foundry@8c8dd48f:scripts/train/benchmarking"
    ),
    Release(
        "deepspeed",
        (),
        Software(attention="unfused"),
        "arXiv:2104.04473 section 5.2: ZeRO-3 of DeepSpeed in 2021",
    ),
    Release("deepspeed", (0, 9), Software(attention="flash-2"), "microsoft/Megatron-DeepSpeed: --use-flash-attn"),
    Release(
        "pytorch",
        (),
        Software(
            attention="flash-2",
            fused_accumulation=False,
            loss_bytes_per_entry=EAGER_LOSS_BYTES_PER_ENTRY,
            eager=True,
        ),
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html "
        "(FlashAttention-2), https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html (foreach)",
    ),
    Release(
        "maxtext",
        (),
        Software(overlap_tensor=True, selective_keeps="products"),
        "AI-Hypercomputer/maxtext@07775101:MaxText/configs/v5p/512b.sh (xla_tpu_overlap_compute_collective_tc); "
        "AI-Hypercomputer/maxtext@0042423a:MaxText/layers/models.py (remat_policy: minimal); "
        "doi:10.1145/3567955.3567959 (XLA splits such products and messages)",
    ),
)
"""Frameworks whose behavior is known, oldest release first. An option that a plan states goes before all of these."""

DEFAULT = Software()


def software_of(name: str | None, version: str | None = None) -> Software:
    """Defaults of a framework; without a version its newest release, and `DEFAULT` for an unknown one.

    Versions compare by the numbers that they begin with. Source: `RELEASES`, one for each. Megatron-LM without a
    version is the present one, which is released by the versions of Megatron Core (core_v0.1.0 and later).

    >>> software_of("megatron-lm") == software_of("megatron-core"), software_of("megatron-lm", "3.0").attention
    (True, 'unfused')

    >>> software_of("megatron-core", "0.8.0").overlap_warm_up, software_of("megatron-core").overlap_warm_up
    (False, True)
    >>> software_of("my-trainer") == DEFAULT
    True
    """
    wanted = _numbers(version or "")
    called = _core_of((name or "").lower(), wanted)
    releases = [release for release in RELEASES if release.name == called]
    if not releases:
        return DEFAULT
    if not wanted:
        return releases[-1].software
    return [release for release in releases if release.since <= wanted][-1].software


def _core_of(name: str, version: tuple[int, ...]) -> str:
    """The name that a release goes by: Megatron Core for Megatron-LM since 2023, whose versions begin with 0."""
    return "megatron-core" if name == "megatron-lm" and (not version or version[0] == 0) else name


def release_of(name: str, version: str | None) -> str:
    """The release whose kernels and overlap predictions take, in words.

    >>> release_of("megatron-lm", None), release_of("maxtext", "0.1")
    ('megatron-core 0.10 and later', 'maxtext, all versions')
    """
    wanted = _numbers(version or "")
    called = _core_of(name.lower(), wanted)
    every = [release for release in RELEASES if release.name == called]
    since = [release.since for release in every if not wanted or release.since <= wanted][-1]
    after = [release.since for release in every if release.since > since]
    if after:
        before = f"before {'.'.join(map(str, after[0]))}"
        return f"{called} {'.'.join(map(str, since))} and later, {before}" if since else f"{called} {before}"
    return f"{called} {'.'.join(map(str, since))} and later" if since else f"{called}, all versions"


def is_version(text: str) -> bool:
    """Whether a text is a version that releases can be compared with.

    >>> is_version("0.12.1"), is_version("core_v0.12.0"), is_version("v3"), is_version("abc")
    (True, True, True, False)
    """
    return bool(_numbers(text))


def is_known(name: str) -> bool:
    """Whether the defaults of a framework are listed."""
    return any(release.name == name.lower() for release in RELEASES)


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"(?:core_)?v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})", version)
    return tuple(int(part) for part in found[1].split(".")) if found else ()
