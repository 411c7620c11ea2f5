"""Makes the writes of one host end in an error, while the writes of other hosts succeed.

It runs on the machine of the suite, and is sent to nodes with the agent. It needs Linux and Python 3.8.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import platform
import select
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from trainspec_conformance import ask_before_writing
from trainspec_conformance.privileges import NotAllowedError

_QUESTION = struct.Struct("=QIIiIQ6Q")
"""`struct seccomp_notif`: id, process, flags, and of the call: number, machine, place, six arguments."""
_ANSWER = struct.Struct("=QqiI")
"""`struct seccomp_notif_resp`: id, value, error, flags."""
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_PROBE_SECONDS = 30


class FailingDevice:
    """Is asked about each write of the commands that are started through it, and answers when the device fails."""

    def __init__(self, directory: Path, folder: Path | None = None) -> None:
        """Let all writes succeed at first.

        Args:
            directory: writes to files below it fail.
            folder: where the socket is; without it, a new temporary directory.

        Raises:
            NotAllowedError: the kernel does not let this process be asked.
        """
        if platform.machine() not in ask_before_writing.MACHINES:
            raise NotAllowedError(f"writes of a process on {platform.machine()} cannot be made to fail")
        self._error = 0
        self.num_failed = 0
        """Writes that have failed."""
        self.folder = Path(tempfile.mkdtemp(prefix="trainspec-", dir=folder))
        """Directory of the socket, whose path has to be short; it is removed by `close`."""
        path = os.fspath(self.folder / "asked")
        self._below = os.path.realpath(directory) + os.sep
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(path)
        except OSError as error:
            self._socket.close()
            shutil.rmtree(self.folder)
            raise NotAllowedError(f"{path}: {error}") from error
        self._socket.listen()
        self.enter = (sys.executable, "-I", "-S", ask_before_writing.__file__, path)
        """Words before a command that make it ask."""
        self.optional = (*self.enter[:-1], ask_before_writing.OPTIONAL, path)
        """The same for a command below one that may ask already, where that decides."""
        self._ending, self._ended = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)
        self._thread.start()
        self._probe()

    def _probe(self) -> None:
        try:
            done = subprocess.run(  # noqa: S603 - the command above
                [*self.enter, "true"], capture_output=True, text=True, timeout=_PROBE_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.close()
            raise NotAllowedError(f"writes of a process cannot be made to fail: {error}") from error
        if done.returncode:
            self.close()
            reason = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise NotAllowedError(f"writes of a process cannot be made to fail: {reason}")

    def fail(self, number: int = errno.EIO) -> None:
        """Let each write to a file below the directory end with an error from now on."""
        self._error = number

    def mend(self) -> None:
        """Let writes succeed again."""
        self._error = 0

    def holds(self, pid: int) -> bool:
        """Whether a process was started through this or another such filter."""
        with contextlib.suppress(OSError):
            return "\nSeccomp:\t2" in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
        return False

    def close(self) -> None:
        """Stop intercepting; processes that still write then get the error ENOSYS."""
        self._ending.close()
        self._thread.join(timeout=5)
        self._ended.close()
        self._socket.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- the thread -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._ended, selectors.EVENT_READ)
            selector.register(self._socket, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._ended:
                        for other in list(selector.get_map().values()):
                            if isinstance(other.fileobj, int):
                                os.close(other.fileobj)
                        return
                    if key.fileobj is self._socket:
                        for listener in self._accepted():
                            selector.register(listener, selectors.EVENT_READ)
                    elif not self._answer(key.fd):
                        selector.unregister(key.fd)
                        os.close(key.fd)

    def _accepted(self) -> list[int]:
        connection, _ = self._socket.accept()
        with connection:
            found = array.array("i")
            _, told, _, _ = connection.recvmsg(64, socket.CMSG_SPACE(found.itemsize))
        for _, _, data in told:
            found.frombytes(data[: found.itemsize])
        return list(found)

    def _answer(self, listener: int) -> bool:
        """Answer one question; whether there can be more, for some process of that command lives."""
        question = bytearray(_QUESTION.size)
        try:
            fcntl.ioctl(listener, _RECEIVE, question)
        except OSError as error:
            return error.errno in {errno.EINTR, errno.EAGAIN} or _is_read_on(listener)
        number, process, _, _, _, _, file, *_ = _QUESTION.unpack(question)
        errno_now = self._error
        fails = errno_now != 0 and self._is_below(process, file)
        self.num_failed += fails
        answer = (number, 0, -errno_now, 0) if fails else (number, 0, 0, _CONTINUE)
        with contextlib.suppress(OSError):  # the process may have been killed meanwhile
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(*answer))
        return True

    def _is_below(self, process: int, file: int) -> bool:
        with contextlib.suppress(OSError):
            path = os.readlink(f"/proc/{process}/fd/{file & 0xFFFFFFFF}")  # noqa: PTH115 - for Python 3.8
            return path.startswith(self._below)
        return False


def _is_read_on(listener: int) -> bool:
    """Whether a listener still belongs to a living process: it hangs up with the last one."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    return not any(event & select.POLLHUP for _, event in poll.poll(0))
