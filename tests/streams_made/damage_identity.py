"""Damages names, scopes, writers and the set of writers."""

from __future__ import annotations

import uuid
from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Event, ExtensionMetric, HistogramValue, Sample

from .damage import on_streams
from .edits import (
    Record,
    Streams,
    edit,
    edit_heads,
    has,
    is_event,
    is_of,
    moment,
    with_keys,
    with_values,
    without,
)
from .emitter import Stream
from .run import Run


@on_streams("TS-TEL-071", "TS-TEL-028")
def no_device_records(run: Run) -> Streams:
    """No node agent writes anything, so that nothing of any device is seen."""
    return tuple(stream for stream in run.streams if not is_of(stream, "node/"))


@on_streams("TS-TEL-004")
def missing_metric(run: Run) -> Streams:
    """The norm of the gradient, which every run owes, is never written."""
    return edit(run.streams, "job", lambda record: without(record, "train.gradient.norm"))


@on_streams("TS-TEL-004", base="faults")
def missing_after_restart(run: Run) -> Streams:
    """A required metric is written in the first attempt only."""
    return edit(run.streams, "node/", lambda record: without(record, "train.accelerator.matrix.active"), attempt=1)


@on_streams("TS-TEL-003", "TS-TEL-004")
def all_step_values_gone(run: Run) -> Streams:
    """The job writes its events and no values."""
    return edit(run.streams, "job", lambda record: record if isinstance(record, Event) else None)


@on_streams("TS-TEL-005")
def misspelt_metric(run: Run) -> Streams:
    """The loss is written under a name with two letters swapped."""
    return edit(
        run.streams, "job", lambda r: with_keys(r, lambda key: key.replace("train.loss.mean", "train.loss.maen"))
    )


@on_streams("TS-TEL-005")
def foreign_metric_name(run: Run) -> Streams:
    """Temperatures have the name that an exporter gives them, not that of the catalog."""
    key = "hw.temperature{hw.sensor_location=core}"
    return edit(run.streams, "node/", lambda r: with_keys(r, lambda k: "dcgm_fi_dev_gpu_temp" if k == key else k))


@on_streams("TS-TEL-005", "TS-TEL-044")
def misspelt_event(run: Run) -> Streams:
    """The end of evaluations has a name that no catalog knows."""

    def change(record: Record) -> Record:
        if is_event(record, "train.evaluation.end"):
            return replace(record, name="train.evaluation.finished")
        return record

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-007")
def unit_in_the_name(run: Run) -> Streams:
    """A vendor's metric says its unit in its name."""
    name = "com.example.pump.pressure_bytes"
    declared = {name: ExtensionMetric(unit="By", instrument="gauge")}

    def change(record: Record) -> Record:
        return replace(record, m={**record.m, name: 4.0e5 + record.seq}) if has(record, "hw.power") else record

    return edit(edit_heads(run.streams, "node/", extension_metrics=declared), "node/", change)


@on_streams("TS-TEL-008")
def histogram_for_gauge(run: Run) -> Streams:
    """The rate of tokens, a gauge, is written as a histogram."""

    def change(value: Any) -> HistogramValue:
        return HistogramValue(count=1, sum=value, min=value, max=value)

    return edit(run.streams, "job", lambda record: with_values(record, "train.token.rate", change))


@on_streams("TS-TEL-008")
def number_for_histogram(run: Run) -> Streams:
    """The latency between nodes, a histogram, is written as the mean."""
    change = lambda value: value.sum / value.count  # noqa: E731
    return edit(run.streams, "node/", lambda record: with_values(record, "train.network.latency", change))


@on_streams("TS-TEL-009", "TS-TEL-010")
def job_metric_on_ranks(run: Run) -> Streams:
    """Every rank writes the loss of the job as its own."""
    loss = {"train.loss.mean{train.loss.name=total}": 3.1}

    def change(record: Record) -> Record:
        return replace(record, m={**record.m, **loss}) if has(record, "train.step.duration") else record

    return edit(run.streams, "rank-", change)


@on_streams("TS-TEL-009")
def device_without_name(run: Run) -> Streams:
    """Records of devices do not say which device they are of."""
    return edit(run.streams, "node/", lambda r: replace(r, device=None) if has(r, "hw.power") else r)


@on_streams("TS-TEL-010")
def second_job_writer(run: Run) -> Streams:
    """A second program writes the values of the job too, a little later."""
    job = run.streams[0]
    late = [replace(r, time_us=r.time_us + 300_000, observed_us=None) for r in job.records if isinstance(r, Sample)]
    last = job.records[-1].time_us
    kept = tuple(replace(r, seq=number) for number, r in enumerate(r for r in late if r.time_us < last))
    return (*run.streams, Stream(replace(job.head, emitter="job-of-rank-4"), kept))


@on_streams("TS-TEL-011")
def missing_series_attribute(run: Run) -> Streams:
    """The loss does not say which loss it is."""
    return edit(run.streams, "job", lambda r: with_keys(r, lambda k: k.replace("{train.loss.name=total}", "")))


@on_streams("TS-TEL-011")
def missing_declared_attribute(run: Run) -> Streams:
    """The head does not say which peak the utilisation is measured against."""
    job = run.streams[0]
    declared = {name: value for name, value in job.head.declared.items() if name != "train.flops.peak"}
    return (Stream(replace(job.head, declared=declared), job.records), *run.streams[1:])


@on_streams("TS-TEL-011")
def value_outside_closed_list(run: Run) -> Streams:
    """Idle time is counted under a category that does not exist."""
    change = lambda key: key.replace("train.time.category=idle", "train.time.category=coffee")  # noqa: E731
    return edit(run.streams, "job", lambda record: with_keys(record, change))


@on_streams("TS-TEL-011")
def event_without_attributes(run: Run) -> Streams:
    """Commits do not say where the checkpoint lies nor what it outlives."""
    identifier = "train.checkpoint.id"

    def change(record: Record) -> Record:
        if is_event(record, "train.checkpoint.commit"):
            return replace(record, a={identifier: record.a[identifier]})
        return record

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-011")
def unknown_status(run: Run) -> Streams:
    """The run ends with a status that does not exist."""

    def change(record: Record) -> Record:
        if is_event(record, "train.run.end"):
            return replace(record, a={**record.a, "train.run.status": "aborted"})
        return record

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-027")
def silent_ranks(run: Run) -> Streams:
    """Every second rank writes nothing at all."""
    silent = {f"rank-{rank:06}" for rank in range(1, run.shape.world_size, 2)}
    return tuple(stream for stream in run.streams if stream.head.emitter not in silent)


@on_streams("TS-TEL-027", "TS-TEL-021")
def rank_silent_for_a_while(run: Run) -> Streams:
    """One rank writes nothing for two minutes."""
    begin = moment(run.streams, 0.4)
    end = begin + 120_000_000
    return edit(run.streams, "rank-000005", lambda record: None if begin < record.time_us < end else record)


@on_streams("TS-TEL-028", "TS-TEL-081")
def missing_device(run: Run) -> Streams:
    """One device of a node is never seen."""
    gone = run.shape.devices(run.shape.hosts[1])[2]
    return edit(run.streams, "node/", lambda record: None if record.device == gone else record)


@on_streams("TS-TEL-028", "TS-TEL-027", "TS-TEL-021", "TS-TEL-023")
def device_falls_off(run: Run) -> Streams:
    """One device is not seen any more from the middle of the run on, and no event says so."""
    gone, begin = run.shape.devices(run.shape.hosts[1])[2], moment(run.streams, 0.5)
    return edit(run.streams, "node/", lambda r: None if r.device == gone and r.time_us > begin else r)


@on_streams("TS-TEL-029")
def identity_drift(run: Run) -> Streams:
    """From the middle on the devices of a node and the ranks on them name them with `.1` at the end."""
    host, begin = run.shape.hosts[1], moment(run.streams, 0.5)
    devices = set(run.shape.devices(host))

    def agent(record: Record) -> Record:
        if record.device in devices and record.time_us > begin:
            return replace(record, device=f"{record.device}.1")
        return record

    found = edit(run.streams, f"node/{host}", agent)
    for stream in found:
        if is_of(stream, "rank-") and stream.head.device in devices:
            name = f"{stream.head.device}.1"
            found = edit(
                found, stream.head.emitter, lambda r, name=name: replace(r, device=name) if r.time_us > begin else r
            )
    return found


@on_streams("TS-TEL-030")
def wrong_world_size(run: Run) -> Streams:
    """The head of one rank says that the job has twice as many ranks."""
    return edit_heads(run.streams, "rank-000002", world_size=2 * run.shape.world_size)


@on_streams("TS-TEL-030")
def rank_beyond_world(run: Run) -> Streams:
    """One rank numbers itself beyond the size of the world."""
    return edit_heads(run.streams, "rank-000007", rank=1_000_003)


@on_streams("TS-TEL-067", "TS-TEL-030")
def wrong_parallel_degree(run: Run) -> Streams:
    """The tensor-parallel coordinate of a rank is larger than the world."""
    return edit_heads(run.streams, "rank-000003", declared={"train.parallel.tensor.rank": 1_000_003})


@on_streams("TS-TEL-053")
def step_in_a_name(run: Run) -> Streams:
    """The name of the loss holds the number of the step, so that each step is a series of its own."""

    def change(record: Record) -> Record:
        return with_keys(
            record, lambda key: key.replace("train.loss.name=total", f"train.loss.name=step-{record.step}")
        )

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-053", "TS-TEL-029", "TS-TEL-028")
def new_device_names_each_time(run: Run) -> Streams:
    """Devices have a new name in each record, so that every value is a series of its own."""

    def change(record: Record) -> Record:
        if record.device is None:
            return record
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{record.device}/{record.seq}")
        return replace(record, device=f"GPU-{name}")

    return edit(run.streams, "node/", change)
