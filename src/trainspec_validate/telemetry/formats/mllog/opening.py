"""Holds a log of MLPerf back until the interval of its reports is known, which its stream header states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from trainspec_validate.documents.types.stream import ScopeName
from trainspec_validate.telemetry.formats.items import Found
from trainspec_validate.telemetry.formats.transcript import Transcript

_MAX_HELD = 100_000
_MAX_INTERVAL = 10_000


class Opening:
    """The head of a log, and what waits for it.

    A log with statistics tells of each update. One that has evaluations alone tells of the updates at those.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._held: list[Found] = []
        self._about: tuple[int, int, tuple[ScopeName, ...], str | None] | None = None
        self._updates: list[int] = []
        self._is_rounded = False
        self._is_open = True

    def begin(self, offset: int, time_us: int, scopes: tuple[ScopeName, ...], host: str | None = None) -> None:
        """Take what the head says, at the first entry."""
        self._about = offset, time_us, scopes, host

    @property
    def has_begun(self) -> bool:
        """Whether there was an entry."""
        return self._about is not None

    def evaluated(self, step: int, *, is_rounded: bool) -> None:
        """Note an evaluation in a log that had no statistics so far."""
        self._is_rounded |= is_rounded
        if self._is_open and len(self._updates) < _MAX_HELD:
            self._updates.append(step)

    def pass_on(self, found: Iterable[Found], *, is_decided: bool) -> Iterator[Found]:
        """What can be given away, the head first."""
        if not self._is_open:
            yield from found
            return
        self._held += found
        if is_decided or len(self._held) > _MAX_HELD:
            yield from self.release()

    def release(self) -> Iterator[Found]:
        """Everything that was held."""
        if self._is_open and self._about is not None:
            self._is_open = False
            offset, time_us, scopes, host = self._about
            interval = self._interval()
            more = {"report_interval_steps": interval} if 1 < interval <= _MAX_INTERVAL else {}
            yield offset, self._transcript.head(time_us, scopes, host=host, **more)
        held, self._held = self._held, []
        yield from held

    def _interval(self) -> int:
        """The largest number of updates between evaluations that comes more than once, else the largest of all."""
        counts = Counter(after - before for before, after in pairwise(self._updates) if after > before)
        # Intervals that are equal but for rounding, and for batches of uneven size, are one.
        often = (size for size in counts if sum(num for other, num in counts.items() if self._is_like(other, size)) > 1)
        return max(often, default=max(counts, default=1))

    def _is_like(self, one: int, other: int) -> bool:
        return one == other or (self._is_rounded and abs(one - other) <= 1 + max(one, other) // 100)
