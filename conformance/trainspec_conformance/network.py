"""Makes hosts with networks of their own on this machine.

A host is a network namespace without a name, whose only way out is a device that this process reads and writes. The
kernel removes both when the process that holds them ends, however it ends: nothing has to be cleared up.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.wire import Wire
from trainspec_validate.model.units import counted

INTERFACE = "eth0"
MAX_HOSTS = 250
MTU_BYTES = 65_000
"""Of the devices: few large packets cost this process less than many small ones."""
_SUBNET = "10.77.0"
_CLONE_NEWNET = 0x40000000
# https://docs.kernel.org/networking/tuntap.html and `netdevice(7)`
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP, _IFF_RUNNING = 0x1, 0x40


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
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(_CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        os.close(namespace)
        raise
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), _IFF_TUN | _IFF_NO_PI))
        _bring_up(address)
    except OSError:
        os.close(device)
        os.close(namespace)
        raise
    return NetworkHost(address, namespace, device)


def _bring_up(address: str) -> None:
    name = INTERFACE.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.0")):
            told = struct.pack("16sH2x4s16x", name, socket.AF_INET, socket.inet_aton(value))
            fcntl.ioctl(control, request, told)
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", name, MTU_BYTES))
        for one in (b"lo", name):
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", one, _IFF_UP | _IFF_RUNNING))
