"""Damages times and order: stamps, holes, bursts, lost and doubled records, clocks, delays."""

from __future__ import annotations

from msgspec.structs import replace

from .damage import on_streams
from .edits import Record, Streams, edit, is_of, moment, moved, numbered, with_values
from .emitter import Stream
from .run import Run

SECOND = 1_000_000


def _drop(run: Run, emitter: str, begin: int, end: int, *, renumber: bool = True) -> Streams:
    return edit(run.streams, emitter, lambda r: None if begin < r.time_us < end else r, renumber=renumber)


@on_streams("TS-TEL-016")
def times_in_milliseconds(run: Run) -> Streams:
    """One node writes its times in milliseconds."""
    host = run.shape.hosts[1]
    return edit(run.streams, f"node/{host}", lambda record: moved(record, lambda time: time // 1000))


@on_streams("TS-TEL-016")
def times_in_the_future(run: Run) -> Streams:
    """One rank writes times of three years later."""
    later = 3 * 365 * 86_400 * SECOND
    return edit(run.streams, "rank-000001", lambda record: moved(record, lambda time: time + later))


@on_streams("TS-TEL-016", "TS-TEL-044", "TS-TEL-050")
def times_of_another_zone(run: Run) -> Streams:
    """One node takes local time for UTC, seven hours off."""
    host = run.shape.hosts[1]
    return edit(run.streams, f"node/{host}", lambda r: moved(r, lambda time: time + 7 * 3600 * SECOND))


@on_streams("TS-TEL-017")
def reversed_times(run: Run) -> Streams:
    """The times of a rank run backwards while its records count up."""
    found = []
    for stream in run.streams:
        if is_of(stream, "rank-000002"):
            times = [record.time_us for record in reversed(stream.records)]
            records = [moved(r, lambda _, t=t: t) for r, t in zip(stream.records, times, strict=True)]
            found.append(Stream(stream.head, tuple(records)))
        else:
            found.append(stream)
    return tuple(found)


@on_streams("TS-TEL-017", "TS-TEL-050")
def clock_steps_back(run: Run) -> Streams:
    """The clock of a node goes back by 25 s in the middle of the run, and no event says so."""
    begin, host = moment(run.streams, 0.5), run.shape.hosts[1]
    change = lambda r: moved(r, lambda time: time - 25 * SECOND) if r.time_us > begin else r  # noqa: E731
    return edit(run.streams, f"node/{host}", change)


@on_streams("TS-TEL-018", "TS-TEL-019")
def doubled_records(run: Run) -> Streams:
    """Every tenth record of a node is written twice."""
    change = lambda r: (r, r) if r.seq % 10 == 0 else r  # noqa: E731
    return edit(run.streams, f"node/{run.shape.hosts[0]}", change, renumber=False)


@on_streams("TS-TEL-018")
def second_value_at_the_same_time(run: Run) -> Streams:
    """Devices have two values of power at the same time, in records of their own."""

    def change(record: Record) -> Record | tuple[Record, Record]:
        if record.seq % 10 or "hw.power{hw.type=gpu}" not in record.m:
            return record
        return record, with_values(record, "hw.power", lambda value: value + 40)

    return edit(run.streams, f"node/{run.shape.hosts[0]}", change)


@on_streams("TS-TEL-018", "TS-TEL-019", "TS-TEL-010")
def whole_file_twice(run: Run) -> Streams:
    """The stream of a node is in the run twice, as after a copy."""
    again = [stream for stream in run.streams if is_of(stream, f"node/{run.shape.hosts[0]}")]
    return tuple(Stream(stream.head, stream.records * 2) if stream in again else stream for stream in run.streams)


@on_streams("TS-TEL-019")
def lost_records(run: Run) -> Streams:
    """One record in a hundred of every node is lost on the way."""
    return edit(run.streams, "node/", lambda r: None if r.seq % 100 == 50 else r, renumber=False)


@on_streams("TS-TEL-019")
def sequence_starts_again(run: Run) -> Streams:
    """The numbers of a rank start again in the middle of its attempt."""
    half = len(next(stream for stream in run.streams if is_of(stream, "rank-000004")).records) // 2
    change = lambda r: replace(r, seq=r.seq - half) if r.seq >= half else r  # noqa: E731
    return edit(run.streams, "rank-000004", change, renumber=False)


@on_streams("TS-TEL-020")
def half_the_cadence(run: Run) -> Streams:
    """Devices are read every 20 s where the head says 10 s."""
    found = []
    for stream in run.streams:
        if is_of(stream, "node/"):
            first = stream.records[0].time_us
            kept = [r for r in stream.records if (r.time_us - first) // (10 * SECOND) % 2 == 0]
            found.append(Stream(stream.head, numbered(kept)))
        else:
            found.append(stream)
    return tuple(found)


@on_streams("TS-TEL-020", "TS-TEL-021", "TS-TEL-031")
def nine_of_ten_values_gone(run: Run) -> Streams:
    """The job writes one record in ten."""
    job = run.streams[0]
    kept = [r for r in job.records if r.m.get("train.step.count") is None or r.step is None or r.step % 10 == 0]
    return (Stream(job.head, numbered(kept)), *run.streams[1:])


@on_streams("TS-TEL-021")
def hole(run: Run) -> Streams:
    """No node agent writes anything for 400 s."""
    begin = moment(run.streams, 0.3)
    return _drop(run, "node/", begin, begin + 400 * SECOND)


@on_streams("TS-TEL-021", "TS-TEL-031", "TS-TEL-019")
def hole_of_the_job(run: Run) -> Streams:
    """The job writes nothing for 400 s, as when a file of the middle is missing."""
    begin = moment(run.streams, 0.3)
    return _drop(run, "job", begin, begin + 400 * SECOND, renumber=False)


@on_streams("TS-TEL-021", "TS-TEL-037", "TS-TEL-033", "TS-TEL-049")
def ten_hours_without_anything(run: Run) -> Streams:
    """Nothing at all is written for ten hours in the middle of the run."""
    begin = moment(run.streams, 0.5)
    later = lambda r: moved(r, lambda time: time + 36_000 * SECOND) if r.time_us > begin else r  # noqa: E731
    return edit(run.streams, "", later)


@on_streams("TS-TEL-022", "TS-TEL-021")
def buffer_flush(run: Run) -> Streams:
    """A node holds its records back for 90 s and stamps them all with the time at which it writes them."""
    begin = moment(run.streams, 0.5)
    end = begin + 90 * SECOND

    def change(record: Record) -> Record:
        if not begin < record.time_us < end:
            return record
        return moved(record, lambda time: end + (time - begin) // 1000)

    return edit(run.streams, f"node/{run.shape.hosts[1]}", change)


@on_streams("TS-TEL-023")
def agent_stops_early(run: Run) -> Streams:
    """A node agent writes nothing in the last 200 s of the run."""
    end = moment(run.streams, 1.0)
    return _drop(run, f"node/{run.shape.hosts[1]}", end - 200 * SECOND, end)


@on_streams("TS-TEL-050")
def clock_out_of_bounds(run: Run) -> Streams:
    """A node measures that its clock is half a second off."""
    host = run.shape.hosts[1]
    return edit(
        run.streams, f"node/{host}", lambda r: with_values(r, "train.clock.offset", lambda _: 0.5 + r.seq * 1e-6)
    )


@on_streams("TS-TEL-050", "TS-TEL-032")
def skewed_clock(run: Run) -> Streams:
    """All ranks of a node stamp their records four minutes early, and its clock is said to be right."""
    width = run.shape.devices_per_node
    found = run.streams
    for rank in range(run.shape.world_size - width, run.shape.world_size):
        found = edit(found, f"rank-{rank:06}", lambda r: moved(r, lambda time: time - 240 * SECOND))
    return found


@on_streams("TS-TEL-051")
def late_records(run: Run) -> Streams:
    """Records of the nodes are written seven minutes after what they tell of."""
    late = 420 * SECOND
    return edit(run.streams, "node/", lambda r: replace(r, observed_us=r.time_us + late))
