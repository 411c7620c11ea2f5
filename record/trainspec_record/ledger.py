"""Books the time of a job by category."""

from __future__ import annotations

from collections.abc import Mapping

CATEGORIES = (
    *("productive", "initialization", "data_wait", "evaluation", "checkpoint_save", "checkpoint_restore"),
    *("replay", "fault_wait", "idle"),
)
_OF_UPDATES = ("productive", "data_wait")
"""What the time of a step is booked as, until the job does something else; all of it is `replay` the second time."""


class Ledger:
    """Time by category in whole microseconds, so that the categories add up to what passed to the last digit.

    At any moment one category grows. The time of a step is booked when the step is completed, for only then it is
    known whether it was one.
    """

    def __init__(self, now_us: int, totals_us: Mapping[str, int] | None = None) -> None:
        self.totals_us = {**dict.fromkeys(CATEGORIES, 0), **(totals_us or {})}
        self.is_replay = False
        """Whether optimizer steps are those that the run had completed before."""
        self._mark_us = now_us
        self._spent: list[tuple[object, str]] = [(self, "initialization")]
        self._pending_us = dict.fromkeys(_OF_UPDATES, 0)
        self._update_us = self._booked_us = self._longest_us = 0

    @property
    def category(self) -> str:
        """Category that time is spent on now."""
        return self._spent[-1][1]

    @property
    def trains(self) -> bool:
        """Whether the first step has begun."""
        return self._spent[0][1] != "initialization"

    def settle(self, category: str, now_us: int) -> None:
        """From now on time is spent on this, where no span says otherwise."""
        self._book(now_us)
        self._spent[0] = (self, category)

    def enter(self, span: object, category: str, now_us: int) -> None:
        """A span begins whose time is of one category."""
        self._book(now_us)
        self._spent.append((span, category))

    def leave(self, span: object, now_us: int) -> None:
        """A span ends; spans of several threads need not end in order."""
        self._book(now_us)
        self._spent = [entry for entry in self._spent if entry[0] is not span]

    def complete(self, now_us: int) -> int:
        """An optimizer step ends; microseconds that it took since the one before, without pauses."""
        self._book(now_us)
        self._settle_pending()
        taken = self._update_us
        self._longest_us = max(self._longest_us, taken)
        self._update_us = self._booked_us = 0
        return taken

    def abandon(self, category: str, now_us: int) -> None:
        """No step comes any more: what was spent on it since it began is booked as something else."""
        self._book(now_us)
        self.totals_us[category] += sum(self._pending_us.values())
        self._pending_us = dict.fromkeys(_OF_UPDATES, 0)
        self._update_us = self._booked_us = 0
        self._spent = [(self, category)]

    def until(self, now_us: int) -> dict[str, int]:
        """Microseconds of each category.

        A step that is under way is booked as if it will be completed, for as long as the longest one took: a job
        that hangs is idle.
        """
        self._book(now_us)
        over_us = self._update_us - max(self._longest_us, self._booked_us)
        if self._longest_us and over_us > 0:
            idle_us = min(over_us, self._pending_us["productive"])
            self._pending_us["productive"] -= idle_us
            self.totals_us["idle"] += idle_us
        self._settle_pending()
        self._booked_us = self._update_us
        return dict(self.totals_us)

    def _book(self, now_us: int) -> None:
        passed_us, self._mark_us = now_us - self._mark_us, now_us
        category = self._spent[-1][1]
        if category in self._pending_us:
            self._pending_us[category] += passed_us
            self._update_us += passed_us
        else:
            self.totals_us[category] += passed_us

    def _settle_pending(self) -> None:
        for category, spent_us in self._pending_us.items():
            self.totals_us["replay" if self.is_replay else category] += spent_us
            self._pending_us[category] = 0
