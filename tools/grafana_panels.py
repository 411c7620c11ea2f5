"""Defines the panels of a run's dashboard on the job and its ranks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture; each target is a template of PromQL with the name of its lines."""

    title: str
    words: str
    unit: str
    targets: tuple[tuple[str, str], ...]
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    stacked: bool = False
    maximum: float | None = None


R = '{<run>="$run"}'
"""Selects the run."""


def stat(title: str, words: str, unit: str, template: str, legend: str = "") -> Panel:
    """A number of the present."""
    return Panel(title, words, unit, ((template, legend),), kind="stat", width=3, height=4)


RUN = (
    stat(
        "Attempt",
        "Attempt of the newest update.",
        "none",
        f"topk(1, max by (<attempt>) (timestamp(<train.step.count>{R})))",
        "{{<attempt>}}",
    ),
    stat("Updates", "Optimizer updates completed.", "none", f"train_run:step_count:max{R}"),
    stat("Ranks", "Ranks that take part.", "none", f"max(<train.world.active>{R})"),
    stat("Silent ranks", "Ranks that take part and do not report.", "none", f"train_run:ranks_silent:count{R}"),
    stat("Goodput", "Share of the run that was productive.", "percentunit", f"train_run:goodput:ratio{R}"),
    stat("Utilisation", "Model operations over the peak.", "percentunit", f"train_run:flops_utilization:max{R}"),
    stat("Work at risk", "What a fault would cost now.", "s", f"train_run:work_at_risk_seconds:max{R}"),
    stat("Alerts", "Alerts that fire.", "none", 'count(ALERTS{<run>="$run", alertstate="firing"}) or vector(0)'),
)

STEPS = (
    Panel(
        "Time of an update",
        "As the job reports it, and over its ranks.",
        "s",
        (
            (f"train_run:step_duration_seconds:mean{R}", "job"),
            ('quantile(0.5, <train.step.duration>{<run>="$run", <rank>!=""})', "half of the ranks"),
            ('quantile(0.99, <train.step.duration>{<run>="$run", <rank>!=""})', "slowest hundredth"),
        ),
    ),
    Panel(
        "Time by phase",
        "Mean over ranks; the part of communication that nothing hides.",
        "percentunit",
        ((f"avg by (<@train.phase>) (rate(<train.step.phase.time>{R}[5m]))", "{{<@train.phase>}}"),),
        stacked=True,
    ),
    Panel(
        "Slowest ranks",
        "Own time over the median of the peers.",
        "none",
        ((f"topk(10, train_rank:slowdown:avg10m{R})", "{{<rank>}} on {{<host>}}"),),
    ),
)

THROUGHPUT = (
    Panel(
        "Tokens per second",
        "Of the whole job, padding included.",
        "none",
        ((f"train_run:token_rate:max{R}", "tokens per second"),),
        width=6,
    ),
    Panel(
        "Utilisation and goodput",
        "Operations over the declared peak, and the share of the last hour that was productive.",
        "percentunit",
        (
            (f"train_run:flops_utilization:max{R}", "model"),
            (f"max(<train.flops.hardware_utilization>{R})", "hardware"),
            (f"train_run:goodput:ratio1h{R}", "productive time"),
        ),
        width=6,
    ),
    Panel(
        "Batch",
        "Samples of an update.",
        "none",
        ((f"max(last_over_time(<train.batch.size>{R}[15m]))", "samples"),),
        width=6,
    ),
    Panel(
        "Waiting for data",
        "Share of their time, mean over ranks.",
        "percentunit",
        ((f"train_run:data_wait:ratio5m{R}", "waiting"),),
        width=6,
    ),
)

LEARNING = (
    Panel(
        "Loss",
        "Mean over the global batch, largest mean of a rank, and evaluation.",
        "none",
        (
            (f"max by (<@train.loss.name>) (<train.loss.mean>{R})", "{{<@train.loss.name>}}"),
            (f"max by (<@train.loss.name>) (<train.loss.max>{R})", "{{<@train.loss.name>}}, worst rank"),
            (
                f"max by (<@train.evaluation.set>) (last_over_time(<train.evaluation.loss>{R}[1h]))",
                "{{<@train.evaluation.set>}}",
            ),
        ),
    ),
    Panel(
        "Gradient norm",
        "Before clipping.",
        "none",
        ((f"max(<train.gradient.norm>{R})", "norm"),),
    ),
    Panel(
        "Updates skipped and clipped",
        "Per update that was completed.",
        "percentunit",
        (
            (f"sum(rate(<train.step.skipped>{R}[15m])) / max(rate(<train.step.count>{R}[15m]))", "skipped"),
            (f"max(rate(<train.gradient.clip.count>{R}[15m])) / max(rate(<train.step.count>{R}[15m]))", "clipped"),
        ),
    ),
    Panel(
        "Learning rate",
        "As applied, by group of parameters.",
        "none",
        ((f"max by (<@train.parameter.group>) (<train.learning_rate>{R})", "rate {{<@train.parameter.group>}}"),),
    ),
    Panel(
        "Gradient variance",
        "Noise and signal of the gradient, as declared in the stream.",
        "none",
        (
            (f"max(last_over_time(<train.gradient.variance>{R}[15m]))", "variance"),
            (f"max(last_over_time(<train.gradient.signal>{R}[15m]))", "signal"),
        ),
    ),
    Panel(
        "Noise scale",
        "In its declared unit; a batch far above it gains little.",
        "none",
        ((f"max(last_over_time(<train.gradient.noise_scale>{R}[15m]))", "noise scale"),),
    ),
)

COMPLETENESS = (
    Panel(
        "Ranks",
        "What takes part, and what reports.",
        "none",
        (
            (f"max(<train.world.active>{R})", "take part"),
            (f"train_run:ranks_reporting:count{R}", "report"),
            (f"train_run:devices_reporting:count{R}", "devices that report"),
        ),
    ),
    Panel(
        "Ranks that report, by host",
        "The 50 hosts with the fewest. A hole is a host that is silent.",
        "none",
        ((f"bottomk(50, train_host:ranks_reporting:count{R})", "{{<host>}}"),),
        kind="status-history",
        width=16,
    ),
)
