"""Compares the storages that pickles of PyTorch refer to with the bytes that are there for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.extents import ELEMENT_BYTES
from trainspec_validate.checkpoints.pickle_values import Inert, Name
from trainspec_validate.checkpoints.view import is_count
from trainspec_validate.checkpoints.zips import Zip
from trainspec_validate.system.digits import is_digits

_PICKLE = ".pkl"
_STATE = "data.pkl"
_SKIPPED = "traced_inputs.pkl"
"""TorchScript writes the storages of its examples without bytes."""
_VERSIONS = ("version", ".data/version")
_VERSION = re.compile(rb"\s*\+?0*(?:[1-9]|10)(?!\d)")
"""Versions of the format that PyTorch reads; https://github.com/pytorch/pytorch/blob/v2.9.0/caffe2/serialize/versions.h."""
_ORDER = "byteorder"
_ALIGNMENT = ".storage_alignment"
_MOST_RECORD_BYTES = 64
_NUMBER_BYTES = 8
"""Of the number of elements before each storage in a file of `_legacy_save`."""
_SHOWN = 3
_NUM_SAID = 5
"""Values of a reference in a container: the word storage, type, key, device and number of elements."""
_SHOWN_BITS, _SHOWN_CHARACTERS = 64, 40


@dataclass(slots=True)
class _Lack:
    """Storages that lack the same thing, in words."""

    shown: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, words: str) -> None:
        """One more."""
        self.number += 1
        if len(self.shown) < _SHOWN:
            self.shown.append(words)

    def __str__(self) -> str:
        return ", ".join(self.shown) + (f" and {self.number - _SHOWN:,} more" if self.number > _SHOWN else "")


def storage_bytes(references: Iterable[Any]) -> dict[str, int | None]:
    """Bytes of each storage that a pickle refers to, by key; None where its type is not known.

    The reference is the word storage, type, key, device and number of elements: torch/serialization.py, persistent_id.
    """
    return dict(_sizes(references))


def _sizes(references: Iterable[Any]) -> Iterator[tuple[str, int | None]]:
    for one in references:
        if isinstance(one, tuple) and len(one) >= 5 and one[0] == "storage" and isinstance(one[2], str):
            width = ELEMENT_BYTES.get(one[1].name) if isinstance(one[1], Name) else None
            yield one[2], width * one[4] if width and is_count(one[4]) else None


def odd_references(references: Iterable[Any], words: Sequence[str] = ("storage",)) -> Iterator[str]:
    """References that PyTorch refuses, whichever bytes are there, in words: torch/serialization.py, persistent_load.

    Args:
        references: what the persistent ids of one pickle say.
        words: what the first of each may be.
    """
    odd = _Lack()
    for one in references:
        if tuple(words) == ("storage",) and len(one) != _NUM_SAID:
            odd.add(f"{len(one):,} values in place of {_NUM_SAID}")
        elif not one or one[0] not in words:
            odd.add(f"{_said(one[0] if one else None)} in place of {words[0]!r}")
        elif one[0] == "storage" and len(one) >= 5:
            _, kind, key, _, number = one[:5]
            if isinstance(kind, Name) and not kind.name.endswith("Storage"):
                odd.add(f"{_said(key)} of the type {kind}, which is no storage")
            elif not isinstance(number, int | Inert) or (isinstance(number, int) and number < 0):
                odd.add(f"{_said(key)} with {_said(number)} as its number of elements")
    if odd.number:
        yield f"references to storages that PyTorch does not follow: {odd}"


def _said(value: Any) -> str:
    is_short = isinstance(value, float | str | None) or (isinstance(value, int) and value.bit_length() <= _SHOWN_BITS)
    return repr(value)[:_SHOWN_CHARACTERS] if is_short else "another value"


def contradictions(references: Iterable[Any]) -> Iterator[str]:
    """Storages to which one pickle refers with different numbers of bytes, in words: PyTorch makes them once."""
    first: dict[str, int] = {}
    others = _Lack()
    for key, num_bytes in _sizes(references):
        if num_bytes is not None and first.setdefault(key, num_bytes) != num_bytes:
            others.add(f"{key!r} with {first[key]:,} and with {num_bytes:,} bytes")
    if others.number:
        yield f"references to one storage differ: {others}"


def lacks_of_container(container: Zip, pickle: str, references: Iterable[Any]) -> Iterator[str]:
    """Storages of one pickle in a container that are missing, in words."""
    references = list(references)
    folder = pickle.removesuffix(_STATE)
    if folder != pickle:
        yield from _odd_records(container, folder)
    if folder != pickle:
        yield from odd_references(references)
    wanted = storage_bytes(references)
    if not wanted or not pickle.lower().endswith(_PICKLE) or pickle.endswith(_SKIPPED):
        return
    yield from contradictions(references)
    names = set(container.names())
    stem, top = pickle[: -len(_PICKLE)], pickle.partition("/")[0]
    absent, other = _Lack(), _Lack()
    for key, num_bytes in wanted.items():
        places = (f"{stem}/{key}", f"{top}/.data/{key}.storage")  # torch.save and TorchScript; torch.package
        entry = next((place for place in places if place in names), None)
        if entry is None:
            absent.add(repr(places[0]))
        elif num_bytes not in {None, container.size(entry)}:
            other.add(f"{entry!r} with {container.size(entry):,} of {num_bytes:,} bytes")
    if absent.number:
        yield f"storages that {pickle!r} refers to are missing: {absent}"
    if other.number:
        yield f"storages that {pickle!r} refers to have another size: {other}"
    if folder != pickle and not any(f"{folder}{name}" in names for name in _VERSIONS):
        yield f"the record {folder + _VERSIONS[0]!r} is missing, without which PyTorch loads nothing"


def _odd_records(container: Zip, folder: str) -> Iterator[str]:
    """Records next to a state without which, or with whose content, PyTorch loads nothing; in words."""
    names = set(container.names())
    version = next((folder + name for name in _VERSIONS if folder + name in names), None)
    if version is not None and not _VERSION.match(_content(container, version)):
        yield f"the record {version!r} has no version of the format that PyTorch reads"
    if folder + _ORDER in names and _content(container, folder + _ORDER) not in {b"little", b"big"}:
        yield f"the record {folder + _ORDER!r} is neither little nor big, and PyTorch reads no other order of bytes"
    if folder + _ALIGNMENT in names and not _is_number(_content(container, folder + _ALIGNMENT)):
        yield f"the record {folder + _ALIGNMENT!r} has no number, without which PyTorch loads nothing"


def _content(container: Zip, name: str) -> bytes:
    return container.read(name, _MOST_RECORD_BYTES) if container.size(name) <= _MOST_RECORD_BYTES else b""


def _is_number(text: bytes) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True


def state_is_missing(container: Zip) -> str:
    """The pickle of a container that has storages and lacks it; empty where nothing is missing."""
    names = set(container.names())
    for name in names:
        folder, _, key = name.rpartition("/data/")
        if is_digits(key) and f"{folder}/{_STATE}" not in names:
            return f"{folder}/{_STATE}"
    return ""


def save_is_missing(container: Zip) -> str:
    """The pickle of the state, where a container has none in the folder of its first entry: torch.load reads no other.

    https://github.com/pytorch/pytorch/blob/v2.9.0/caffe2/serialize/inline_container.cc, PyTorchStreamReader::init
    """
    names = container.names()
    state = f"{names[0].partition('/')[0] if names else 'archive'}/{_STATE}"
    return "" if state.lower() in map(str.lower, names) else state


_WIDTHS_BYTES = (1, 2, 4, 8, 16)
"""Of one element of a storage; its number of elements is before its bytes, and `torch.load` compares them."""


def lacks_of_legacy(file: BinaryIO, keys: Any, references: Iterable[Any]) -> Iterator[str]:
    """Storages after the five pickles of `_legacy_save` that are missing, in words.

    Args:
        file: is read from where the first of them begins; is left behind the last one, where all are there.
        keys: those of the fifth pickle, in the order of the storages.
        references: those of the fourth.
    """
    references = list(references)
    wanted = storage_bytes(references)
    yield from odd_references(references, ("storage", "module"))
    yield from contradictions(references)
    listed = [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []
    absent = _Lack()
    for key in wanted.keys() - set(listed):
        absent.add(repr(key))
    if absent.number:
        yield f"storages that its state refers to are not listed: {absent}"
    place, end = file.tell(), os.fstat(file.fileno()).st_size
    for n, key in enumerate(listed):
        num_bytes = wanted.get(key)
        if num_bytes is None:
            return  # where the next one begins is not known
        file.seek(place)
        number = int.from_bytes(file.read(_NUMBER_BYTES), "little")
        place += _NUMBER_BYTES + num_bytes
        if place <= end and num_bytes not in {number * width for width in _WIDTHS_BYTES}:
            words = f"has {number:,} elements, and its tensors ask for {num_bytes:,} bytes"
            yield f"storage {n + 1:,} of {len(listed):,} {words}"
            return
        if place > end:
            yield f"the file ends {place - end:,} bytes before the end of storage {n + 1:,} of {len(listed):,}"
            return
    file.seek(place)
