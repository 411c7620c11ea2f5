"""Lists the metrics and events that files of other programs can carry, for the table of formats."""

from __future__ import annotations

MLLOG_METRICS = frozenset(
    {
        *("train.step.count", "train.step.duration", "train.sample.count", "train.token.count", "train.token.rate"),
        *("train.batch.size", "train.loss.mean", "train.evaluation.loss", "train.learning_rate", "hw.power"),
        "train.sample.rate",
    }
)
MEGATRON_METRICS = frozenset(
    {
        *("train.step.count", "train.step.duration", "train.step.skipped", "train.sample.count", "train.token.count"),
        *("train.token.rate", "train.batch.size", "train.flops.utilization", "train.learning_rate", "train.loss.mean"),
        *("train.gradient.norm", "train.world.active", "hw.power", "hw.energy", "train.evaluation.loss"),
    }
)
TORCHTITAN_METRICS = frozenset(
    {
        "train.rank.step",
        "train.step.duration",
        "train.step.phase.time",
        "train.data.wait.time",
        "train.checkpoint.duration",
    }
)
TORCHTITAN_LOG_METRICS = frozenset(
    {
        *("train.step.count", "train.loss.mean", "train.gradient.norm", "train.token.rate"),
        "train.flops.utilization",
    }
)
DEEPSPEED_METRICS = frozenset(
    {"train.step.count", "train.step.skipped", "train.learning_rate", "train.sample.rate", "train.token.rate"}
)
NANOGPT_METRICS = frozenset({"train.step.count", "train.step.duration", "train.loss.mean", "train.evaluation.loss"})
SCALAR_METRICS = frozenset(
    {
        *("train.step.count", "train.step.duration", "train.sample.count", "train.token.count", "train.token.rate"),
        *("train.batch.size", "train.loss.mean", "train.loss.max", "train.evaluation.loss", "train.learning_rate"),
        *("train.gradient.norm", "train.flops.utilization", "train.world.active", "train.memory.allocator.active"),
        *("train.memory.allocator.reserved", "train.memory.allocator.retries", "train.memory.oom"),
        "train.gradient.noise_scale",
    }
)
"""Metrics of scalars that programs write by names that are known."""
TRAINER_METRICS = frozenset(
    {"train.step.count", "train.loss.mean", "train.evaluation.loss", "train.learning_rate", "train.gradient.norm"}
)
NEMO_METRICS = (NANOGPT_METRICS - {"train.evaluation.loss"}) | {"train.learning_rate", "train.flops.utilization"}
SMI_METRICS = frozenset(
    {
        *("hw.errors", "hw.power", "hw.temperature", "hw.gpu.utilization", "hw.gpu.memory.usage"),
        *("hw.gpu.memory.limit", "train.accelerator.clock.frequency", "train.accelerator.throttled"),
        *("train.accelerator.throttle.time", "train.accelerator.memory.remapped_rows"),
    }
)
INTERVALS = frozenset({"train.run.start", "train.run.end", "train.attempt.start", "train.attempt.end"})
EVALUATIONS = frozenset({"train.evaluation.begin", "train.evaluation.end"})
SAVES = frozenset({"train.checkpoint.begin", "train.checkpoint.commit", "train.checkpoint.fail"})
RESTORES = frozenset({"train.checkpoint.restore.begin", "train.checkpoint.restore.end"})
PAUSES = frozenset({"train.telemetry.gap"})
"""Of consoles whose lines have times: saves between two steps that their lines say."""
