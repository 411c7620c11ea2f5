"""Guards the resources of a process: its standard streams, its descriptors, its signals.

A failed write to standard output is reported and fails the run; a failed write to standard error changes nothing. A
signal that ends the process becomes an exception, so that cleanup runs.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from trainspec_validate.system.boundary import OutOfMemoryError, reason_of
from trainspec_validate.system.threads import has_limit_of_memory

READER_GONE = 128 + 13
"""Exit code by which a shell reports the end by SIGPIPE."""
_ENDING = ("SIGTERM", "SIGHUP")
_OF_THE_SYSTEM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOLCK})
_OF_A_STREAM = {"encoding": "utf-8", "errors": "strict"}
_NO_PLACE = "No usable temporary directory"


class Terminated(KeyboardInterrupt):
    """The process was ended by the signal with this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Guard:
    """A standard stream as commands see it; None is one that was closed when the process began."""

    def __init__(self, stream: IO[str] | None, refuse: Callable[[str], Exception] | None = None) -> None:
        """Raise what `refuse` makes of the reason where the stream cannot be written; without it go on in silence."""
        self.stream = stream
        self.is_gone = False
        """Whether its reader went away before it had everything."""
        self.trouble = ""
        """Why it cannot be written."""
        self._refuse = refuse

    def write(self, text: str) -> int:
        """Write all of it, or say why not."""
        if not isinstance(text, str):  # click finds out so whether a stream takes bytes
            raise TypeError(f"text is wanted, not {type(text).__name__}")
        if text:
            self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Hand on what waits."""
        if self.stream is not None:
            self._try(lambda stream: stream.flush())

    def isatty(self) -> bool:
        """Whether a terminal is at its other end."""
        return self.stream is not None and self.stream.isatty()

    def __getattr__(self, name: str) -> Any:
        """Whatever else the stream has."""
        if self.stream is None and name in _OF_A_STREAM:
            return _OF_A_STREAM[name]
        return getattr(self.stream, name)

    def _try(self, action: Callable[[IO[str]], object]) -> None:
        if self.is_gone or self.trouble:
            return
        try:
            if self.stream is None:
                raise ValueError("it is closed")
            action(self.stream)
        except BrokenPipeError:
            self.is_gone = True
        except (OSError, ValueError) as error:
            self.trouble = reason_of(error) if isinstance(error, OSError) else str(error)
        if self.is_gone or self.trouble:
            self._drop()
        if self.trouble and self._refuse is not None:
            raise self._refuse(self.trouble)

    def _drop(self) -> None:
        # The interpreter flushes once more at its end and would complain: https://docs.python.org/3/library/signal.html
        if self.stream is None:
            return
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.stream.fileno())
            os.close(nowhere)


def fill_descriptors() -> None:
    """Open nothing in place of standard streams that are closed, so that no file of ours takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


@dataclass(slots=True)
class _Ending:
    """What signals have done inside `ended_by_signals`."""

    received: list[Terminated] = field(default_factory=list)
    held: Terminated | None = None
    """The first that came while an output took its name, or after."""
    is_placed: bool = False
    """Whether an output takes its name or has it."""


_endings = list[_Ending]()
"""Of the whole process, the innermost last."""


@contextmanager
def placing() -> Iterator[None]:
    """Inside, an output takes its name; from then on no signal ends the process, whose exit code says that it is there.

    Signals are obeyed again where the body raises. A thread that is not the main one changes nothing.
    """
    if not _endings or threading.current_thread() is not threading.main_thread():
        yield
        return
    ending = _endings[-1]
    before, ending.is_placed = ending.is_placed, True
    try:
        if ending.received:  # and was taken for something else
            raise ending.received[0]
        yield
    except BaseException:
        ending.is_placed = before
        if ending.held is not None and not before:
            ending.received.append(ending.held)
            raise ending.held from None
        raise


@contextmanager
def ended_by_signals(*, of_process: bool = False) -> Iterator[list[Terminated]]:
    """Turn the signals that end a process into `Terminated`, unless somebody ignores or handles them already.

    Gives the list of those that were received: one that interrupts a foreign library may be raised as an error of that
    library, or not at all. `of_process` is for a process that ends next: where it has written an output, they are
    ignored from then on.
    """
    process, ending = os.getpid(), _Ending()

    def end(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != process:  # a copy of the process, which has nothing to clear up
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if ending.is_placed:
            ending.held = ending.held or Terminated(number)
            return
        ending.received.append(Terminated(number))
        raise ending.received[-1]

    taken = dict[int, Any]()
    if threading.current_thread() is threading.main_thread():  # no other may set a handler
        numbers = [getattr(signal, name) for name in ("SIGINT", *_ENDING) if hasattr(signal, name)]
        handlers = {number: signal.getsignal(number) for number in numbers}
        unhandled = signal.SIG_DFL, signal.default_int_handler
        taken = {number: handler for number, handler in handlers.items() if handler in unhandled}
    _endings.append(ending)
    for number in taken:
        signal.signal(number, end)
    try:
        with _unraised_in_silence():
            yield ending.received
    finally:
        for number, handler in taken.items():
            signal.signal(number, signal.SIG_IGN if of_process and ending.is_placed else handler)
        _endings.remove(ending)


@contextmanager
def _unraised_in_silence() -> Iterator[None]:
    """Say nothing of a signal that came where Python can raise no exception, such as in the callback of a reference."""
    before = sys.unraisablehook

    def hook(told: sys.UnraisableHookArgs) -> None:
        if not isinstance(told.exc_value, Terminated):
            before(told)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def die_quietly() -> None:
    """In a worker: end by the signals that end the main process, and say nothing."""
    for name in ("SIGINT", *_ENDING):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Let an interrupt wait; processes that are started meanwhile begin with it held, until they are ready."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_NO_MEMORY = (
    "failed to map segment",
    "cannot allocate memory",
    "Cannot allocate memory",
    "cannot create shared object",
)
"""What the loader of the system says of a library that finds no memory: glibc, elf/dl-load.c."""


_NO_THREAD = "can't start new thread"
_NO_LOCK = ("can't allocate lock", "can't allocate read lock")
"""CPython, Modules/_threadmodule.c and Modules/_io/bufferedio.c."""
_NO_WINDOW = "Error -4 "
"""Z_MEM_ERROR as CPython words it, Modules/zlibmodule.c."""


def refusal_of_the_system(error: OSError) -> str:
    """Lack of the machine, or fault of a path that is none of ours; nothing where the error says something else."""
    lacks = error.errno in _OF_THE_SYSTEM or str(error.strerror).startswith(_NO_PLACE)
    if lacks or _is_of_the_user(error.filename):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{reason_of(error).replace(_NO_PLACE, _NO_PLACE.lower(), 1)}"
    return ""


def lacks_memory(error: BaseException | None) -> bool:
    """Whether the machine gave too little memory, also where a library cannot be loaded and says so in its own way.

    A `MemoryError` on its own, or a lock that is refused, says so only below a limit: without one, what asked for too
    much is a mistake of ours. A thread or process that cannot be started is refused by the machine in any case.
    """
    if lacks_threads(error):
        return True
    for each in _chain(error):
        is_of_storage = isinstance(each, OSError) and each.errno == errno.ENOMEM
        is_of_loader = isinstance(each, ImportError) and any(words in str(each) for words in _NO_MEMORY)
        is_of_limit = _is_of_allocation(each) and has_limit_of_memory()
        if is_of_limit or is_of_storage or is_of_loader or isinstance(each, OutOfMemoryError):
            return True
    return False


def lacks_threads(error: BaseException | None) -> bool:
    """Whether the machine, or a limit of threads and processes, refused to start one more."""
    return any(
        (isinstance(each, RuntimeError) and str(each).startswith(_NO_THREAD))
        or (isinstance(each, OSError) and each.errno == errno.EAGAIN and each.filename is None)
        for each in _chain(error)
    )


def words_of_lack(error: BaseException) -> str:
    """Lack of the machine, in words, and the remedy; empty for any other error."""
    if lacks_threads(error) and not has_limit_of_memory():
        return "the machine, or a limit such as ulimit -u, gives too few threads or processes; raise the limit"
    if lacks_memory(error):
        return "the machine, or a limit such as ulimit -v, gives too little memory; raise the limit"
    return ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


@contextmanager
def memory_of_the_machine() -> Iterator[None]:
    """Raise an `OutOfMemoryError`, which no boundary makes a finding of, for every error that says `lacks_memory`.

    Raises:
        OutOfMemoryError: the machine gave too little memory.
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except Exception as error:
        if lacks_memory(error):
            raise OutOfMemoryError from error
        raise


def _is_of_allocation(error: BaseException) -> bool:
    """Whether memory for an object, for a lock or for the window of zlib was refused."""
    is_of_lock = isinstance(error, RuntimeError) and str(error).startswith(_NO_LOCK)
    is_of_window = isinstance(error, zlib.error) and str(error).startswith(_NO_WINDOW)
    return isinstance(error, MemoryError) or is_of_lock or is_of_window


def _is_of_the_user(path: object) -> bool:
    """Whether a path that the system refuses, such as one whose name is too long, lies outside of this package."""
    return isinstance(path, str) and Path(__file__).resolve().parents[1] not in Path(path).absolute().parents
