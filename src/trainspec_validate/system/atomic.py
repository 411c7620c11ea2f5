"""Opens files for writing: an output appears whole or not at all, and never behind a link.

An output is written next to its name and takes the name when all of it is on the disk. A full disk, a kill or a mistake
of ours leaves the old file whole. A link is refused: a tree that is judged may hold one that leads out of it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from trainspec_validate.system.neutral import hazard
from trainspec_validate.system.process import placing

LINK = "this is a link, and nothing is written through links; name what it leads to, or another file"
LINK_ON_THE_WAY = "this is a link out of the working directory; name the place that it leads to"
_STREAM = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,6})|/dev/(stdout|stderr)")
"""Names of what the process has open already, such as those that a shell makes for `>(program)`."""
_NUMBERS = {"stdout": 1, "stderr": 2}
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_START_BYTES = 1_024
_BINARY = getattr(os, "O_BINARY", 0)


def write_atomically(
    path: str | os.PathLike[str],
    content: str | bytes,
    *,
    mode: int | None = None,
    overwrite: bool = True,
    is_output: bool = False,
) -> None:
    """Write a file, whole or not at all, as `new_file`; text as UTF-8, with what UTF-8 cannot hold escaped.

    Raises:
        OSError: it cannot be written, is a link, or is there already and may not be overwritten.
    """
    with new_file(path, mode=mode, overwrite=overwrite, is_output=is_output) as file:
        file.write(content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content)


def write_all(
    contents: Mapping[Path, bytes | Callable[[], bytes]], *, overwrite: bool = True, with_directories: bool = True
) -> None:
    """Write every file, with the directories that they need, or leave none of those that were not there.

    Args:
        contents: the bytes of each file, or what makes them.
        overwrite: files that are there are replaced.
        with_directories: directories that are absent are made.

    Raises:
        OSError: one cannot be written, is a link, or is there already and may not be overwritten. It names those that
            were written before, as what was there cannot be put back.
    """
    made, placed = list[Path](), list[Path]()
    fresh = {path for path in contents if _state(path) is None}
    try:
        with ExitStack() as stack:  # they take their names when all of them have their content
            for path, content in contents.items():
                refuse_link(path)
                if with_directories:
                    _make_directories(path.parent, made)
                made_of_it = content() if callable(content) else content
                stack.enter_context(_placing(path, made_of_it, placed, overwrite=overwrite))
    except BaseException as error:
        kept = [path.as_posix() for path in placed if path not in fresh]
        if kept and isinstance(error, OSError):
            error.strerror = f"{error.strerror or error} (written before: {', '.join(kept)})"
        for path in fresh.intersection(placed):
            path.unlink(missing_ok=True)
        for directory in reversed(made):
            with suppress(OSError):  # somebody else has written into it
                directory.rmdir()
        raise


@contextmanager
def _placing(path: Path, content: bytes, placed: list[Path], *, overwrite: bool) -> Iterator[None]:
    """A file that has its content and takes its name at the end, which is noted; errors name it."""
    try:
        with new_file(path, overwrite=overwrite, is_output=True) as file:
            file.write(content)
            file.flush()
            if not _is_regular(file.fileno()):
                placed.append(path)  # a pipe or a device has its content now
            yield
    except OSError as error:
        error.filename = error.filename or os.fspath(path)
        raise
    if path not in placed:
        placed.append(path)


def _make_directories(directory: Path, made: list[Path]) -> None:
    """Make a directory and those above it, and note what was not there."""
    absent = [one for one in (directory, *directory.parents) if not os.path.lexists(one)]
    for one in reversed(absent):
        one.mkdir(exist_ok=True)
        made.append(one)


@contextmanager
def new_file(
    path: str | os.PathLike[str], *, mode: int | None = None, overwrite: bool = True, is_output: bool = False
) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name at the end; where the body raises, the name keeps what it had.

    A file that is there keeps its permissions unless `mode` gives them. Devices, pipes and the standard streams have
    nothing to keep: they are written as they are. An output is what a program writes last: once it has its name, no
    signal ends the program.

    Raises:
        OSError: it cannot be written, is a link, or is there already and may not be overwritten.
    """
    path = Path(path)
    there = _state(path)
    if there is not None and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
    refuse_link(path)
    if there is None or stat.S_ISREG(there.st_mode):
        yield from _beside(path, there, mode, overwrite=overwrite, is_output=is_output)
        return
    with os.fdopen(_opened(path, there), "wb") as file:
        yield cast("BinaryIO", _Checked(file, path)) if standard_stream(path) else file


def standard_stream(path: str | os.PathLike[str]) -> int:
    """1 for a name of the standard output of the process, 2 for one of its standard error, 0 for any other."""
    stream = _STREAM.fullmatch(os.fspath(path))
    number = int(stream[1] or _NUMBERS[stream[2]]) if stream is not None else 0
    return number if number in _NUMBERS.values() else 0


class _Checked:
    """A standard stream under a name of a file: text that a log would obey is refused, as where it is printed."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._line = ""
        """The line that has not ended, or its end."""
        self._is_binary: bool | None = None

    def write(self, content: bytes) -> int:
        """Write bytes.

        Raises:
            OSError: a terminal or a build system would obey something in them.
        """
        if self._is_binary is None:
            self._is_binary = b"\0" in content[:_START_BYTES]
        text = self._line + content.decode("utf-8", "ignore")
        found = hazard(text)
        if found and (not self._is_binary or self._file.isatty()):
            words = f"the text holds {found!r}, which a terminal or a build system would obey; name a file"
            raise OSError(errno.EINVAL, words, os.fspath(self._path))
        last = text.rpartition("\n")[2]
        self._line = last if len(last) <= _START_BYTES else f"…{last[-_START_BYTES:]}"
        return self._file.write(content)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def refuse_link(path: str | os.PathLike[str]) -> None:
    """Say before long work that its output could not be written.

    Raises:
        OSError: a link is there, whether it leads anywhere or not, or a directory on the way is one that leads out of
            the working directory.
    """
    if _STREAM.fullmatch(os.fspath(path)) is not None:
        return
    if Path(path).is_symlink():
        raise OSError(errno.ELOOP, LINK, os.fspath(path))
    leading = _leads_out(Path(path))
    if leading is not None:
        raise OSError(errno.ELOOP, LINK_ON_THE_WAY, leading.as_posix())


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Say before long work, and before other outputs are written, that one has no place.

    Raises:
        OSError: as of `refuse_link`; or it is a directory, its directory is absent, or the system grants no writing.
    """
    refuse_link(path)
    path = Path(path)
    there = _state(path)
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if there is None and not path.parent.is_dir():
        code = errno.ENOTDIR if os.path.lexists(path.parent) else errno.ENOENT
        raise OSError(code, os.strerror(code), os.fspath(path))
    is_beside = there is None or stat.S_ISREG(there.st_mode)
    if (there is not None and not os.access(path, os.W_OK)) or (is_beside and not os.access(path.parent, os.W_OK)):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))


def _is_regular(descriptor: int) -> bool:
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def is_any_of(path: str | os.PathLike[str], others: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether a path leads to one of other files: by another spelling, a link or a hard link."""
    for other in others:
        with suppress(OSError, ValueError):
            if os.path.samefile(path, other) and stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116, PTH121
                return True
    return False


def is_standard_input(path: str | os.PathLike[str]) -> bool:
    """Whether a regular file is read as standard input."""
    with suppress(OSError, ValueError):
        status = os.stat(path)  # noqa: PTH116
        return stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(0))
    return False


def _leads_out(path: Path) -> Path | None:
    """The first directory of a path inside the working directory that in truth lies elsewhere."""
    if path.is_absolute():
        return None  # whoever names a place outside means it
    cwd = Path.cwd()
    here = os.path.realpath(cwd)
    for directory in [*path.parents][-2::-1]:  # without `.` or the root, the outermost first
        if not Path(os.path.normpath(cwd / directory)).is_relative_to(cwd):
            continue
        # Path.resolve raises where links lead around in a circle.
        if directory.is_symlink() and not Path(os.path.realpath(directory)).is_relative_to(here):
            return directory
    return None


def _state(path: Path) -> os.stat_result | None:
    """What is at a path, links not followed; None where nothing is."""
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:  # a null character
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from None


def _opened(path: Path, there: os.stat_result) -> int:
    """The descriptor of what is no regular file."""
    stream = _STREAM.fullmatch(os.fspath(path))
    if stream is not None:
        return os.dup(int(stream[1] or _NUMBERS[stream[2]]))
    if stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not (stat.S_ISCHR(there.st_mode) or stat.S_ISFIFO(there.st_mode)):
        raise OSError(errno.EINVAL, "this is no regular file", os.fspath(path))
    # A pipe without a reader would be waited for without end.
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | _NO_FOLLOW | _CLOSE_ON_EXEC)
    os.set_blocking(descriptor, True)
    return descriptor


def _beside(
    path: Path, there: os.stat_result | None, mode: int | None, *, overwrite: bool, is_output: bool
) -> Iterator[BinaryIO]:
    if there is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    new = path.with_name(f".trainspec-{secrets.token_hex(8)}")
    try:
        with os.fdopen(_created(new, path, 0o600 if there else mode), "wb") as file:
            if there is not None:
                _keep(file.fileno(), there, mode)
            yield file
            file.flush()
            _sync(file.fileno())
        with placing() if is_output else nullcontext():
            _put(new, path, overwrite=overwrite)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _created(new: Path, path: Path, mode: int | None) -> int:
    """The descriptor of a file that was not there; errors name the file that was asked for."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _CLOSE_ON_EXEC | _BINARY
    try:
        return os.open(new, flags, 0o666 if mode is None else mode)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _keep(descriptor: int, there: os.stat_result, mode: int | None) -> None:
    """Give a file the owner and the permissions of the one that it replaces."""
    if not hasattr(os, "fchmod"):  # Windows before Python 3.13
        return
    with suppress(OSError):
        os.fchown(descriptor, -1, there.st_gid)
        os.fchown(descriptor, there.st_uid, -1)
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode) & 0o777 if mode is None else mode)


def _put(new: Path, path: Path, *, overwrite: bool) -> None:
    if overwrite:
        new.replace(path)
        return
    try:
        os.link(new, path)  # unlike a rename, it fails where something has come to be there
        new.unlink()
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        new.rename(path)


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}:  # what a file system says that has none
            raise


def _sync_directory(directory: Path) -> None:
    """The new name outlasts a loss of power, where the file system can promise that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _CLOSE_ON_EXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
