"""Defines the panels of a run's dashboard: the job, its ranks, its machine, its checkpoints and its stream."""

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
    stat("Updates", "Optimizer steps completed.", "none", f"train_run:step_count:max{R}"),
    stat("Ranks", "Ranks that take part.", "none", f"max(<train.world.active>{R})"),
    stat("Silent ranks", "Ranks that take part and do not report.", "none", f"train_run:ranks_silent:count{R}"),
    stat("Goodput", "Share of the run that was productive.", "percentunit", f"train_run:goodput:ratio{R}"),
    stat("Utilisation", "Model operations over the peak.", "percentunit", f"train_run:flops_utilization:max{R}"),
    stat("Work at risk", "The cost of a fault at present.", "s", f"train_run:work_at_risk_seconds:max{R}"),
    stat("Alerts", "Alerts that fire.", "none", 'count(ALERTS{<run>="$run", alertstate="firing"}) or vector(0)'),
)

STEPS = (
    Panel(
        "Time of a step",
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
        "Optimizer steps skipped and clipped",
        "Per optimizer step that was completed.",
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
        "Participants, and sources that report.",
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


DEVICES = (
    Panel(
        "Busy and working",
        "Busy is no proof of work; the matrix units are.",
        "percentunit",
        (
            (f"train_run:busy:avg{R}", "busy"),
            (f"train_run:matrix_active:avg{R}", "matrix units"),
            (f"min(<train.accelerator.matrix.active>{R})", "matrix units, least"),
        ),
        maximum=1,
    ),
    Panel(
        "Memory in use",
        "Of what the device has.",
        "percentunit",
        (
            (f"max(train_device:memory_used:ratio{R})", "fullest device"),
            (f"quantile(0.5, train_device:memory_used:ratio{R})", "half of the devices"),
        ),
        maximum=1,
    ),
    Panel(
        "Power",
        "From energy counters, by kind of component.",
        "watt",
        ((f"train_run:power_watts:rate5m{R}", "{{<@hw.type>}}"),),
    ),
    Panel(
        "Temperature",
        "Of the hottest device.",
        "celsius",
        ((f"max by (<@hw.sensor_location>) (<hw.temperature>{R})", "{{<@hw.sensor_location>}}"),),
    ),
    Panel(
        "Held back",
        "Share of the time in which the clock was held down: the ten worst devices.",
        "percentunit",
        (
            (
                f"topk(10, train_device:throttled:ratio5m{R})",
                "{{<device>}} on {{<host>}}: {{<@train.throttle.reason>}}",
            ),
        ),
    ),
    Panel(
        "Errors in 15 minutes",
        "New errors of devices and interfaces, by kind.",
        "none",
        ((f"train_run:errors:increase15m{R}", "{{<@error.type>}}"),),
    ),
)

NETWORK = (
    Panel(
        "Bytes per second",
        "Of network interfaces and of scale-up links, over the run.",
        "Bps",
        (
            (f"train_run:network_bytes:rate5m{R}", "network {{<@network.io.direction>}}"),
            (f"train_run:link_bytes:rate5m{R}", "links {{<@network.io.direction>}}"),
        ),
        width=6,
    ),
    Panel(
        "Latency between nodes",
        "Round trip of probes, and the ten slowest pairs.",
        "s",
        (
            (f"train_run:latency_seconds:p50_5m{R}", "half"),
            (f"train_run:latency_seconds:p99_5m{R}", "slowest hundredth"),
            (
                f"topk(10, train_pair:latency_seconds:p99_5m{R})",
                "{{<@train.network.source>}} to {{<@train.network.target>}}",
            ),
        ),
        width=6,
    ),
    Panel(
        "Errors of links in 15 minutes",
        "New errors of scale-up links, by kind.",
        "none",
        ((f"train_run:link_errors:increase15m{R}", "{{<@error.type>}}"),),
        width=6,
    ),
    Panel(
        "Packets sent again",
        "Per second, over the run.",
        "none",
        ((f"train_run:retransmits:rate5m{R}", "packets per second"),),
        width=6,
    ),
)

CHECKPOINTS = (
    Panel(
        "Work at risk",
        "Time since the state of the newest committed checkpoint.",
        "s",
        ((f"train_run:work_at_risk_seconds:max{R}", "work at risk"),),
        width=6,
    ),
    Panel(
        "Newest checkpoint",
        "Its step, and that of the run.",
        "none",
        (
            (f"train_run:step_count:max{R}", "run"),
            (f"max(last_over_time(<train.checkpoint.step>{R}[15m]))", "checkpoint"),
        ),
        width=6,
    ),
    Panel(
        "Time of a save",
        "Mean of the attempt, by part.",
        "s",
        ((f"train_run:checkpoint_duration_seconds:mean{R}", "{{<@train.checkpoint.phase>}}"),),
        width=6,
    ),
    Panel(
        "Size",
        "Of the newest checkpoint; a change without a change of the model is a missing shard.",
        "bytes",
        ((f"max(last_over_time(<train.checkpoint.size>{R}[1h]))", "size"),),
        width=6,
    ),
)

FAULTS = (
    Panel(
        "Time by category",
        "Share of the time by category; they add up to one.",
        "percentunit",
        (
            (
                f"sum by (<@train.time.category>) (rate(train_run:time_seconds:max{R}[10m]))",
                "{{<@train.time.category>}}",
            ),
        ),
        stacked=True,
        maximum=1,
        width=6,
    ),
    Panel(
        "Time of a recovery",
        "Mean of all of them, by part.",
        "s",
        ((f"train_run:recovery_duration_seconds:mean{R}", "{{<@train.recovery.phase>}}"),),
        width=6,
    ),
    Panel(
        "Cost of faults",
        "Time of the last hour that went to waiting, restoring, and optimizer steps done again.",
        "s",
        ((f"train_run:recovery_seconds:increase1h{R}", "time"),),
        width=6,
    ),
    Panel(
        "Optimizer steps done again",
        "Since the start of the run.",
        "none",
        ((f"max(last_over_time(<train.step.repeated>{R}[1h]))", "updates"),),
        width=6,
    ),
)

TELEMETRY = (
    Panel(
        "Delay",
        "From a moment to the record of it, at most.",
        "s",
        ((f"train_run:telemetry_lag_seconds:max{R}", "delay"),),
    ),
    Panel(
        "Writers and records dropped",
        "Records that writers had and did not write in ten minutes.",
        "none",
        (
            (f"train_run:telemetry_dropped:increase10m{R}", "dropped"),
            (f"count(group by (instance) (<train.telemetry.lag>{R}))", "writers"),
        ),
    ),
    Panel(
        "Clocks",
        "How far a clock can be off: the ten worst nodes.",
        "s",
        ((f"topk(10, train_host:clock_distance_seconds:max{R})", "{{<host>}}"),),
    ),
)
