"""Keeps the blocks of a run open for frameworks that report begin and end by calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from trainspec_record.silent import SilentRun, SilentSpan

if TYPE_CHECKING:
    from trainspec_record.recording import Run
    from trainspec_record.spans import Span

T = TypeVar("T")


class Blocks:
    """The step that is under way, and the one part of the loop in progress alongside it."""

    def __init__(self, run: Run | SilentRun) -> None:
        self.run = run
        self._update: Span | SilentSpan | None = None
        self._part: Span | SilentSpan | None = None
        self._has_begun = False

    def begin(self, number: int | None = None) -> None:
        """An optimizer step begins, unless one is under way; `number` is how many are completed before it.

        It is taken of the first one. Frameworks count in their own ways: Lightning each optimizer of a loop.
        """
        if self._update is None:
            self._update = self.run.step(None if self._has_begun else number)
            self._has_begun = True
            self._update.__enter__()

    def complete(self, **words: Any) -> None:
        """The step that is under way is completed, with these words of `log`."""
        if self._update is not None:
            self.run.log(**words)
            self._update.__exit__(None, None, None)
            self._update = None

    def batches(self, loader: Iterable[T]) -> Iterator[T]:
        """Batches of a loader in its order, each of them the begin of a step; waiting for one is data wait."""
        batches = iter(loader)
        while True:
            with self.run.phase("data_wait"):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            self.begin()
            yield batch

    def enter(self, part: T) -> T:
        """A part of the loop begins, such as a save; the part before it ends."""
        self.leave()
        self._part = part  # type: ignore[assignment]
        part.__enter__()  # type: ignore[attr-defined]
        return part

    def leave(self, error: BaseException | None = None) -> None:
        """The part ends, if one is in progress."""
        part, self._part = self._part, None
        if part is not None:
            part.__exit__(type(error) if error is not None else None, error, None)
