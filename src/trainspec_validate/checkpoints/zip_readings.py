"""Finds the places where programs would read different contents from one zip container.

Readers differ in the directory that they find, in the one of two equal names that they take, in whether case counts (it
does for Python and not for PyTorch), and in where a name ends. An entry that one of them judges is then not the entry
that another one loads.
"""

from __future__ import annotations

import io
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from trainspec_validate.checkpoints.limits import ZIP_DIRECTORY_BYTES, ZIP_ENTRIES, AmbiguousError

# https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7 to 4.3.16
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s2x2x2H4x4x2L3H2x2x4xL")
_LOCAL = struct.Struct("<4s2x2H4x4x2L2H")
_EXTRA = struct.Struct("<2H")
_END_MARK, _END64_MARK, _LOCATOR_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY_MARK, _LOCAL_MARK = b"PK\x01\x02", b"PK\x03\x04"
_LARGE_ID, _OTHER_NAME_ID = 0x0001, 0x7075
_LARGE_16, _LARGE_32 = 0xFFFF, 0xFFFFFFFF
_SIZES_FOLLOW = 1 << 3
_SAME_FLAGS = 0x0841
"""Encryption, and the encoding of names: both headers of an entry say the same."""
_MOST_ZEROS = 65_000
"""Bytes behind the end with which PyTorch 2.13 still loads a container; with 500 more it fails."""
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a directory says of an entry, as it is written."""

    name: bytes
    flags: int
    method: int
    packed_bytes: int
    num_bytes: int
    offset: int


def refuse_ambiguous(file: io.RawIOBase, num_bytes: int) -> None:
    """Look at the end, the directory and the header of every entry as they are written.

    Raises:
        AmbiguousError: programs would read different things; the text says why.
        OverLimitError: the directory is larger than the limits.
    """
    begin, size, num_entries = _directory(file, num_bytes)
    ZIP_DIRECTORY_BYTES.check(size)
    ZIP_ENTRIES.check(num_entries)
    entries = list(_entries(_read(file, begin, size), num_entries))
    seen: dict[bytes, bytes] = {}
    for entry in entries:
        if _CONTROL.search(entry.name):
            raise _ambiguous(f"the name {_shown(entry.name)} holds a control character, at which some end it")
        other = seen.setdefault(entry.name.lower(), entry.name)
        if other is not entry.name:
            how = "appears twice" if other == entry.name else f"differs from {_shown(other)} in case only"
            raise _ambiguous(f"the name {_shown(entry.name)} {how}")
        _check_header(file, entry)
    if min((entry.offset for entry in entries), default=0) > 0:
        raise _ambiguous("other bytes precede its first entry")


def _ambiguous(why: str) -> AmbiguousError:
    return AmbiguousError(f"is a zip container that programs read in different ways: {why}")


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "backslashreplace"))


def _read(file: io.RawIOBase, begin: int, size: int) -> bytes:
    file.seek(begin)
    content = b""
    while len(content) < size and (more := file.read(size - len(content))):
        content += more
    return content


def _directory(file: io.RawIOBase, num_bytes: int) -> tuple[int, int, int]:
    """Where the directory begins, its bytes, and its entries, where all programs agree on them."""
    num_bytes -= _num_zeros(file, num_bytes)
    place = num_bytes - _END.size
    tail = _read(file, max(0, place), _END.size)
    if len(tail) < _END.size or not tail.startswith(_END_MARK):
        raise _ambiguous("its directory is not at its end: a comment or other bytes follow")
    _, disk, first_disk, num_here, num_entries, size, begin, comment_bytes = _END.unpack(tail)
    if comment_bytes:
        raise _ambiguous("it claims a comment that is not there")
    narrow = (disk, first_disk, num_here, num_entries, size, begin)
    locator = _read(file, place - _LOCATOR.size, _LOCATOR.size) if place >= _LOCATOR.size else b""
    end = place
    if locator.startswith(_LOCATOR_MARK):
        end = place - _LOCATOR.size - _END64.size
        disk, first_disk, num_here, num_entries, size, begin = _wide(file, end, _LOCATOR.unpack(locator)[2], narrow)
    if (disk, first_disk) != (0, 0) or num_here != num_entries:
        raise _ambiguous("its end speaks of several parts")
    if begin + size != end:
        raise _ambiguous("its directory is not where its end says")
    return begin, size, num_entries


def _num_zeros(file: io.RawIOBase, num_bytes: int) -> int:
    """Zero bytes behind the end, as a block of a disk that was not written leaves them: all programs pass over them."""
    length = min(num_bytes, _END.size + _MOST_ZEROS)
    tail = _read(file, num_bytes - length, length)
    end = tail.rfind(_END_MARK) + _END.size
    return length - end if end >= _END.size and not tail[end:].strip(b"\0") else 0


def _wide(file: io.RawIOBase, place: int, told: int, narrow: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of the end in 64 bits, which must not contradict those of the end in 32 bits."""
    content = _read(file, place, _END64.size) if place >= 0 else b""
    if told != place or not content.startswith(_END64_MARK):
        raise _ambiguous("its end in 64 bits is not where its locator says")
    _, size_bytes, _, _, *wide = _END64.unpack(content)
    limits = (_LARGE_16,) * 4 + (_LARGE_32,) * 2
    agree = all(short in {long, most} for short, long, most in zip(narrow, wide, limits, strict=True))
    if size_bytes != _END64.size - 12 or not agree:
        raise _ambiguous("its two ends contradict each other")
    return tuple(wide)


def _entries(content: bytes, num_entries: int) -> Iterator[_Entry]:
    place = 0
    for _ in range(num_entries):
        if len(content) - place < _ENTRY.size or not content.startswith(_ENTRY_MARK, place):
            raise _ambiguous("its directory holds fewer entries than its end says")
        _, flags, method, packed, unpacked, name_bytes, extra_bytes, comment_bytes, offset = _ENTRY.unpack_from(
            content, place
        )
        begin = place + _ENTRY.size
        name = content[begin : begin + name_bytes]
        extra = content[begin + name_bytes : begin + name_bytes + extra_bytes]
        yield _Entry(name, flags, method, *_sizes(name, extra, (unpacked, packed, offset)))
        place = begin + name_bytes + extra_bytes + comment_bytes
    if place != len(content):
        raise _ambiguous("its directory holds more than the entries that its end says")


def _sizes(name: bytes, extra: bytes, narrow: tuple[int, int, int]) -> tuple[int, int, int]:
    """Packed and unpacked bytes and the place of an entry, with those that need 64 bits."""
    wide: list[bytes] = []
    place = 0
    while place + _EXTRA.size <= len(extra):
        kind, size = _EXTRA.unpack_from(extra, place)
        place += _EXTRA.size
        if kind == _OTHER_NAME_ID:
            raise _ambiguous(f"the entry {_shown(name)} has a second name")
        if kind == _LARGE_ID:
            wide.append(extra[place : place + size])
        place += size
    needed = [n for n, value in enumerate(narrow) if value == _LARGE_32]
    if len(wide) > 1 or (needed and (not wide or len(wide[0]) < 8 * len(needed))):
        raise _ambiguous(f"the entry {_shown(name)} has other sizes in 64 bits than it needs")
    found = list(narrow)
    for count, n in enumerate(needed):
        found[n] = int.from_bytes(wide[0][8 * count : 8 * count + 8], "little")
    return found[1], found[0], found[2]


def _check_header(file: io.RawIOBase, entry: _Entry) -> None:
    """Compare what stands before the content of an entry with what the directory says of it."""
    header = _read(file, entry.offset, _LOCAL.size + len(entry.name))
    if len(header) < _LOCAL.size or not header.startswith(_LOCAL_MARK):
        raise _ambiguous(f"the entry {_shown(entry.name)} is not where its directory says")
    _, flags, method, packed, unpacked, name_bytes, _ = _LOCAL.unpack_from(header)
    sizes = ((packed, entry.packed_bytes), (unpacked, entry.num_bytes))
    later = {0} if flags & _SIZES_FOLLOW else set()
    agree = all(told in {wanted, _LARGE_32, *later} for told, wanted in sizes)
    if name_bytes != len(entry.name) or header[_LOCAL.size :] != entry.name:
        raise _ambiguous(f"the entry {_shown(entry.name)} has another name where its content begins")
    if method != entry.method or (flags ^ entry.flags) & _SAME_FLAGS or not agree:
        raise _ambiguous(f"the entry {_shown(entry.name)} is described differently where its content begins")
