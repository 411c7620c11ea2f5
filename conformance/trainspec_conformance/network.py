"""Makes hosts with networks of their own on this machine.

A host is a network namespace without a name, whose only way out is a device that this process reads and writes. The
kernel removes both when the process that holds them ends, however it ends: nothing has to be cleared up.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainspec_conformance.node_network import INTERFACE, leave_network, open_device
from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.wire import Wire
from trainspec_validate.model.units import counted

MAX_HOSTS = 250
MTU_BYTES = 65_000
"""Of the devices: few large packets cost this process less than many small ones."""
_SUBNET = "10.77.0"


@dataclass(frozen=True)
class NetworkHost:
    """A namespace of this process's, and the device in it."""

    address: str
    namespace: int
    """File descriptor that keeps it."""
    device: int
    """File descriptor from which its packets are read, and to which packets for it are written."""

    @property
    def enter(self) -> tuple[str, ...]:
        """Words before a command that make it run there, for processes of the same user."""
        return ("nsenter", f"--net=/proc/{os.getpid()}/fd/{self.namespace}")

    def holds(self, pid: int) -> bool:
        """Whether a process runs there."""
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/ns/net").stat().st_ino == os.fstat(self.namespace).st_ino
        return False

    def close(self) -> None:
        """Let the kernel remove it with the last process that runs there."""
        for descriptor in (self.device, self.namespace):
            os.close(descriptor)


class Network:
    """Hosts that reach each other, and nothing else."""

    def __init__(self, num_hosts: int) -> None:
        """Make them.

        Raises:
            NotAllowedError: the kernel refuses, or the program that enters a namespace is missing.
        """
        if shutil.which("nsenter") is None:
            raise NotAllowedError("the program nsenter, which enters a network namespace, is not installed")
        if num_hosts > MAX_HOSTS:
            raise NotAllowedError(
                f"{counted(num_hosts, 'host', 'are')} too many for one network, {MAX_HOSTS} is the most"
            )
        with contextlib.ExitStack() as made:
            try:
                self.hosts = tuple(_made(f"{_SUBNET}.{number + 1}", made) for number in range(num_hosts))
            except OSError as error:
                raise NotAllowedError(f"a network namespace with a device cannot be made: {error}") from error
            made.pop_all()
        self.wire = Wire({host.address: host.device for host in self.hosts})

    def close(self) -> None:
        """Take all of it down."""
        self.wire.close()
        for host in self.hosts:
            host.close()


def _made(address: str, made: contextlib.ExitStack) -> NetworkHost:
    """A host; a thread of its own makes it, for a thread that has left its namespace is of no other use."""
    with ThreadPoolExecutor(1) as pool:
        host = pool.submit(_make, address).result()
    made.callback(host.close)
    return host


def _make(address: str) -> NetworkHost:
    leave_network()
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return NetworkHost(address, namespace, open_device(address, INTERFACE, MTU_BYTES))
    except OSError:
        os.close(namespace)
        raise
