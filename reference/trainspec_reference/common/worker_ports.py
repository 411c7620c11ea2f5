"""Joins the loop of a worker to its controller."""

from __future__ import annotations

from trainspec_reference.common import messages as say
from trainspec_reference.common import telemetry
from trainspec_reference.common.backend import PeerLostError
from trainspec_reference.common.channel import Link
from trainspec_reference.common.ports import Surroundings, Wish
from trainspec_reference.common.saver import Saver
from trainspec_reference.common.state import TrainerState


class WorkerPorts:
    """What the loop tells the controller, and what it was told."""

    def __init__(self, link: Link, saver: Saver) -> None:
        self._link, self._saver = link, saver
        self._wish = Wish.NONE
        self._is_over = False
        self.surroundings: Surroundings | None = None

    def wish(self, wish: Wish) -> None:
        """Have the loop do something at its next boundary; called by the thread of the channel."""
        self._wish |= wish

    def end(self) -> None:
        """Have the next call of the loop fail: the formation is over; called by the thread of the channel."""
        self._is_over = True
        self._saver.abandon()

    def _check(self) -> int:
        if self._is_over or self.surroundings is None:
            raise PeerLostError("the formation is over")
        return self.surroundings.formation.number

    def wishes(self) -> Wish:
        """As `Ports.wishes`."""
        self._check()
        given, self._wish = self._wish, Wish.NONE
        return given

    def arrived(self, step: int) -> None:
        """As `Ports.arrived`."""
        self._link.say(say.Arrived(formation=self._check(), step=step))

    def done(self, step: int) -> None:
        """As `Ports.done`."""
        formation = self._check()
        counters: dict[str, float] = {}
        if self.surroundings is not None:
            counters = self.surroundings.recorder.state()
            telemetry.hurry(self.surroundings)
        self._link.say(say.Done(formation=formation, step=step, counters=counters or None))

    def save(self, state: TrainerState) -> None:
        """As `Ports.save`."""
        self._check()
        if self.surroundings is not None:
            self._saver.begin(self.surroundings, state)
