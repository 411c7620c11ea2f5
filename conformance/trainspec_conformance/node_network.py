"""Makes devices whose packets a process carries, and gives the ranks of a node a network of their own, for the suite.

The part for nodes is sent to each with the agent: a process that leaves the network of its node, makes a device in its
new one, and passes packets between the device and the suite, through the remote shell that started it. The kernel
removes both with the last process in there, however that ends. It needs Linux and Python 3.8.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading
import time
from pathlib import Path

from trainspec_conformance.agent import lines_of

INTERFACE = "eth0"
NODE_MTU_BYTES = 16_000
"""Of devices whose packets pass through a remote shell: a line of one is shorter than a buffer of srun."""
_CLONE_NEWNET = 0x40000000
# https://docs.kernel.org/networking/tuntap.html and `netdevice(7)`
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
_HOLDER = "network"
"""File that names the process that holds the network."""
_WATCH_SECONDS = 1.0
_MOST_BYTES = 1 << 16


def leave_network() -> None:
    """Give this thread a new network without any device.

    Raises:
        OSError: the kernel refuses.
    """
    _done(ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET))


def _done(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def open_device(address: str, name: str, mtu_bytes: int) -> int:
    """A device of this thread's network with an address of version 4; packets are read from and written to the file.

    Raises:
        OSError: the kernel refuses.
    """
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        told = bytearray(struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
        fcntl.ioctl(device, _TUNSETIFF, told)
        _bring_up(bytes(told[:16]).rstrip(b"\0"), address, mtu_bytes)
    except OSError:
        os.close(device)
        raise
    return device


def _bring_up(name: bytes, address: str, mtu_bytes: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for request, value in ((_SIOCSIFADDR, address), (_SIOCSIFNETMASK, "255.255.255.0")):
            told = struct.pack("16sH2x4s16x", name, socket.AF_INET, socket.inet_aton(value))
            fcntl.ioctl(control, request, told)
        fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", name, mtu_bytes))
        for one in (b"lo", name):
            fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH22x", one, _IFF_UP | _IFF_RUNNING))


# --- on a node ----------------------------------------------------------------------------------------------


def carry(directory: Path, address: str, word: str) -> None:
    """Make a network with one device, say the word, and pass packets until the suite or the agent has ended.

    Each line from and to the suite is one packet in base64. A word with a reason says that the node refuses.
    """
    try:
        leave_network()
        device = open_device(address, INTERFACE, NODE_MTU_BYTES)
    except OSError as error:
        _write_line(f"{word} a network namespace with a device cannot be made: {error}".encode())
        return
    os.set_blocking(device, True)
    (directory / _HOLDER).write_text(str(os.getpid()), encoding="ascii")
    _write_line(word.encode())
    for target, arguments in ((_send, (device,)), (_end_with, (directory / _HOLDER,))):
        threading.Thread(target=target, args=arguments, daemon=True).start()
    for line in lines_of(0):
        with contextlib.suppress(OSError, binascii.Error):  # a device that takes no more loses a packet
            os.write(device, base64.b64decode(line))


def _send(device: int) -> None:
    while True:
        packet = os.read(device, _MOST_BYTES)
        if packet[:1] and packet[0] >> 4 == 4:
            _write_line(base64.b64encode(packet))


def _write_line(text: bytes) -> None:
    text += b"\n"
    while text:
        text = text[os.write(1, text) :]


def _end_with(file: Path) -> None:
    """End with the agent, which removes its directory at its end."""
    while file.exists():
        time.sleep(_WATCH_SECONDS)
    os._exit(0)


def _network(process: object) -> Path:
    return Path(f"/proc/{process}/ns/net")


def join(directory: Path) -> None:
    """Move this process to the network of the node.

    Raises:
        OSError: there is none any more, or the kernel refuses.
    """
    file = os.open(_network((directory / _HOLDER).read_text(encoding="ascii")), os.O_RDONLY | os.O_CLOEXEC)
    try:
        _done(ctypes.CDLL(None, use_errno=True).setns(file, _CLONE_NEWNET))
    finally:
        os.close(file)


def is_inside(directory: Path, pid: int) -> bool:
    """Whether a process runs in the network of the node."""
    try:
        holder = _network((directory / _HOLDER).read_text(encoding="ascii"))
        return _network(pid).stat().st_ino == holder.stat().st_ino
    except OSError:
        return False
