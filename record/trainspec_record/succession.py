"""Closes the intervals that an attempt left open when it ended, in its own stream."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from trainspec_record import values
from trainspec_record.claim import claim, open_regular
from trainspec_record.past import OpenFault, Past, action_of, mend, recovery_id
from trainspec_record.redaction import WITHOUT_A_WORD

RESTART = "restart"


def succeed(past: Past, again: Callable[[], Past], attempt: int, now_us: int) -> tuple[Past, tuple[OpenFault, ...]]:
    """End the newest attempt, record the fault that ended it, and begin to recover; the faults that are open now.

    The numbers of that stream continue here; where its writer is still alive, it records the end itself. The past is
    read `again` once the stream is taken: its writer may have ended it since, and gone.

    Raises:
        OSError: the stream of the attempt cannot be written.
    """
    if not past.files or past.end_reason not in {None, "fault"}:
        return past, past.faults
    path = past.files[-1]
    descriptor = open_regular(path, os.O_RDWR | os.O_APPEND)
    try:
        if not _is_left(descriptor):
            return past, past.faults
        past = again()
        if past.files[-1:] != (path,) or past.end_reason not in {None, "fault"}:
            return past, past.faults
        lines = _Lines(past, attempt, now_us)
        if past.end_reason is None:
            lines.end_attempt()
        if not any(fault.attempt == past.attempt for fault in past.faults):
            lines.detect()
        lines.recover()
        mend(path)
        os.write(descriptor, b"".join(lines.found))
    finally:
        os.close(descriptor)
    return past, tuple(lines.faults)


def _is_left(descriptor: int) -> bool:
    """Whether the writer of a file is gone; one that has not written its head yet is about to take the file."""
    return os.fstat(descriptor).st_size > 0 and claim(descriptor)


class _Lines:
    """Events that follow the last record of an attempt."""

    def __init__(self, past: Past, attempt: int, now_us: int) -> None:
        self.found: list[bytes] = []
        self.faults = list(past.faults)
        self._past, self._attempt, self._now_us = past, attempt, now_us

    def _event(self, event: str, time_us: int, identifier: str, a: dict[str, Any], **more: Any) -> None:
        seq = self._past.next_seq + len(self.found)
        record = {"k": "e", "time_us": time_us, "seq": seq, "name": event, "id": identifier, "step": self._past.step}
        self.found.append(values.line({**record, "observed_us": max(time_us, self._now_us), "a": a, **more}))

    def end_attempt(self) -> None:
        """At the last sign of life."""
        number = self._past.attempt
        a = {"train.run.attempt": number, "train.attempt.reason": "fault"}
        m = {"train.step.count": self._past.step}
        self._event("train.attempt.end", self._past.alive_us, f"attempt-{number}", a, m=m)

    def detect(self) -> None:
        """Now, for nobody did before."""
        fault = OpenFault(
            f"fault-{self._past.num_faults + 1}",
            self._past.attempt,
            self._now_us,
            min(self._past.alive_us, self._now_us),
        )
        a = {"train.fault.id": fault.id, "train.fault.domain": "unknown", "train.fault.class": "process"}
        self._event("train.fault.detected", self._now_us, fault.id, {**a, "train.reason": WITHOUT_A_WORD})
        self.faults.append(fault)

    def recover(self) -> None:
        """The new attempt is an action against all faults that are open; actions before it have failed."""
        for place, fault in enumerate(self.faults):
            a = {"train.fault.id": fault.id, "train.recovery.action": RESTART}
            if fault.recovery is not None:
                failed = {**a, "train.recovery.action": action_of(fault), "train.recovery.outcome": "failed"}
                self._event("train.recovery.end", self._now_us, fault.recovery, failed)
            began = recovery_id(fault, RESTART, self._attempt)
            self._event("train.recovery.begin", self._now_us, began, a)
            self.faults[place] = fault._replace(recovery=began, began_us=fault.began_us or self._now_us)
