"""The boundary around the reader of one untrusted input: whatever it makes its reader raise is a failure of that input.

A mistake of ours, such as a key that is looked up and absent, is none of these and passes through as it is. So does the
failure to load a module, whatever it raises.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from traceback import walk_tb
from typing import BinaryIO, Final, NamedTuple

from trainspec_validate.system.budget import OverLimitError

_PLAIN: Final = (OSError, EOFError, ValueError, RecursionError, OverflowError, MemoryError, struct.error, zlib.error)
"""What the standard library raises for content and for storage; every `UnicodeError` is a `ValueError`."""
_OF_LIBRARIES: Final = (
    ("_lzma", "LZMAError"),
    ("msgspec", "MsgspecError"),
    ("pyarrow.lib", "ArrowException"),
    ("xml.parsers.expat", "ExpatError"),
    ("yaml", "YAMLError"),
    ("zipfile", "BadZipFile"),
    ("zstandard", "ZstdError"),
)
"""Module and class of the errors of readers that are loaded only where they are needed."""
_IMPORT: Final = "<frozen importlib."
"""How the names of the files begin whose code loads modules."""
_LONGEST = 200
_WRITE_AGAIN = "write the file again, or leave it out"


class InputError(Exception):
    """An input that the user named cannot be judged: it does not exist, cannot be read, or holds nothing of ours.

    Each argument is one line.
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class OutOfMemoryError(MemoryError):
    """The machine gave the process too little memory: a failure of the run, and of no input."""


class Refusal(NamedTuple):
    """Why an input cannot be read, and what would be right."""

    reason: str
    help: str


class UnreadableError(InputError):
    """One file of several cannot be read; it travels between processes."""

    def __init__(self, name: str, reason: str, help: str) -> None:  # noqa: A002
        super().__init__(f"{name}: {reason}; {help}")
        self.name, self.reason, self.help = name, reason, help

    def __reduce__(self) -> tuple[type[UnreadableError], tuple[str, str, str]]:
        return UnreadableError, (self.name, self.reason, self.help)


class TogetherUnreadableError(Exception):
    """Several files cannot be read as one whole, and no one of them is to blame; `help` says what to do."""

    def __init__(self, reason: str, help: str) -> None:  # noqa: A002
        super().__init__(reason)
        self.help = help


@contextmanager
def untrusted(told: Callable[[str, str], Exception]) -> Iterator[None]:
    """Run the reader of one input; what the input makes it raise becomes `told(reason, help)`."""
    try:
        yield
    except Exception as error:
        found = refusal_of(error)
        if found is None:
            raise
        raise told(*found) from error


def unreadable(name: str) -> Callable[[str, str], UnreadableError]:
    """How to report that the file of a name cannot be read."""
    return lambda reason, remedy: UnreadableError(name, reason, remedy)


def open_regular(path: Path) -> BinaryIO:
    """A regular file, for reading its bytes.

    Raises:
        OSError: it cannot be opened, or is a directory, a pipe or a device.
        ValueError: no file can have such a name.
    """
    # O_NONBLOCK: opening a FIFO without a writer would wait for ever.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.ENODEV, "this is not a regular file", str(path))
        if hasattr(os, "pread"):
            os.pread(descriptor, 1, 0)  # some files of the kernel are regular, and have nothing to read yet
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def waiting(stream: BinaryIO) -> BinaryIO:
    """A standard stream that waits for what is not there yet; one that does not would end where its writer pauses."""
    with suppress(OSError, ValueError):
        os.set_blocking(stream.fileno(), True)
    return stream


def refusal_of(error: BaseException) -> Refusal | None:
    """Message on an input whose reader raised this; None for a mistake of ours, and for a lack of the machine."""
    if isinstance(error, OverLimitError):
        return Refusal(str(error), "make it smaller, or split it")
    is_of_memory = isinstance(error, OSError) and error.errno == errno.ENOMEM
    if isinstance(error, OutOfMemoryError) or is_of_memory or _is_of_import(error):
        return None
    if isinstance(error, OSError) and error.errno is not None:
        return _of_storage(error)
    if isinstance(error, RecursionError):
        return Refusal("it nests deeper than can be read", "write it with fewer levels")
    if isinstance(error, MemoryError):
        return Refusal("reading it takes more memory than there is", "make it smaller, or give the process more memory")
    if isinstance(error, UnicodeError):
        return Refusal("a text or a name in it is not UTF-8", "write it in UTF-8")
    if isinstance(error, EOFError):
        return Refusal("it ends early", "copy the file again")
    if isinstance(error, OverflowError):
        return Refusal("a number in it is too large to compute with", "write a number below 1.8e308")
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return Refusal("the name of a file has a NUL character", "write the name without it")
    if isinstance(error, ValueError) and "set_int_max_str_digits" in str(error):
        return Refusal("an integer in it has more digits than can be read", "write a shorter number")
    if isinstance(error, _PLAIN) or _is_of_library(error):
        return Refusal(f"its content cannot be read: {words_of(error)}", _WRITE_AGAIN)
    return None


def words_of(error: BaseException) -> str:
    r"""The words of a library for a message: one line, which ends where they are too many.

    >>> words_of(ValueError("no page\n  at 7"))
    'no page at 7'
    """
    words = str(error).partition("; use sys.")[0]  # advice for the programmer
    return " ".join(words.split())[:_LONGEST] or type(error).__name__


def reason_of(error: OSError) -> str:
    """Why the system refused, in small letters; text that is not the system's, such as a path, keeps its letters."""
    reason = error.strerror or str(error)
    return reason.lower() if error.errno and reason == os.strerror(error.errno) else reason


def _of_storage(error: OSError) -> Refusal:
    if error.errno == errno.ENODEV and error.strerror == "this is not a regular file":
        return Refusal(error.strerror, "name a file, or use standard input")
    reason = f"the file cannot be read: {reason_of(error)}"
    if error.errno in {errno.ENOENT, errno.ESTALE}:
        return Refusal(reason, "check the name; if the file was there, run again when nothing changes the files")
    return Refusal(reason, "check the path and its permissions")


def _is_of_import(error: BaseException) -> bool:
    """Whether a module could not be loaded; for too many levels or too little memory the input may be the cause."""
    is_of_input = isinstance(error, RecursionError | MemoryError)
    frames = (frame for frame, _ in walk_tb(error.__traceback__))
    return not is_of_input and any(frame.f_code.co_filename.startswith(_IMPORT) for frame in frames)


def _is_of_library(error: BaseException) -> bool:
    """Whether a library that is loaded says with it that content is damaged."""
    modules = ((sys.modules.get(module), name) for module, name in _OF_LIBRARIES)
    return any(module is not None and isinstance(error, getattr(module, name, ())) for module, name in modules)
