"""Follows the structure of a container of HDF5: groups, headers of objects and where their values are.

Values have no checksum, and are not read. A container that is zeroed from some place on lacks what is behind it. The
layout is that of https://support.hdfgroup.org/documentation/hdf5/latest/_f_m_t3.html.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from trainspec_validate.checkpoints.limits import HDF5_NODES, HDF5_PART_BYTES, within
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.system.budget import Count

_SYMBOLS, _LAYOUT, _LINK, _LINKS, _TYPE, _ATTRIBUTES, _CONTINUED = 0x11, 0x08, 0x06, 0x02, 0x03, 0x15, 0x10
_LAYOUTS = (1, 2, 3, 4)
_OF_OBJECTS = frozenset({_SYMBOLS, _LAYOUT, _LINK, _LINKS, _TYPE})
"""Messages of which a group, an array or a type has at least one."""


class Walk:
    """One container, whose first block was read."""

    def __init__(self, file: BinaryIO, num_bytes: int, widths: tuple[int, int], base: int) -> None:
        """Take the widths of addresses and of lengths in bytes, and what addresses are relative to."""
        self._file = file
        self._num_bytes = num_bytes
        self._address_bytes, self._length_bytes = widths
        self._base = base
        self._num_nodes = Count(HDF5_NODES)
        self._pending: list[int] = []
        self._seen: set[int] = set()

    def follow(self, root: int) -> None:
        """Follow everything from the root group on.

        Raises:
            LimitError: it has more of something than the limits.
            OSError: it cannot be read.
            UnreadableError: something that is pointed at is not there.
        """
        self._enter(root)
        while self._pending:
            address = self._pending.pop()
            kinds = set()
            for kind, message in self._messages(address):
                kinds.add(kind)
                self._follow_message(kind, message)
            if kinds.isdisjoint(_OF_OBJECTS):
                raise UnreadableError(f"has no group and no array at byte {address:,}, where its structure has one")

    def _enter(self, address: int) -> None:
        if address not in self._seen and not self._is_nowhere(address):
            with within():
                self._num_nodes.add()
            self._seen.add(address)
            self._pending.append(address)

    def _is_nowhere(self, address: int) -> bool:
        return address == (1 << 8 * self._address_bytes) - 1

    def _read(self, address: int, num_bytes: int) -> bytes:
        with within():
            HDF5_PART_BYTES.check(num_bytes)
        if self._base + address + num_bytes > self._num_bytes:
            wanted = self._base + address + num_bytes
            raise UnreadableError(f"has {self._num_bytes:,} bytes, and its structure asks for {wanted:,}")
        self._file.seek(self._base + address)
        return self._file.read(num_bytes)

    def _node(self, address: int, num_bytes: int, mark: bytes) -> bytes:
        """So many bytes of what begins with a mark."""
        with within():
            self._num_nodes.add()
        content = self._read(address, num_bytes)
        if not content.startswith(mark):
            words = f"has no {mark.decode()} at byte {address:,}, where its structure has one"
            raise UnreadableError(f"{words}: it is cut, zeroed or damaged")
        return content

    def _number(self, content: bytes, place: int, num_bytes: int | None = None) -> int:
        """A number; an address where no width is given."""
        end = place + (num_bytes or self._address_bytes)
        if end > len(content):
            raise UnreadableError("has a part of its structure that ends in the middle of a field")
        return int.from_bytes(content[place:end], "little")

    def _messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        start = self._read(address, min(16, self._num_bytes - self._base - address))
        if start.startswith(b"OHDR"):
            yield from self._new_messages(address, start)
        elif start[:1] == b"\x01" and len(start) == 16:
            num_left = self._number(start, 2, 2)
            yield from self._old_messages(address + 16, self._number(start, 8, 4), num_left)
        else:
            raise UnreadableError(f"has no object at byte {address:,}, where its structure has one: it is damaged")

    def _old_messages(self, address: int, num_bytes: int, num_left: int) -> Iterator[tuple[int, bytes]]:
        blocks = [(address, num_bytes)]
        while blocks:
            content = self._read(*blocks.pop())
            place = 0
            while place + 8 <= len(content) and num_left:
                kind, length = self._number(content, place, 2), self._number(content, place + 2, 2)
                message = content[place + 8 : place + 8 + length]
                place, num_left = place + 8 + length, num_left - 1
                if kind == _CONTINUED:
                    with within():
                        self._num_nodes.add()
                    blocks.append(
                        (self._number(message, 0), self._number(message, self._address_bytes, self._length_bytes))
                    )
                else:
                    yield kind, message
        if num_left:
            raise UnreadableError(f"lacks messages of the object at byte {address:,}: it is cut, zeroed or damaged")

    def _new_messages(self, address: int, start: bytes) -> Iterator[tuple[int, bytes]]:
        flags = start[5] if len(start) > 5 else 0
        place = 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width = 1 << (flags & 3)
        head = self._node(address, place + width, b"OHDR")
        blocks = [(address + place + width, self._number(head, place, width))]
        while blocks:
            content = self._read(*blocks.pop())
            place, least = 0, 6 if flags & 4 else 4
            while place + least <= len(content):
                kind, length = content[place], self._number(content, place + 1, 2)
                message = content[place + least : place + least + length]
                place += least + length
                if kind == _CONTINUED:
                    where = self._number(message, 0)
                    length = self._number(message, self._address_bytes, self._length_bytes)
                    self._node(where, length, b"OCHK")
                    blocks.append((where + 4, max(0, length - 8)))
                else:
                    yield kind, message

    def _follow_message(self, kind: int, message: bytes) -> None:
        width = self._address_bytes
        if kind == _SYMBOLS:
            self._follow_group(self._number(message, 0), self._names(self._number(message, width)))
        elif kind == _LAYOUT:
            self._check_layout(message)
        elif kind == _LINK:
            self._follow_link(message)
        elif kind in {_LINKS, _ATTRIBUTES} and len(message) > 1:
            place = 2 + ((8 if kind == _LINKS else 2) if message[1] & 1 else 0)
            for mark in (b"FRHP", b"BTHD"):
                if not self._is_nowhere(where := self._number(message, place)):
                    self._node(where, len(mark), mark)
                place += width

    def _names(self, address: int) -> bytes:
        """The names of a group, which are in its local heap."""
        width = self._length_bytes
        heap = self._node(address, 8 + 2 * width + self._address_bytes, b"HEAP")
        return self._read(self._number(heap, 8 + 2 * width), self._number(heap, 8, width))

    def _follow_group(self, tree: int, names: bytes) -> None:
        width = self._address_bytes
        head = self._node(tree, 8 + 2 * width, b"TREE")
        count = self._number(head, 6, 2)
        keys = self._read(tree + 8 + 2 * width, count * (width + self._length_bytes))
        for place in range(count):
            child = self._number(keys, place * (width + self._length_bytes) + self._length_bytes)
            if head[5]:
                self._follow_group(child, names)
                continue
            num_symbols = self._number(self._node(child, 8, b"SNOD"), 6, 2)
            entries = self._read(child + 8, num_symbols * (2 * width + 24))
            for entry in range(num_symbols):
                start = entry * (2 * width + 24)
                name = self._number(entries, start)
                if not names[name : name + 1].strip(b"\0"):
                    raise UnreadableError("has an object without a name: it is zeroed or damaged")
                self._enter(self._number(entries, start + width))

    def _follow_link(self, message: bytes) -> None:
        if len(message) < 2 or message[0] != 1:
            raise UnreadableError("has a link of an unknown version in a group: it is zeroed or damaged")
        flags = message[1]
        place = 2
        is_hard = not flags & 8 or message[place : place + 1] == b"\0"
        place += (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
        width = 1 << (flags & 3)
        place += width + self._number(message, place, width)
        if is_hard:
            self._enter(self._number(message, place))

    def _check_layout(self, message: bytes) -> None:
        """Values in one stretch are in the file, and so are those in chunks that a tree of version 1 names."""
        width = self._address_bytes
        if not message or message[0] not in _LAYOUTS:
            raise UnreadableError("has an array of an unknown layout: it is zeroed or damaged")
        if message[0] < _LAYOUTS[-2] or len(message) < 3 + width:
            return
        if message[1] == 1 and not self._is_nowhere(address := self._number(message, 2)):
            end = self._base + address + self._number(message, 2 + width, self._length_bytes)
            if end > self._num_bytes:
                raise UnreadableError(f"has {self._num_bytes:,} bytes, and an array asks for {end:,}")
        elif message[:2] == b"\x03\x02" and not self._is_nowhere(address := self._number(message, 3)):
            self._check_chunks(address, message[2])

    def _check_chunks(self, address: int, num_dimensions: int) -> None:
        width = self._address_bytes
        head = self._node(address, 8 + 2 * width, b"TREE")
        count, key_bytes = self._number(head, 6, 2), 8 + 8 * num_dimensions
        keys = self._read(address + 8 + 2 * width, count * (key_bytes + width))
        for place in range(0, len(keys), key_bytes + width):
            child = self._number(keys, place + key_bytes)
            if head[5]:
                self._check_chunks(child, num_dimensions)
            elif self._base + child + self._number(keys, place, 4) > self._num_bytes:
                raise UnreadableError(f"has {self._num_bytes:,} bytes, and chunks of an array are behind its end")
