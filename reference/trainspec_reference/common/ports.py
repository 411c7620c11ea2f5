"""Declares the interfaces between the loop of a worker and its surroundings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import Literal, Protocol

from trainspec_reference.common.backend import Formation
from trainspec_reference.common.state import TrainerState
from trainspec_reference.common.telemetry import Recorder
from trainspec_reference.common.trace import TraceWriter


class Wish(IntFlag):
    """Requests to the loop at the next boundary between steps; the requests of all ranks are merged there."""

    NONE = 0
    SAVE = 1
    """Save, then continue."""
    STOP = 2
    """Save, then end: the platform takes the machines away."""


class Ports(Protocol):
    """Surroundings of one worker in one formation. Calls come from the thread of the loop and return at once.

    The loop calls, for each step: `wishes`, then `arrived`, then `done`, then `save` where one is due. A call with
    `step` names the steps that are completed when the step succeeds: 1 for the first.
    """

    def wishes(self) -> Wish:
        """Requests to this process since the last call; each request is returned once."""
        ...

    def arrived(self, step: int) -> None:
        """This rank has done its own part of the gradient, and is about to wait for the others.

        A peer that has not arrived when others have is the culprit of a stall.
        """
        ...

    def done(self, step: int) -> None:
        """This rank has completed the step, or skipped it together with all others."""
        ...

    def save(self, state: TrainerState) -> None:
        """Save this state and the backend's: copy both now, and write them now or later.

        All ranks call it at the same step. A save that fails is not an error of the loop.
        """
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All that the loop of one worker has around it in one formation."""

    formation: Formation
    ports: Ports
    trace: TraceWriter
    recorder: Recorder
    """Of this attempt; the loop logs its steps, and whoever made it ends it."""


class TrainingFaultError(RuntimeError):
    """The loop found that training must not continue: the state must be neither saved nor shared.

    Attributes:
        kind: word of a trace's `fault`: `numeric` or `corruption`.
        rank: the rank to blame, where it is known.
        action: what the plan wants: `rollback` to the newest good checkpoint, or `stop`.
    """

    def __init__(
        self,
        kind: Literal["numeric", "corruption"],
        reason: str,
        *,
        rank: int | None = None,
        action: str = "rollback",
    ) -> None:
        super().__init__(reason)
        self.kind, self.rank, self.action = kind, rank, action
