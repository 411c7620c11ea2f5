"""Many events are kept in blocks on disk, and findings are those of a run whose events are all at hand."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from split_makers import places, put, said, seen
from test_splits import damaged, in_processes, small_parts, spilled

from tests.examples import examples
from trainspec_validate.documents.types.stream import Event
from trainspec_validate.system.boundary import TogetherUnreadableError
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.fold.engine import read_run
from trainspec_validate.telemetry.view import event_blocks, event_log
from trainspec_validate.telemetry.view.event_log import EventLog, EventRow, StoredEvents, named
from trainspec_validate.telemetry.view.run_records import PlacedEvent
from trainspec_validate.telemetry.view.run_view import Location, Subject

__all__ = ["small_parts"]
MARKS = ("train.run.start", "train.run.end")
KINDS = ("whole-file-twice", "old-attempt-goes-on", "hang", "reversed-times")


def hold_few(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_log, "MOST_HELD", 5)
    patch.setattr(event_log, "_MOST_LISTED", 8)
    patch.setattr(event_log, "NUM_IN_BLOCK", 3)
    patch.setattr(event_blocks, "_HELD_BYTES", 2_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_stored_events_change_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = put(damaged(name), tmp_path)
    view = read_run(files)
    wanted = seen(view), places(view), said(view, files, with_lines=True)
    assert isinstance(view.events, tuple)
    hold_few(monkeypatch)
    for way in (read_run, spilled if KINDS.index(name) % 2 else in_processes):
        found = way(files)
        assert isinstance(found.events, StoredEvents)
        assert list(found.events) == list(view.events)
        assert seen(found) == wanted[0]
        assert places(found) == wanted[1]
        assert said(found, files, with_lines=True) == wanted[2], way.__name__


ROWS = st.lists(
    st.builds(
        lambda time, name, writer: EventRow(0, time, writer, 0, Event(time_us=time, seq=0, name=name)),
        *(st.integers(0, 30), st.sampled_from(("a", "b", *MARKS, "c.d")), st.integers(0, 2)),
    ),
    max_size=60,
)


def placed(row: EventRow) -> PlacedEvent:
    return PlacedEvent(row.record, 0, "run", f"e{row.writer}", Subject(None, None, None), Location(0, row.offset))


@examples(60)
@given(rows=ROWS)
def test_stored_events_come_in_order(rows: list[EventRow]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        hold_few(patch)
        log = EventLog()
        log.extend(rows)
        again = pickle.loads(pickle.dumps(log))
        assert list(again) == list(log) == rows
        last = {name: max([r.record.time_us for r in rows if r.record.name == name], default=-1) for name in MARKS}
        assert log.has_ended == (last["train.run.end"] >= max(last["train.run.start"], 0))
        events = again.placed(placed)
        wanted = sorted(map(placed, rows), key=lambda event: (event.time_us, event.emitter))
        assert list(events) == wanted
        assert len(events) == len(wanted)
        assert isinstance(events, StoredEvents) == (len(rows) >= 5)
        for names in (("a",), ("b", "c.d"), ("a", "b", "c.d", "train.run.end"), ("none",)):
            some = [event for event in wanted if event.name in names]
            mine = named(events, *names)
            assert (list(mine), list(reversed(mine)), len(mine)) == (some, some[::-1], len(some))
            assert mine[:3] == some[:3]
            assert not some or (mine[0], mine[-1]) == (some[0], some[-1])


HEAD = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r", "emitter": "e"}


def judged_of(num_attempts: int, directory: Path) -> tuple[int, int, int]:
    """Events of a run of some attempts, how often its judgement reads one back, and the findings of the run."""
    times = ((number, 1_700_000_000_000_000 + number * 1_000_000) for number in range(num_attempts * 10))
    heads = [{**HEAD, "att": a, "time_us": 1_700_000_000_000_000, "scopes": ["job"]} for a in range(num_attempts)]
    ends = {"train.run.status": "completed"}
    events = [
        {"k": "e", "time_us": time, "seq": number % 10, "att": number // 10, "emitter": "e", "name": name, "a": ends}
        for number, time in times
        for name in ("train.run.end" if number % 10 else "train.run.start",)
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in (*heads, *events))
    with pytest.MonkeyPatch.context() as patch:
        hold_few(patch)
        files = put({"run.jsonl": lines.encode()}, directory / f"{num_attempts}")
        view = read_run(files)
        assert isinstance(view.events, StoredEvents)
        num_read, place = 0, view.events._place

        def counted(row: EventRow) -> PlacedEvent:
            nonlocal num_read
            num_read += 1
            return place(row)

        view.events._place = counted
        return len(events), num_read, len(said(view, files))


def test_stored_events_are_read_back_a_few_times_for_any_number_of_attempts(tmp_path: Path) -> None:
    few, many = judged_of(5, tmp_path), judged_of(50, tmp_path)
    assert min(few[2], many[2]) > 0
    assert many[1] / many[0] <= 1.5 * few[1] / few[0]
    assert many[1] <= 20 * many[0]


def test_a_run_of_too_many_events_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_MOST_EVENTS", Limit("a run", 49, "events"))
    with pytest.raises(TogetherUnreadableError, match="a run may have at most 49 events"):
        judged_of(5, tmp_path)
