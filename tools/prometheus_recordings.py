"""Defines the series that Prometheus computes from the metrics of a run."""

from __future__ import annotations

from promql import Group, Recording

PROGRESS = (
    Recording("train_run:step_count:max", "Optimizer steps completed.", "max by (<run>) (<train.step.count>)"),
    Recording(
        "train_run:step_rate:rate5m",
        "Optimizer steps per second. A new attempt is a new series, so that a restored count is no progress.",
        "max by (<run>) (rate(<train.step.count>[5m]))",
    ),
    Recording(
        "train_run:step_duration_seconds:mean",
        "Time of a step as the job reports it, a gauge or a histogram; steps that warm up are left out.",
        """
max by (<run>) (<train.step.duration>{<rank>="", <@train.step.warmup>!="true"})
or
max by (<run>) (
    rate(<train.step.duration/sum>{<rank>="", <@train.step.warmup>!="true"}[5m])
  / (rate(<train.step.duration/count>{<rank>="", <@train.step.warmup>!="true"}[5m]) > 0)
)""",
    ),
    Recording("train_run:token_rate:max", "Tokens per second of the job.", "max by (<run>) (<train.token.rate>)"),
    Recording(
        "train_run:flops_utilization:max",
        "Model operations per second over the declared peak.",
        "max by (<run>) (<train.flops.utilization>)",
    ),
    Recording(
        "train_run:time_seconds:max",
        "Time since the start of the run by category. It continues over attempts, so it grows over the run.",
        "max by (<run>, <@train.time.category>) (<train.goodput.time>)",
    ),
    Recording(
        "train_run:goodput:ratio1h",
        "Share of the last hour that was productive.",
        """
sum by (<run>) (increase(train_run:time_seconds:max{<@train.time.category>="productive"}[1h]))
  / (sum by (<run>) (increase(train_run:time_seconds:max[1h])) > 0)""",
    ),
    Recording(
        "train_run:goodput:ratio",
        "Share of the whole run that was productive.",
        """
sum by (<run>) (train_run:time_seconds:max{<@train.time.category>="productive"})
  / (sum by (<run>) (train_run:time_seconds:max) > 0)""",
    ),
)

RANKS = (
    Recording(
        "train_run:ranks_reporting:count",
        "Ranks with a value in the last three cadences; 0 while the job reports and no rank does.",
        """
count by (<run>) (group by (<run>, <rank>) (present_over_time(<train.rank.step>[90s])))
or
max by (<run>) (<train.world.active>) * 0""",
    ),
    Recording(
        "train_host:ranks_reporting:count",
        "The same by host; a host without any is missing.",
        "count by (<run>, <host>) (group by (<run>, <host>, <rank>) (present_over_time(<train.rank.step>[90s])))",
    ),
    Recording(
        "train_run:ranks_silent:count",
        "Ranks that take part and do not report.",
        "clamp_min(max by (<run>) (<train.world.active>) - train_run:ranks_reporting:count, 0)",
    ),
    Recording(
        "train_run:rank_step_spread:max",
        "Optimizer steps between the first and the last rank of an attempt.",
        """
max by (<run>) (
  max by (<run>, <attempt>) (<train.rank.step>) - min by (<run>, <attempt>) (<train.rank.step>)
)""",
    ),
    Recording(
        "train_rank:slowdown:avg10m",
        "Own time of a rank over the median of its peers.",
        "max by (<run>, <rank>, <host>) (avg_over_time(<train.rank.slowdown>[10m]))",
    ),
    Recording(
        "train_run:data_wait:ratio5m",
        "Share of the time of ranks that they wait for data.",
        "avg by (<run>) (rate(<train.data.wait.time>[5m]))",
    ),
    Recording(
        "train_group:collective_spread:max",
        "Collective operations between the first and the last rank of a process group.",
        """
max by (<run>, <attempt>, <@train.group.name>) (<train.collective.sequence>)
  - min by (<run>, <attempt>, <@train.group.name>) (<train.collective.sequence>)""",
    ),
)

DEVICES = (
    Recording(
        "train_device:busy:ratio",
        "Share of the time in which a device runs anything, by either of its names.",
        "max by (<run>, <host>, <device>) (<hw.gpu.utilization> or <train.accelerator.busy>)",
    ),
    Recording(
        "train_device:memory_used:ratio",
        "Memory in use over what the device has. The limit is written at most every 300 s.",
        """
max by (<run>, <host>, <device>) (<hw.gpu.memory.usage> or <train.accelerator.memory.usage>)
  / (
    max by (<run>, <host>, <device>) (
      last_over_time(<hw.gpu.memory.limit>[15m]) or last_over_time(<train.accelerator.memory.limit>[15m])
    ) > 0
  )""",
    ),
    Recording(
        "train_device:throttled:ratio5m",
        "Share of the time in which the clock was held down, by reason.",
        "max by (<run>, <host>, <device>, <@train.throttle.reason>) (rate(<train.accelerator.throttle.time>[5m]))",
    ),
    Recording("train_run:busy:avg", "Mean over devices.", "avg by (<run>) (train_device:busy:ratio)"),
    Recording(
        "train_run:matrix_active:avg",
        "Mean over devices.",
        "avg by (<run>) (max by (<run>, <host>, <device>) (<train.accelerator.matrix.active>))",
    ),
    Recording(
        "train_run:devices_reporting:count",
        "Devices with a value in the last three cadences.",
        """
count by (<run>) (
  group by (<run>, <host>, <device>) (
    present_over_time(<hw.gpu.utilization>[90s]) or present_over_time(<train.accelerator.busy>[90s])
  )
)""",
    ),
    Recording(
        "train_run:power_watts:rate5m",
        "Power from energy counters, by kind of component; device and node are not added up.",
        "sum by (<run>, <@hw.type>) (rate(<hw.energy>[5m]))",
    ),
    Recording(
        "train_run:errors:increase15m",
        "Errors of devices and interfaces in a quarter of an hour, by kind.",
        "sum by (<run>, <@error.type>) (increase(<hw.errors>[15m]))",
    ),
)

NETWORK = (
    Recording(
        "train_run:network_bytes:rate5m",
        "Bytes per second of network interfaces, by direction.",
        "sum by (<run>, <@network.io.direction>) (rate(<hw.network.io>[5m]))",
    ),
    Recording(
        "train_run:link_bytes:rate5m",
        "Bytes per second of scale-up links, by direction.",
        "sum by (<run>, <@network.io.direction>) (rate(<train.accelerator.link.io>[5m]))",
    ),
    Recording(
        "train_run:retransmits:rate5m",
        "Packets sent again per second.",
        "sum by (<run>) (rate(<train.network.retransmits>[5m]))",
    ),
    Recording(
        "train_run:link_errors:increase15m",
        "Errors of scale-up links in a quarter of an hour, by kind.",
        "sum by (<run>, <@error.type>) (increase(<train.accelerator.link.errors>[15m]))",
    ),
    Recording(
        "train_pair:latency_seconds:p99_5m",
        "Round trip of probes that 1 in 100 exceeds, by pair of nodes.",
        """
histogram_quantile(0.99,
  sum by (<run>, <@train.network.source>, <@train.network.target>, le) (rate(<train.network.latency/bucket>[5m]))
)""",
    ),
    Recording(
        "train_run:latency_seconds:p99_5m",
        "Round trip of probes that 1 in 100 exceeds, over all pairs.",
        "histogram_quantile(0.99, sum by (<run>, le) (rate(<train.network.latency/bucket>[5m])))",
    ),
    Recording(
        "train_run:latency_seconds:p50_5m",
        "Round trip of probes that half exceed, over all pairs.",
        "histogram_quantile(0.5, sum by (<run>, le) (rate(<train.network.latency/bucket>[5m])))",
    ),
)

RECOVERY = (
    Recording(
        "train_run:work_at_risk_steps:max",
        "Optimizer steps since the newest committed checkpoint: what a fault would cost now.",
        """
clamp_min(
  train_run:step_count:max - max by (<run>) (last_over_time(<train.checkpoint.step>[15m])), 0
)""",
    ),
    Recording(
        "train_run:work_at_risk_seconds:max",
        "The same in time, by the present time of an update.",
        "train_run:work_at_risk_steps:max * train_run:step_duration_seconds:mean",
    ),
    Recording(
        "train_run:checkpoint_duration_seconds:mean",
        "Mean time of the saves of an attempt, by part.",
        """
max by (<run>, <@train.checkpoint.phase>) (
  <train.checkpoint.duration/sum> / (<train.checkpoint.duration/count> > 0)
)""",
    ),
    Recording(
        "train_run:recovery_duration_seconds:mean",
        "Mean time of recoveries, by part.",
        """
max by (<run>, <@train.recovery.phase>) (
  <train.recovery.duration/sum> / (<train.recovery.duration/count> > 0)
)""",
    ),
    Recording(
        "train_run:recovery_seconds:increase1h",
        "Time in the last hour that went to faults: waiting, restoring, and optimizer steps done again.",
        """
sum by (<run>) (
  increase(train_run:time_seconds:max{<@train.time.category>=~"fault_wait|checkpoint_restore|replay"}[1h])
)""",
    ),
)

STREAM = (
    Recording(
        "train_run:telemetry_dropped:increase10m",
        "Records that writers had and did not write.",
        "sum by (<run>) (increase(<train.telemetry.dropped>[10m]))",
    ),
    Recording(
        "train_run:telemetry_lag_seconds:max",
        "Longest time from a moment to the record of it.",
        "max by (<run>) (<train.telemetry.lag>)",
    ),
    Recording(
        "train_host:clock_distance_seconds:max",
        "How far the clock of a node can be from its reference.",
        "max by (<run>, <host>) (abs(<train.clock.offset>)) + max by (<run>, <host>) (<train.clock.error>)",
    ),
)

GROUPS = (
    Group("trainspec-progress", PROGRESS),
    Group("trainspec-ranks", RANKS),
    Group("trainspec-devices", DEVICES),
    Group("trainspec-network", NETWORK),
    Group("trainspec-recovery", RECOVERY),
    Group("trainspec-stream", STREAM),
)
