"""Works out the figures of the starter of a checkpoint policy."""

from __future__ import annotations

from trainspec_validate.planner.starter import checkpoint, cluster, plan
from trainspec_validate.planner.starter.sizing import BLOCKING_SECONDS, SAVED_BYTES, Sizes

NAME = "my-policy"


def document(sizes: Sizes) -> str:
    """Asynchronous saves to shared files, as often as Daly's formula says."""
    return checkpoint.document(_figures(sizes))


def _figures(sizes: Sizes) -> checkpoint.PolicyFigures:
    return checkpoint.PolicyFigures(
        name=NAME,
        cluster=f"{{name: {cluster.NAME}}}",
        plan=f"{{name: {plan.NAME}}}",
        step_seconds=sizes.step_seconds,
        interval_steps=sizes.interval_steps,
        interval_reason="Daly's interval for the failure rate and the save time",
        checkpoint_bytes=sizes.checkpoint_bytes,
        bytes_per_parameter=SAVED_BYTES,
        num_parameters=sizes.layout.preset.num_parameters,
        blocking_seconds=BLOCKING_SECONDS,
        blocking_reason="replace: measure it",
        persist_seconds=sizes.persist_seconds,
        persist_reason="derived: size over write rate; measure it",
        restore_seconds=sizes.restore_seconds,
        restore_reason="derived: size over read rate; measure it",
        num_nodes=sizes.num_nodes,
        planned_seconds=sizes.planned_seconds,
        mtbf_seconds=sizes.mtbf_seconds,
        mtbf_reason="",
        tiers=(checkpoint.TierFigures("durable", "cluster", "shared-files"),),
        loss_scaling=sizes.build.format == "fp16",
        low_precision_scales=False,
        hang_seconds=plan.TIMEOUT_SECONDS,
        collective_seconds=plan.TIMEOUT_SECONDS,
        spare_seconds=cluster.SPARE_SECONDS,
        repair_seconds=cluster.REPAIR_SECONDS,
    )
