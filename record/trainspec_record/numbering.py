"""Compares the numbers that a script gives its updates with the recorded numbers."""

from __future__ import annotations

from trainspec_record.guard import tell_once
from trainspec_record.writers import Writers


class Numbering:
    """The numbers of updates in one attempt, called under the lock of the run.

    An update that is skipped, or ended by an error, can count in the script or not.
    """

    def __init__(self, writers: Writers) -> None:
        self._job, self._rank = writers.job, writers.rank
        self._next: int | None = None
        """The largest number that the next update can have, if all updates were recorded."""

    def begin(self, number: int | None) -> None:
        """An update begins. Where more are completed than were recorded, the counts go on from the script's number."""
        if number is not None and self._next is not None:
            if number > self._next:
                self._miss(number - self._next)
                self._next = number
            elif number < self._rank.step:
                tell_once("an update has a number below the count of updates that are completed; the count continues")
        if self._next is not None:
            self._next += 1
        elif number is not None:
            self._next = number + 1

    def _miss(self, num_updates: int) -> None:
        tell_once("an update has a number beyond the count of updates that were recorded; the count continues from it")
        self._rank.step += num_updates
        if self._job:
            self._job.miss(num_updates)
