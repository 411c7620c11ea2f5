"""Damages values: units, ranges, sentinels, values that do not move or do not fit one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from trainspec_validate.documents.types.stream import Event, Sample

from .damage import on_streams
from .edits import Record, Streams, edit, edit_heads, has, moment, with_values
from .emitter import Stream
from .run import Run

LOSS = "train.loss.mean"


def _scaled(run: Run, emitter: str, metric: str, factor: float) -> Streams:
    change: Callable[[Any], Any] = lambda value: value * factor  # noqa: E731
    return edit(run.streams, emitter, lambda record: with_values(record, metric, change))


def _later(run: Run, emitter: str, metric: str, change: Callable[[Any], Any], share: float = 0.5) -> Streams:
    """Change values of a metric from some share of the run on."""
    begin = moment(run.streams, share)
    return edit(run.streams, emitter, lambda r: with_values(r, metric, change) if r.time_us > begin else r)


@on_streams("TS-TEL-012", "TS-TEL-013")
def percent_for_fraction(run: Run) -> Streams:
    """Utilisation of devices is written in per cent."""
    return _scaled(run, "node/", "hw.gpu.utilization", 100)


@on_streams("TS-TEL-055")
def exploding_loss(run: Run) -> Streams:
    """The loss is a billion times larger from the middle on."""
    begin = moment(run.streams, 0.5)

    def change(record: Record) -> Record:
        return record if record.time_us < begin else with_values(record, LOSS, lambda value: value * 1e9)

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-088")
def lost_loss(run: Run) -> Streams:
    """The loss is not a number from the middle on, and no step is skipped."""
    return _later(run, "job", LOSS, lambda _: "NaN")


@on_streams("TS-TEL-090")
def exploded_gradient(run: Run) -> Streams:
    """The gradient norm is a million times larger from the middle on."""
    return _later(run, "job", "train.gradient.norm", lambda value: value * 1e6)


@on_streams("TS-TEL-026")
def loss_of_two_digits(run: Run) -> Streams:
    """The loss keeps one value of two digits from the middle on."""
    begin = moment(run.streams, 0.5)

    def change(record: Record) -> Record:
        return record if record.time_us < begin else with_values(record, LOSS, lambda _: 2.5)

    return edit(run.streams, "job", change)


@on_streams("TS-TEL-012")
def negative_step_times(run: Run) -> Streams:
    """Times of steps are negative."""
    return edit(run.streams, "job", lambda record: with_values(record, "train.step.duration", lambda _: -5.0))


@on_streams("TS-TEL-012")
def temperature_of_a_furnace(run: Run) -> Streams:
    """One device reads 4,000 degrees once."""
    first = run.shape.devices(run.shape.hosts[0])[0]
    begin = moment(run.streams, 0.5)
    done = []

    def change(record: Record) -> Record:
        if record.device != first or record.time_us < begin or done:
            return record
        done.append(record)
        return with_values(record, "hw.temperature{hw.sensor_location=core}", lambda _: 4000.0)

    return edit(run.streams, "node/", change)


@on_streams("TS-TEL-012")
def usage_above_limit(run: Run) -> Streams:
    """A device uses more memory than it has."""
    first = run.shape.devices(run.shape.hosts[0])[0]
    change = lambda r: with_values(r, "hw.gpu.memory.usage", lambda v: v + 30e9) if r.device == first else r  # noqa: E731
    return edit(run.streams, "node/", change)


@on_streams("TS-TEL-013")
def memory_in_mebibytes(run: Run) -> Streams:
    """Memory in use is written in MiB."""
    return edit(run.streams, "node/", lambda r: with_values(r, "hw.gpu.memory.usage", lambda v: v // 2**20))


@on_streams("TS-TEL-013")
def milliseconds_for_seconds(run: Run) -> Streams:
    """Times of steps are written in milliseconds, a thousand times too large."""
    return _scaled(run, "job", "train.step.duration", 1000)


@on_streams("TS-TEL-013")
def kiloseconds_for_seconds(run: Run) -> Streams:
    """Times of steps are a thousand times too small."""
    return _scaled(run, "job", "train.step.duration", 0.001)


@on_streams("TS-TEL-014")
def sentinel_value(run: Run) -> Streams:
    """The temperature of the memory is the number that a driver gives for 'not supported'."""
    key = "hw.temperature{hw.sensor_location=memory}"
    return edit(run.streams, "node/", lambda r: with_values(r, key, lambda _: 9223372036854775794.0))


@on_streams("TS-TEL-014")
def sentinel_of_a_counter(run: Run) -> Streams:
    """Counts of retransmits are all ones in 32 bits, once."""
    begin = moment(run.streams, 0.5)
    end = begin + 11_000_000
    change: Callable[[Any], Any] = lambda _: 4294967295  # noqa: E731
    metric = "train.network.retransmits"
    return edit(run.streams, "node/", lambda r: with_values(r, metric, change) if begin < r.time_us < end else r)


@on_streams("TS-TEL-015")
def not_a_number(run: Run) -> Streams:
    """The power of devices is 'not a number', which stands for a value that is missing."""
    return _later(run, "node/", "hw.power", lambda _: "NaN", 0.8)


@on_streams("TS-TEL-015")
def infinite_counter(run: Run) -> Streams:
    """A count of tokens is infinite."""
    return _later(run, "job", "train.token.count{train.token.kind=all}", lambda _: "+Inf", 0.95)


@on_streams("TS-TEL-024")
def falling_energy(run: Run) -> Streams:
    """The energy counter of all devices begins anew in the middle of the run and keeps its start."""
    begin = moment(run.streams, 0.5)
    floor: dict[str | None, float] = {}

    def change(record: Record) -> Record:
        if record.time_us < begin or not has(record, "hw.energy"):
            return record
        low = floor.setdefault(record.device, record.m["hw.energy{hw.type=gpu}"])  # type: ignore[arg-type]
        return with_values(record, "hw.energy", lambda value: value - low)

    return edit(run.streams, "node/", change)


@on_streams("TS-TEL-024", "TS-TEL-031")
def falling_tokens(run: Run) -> Streams:
    """The count of tokens falls once to what it was ten steps before, and goes on from there."""
    ten = 10 * run.shape.batch_tokens
    return _later(run, "job", "train.token.count{train.token.kind=all}", lambda value: value - ten)


@on_streams("TS-TEL-025")
def counters_reset_again_and_again(run: Run) -> Streams:
    """The counters of an interface begin anew three times, each time with a newer start."""
    metric = "hw.network.io"
    begins = [moment(run.streams, share) for share in (0.3, 0.5, 0.7)]

    def change(record: Record) -> Record:
        passed = [begin for begin in begins if begin < record.time_us]
        if not passed or not has(record, metric):
            return record
        since = record.time_us - passed[-1]
        return replace(with_values(record, metric, lambda _: since * 5_000), start_us=passed[-1])

    return edit(run.streams, "node/", change)


@on_streams("TS-TEL-026")
def frozen_loss(run: Run) -> Streams:
    """The loss is 0 in every record."""
    return edit(run.streams, "job", lambda record: with_values(record, LOSS, lambda _: 0.0))


@on_streams("TS-TEL-026")
def frozen_norm(run: Run) -> Streams:
    """The norm of the gradient does not move any more from the middle of the run on."""
    return _later(run, "job", "train.gradient.norm", lambda _: 464441.887)


@on_streams("TS-TEL-026")
def frozen_power(run: Run) -> Streams:
    """The power of one device does not move any more."""
    first = run.shape.devices(run.shape.hosts[0])[0]
    watts: Callable[[Any], Any] = lambda _: 612.5  # noqa: E731
    return edit(run.streams, "node/", lambda r: with_values(r, "hw.power", watts) if r.device == first else r)


@on_streams("TS-TEL-038")
def rate_of_a_device(run: Run) -> Streams:
    """The rate of tokens is that of one device."""
    return _scaled(run, "job", "train.token.rate", 1 / run.shape.world_size)


@on_streams("TS-TEL-038")
def samples_of_another_batch(run: Run) -> Streams:
    """The count of samples grows by a tenth more than the batches hold."""
    return edit(run.streams, "job", lambda r: with_values(r, "train.sample.count", lambda v: v * 11 // 10))


@on_streams("TS-TEL-039")
def utilization_against_another_peak(run: Run) -> Streams:
    """The head declares the sparse peak, twice the dense one, and the utilisation is against the dense one."""
    return edit_heads(run.streams, "job", declared={"train.flops.peak": 1979e12})


@on_streams("TS-TEL-039")
def hardware_below_model(run: Run) -> Streams:
    """The utilisation with recomputation is below the one without."""
    return _scaled(run, "job", "train.flops.hardware_utilization", 0.8)


@on_streams("TS-TEL-040")
def energy_in_millijoules(run: Run) -> Streams:
    """Energy is written in millijoules."""
    return _scaled(run, "node/", "hw.energy", 1000)


@on_streams("TS-TEL-040")
def power_in_milliwatts(run: Run) -> Streams:
    """Power is written in milliwatts."""
    return _scaled(run, "node/", "hw.power", 1000)


@on_streams("TS-TEL-042")
def loss_lost_without_a_skip(run: Run) -> Streams:
    """The loss and the gradient are not a number for five optimizer steps, events say so, and no step is skipped."""
    job = run.streams[0]
    steps = range(100, 105)
    records: list[Record] = []
    for record in job.records:
        if isinstance(record, Sample) and record.step in steps and has(record, LOSS):
            record = with_values(record, LOSS, lambda _: "NaN")  # noqa: PLW2901
            record = with_values(record, "train.gradient.norm", lambda _: "NaN")  # noqa: PLW2901
            found = {"train.nonfinite.where": "loss"}
            name = "train.nonfinite.detected"
            records.append(Event(time_us=record.time_us, seq=0, name=name, step=record.step, a=found))
        records.append(record)
    kept = tuple(replace(record, seq=number) for number, record in enumerate(records))
    return (Stream(job.head, kept), *run.streams[1:])


@on_streams("TS-TEL-049", "TS-REC-008")
def time_that_is_not_counted(run: Run) -> Streams:
    """A fifth of the productive time is in no category."""
    return _scaled(run, "job", "train.goodput.time{train.time.category=productive}", 0.8)


@on_streams("TS-TEL-049", "TS-REC-008")
def time_counted_twice(run: Run) -> Streams:
    """Productive time is all time, and the other categories count too."""
    return _scaled(run, "job", "train.goodput.time{train.time.category=productive}", 1.2)


@on_streams("TS-TEL-084", "TS-TEL-054")
def latency_in_microseconds(run: Run) -> Streams:
    """Latencies between nodes are a thousand times too large."""

    def change(value: Any) -> Any:
        ends = {"sum": value.sum * 1000, "min": value.min * 1000, "max": value.max * 1000}
        return replace(value, **ends, bounds=tuple(bound * 1000 for bound in value.bounds))

    return edit(run.streams, "node/", lambda record: with_values(record, "train.network.latency", change))


@on_streams("TS-TEL-054", "TS-TEL-003")
def one_pair_probes(run: Run) -> Streams:
    """Only one of the nodes probes its neighbour."""
    host = run.shape.hosts[1]
    return edit(run.streams, f"node/{host}", lambda r: None if has(r, "train.network.latency") else r)


@on_streams("TS-TEL-052")
def dropped_records(run: Run) -> Streams:
    """The agents say that they dropped a record out of fifty."""
    return edit(run.streams, "node/", lambda r: with_values(r, "train.telemetry.dropped", lambda _: r.seq // 50))
