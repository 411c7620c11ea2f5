"""Holds an example of each text attribute without a list of values, which Weaver requires."""

from __future__ import annotations

EXAMPLES = {
    "train.run.id": "llama-70b-2026-03",
    "train.parameter.group": "embeddings",
    "train.loss.name": "total",
    "train.evaluation.set": "held-out",
    "train.flops.convention": "6n",
    "train.flops.precision": "bf16",
    "train.gradient.parameter_scope": "all",
    "train.group.name": "data",
    "train.link.id": "nvlink-3",
    "train.network.source": "node-0131",
    "train.network.target": "node-0132",
    "train.probe.plan": "each node to two others, once a minute",
    "train.policy.refs": "plan.yaml sha256:9f86d081884c7d65",
    "train.rank.map": "ranks.json sha256:60303ae22b998861",
    "train.reason": "out of memory",
    "train.checkpoint.id": "step-1300",
    "train.restore.source": "step-1300",
    "train.fault.id": "fault-7",
    "train.fault.vendor_code": "xid:79",
    "train.fault.component": "GPU-5c1f0d2a",
    "train.change.key": "batch.global_sequences",
    "train.change.before": "512",
    "train.change.after": "1024",
}
