"""Makes a run depart from its cluster profile, its plan and its checkpoint policy."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import HistogramValue

from .damage import on_streams
from .damage_life import shifted
from .edits import Record, Streams, edit, edit_heads, events, is_event, metric_of, moment, moved, with_keys, with_values
from .emitter import Stream
from .run import Run

SECOND = 1_000_000


def _all_values(run: Run, emitter: str, metric: str, factor: float) -> Streams:
    return edit(run.streams, emitter, lambda record: with_values(record, metric, lambda value: value * factor))


def _on_events(streams: Streams, name: str, **attributes: Any) -> Streams:
    laid = {key.replace("__", "."): value for key, value in attributes.items()}
    return edit(streams, "job", lambda r: replace(r, a={**r.a, **laid}) if is_event(r, name) else r)


@on_streams("TS-TEL-006")
def two_names_for_one_metric(run: Run) -> Streams:
    """The devices of one node write the synonym of a metric, those of the other node its name."""
    old, new = "hw.gpu.utilization", "train.accelerator.busy"
    host = run.shape.hosts[1]
    return edit(run.streams, f"node/{host}", lambda r: with_keys(r, lambda key: new if key == old else key))


@on_streams("TS-TEL-060", "TS-TEL-045")
def copies_that_die_with_the_process(run: Run) -> Streams:
    """All checkpoints lie in the memory of the process and outlive nothing else."""
    durability = {"train__checkpoint__durability": "process", "train__checkpoint__location": "host-memory"}
    return _on_events(run.streams, "train.checkpoint.commit", **durability)


@on_streams("TS-TEL-061", "TS-TEL-045")
def slow_commits(run: Run) -> Streams:
    """Saves are committed two minutes after they began."""
    return shifted(run.streams, "train.checkpoint.commit", 110)


@on_streams("TS-TEL-061")
def saves_that_block(run: Run) -> Streams:
    """The blocking part of saves is a hundred times as long as the policy says."""
    key = "train.checkpoint.duration{train.checkpoint.phase=blocking}"

    def longer(value: HistogramValue) -> HistogramValue:
        seconds = value.sum * 100
        return replace(value, sum=seconds, min=seconds, max=seconds)

    return edit(run.streams, "job", lambda record: with_values(record, key, longer))


@on_streams("TS-TEL-062")
def checkpoint_of_another_size(run: Run) -> Streams:
    """Checkpoints hold half of the bytes that the policy says."""
    return _all_values(run, "job", "train.checkpoint.size", 0.5)


@on_streams("TS-TEL-063")
def another_batch(run: Run) -> Streams:
    """Optimizer steps have twice the batch of the plan, by the gauge and by the counts."""
    found = run.streams
    for metric in ("train.batch.size", "train.sample.count", "train.token.count", "train.token.rate"):
        found = edit(found, "job", lambda r, metric=metric: with_values(r, metric, lambda value: value * 2))
    return found


@on_streams("TS-TEL-064", "TS-TEL-038")
def fewer_tokens(run: Run) -> Streams:
    """Optimizer steps read a tenth less tokens than the plan gives them."""
    found = run.streams
    for metric in ("train.token.count", "train.token.rate", "train.flops.utilization"):
        found = edit(found, "job", lambda r, metric=metric: with_values(r, metric, lambda value: value * 0.9))
    return found


@on_streams("TS-TEL-089")
def tenfold_rate(run: Run) -> Streams:
    """The learning rate is ten times that of the plan in each step."""
    return _all_values(run, "job", "train.learning_rate", 10)


@on_streams("TS-TEL-066", "TS-TEL-030")
def another_world(run: Run) -> Streams:
    """The attempt starts with half of the ranks of the plan, by its event and by all heads."""
    num = run.shape.world_size // 2
    kept = tuple(s for s in run.streams if s.head.rank is None or s.head.rank < num)
    found = edit_heads(kept, "", world_size=num)
    found = edit(found, "job", lambda r: with_values(r, "train.world.active", lambda _: num))
    return _on_events(found, "train.attempt.start", train__world__size=num)


@on_streams("TS-TEL-080", "TS-TEL-066", "TS-TEL-030")
def more_ranks_than_devices(run: Run) -> Streams:
    """The attempt says that it has more ranks than the cluster has accelerators."""
    found = edit_heads(run.streams, "", world_size=4096)
    return _on_events(found, "train.attempt.start", train__world__size=4096)


@on_streams("TS-TEL-067")
def swapped_coordinates(run: Run) -> Streams:
    """Two ranks have swapped their tensor-parallel coordinates."""
    found = edit_heads(run.streams, "rank-000001", declared={"train.parallel.tensor.rank": 2})
    return edit_heads(found, "rank-000002", declared={"train.parallel.tensor.rank": 1})


@on_streams("TS-TEL-068")
def memory_of_another_device(run: Run) -> Streams:
    """Devices have three quarters of the memory that the profile says."""
    found = _all_values(run, "node/", "hw.gpu.memory.limit", 0.8)
    return edit(found, "node/", lambda r: with_values(r, "hw.gpu.memory.usage", lambda value: value * 0.8))


@on_streams("TS-TEL-069")
def power_above_the_profile(run: Run) -> Streams:
    """Devices draw half as much again as the profile says, by power and by energy."""
    found = _all_values(run, "node/", "hw.power", 1.5)
    return edit(found, "node/", lambda r: with_values(r, "hw.energy", lambda value: value * 1.5))


@on_streams("TS-TEL-082", "TS-TEL-039")
def sparse_peak(run: Run) -> Streams:
    """The declared peak is the sparse one, twice what the profile says, and the utilisation follows it."""
    found = edit_heads(run.streams, "job", declared={"train.flops.peak": 1979e12})
    for metric in ("train.flops.utilization", "train.flops.hardware_utilization"):
        found = edit(found, "job", lambda r, metric=metric: with_values(r, metric, lambda v: v * 989 / 1979))
    return _on_events(found, "train.run.start", train__flops__peak=1979e12)


@on_streams("TS-TEL-083", "TS-TEL-050")
def clocks_apart(run: Run) -> Streams:
    """The clocks of two nodes are 5 ms apart, fifty times what the profile allows, and known to within 30 us."""
    host = run.shape.hosts[1]
    change = lambda r: with_values(r, "train.clock.offset", lambda value: value + 0.005)  # noqa: E731
    return edit(run.streams, f"node/{host}", change)


# --- recovery


@on_streams("TS-REC-015", "TS-REC-005", base="faults")
def more_time_lost_than_promised(run: Run) -> Streams:
    """The steps between the last save and the fault take fourteen times as long, so that more time is lost."""
    saves = events(run.streams, "train.checkpoint.commit")
    end = events(run.streams, "train.fault.detected")[0].time_us
    begin = max(save.time_us for save in saves if save.time_us < end)
    factor = 14

    def later(time: int) -> int:
        return time + (factor - 1) * max(0, min(time, end) - begin)

    def change(record: Record) -> Record:
        here = moved(record, later)
        key, gained = "train.goodput.time{train.time.category=productive}", here.time_us - record.time_us
        here = with_values(here, key, lambda value: value + gained / SECOND)
        if begin < record.time_us < end:
            here = with_values(here, "train.step.duration", lambda value: value * factor)
        return here

    found = edit(run.streams, "", change)
    return tuple(Stream(replace(s.head, time_us=later(s.head.time_us)), s.records) for s in found)


@on_streams("TS-REC-016", base="faults")
def fault_that_the_policy_does_not_foresee(run: Run) -> Streams:
    """What failed is the network, for which the policy has no recovery path."""
    return _on_events(run.streams, "train.fault.detected", train__fault__class="network")


@on_streams("TS-REC-017", base="faults")
def phases_that_do_not_add_up(run: Run) -> Streams:
    """The total of the recovery is half of its phases."""
    key = "train.recovery.duration{train.recovery.phase=total}"

    def half(value: HistogramValue) -> HistogramValue:
        return replace(value, sum=value.sum / 2, min=value.sum / 2, max=value.sum / 2)

    return edit(run.streams, "job", lambda record: with_values(record, key, half))


@on_streams("TS-REC-019", "TS-TEL-044", base="faults")
def old_attempt_goes_on(run: Run) -> Streams:
    """Ranks of the first attempt complete optimizer steps after the second attempt has started."""
    start = events(run.streams, "train.attempt.start")[1].time_us
    last = max(
        (r for s in run.streams if s.head.emitter == "job" and not s.head.att for r in s.records if _counts(r)),
        key=lambda record: record.time_us,
    )

    def change(record: Record) -> Record | tuple[Record, Record]:
        if record is not last:
            return record
        step = (last.step or 0) + 1
        late = replace(last, time_us=start + 20 * SECOND, observed_us=None, step=step)
        return last, with_values(late, "train.step.count", lambda _: step)

    return edit(run.streams, "job", change, attempt=0)


def _counts(record: Record) -> bool:
    return any(metric_of(key) == "train.step.count" for key in record.m) and "train.step.duration" in record.m


@on_streams("TS-REC-020", base="faults")
def another_action_than_declared(run: Run) -> Streams:
    """The job shrinks after the loss of a node, where the policy takes a spare."""
    found = _on_events(run.streams, "train.recovery.begin", train__recovery__action="shrink")
    return _on_events(found, "train.recovery.end", train__recovery__action="shrink")


@on_streams("TS-REC-021", base="faults")
def repeated_updates_not_counted(run: Run) -> Streams:
    """The recovery says that no step was executed again."""

    def change(record: Record) -> Record:
        if is_event(record, "train.recovery.end"):
            return with_values(record, "train.step.repeated", lambda _: 0)
        return record

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-073", "TS-TEL-052")
def a_tenth_is_lost(run: Run) -> Streams:
    """One record in ten of the ranks is lost in the last half of the run."""
    begin = moment(run.streams, 0.5)
    change = lambda r: None if r.time_us > begin and r.seq % 10 == 5 else r  # noqa: E731
    return edit(run.streams, "rank-", change, renumber=False)


@on_streams("TS-TEL-070")
def no_gradient_variance(run: Run) -> Streams:
    """The variance of the gradient, which the full profile owes, is never written."""
    return edit(run.streams, "job", lambda record: None if "train.gradient.variance" in record.m else record)


@on_streams("TS-TEL-072", "TS-TEL-018")
def values_written_twice(run: Run) -> Streams:
    """Every value of devices is written twice, with a sequence number of its own."""
    return edit(run.streams, "node/", lambda r: (r, r) if "hw.power{hw.type=gpu}" in r.m else r)
