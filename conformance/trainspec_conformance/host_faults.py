"""Names the injections that are about hosts of a trial, carries out those on networks, and takes devices that fail."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from trainspec_conformance import guard
from trainspec_conformance.failing_device import FailingDevice
from trainspec_conformance.wire import Wire
from trainspec_validate.documents.types.scenario import Inject

COMMAND = "command"
"""Name of the host that the command runs on: none of the job's, so that it survives what is done to those."""
NETWORK = frozenset({"cut-network", "mend-network", "delay-network"})
CLOCK = frozenset({"offset-clock"})
DEVICE = frozenset({"fail-device", "mend-device"})
DISK = frozenset({"fill-disk", "free-disk", "fail-writes", "mend-writes"})
"""Injections that are about the store, wherever it is."""
KINDS = NETWORK | CLOCK | DEVICE
"""Injections that are about hosts."""
UNDOING = ("mend-", "free-")
"""How the names of injections begin that undo another: they are about all hosts, whoever lives."""


def take_device(store: Path, made: ExitStack) -> FailingDevice:
    """A device that can fail for writes to a store; its directory is removed, also where this process is killed.

    Raises:
        NotAllowedError: the kernel does not let this process be asked.
    """
    device = FailingDevice(store)
    guard.taken(device.folder)
    made.callback(guard.returned, device.folder)
    made.callback(device.close)
    return device


def damage_network(
    wire: Wire, act: Inject, chosen: Collection[str], names: Collection[str], address: Callable[[str], str]
) -> float:
    """Do to the network of some hosts what an act says, at once; gives its measure.

    Args:
        wire: carries the packets of all hosts.
        act: one of `NETWORK`.
        chosen: hosts that it is about.
        names: all hosts of the job.
        address: of a host.
    """
    if act.kind == "cut-network":
        spared = {COMMAND} if act.reaches_command else set()
        others = {*names, COMMAND} - set(chosen) - spared
        wire.cut(map(address, chosen), [address(one) for one in others])
    elif act.kind == "delay-network":
        wire.delay(map(address, chosen), act.seconds, act.loss or 0.0)
        return act.seconds
    else:
        wire.mend()
    return 0.0
