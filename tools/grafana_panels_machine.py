"""Defines the panels of a run's dashboard on its machine, its checkpoints and its stream."""

from __future__ import annotations

from grafana_panels import Panel, R

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
        "Its update, and that of the run.",
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
        "What the time goes to",
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
        "Time of the last hour that went to waiting, restoring, and updates done again.",
        "s",
        ((f"train_run:recovery_seconds:increase1h{R}", "time"),),
        width=6,
    ),
    Panel(
        "Updates done again",
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
