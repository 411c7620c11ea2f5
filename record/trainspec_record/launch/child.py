"""Runs a command in place of this process: signals are passed on to it, and both end together."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

FORWARDED = frozenset(
    {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT}
)
SENT_BY_KERNEL = 0x80
"""`si_code` of what a terminal sends; it goes to the command too, which is in the same group."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126


def run_child(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, and pass on what this process is sent meanwhile; its status as `os.waitpid` gives it.

    Raises:
        OSError: the command cannot be started.
    """
    watched = {*FORWARDED, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = os.posix_spawnp(
            words[0], list(words), dict(environment), setsigmask=before, setsigdef=(signal.SIGPIPE, signal.SIGXFSZ)
        )
        return _follow(child, watched)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _follow(child: int, watched: set[signal.Signals]) -> int:
    if hasattr(os, "waitid"):
        with suppress(RuntimeError):  # below a limit of threads the signal of the kernel has to do
            threading.Thread(target=_announce, args=(child, threading.get_ident()), daemon=True).start()
    while True:
        number, is_sent_to_all = _next_signal(watched)
        if number == signal.SIGCHLD:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
        elif not is_sent_to_all:
            os.kill(child, number)


def _announce(child: int, follower: int) -> None:
    """Send a thread `SIGCHLD` at the end of a command: another thread of this process may take that of the kernel."""
    with suppress(ChildProcessError, ProcessLookupError):  # the follower has seen the end by itself
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        signal.pthread_kill(follower, signal.SIGCHLD)


def _next_signal(watched: set[signal.Signals]) -> tuple[int, bool]:
    """The next signal, and whether a terminal sent it to the whole group.

    There is no time limit: when one is over while the process is stopped, Python gives a signal that nobody sent.
    """
    if hasattr(signal, "sigwaitinfo"):
        found = signal.sigwaitinfo(watched)
        return found.si_signo, found.si_code == SENT_BY_KERNEL
    number = signal.sigwait(watched)  # macOS tells no sender
    return number, number in {signal.SIGINT, signal.SIGQUIT} and os.isatty(0)


def end_as(status: int) -> int:
    """The exit code of a child, for this process to end with; after a signal this process ends by the same one."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code
