"""Keeps the events of a run: in a list while they are few, in blocks on disk beyond that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from operator import attrgetter
from typing import Any, Final, overload

import msgspec

from trainspec_validate.documents.types.stream import Event
from trainspec_validate.system.budget import Limit
from trainspec_validate.telemetry.view.event_blocks import NUM_IN_BLOCK, Block, Blocks, in_blocks, merged
from trainspec_validate.telemetry.view.run_records import PlacedEvent

MOST_HELD = 400_000
"""Events that are held as they are: about 1 kB each."""
_USUAL_BYTES = 1_000
"""Of attributes that count as one more event."""
_ATTRIBUTE_BYTES, _ENTRY_BYTES = 100, 64
"""Memory of an attribute in addition to its text, and of an entry of a list."""
_MOST_LISTED = 100_000
"""Events of some names that are held once they are asked for, over all names."""

_MOST_EVENTS: Final = Limit("a run", 1_000_000, "events")
"""Checks hold the events that open and close intervals: about 1.5 kB each."""
_MOST_NAMES: Final = Limit("a run", 10_000, "names of events")
"""Events on disk are kept by name, and each name has a block of its own."""


def weight(event: Event) -> int:
    """How many events of a usual size take as much memory."""
    num_bytes = 0
    for value in event.a.values():
        num_bytes += _ATTRIBUTE_BYTES
        if isinstance(value, str):
            num_bytes += _text_bytes(value)
        elif isinstance(value, list):
            num_bytes += sum(_ENTRY_BYTES + (_text_bytes(each) if isinstance(each, str) else 0) for each in value)
    return 1 + num_bytes // _USUAL_BYTES


def _text_bytes(text: str) -> int:
    return len(text) if text.isascii() else 4 * len(text)


class EventRow(msgspec.Struct, frozen=True, array_like=True):
    """An event, and the numbers of what its head adds to it."""

    file: int
    offset: int
    writer: int
    subject: int
    record: Event


_Numbered = tuple[int, EventRow]
"""An event with its number in the order in which events were read, which decides between two that are alike."""


class EventLog:
    """Events in the order in which they were read."""

    def __init__(self) -> None:
        self._held: list[EventRow] = []
        self._weight = 0
        """Of those that are held, as so many events of a usual size."""
        self._blocks: Blocks[EventRow] | None = None
        self._places: list[Block] = []
        self._num = 0
        self._names: set[str] = set()
        self._started_us = self._ended_us = -1
        """When the run last said that it starts, and that it ends."""

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[EventRow]:
        for block in self._places:
            if self._blocks is not None:
                yield from self._blocks.get(block)
        yield from self._held

    def extend(self, rows: Iterable[EventRow]) -> None:
        """Add events behind those that are there.

        Raises:
            OverLimitError: they are more, or have more names, than those of one run may.
        """
        for row in rows:
            self._held.append(row)
            self._note(row.record)
            self._weight += weight(row.record) if row.record.a else 1
            if self._weight >= (MOST_HELD if self._blocks is None else NUM_IN_BLOCK):
                self._put_away()

    def _note(self, record: Event) -> None:
        self._num += 1
        _MOST_EVENTS.check(self._num)
        self._names.add(record.name)
        _MOST_NAMES.check(len(self._names))
        if record.name == "train.run.start":
            self._started_us = max(self._started_us, record.time_us)
        elif record.name == "train.run.end":
            self._ended_us = max(self._ended_us, record.time_us)

    @property
    def has_ended(self) -> bool:
        """Whether an event says that the run ends, and none that it starts again after that."""
        return self._ended_us >= max(self._started_us, 0)

    def _put_away(self) -> None:
        if self._blocks is None:
            self._blocks = Blocks(EventRow)
        self._places += [self._blocks.put(rows) for rows in in_blocks(self._held, NUM_IN_BLOCK)]
        self._held = []
        self._weight = 0

    def placed(self, place: Callable[[EventRow], PlacedEvent]) -> Sequence[PlacedEvent]:
        """The events in order of time, attempt, emitter and sequence number; then in that in which they were read."""
        if self._blocks is None:
            return HeldEvents(sorted(map(place, self), key=attrgetter("order")))
        return StoredEvents(self, place)


def named(events: Sequence[PlacedEvent], *names: str) -> Sequence[PlacedEvent]:
    """The events with these names, in order of time."""
    if isinstance(events, StoredEvents | HeldEvents):
        return events.named(names)
    return HeldEvents(events).named(names)


def by_name(events: Sequence[PlacedEvent]) -> Iterator[tuple[str, Iterable[PlacedEvent]]]:
    """The events of each name, in order of time: the cheapest way to go through all of them."""
    if not isinstance(events, StoredEvents | HeldEvents):
        events = HeldEvents(events)
    return ((name, events.of(name)) for name in events.names)


class HeldEvents(tuple[PlacedEvent, ...]):
    """Events in order of time, in memory, with an index by name that is made when it is first asked for."""

    _index: dict[str, list[int]] | None = None

    @property
    def places(self) -> dict[str, list[int]]:
        """Places in the order, by name."""
        if self._index is None:
            self._index = {}
            for place, event in enumerate(self):
                self._index.setdefault(event.record.name, []).append(place)
        return self._index

    @property
    def names(self) -> Sequence[str]:
        """Every name, in order of its first event."""
        return tuple(self.places)

    def of(self, name: str) -> Iterable[PlacedEvent]:
        """The events of one name."""
        return [self[place] for place in self.places.get(name, ())]

    def named(self, names: Iterable[str]) -> Sequence[PlacedEvent]:
        """The events with these names."""
        found = [places for name in dict.fromkeys(names) if (places := self.places.get(name))]
        return [self[place] for place in (found[0] if len(found) == 1 else sorted(chain.from_iterable(found)))]


class StoredEvents(Sequence[PlacedEvent]):
    """Events in order of time, read from blocks as they are asked for."""

    def __init__(self, log: EventLog, place: Callable[[EventRow], PlacedEvent]) -> None:
        self._place = place
        self._known: dict[tuple[str, ...], Sequence[PlacedEvent]] = {}
        self._num_listed = 0
        self._blocks: Blocks[_Numbered] = Blocks(_Numbered)
        self._named = {name: self._in_order(blocks) for name, blocks in self._runs(log).items()}
        """Blocks of each name, in order of time, of which none begins before another ends."""

    @property
    def names(self) -> Sequence[str]:
        """Every name."""
        return tuple(self._named)

    def of(self, name: str) -> Iterable[PlacedEvent]:
        """The events of one name, read once more."""
        return (event for block in self._named[name] for _, event in self._read(block))

    def _runs(self, log: EventLog) -> dict[str, list[Block]]:
        """Blocks of each name, each in order of time."""
        found: dict[str, list[Block]] = {}
        waiting: dict[str, list[_Numbered]] = {}

        def put(name: str) -> None:
            rows = sorted(waiting.pop(name), key=self._key)
            found.setdefault(name, []).append(self._blocks.put(rows, self._key(rows[0]), self._key(rows[-1])))

        for number, row in enumerate(log):
            name = row.record.name
            waiting.setdefault(name, []).append((number, row))
            if len(waiting[name]) == NUM_IN_BLOCK:
                put(name)
        for name in list(waiting):
            put(name)
        return found

    def _in_order(self, blocks: list[Block]) -> list[Block]:
        blocks = sorted(blocks, key=lambda block: block.first)
        if all(block.last < following.first for block, following in pairwise(blocks)):
            return blocks
        merging = merged(blocks, self._blocks.get, self._key)
        put = self._blocks.put
        return [put(rows, self._key(rows[0]), self._key(rows[-1])) for rows in in_blocks(merging, NUM_IN_BLOCK)]

    def named(self, names: Iterable[str]) -> Sequence[PlacedEvent]:
        """The events with these names, in order of time; a list where they are few."""
        wanted = tuple(sorted({name for name in names if name in self._named}))
        if wanted not in self._known:
            some: Sequence[PlacedEvent] = Selection([b for name in wanted for b in self._named[name]], self._read)
            if self._num_listed + len(some) <= _MOST_LISTED:
                self._num_listed += len(some)
                some = list(some)
            self._known[wanted] = some
        return self._known[wanted]

    def _read(self, block: Block) -> Iterator[tuple[int, PlacedEvent]]:
        place = self._place
        return ((number, place(row)) for number, row in self._blocks.get(block))

    def _key(self, numbered: _Numbered) -> tuple[Any, ...]:
        number, row = numbered
        return (*self._place(row).order, number)

    def __iter__(self) -> Iterator[PlacedEvent]:
        return iter(self.named(self._named))

    def __len__(self) -> int:
        return len(self.named(self._named))

    @overload
    def __getitem__(self, index: int) -> PlacedEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PlacedEvent]: ...
    def __getitem__(self, index: int | slice) -> PlacedEvent | Sequence[PlacedEvent]:
        return self.named(self._named)[index]


class Selection(Sequence[PlacedEvent]):
    """Events of some blocks, in order of time, each block read when its time comes."""

    def __init__(self, blocks: Sequence[Block], read: Callable[[Block], Iterator[tuple[int, PlacedEvent]]]) -> None:
        self._blocks, self._read = blocks, read
        self._num = sum(block.num for block in blocks)

    def __len__(self) -> int:
        return self._num

    def __iter__(self) -> Iterator[PlacedEvent]:
        found = merged(self._blocks, self._read, lambda pair: (*pair[1].order, pair[0]))
        return (event for _, event in found)

    def __reversed__(self) -> Iterator[PlacedEvent]:
        return reversed(list(self))

    @overload
    def __getitem__(self, index: int) -> PlacedEvent: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PlacedEvent]: ...
    def __getitem__(self, index: int | slice) -> PlacedEvent | Sequence[PlacedEvent]:
        if isinstance(index, slice):
            return list(self)[index]
        place = index + self._num if index < 0 else index
        if not 0 <= place < self._num:
            raise IndexError(index)
        return next(islice(self, place, None))
