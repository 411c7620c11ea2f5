"""Reads a user's file for import: bounded, as UTF-8, each line ending with a line feed alone."""

from __future__ import annotations

from pathlib import Path

from trainspec_validate.documents.load import MAX_BYTES, LoadError, read_file
from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText

_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_HEAD = 4096


def foreign_text(path: Path, name: str | None = None) -> ForeignText:
    """The text of a regular file; `name` is what messages call it.

    Raises:
        ForeignFormatError: the file cannot be read, is larger than 32 MiB, or is no UTF-8 text.
    """
    try:
        content = read_file(path)
    except LoadError as error:
        if error.code == "too-large":
            raise _too_large() from None
        raise ForeignFormatError(error.message, None, error.help) from None
    return decoded(content, path.as_posix() if name is None else name)


def decoded(content: bytes, name: str) -> ForeignText:
    r"""The text of what was read, without byte order mark.

    Raises:
        ForeignFormatError: the content is larger than 32 MiB, binary, or no UTF-8.

    >>> decoded(b"one\r\ntwo", "log").text
    'one\ntwo'
    """
    if len(content) > MAX_BYTES:
        raise _too_large()
    if content.startswith(_UTF16):
        raise ForeignFormatError("the file is encoded in UTF-16 or UTF-32", None, "save it as UTF-8")
    if b"\0" in content[:_HEAD]:
        raise ForeignFormatError("this is a binary file, not text", None, "name a text file")
    plain = content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return ForeignText(name, plain.decode())
    except UnicodeDecodeError as error:
        line = plain.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{plain[error.start]:02x} is not UTF-8"
        raise ForeignFormatError(message, line, "save the file as UTF-8, or cut the line") from None


def _too_large() -> ForeignFormatError:
    told = "cut a log to the lines of the library, for example: grep NCCL job.log"
    return ForeignFormatError(f"the file is larger than {MAX_BYTES // 1024**2} MiB", None, told)
