"""Starts a command whose writes are asked about first: `ask_before_writing.py SOCKET COMMAND...`.

It is run as a program of its own, also on nodes, imports nothing of the suite, and needs Python 3.8.
"""

from __future__ import annotations

import array
import ctypes
import errno
import os
import platform
import socket
import struct
import sys
from collections.abc import Sequence

_SET_FILTER, _NEW_LISTENER, _NO_NEW_PRIVILEGES = 1, 8, 38
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_NUMBER_AT, _MACHINE_AT = 0, 4
"""Of `struct seccomp_data`, see `seccomp(2)`."""

OPTIONAL = "--unless-asked"
"""First argument where a process above may ask already: the kernel lets one alone do so, which then decides."""
_NO_COMMAND = 127
"""Status of a command that could not be started, as of a shell."""
MACHINES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""Word of the kernel for a machine, and number of the call `seccomp` there."""
WRITES = {"x86_64": (1, 18, 20, 40, 74, 75, 296, 328), "aarch64": (64, 68, 66, 71, 82, 83, 70, 287)}
"""Numbers of write, pwrite64, writev, sendfile, fsync, fdatasync, pwritev, pwritev2: each names its file first."""


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def _filter(machine: str) -> bytes:
    """Instructions that let every call pass, and have a listener asked about those that write."""
    calls = WRITES[machine]
    lines = [(_LOAD, 0, 0, _MACHINE_AT), (_JUMP_IF_EQUAL, 0, len(calls) + 1, MACHINES[machine][0])]
    lines.append((_LOAD, 0, 0, _NUMBER_AT))
    lines += [(_JUMP_IF_EQUAL, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def listen() -> int:
    """Have the calls of this process and of all that it starts asked about; gives the listener.

    Raises:
        OSError: the kernel refuses.
    """
    machine = platform.machine()
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    code = ctypes.create_string_buffer(_filter(machine))
    program = _Program(len(code.raw) // 8, ctypes.cast(code, ctypes.c_void_p))
    if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    listener = int(library.syscall(MACHINES[machine][1], _SET_FILTER, _NEW_LISTENER, ctypes.byref(program)))
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener


def main(words: Sequence[str]) -> None:
    """Hand the listener over, and become the command."""
    is_optional = words[0] == OPTIONAL
    path, *command = words[is_optional:]
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(path)
        try:
            rights = array.array("i", [listen()])
        except OSError as error:
            if error.errno != errno.EBUSY or not is_optional:
                raise
        else:
            asked.sendmsg([b"listener"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    try:
        os.execvp(command[0], command)  # noqa: S606 - it becomes the command of the stack
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        sys.exit(_NO_COMMAND)


if __name__ == "__main__":
    main(sys.argv[1:])
