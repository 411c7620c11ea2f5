"""Defines the alerts on the states of a run."""

from __future__ import annotations

from promql import Alert, Group

from trainspec_validate.telemetry.checks.clocks import LARGEST_OFFSET_SECONDS
from trainspec_validate.telemetry.checks.pace import DRIFT, SLOW_FACTOR
from trainspec_validate.telemetry.checks.transport import LONGEST_LAG_SECONDS
from trainspec_validate.telemetry.checks.work import BUSY_SHARE, WORK_SHARE

CRITICAL, WARNING = "critical", "warning"

PROGRESS = (
    Alert(
        *("TrainRunSilent", WARNING, "", "TS-TEL-023"),
        "Run {{ $labels.<run> }} has written nothing for five minutes",
        "The job ended, or it or its telemetry died. It clears after an hour: page on the state of the scheduler.",
        """
group by (<run>) (present_over_time(<train.step.count>[1h]))
unless group by (<run>) (present_over_time(<train.step.count>[5m]))""",
    ),
    Alert(
        *("TrainNoProgress", CRITICAL, "", "TS-TEL-033"),
        "Run {{ $labels.<run> }} completes no step while its devices are busy",
        "Busy devices are no progress: a collective that hangs keeps them at 100 %. Look for the rank that is behind.",
        f"""
(
  changes(train_run:step_count:max[15m]) == 0
  and train_run:step_count:max
  and train_run:step_count:max offset 15m
)
and on (<run>) train_run:busy:avg > {BUSY_SHARE:g}
unless on (<run>) sum by (<run>) (
  rate(train_run:time_seconds:max{{<@train.time.category>=~"evaluation|checkpoint_.+|initialization"}}[5m])
) > 0.5""",
    ),
    Alert(
        *("TrainStalled", CRITICAL, "", "TS-CKP-039"),
        "Run {{ $labels.<run> }} has completed no step for an hour",
        "The reported activity does not matter: an evaluation or a save of an hour is a hang until shown otherwise.",
        """
changes(train_run:step_count:max[1h]) == 0
and train_run:step_count:max
and train_run:step_count:max offset 1h""",
    ),
    Alert(
        *("TrainSlowedDown", WARNING, "15m", "TS-TEL-036"),
        "Optimizer steps of run {{ $labels.<run> }} take {{ $value | humanizePercentage }} of what they took",
        "The time of a step rose without a change of the batch or of the ranks. One slow node is enough.",
        f"""
(
    avg_over_time(train_run:step_duration_seconds:mean[30m])
  / quantile_over_time(0.5, train_run:step_duration_seconds:mean[6h] offset 30m)
) > {1 + DRIFT:g}
unless on (<run>) max by (<run>) (changes(<train.batch.size>[6h])) > 0
unless on (<run>) max by (<run>) (changes(<train.world.active>[6h])) > 0""",
    ),
    Alert(
        *("TrainLossNotFinite", CRITICAL, "", "TS-TEL-042"),
        "The loss of run {{ $labels.<run> }} is not finite",
        "Steps from here on are worthless unless they are skipped. Find the first step, then restore from before it.",
        """
max by (<run>, <@train.loss.name>) (<train.loss.mean> != <train.loss.mean>)
or
max by (<run>, <@train.loss.name>) (abs(<train.loss.mean>) == Inf)""",
    ),
    Alert(
        *("TrainLossFrozen", WARNING, "", "TS-TEL-026"),
        "The loss of run {{ $labels.<run> }} has been {{ $value }} for half an hour of steps",
        "A loss that does not move in its last digit is not computed any more: an export that was reset, or no data.",
        """
max by (<run>, <@train.loss.name>) (
  <train.loss.mean> and max_over_time(<train.loss.mean>[30m]) == min_over_time(<train.loss.mean>[30m])
)
and on (<run>) changes(train_run:step_count:max[30m]) > 20""",
    ),
    Alert(
        *("TrainUpdatesSkipped", WARNING, "", "TS-PRC-010"),
        "Run {{ $labels.<run> }} skipped {{ $value | humanizePercentage }} of its steps",
        "Some overflows are how loss scaling works. One step in ten over half an hour is not.",
        """
sum by (<run>) (increase(<train.step.skipped>[30m]))
  / (
      sum by (<run>) (increase(<train.step.skipped>[30m]))
    + max by (<run>) (increase(<train.step.count>[30m]))
  ) > 0.1""",
    ),
)

RANKS = (
    Alert(
        *("TrainRanksSilent", CRITICAL, "2m", "TS-TEL-027"),
        "{{ $value }} ranks of run {{ $labels.<run> }} do not report",
        "They take part by the count of the job, and wrote nothing for three cadences. Look for a host in common.",
        "train_run:ranks_silent:count > 0",
    ),
    Alert(
        *("TrainRanksApart", CRITICAL, "3m", "TS-TEL-032"),
        "Ranks of run {{ $labels.<run> }} are {{ $value }} optimizer steps apart",
        "More than two steps, and more than two reports of 30 s. Ranks that train together count together.",
        "train_run:rank_step_spread:max > 2 + 60 * (train_run:step_rate:rate5m or train_run:rank_step_spread:max * 0)",
    ),
    Alert(
        *("TrainCollectivesApart", CRITICAL, "2m", "TS-TEL-034"),
        "Ranks of group {{ $labels.<@train.group.name> }} in run {{ $labels.<run> }} stopped in different operations",
        "No rank of the group makes progress, and they are in different operations: the rank behind did not arrive.",
        """
train_group:collective_spread:max > 0
and on (<run>, <attempt>, <@train.group.name>)
  max by (<run>, <attempt>, <@train.group.name>) (changes(<train.collective.sequence>[5m])) == 0""",
    ),
    Alert(
        *("TrainStraggler", WARNING, "10m", "TS-TEL-035"),
        "Rank {{ $labels.<rank> }} on {{ $labels.<host> }} takes {{ $value | humanizePercentage }} of its peers' time",
        "All ranks wait for the slowest. Look at the clock, the temperature and the links of its device first.",
        f"train_rank:slowdown:avg10m > {SLOW_FACTOR:g}",
    ),
)

DEVICES = (
    Alert(
        *("TrainDevicesSilent", WARNING, "5m", "TS-TEL-028"),
        "{{ $value }} devices of run {{ $labels.<run> }} stopped reporting",
        "A device fell off its bus. It clears after an hour, and does not see a device absent from the start.",
        """
(max_over_time(train_run:devices_reporting:count[1h]) - train_run:devices_reporting:count) > 0
unless on (<run>) max by (<run>) (changes(<train.world.active>[1h])) > 0""",
    ),
    Alert(
        *("TrainBusyWithoutWork", WARNING, "10m", "TS-TEL-041"),
        "Devices of run {{ $labels.<run> }} are busy and their matrix units are idle",
        "A kernel that waits counts as busy. The job hangs in communication, or something else runs on the devices.",
        f"train_run:busy:avg > {BUSY_SHARE:g} and on (<run>) train_run:matrix_active:avg < {WORK_SHARE:g}",
    ),
    Alert(
        *("TrainMemoryNearLimit", WARNING, "10m", "TS-MEM-005"),
        "Device {{ $labels.<device> }} of run {{ $labels.<run> }} uses {{ $value | humanizePercentage }} of its memory",
        "The next longer sequence or larger bucket does not fit. Silence it for frameworks that reserve all memory.",
        "train_device:memory_used:ratio > 0.98",
    ),
    Alert(
        *("TrainAllocatorRetries", WARNING, "", "TS-MEM-005"),
        "Rank {{ $labels.<rank> }} of run {{ $labels.<run> }} frees and asks again for memory",
        "Each retry stops the device for long. Memory is fragmented, or the plan is too tight.",
        "sum by (<run>, <rank>) (increase(<train.memory.allocator.retries>[15m])) > 0",
    ),
    Alert(
        *("TrainOutOfMemory", CRITICAL, "", "TS-MEM-004"),
        "Rank {{ $labels.<rank> }} of run {{ $labels.<run> }} ran out of memory",
        "The allocation failed. The attempt ends, or its rank continues with a smaller request than its peers.",
        "sum by (<run>, <rank>) (increase(<train.memory.oom>[15m])) > 0",
    ),
    Alert(
        *("TrainHostMemoryPressure", WARNING, "10m", "TS-MEM-013"),
        "Node {{ $labels.<host> }} of run {{ $labels.<run> }} waits for memory",
        "Input, checkpoints in memory and page cache share the host. It comes before the process is killed.",
        "max by (<run>, <host>) (<train.host.memory.pressure>) > 0.1",
    ),
    Alert(
        *("TrainUncorrectedErrors", CRITICAL, "", "TS-TEL-087"),
        "Component {{ $labels.<device> }} on {{ $labels.<host> }} has {{ $value }} new uncorrected errors",
        "Act by the code in the kernel log: Xid 94 asks for a restart of the job, Xid 95 for a reset of the GPU.",
        """
sum by (<run>, <host>, <device>) (increase(<hw.errors>{<@error.type>="uncorrected"}[15m])) > 0""",
    ),
    Alert(
        *("TrainThrottled", WARNING, "10m", "TS-TEL-036"),
        "Device {{ $labels.<device> }} on {{ $labels.<host> }} is held back: {{ $labels.<@train.throttle.reason> }}",
        "More than one second in twenty. Heat and failing boards are faults; limits of power are often meant.",
        """
train_device:throttled:ratio5m{<@train.throttle.reason>=~"thermal|reliability|board"} > 0.05""",
    ),
)

NETWORK = (
    Alert(
        *("TrainLinkDown", CRITICAL, "", "TS-COM-003"),
        "A link of device {{ $labels.<device> }} on {{ $labels.<host> }} went down or had to recover",
        "It fires on the change. A link that recovers tends to fail again; check the cable and the module.",
        """
(
  sum by (<run>, <host>, <device>) (
    increase(<train.accelerator.link.errors>{<@error.type>=~"link_down|link_recovery"}[15m])
  ) > 0
)
or
(
  sum by (<run>, <host>, <device>) (increase(<hw.errors>{<@error.type>=~"link_down|link_recovery"}[15m])) > 0
)""",
    ),
    Alert(
        *("TrainLatencyRisen", WARNING, "10m", "TS-TEL-084"),
        "Probes of run {{ $labels.<run> }} take {{ $value | humanize }} times as long as before",
        "The slowest hundredth, over all pairs of nodes. The pairs that rose share a switch or an interface.",
        """
train_run:latency_seconds:p99_5m
  / quantile_over_time(0.5, train_run:latency_seconds:p99_5m[6h] offset 30m) > 3""",
    ),
)

RECOVERY = (
    Alert(
        *("TrainCheckpointTooOld", WARNING, "5m", "TS-CKP-016"),
        "A fault would cost run {{ $labels.<run> }} {{ $value | humanizeDuration }} of work",
        "No checkpoint was committed for an hour of updates. Set the limit to the recovery point of the policy.",
        "train_run:work_at_risk_seconds:max > 3600",
    ),
    Alert(
        *("TrainRecoverySlow", CRITICAL, "", "TS-TEL-047"),
        "Run {{ $labels.<run> }} spent {{ $value | humanizeDuration }} of the last hour on faults",
        "Waiting, restoring and steps done again took a quarter of it. Set the limit to the bound of the policy.",
        "train_run:recovery_seconds:increase1h > 900",
    ),
)

STREAM = (
    Alert(
        *("TrainWriterSilent", WARNING, "", "TS-TEL-021"),
        "Writer {{ $labels.instance }} of run {{ $labels.<run> }} fell silent while others write",
        "It wrote within a quarter of an hour and not in the last three minutes. The state of its ranks is not known.",
        """
group by (<run>, instance) (present_over_time(<train.telemetry.lag>[15m]))
unless group by (<run>, instance) (present_over_time(<train.telemetry.lag>[3m]))
and on (<run>) group by (<run>) (present_over_time(<train.telemetry.lag>[3m]))""",
    ),
    Alert(
        *("TrainTelemetryDropped", WARNING, "", "TS-TEL-052"),
        "Writers of run {{ $labels.<run> }} dropped {{ $value | humanize }} records in ten minutes",
        "Lost records look like a stopped job. Make queues longer or write less often.",
        "train_run:telemetry_dropped:increase10m > 0",
    ),
    Alert(
        *("TrainTelemetryLate", WARNING, "5m", "TS-TEL-051"),
        "Records of run {{ $labels.<run> }} come {{ $value | humanizeDuration }} late",
        "Later than two cadences. Alerts on this run are late by as much.",
        f"train_run:telemetry_lag_seconds:max > {LONGEST_LAG_SECONDS:g}",
    ),
    Alert(
        *("TrainClockOff", WARNING, "10m", "TS-TEL-050"),
        "The clock of {{ $labels.<host> }} can be {{ $value | humanizeDuration }} off",
        "Its events cannot be ordered with those of other nodes. Look at its time service.",
        f"train_host:clock_distance_seconds:max > {LARGEST_OFFSET_SECONDS:g}",
    ),
)

GROUPS = (
    Group("trainspec-alerts-progress", PROGRESS),
    Group("trainspec-alerts-ranks", RANKS),
    Group("trainspec-alerts-devices", DEVICES),
    Group("trainspec-alerts-network", NETWORK),
    Group("trainspec-alerts-recovery", RECOVERY),
    Group("trainspec-alerts-stream", STREAM),
)
