"""Words that a reader searches for, with the place that explains them: the search shows this place first."""

from __future__ import annotations

from collections.abc import Mapping

PLACES: Mapping[str, tuple[str, ...]] = {
    "guide/conformant/": ("adapter", "shim", "conformant", "hooks"),
    "guide/adapters/": ("Lightning", "Accelerate", "torchtitan", "DeepSpeed", "Keras", "callback"),
    "guide/ci/#guarantees-for-a-pipeline": ("exit code", "exit status", "return code"),
    "guide/conformance/": ("run the suite", "conformance suite"),
    "guide/extension/": ("extension", "vendor"),
    "guide/mixture-of-experts/": ("MoE", "mixture of experts"),
    "guide/silence/#a-waiver": ("waiver", "waive"),
    "guide/silence/": ("ignore",),
    "guide/validate/": ("validate", "install"),
    "documents/CheckpointPolicy/": ("policy",),
    "documents/ClusterProfile/": ("cluster profile",),
    "documents/ConformanceReport/": ("conformance report",),
    "documents/StackDescriptor/": ("StackDescriptor", "descriptor", "capabilities"),
    "documents/TrainingPlan/": ("training plan",),
    "v1/00-contract/": ("contract", "duties", "duty"),
    "v1/00-contract/#resume": ("resume",),
    "v1/00-contract/#recovery-time-by-class-of-scale": ("scale classes",),
    "v1/00-introduction/#profiles": ("core",),
    "v1/00-introduction/#verdicts": ("verdict", "unsupported", "not applicable"),
    "v1/00-levels/": ("level", "recoverable", "claim"),
    "v1/00-model/#optimizer-step-and-checkpoint": ("checkpoint", "optimizer step"),
    "v1/00-model/#stream": ("stream",),
    "v1/00-terms/#utilisation": ("MFU", "HFU", "utilization"),
    "v1/01-documents/#TS-DOC-005": ("unknown keys", "unknown key", "misspelt"),
    "v1/04-parallelism/": ("data parallel", "tensor parallel", "parallelism", "FSDP", "ZeRO"),
    "v1/07-precision/": ("FP8", "BF16", "FP4", "MXFP8", "scaling", "precision"),
    "v1/10-manifest/": ("manifest",),
    "v1/11-lost-work/": ("lost work", "recomputed steps"),
    "v1/11-recovery/#how-90-s-are-measured": ("90 s", "90"),
    "reference/metrics/#traingoodputtime": ("goodput",),
    "reference/reliability/": ("Young", "Daly"),
}
"""By address, with the anchor of a heading where a part of the page is meant. A phrase may have several words."""
