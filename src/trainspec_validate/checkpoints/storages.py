"""Finds the values of tensors in what `torch.save` writes, with the names of the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from trainspec_validate.checkpoints.limits import NAME_CHARACTERS, PIECES, STATE_LEVELS, LimitError, within
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.checkpoints.statistics import Piece
from trainspec_validate.checkpoints.view import Archive, Checkpoint
from trainspec_validate.checkpoints.zips import Zip, opened
from trainspec_validate.system.budget import Count

_TYPES = {"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16"}
_PERSISTENT = Name("persistent", "id")
_STATE = "data.pkl"
_END = object()
_MAX_WORD_BYTES = 64
_MAX_KEY_BITS = 64
_MAX_LABEL_CHARACTERS = 4_096
_NAME_COST = 100
"""Bytes that a name takes beside its characters."""


def storages(checkpoint: Checkpoint) -> Iterator[Piece]:
    """Where the values of each tensor are, in all containers of a checkpoint that could be read."""
    budget = Count(PIECES)
    for archive in checkpoint.archives:
        try:
            with opened(checkpoint.root / archive.path, archive) as container:
                found = list(_of_container(container, archive, budget))
        except LimitError as error:
            checkpoint.report("limits", archive.path, f"the state {error}")
            continue
        except UnreadableError:
            continue  # told by the reader of the format
        yield from (replace(one, path=archive.path, offset=one.offset + archive.offset) for one in found)


def _of_container(container: Zip, archive: Archive, budget: Count) -> Iterator[Piece]:
    names = set(container.names())
    for state in [name for name in container.pickles() if name.endswith(_STATE)]:
        folder = state.removesuffix(_STATE)
        order = f"{folder}byteorder"
        if order in names and container.read(order, _MAX_WORD_BYTES) != b"little":
            continue
        seen: set[str] = set()
        with container.stream(state) as file:
            value = follow(file).value
        for key, kind, label in _references(value):
            entry = f"{folder}data/{key}"
            place = container.place(entry) if entry in names and entry not in seen else None
            seen.add(entry)
            with within():
                budget.add()
            if place is not None:
                name = ".".join(part for part in (archive.label, label) if part) or entry
                yield Piece(archive.path, name, *place, dtype=_TYPES.get(kind, ""))


def names(checkpoint: Checkpoint) -> set[str]:
    """The keys of all state in the containers of a checkpoint, with those that lead to them."""
    found: set[str] = set()
    characters = Count(NAME_CHARACTERS)
    for archive in checkpoint.archives:
        if archive.label:
            continue  # an index names it
        try:
            with opened(checkpoint.root / archive.path, archive) as container:
                for state in [name for name in container.pickles() if name.endswith(_STATE)]:
                    with container.stream(state) as file:
                        value = follow(file).value
                    with within():
                        for label in filter(None, (label for _, label in _walk(value))):
                            _add(found, label, characters)
        except LimitError as error:
            checkpoint.report("limits", archive.path, f"the state {error}")
        except UnreadableError:
            continue  # told by the reader of the format
    return found


def _add(found: set[str], label: str, characters: Count) -> None:
    if label not in found:
        characters.add(len(label) + _NAME_COST)
        found.add(label)


def _references(value: Any) -> Iterator[tuple[str, str, str]]:
    """Key and type of each storage that a state refers to, and the keys that lead to it."""
    for held, label in _walk(value):
        if isinstance(held, Inert) and held.function == _PERSISTENT:
            yield from _storage(held.arguments, label)


def _walk(value: Any) -> Iterator[tuple[Any, str]]:
    """Every part of a state once, with the keys that lead to it.

    Raises:
        LimitError: it is nested deeper than any state is; each level costs the keys that lead to it.
    """
    yield value, ""
    pending = [_inside(value, "")]
    seen = {id(value)}
    while pending:
        held, label = next(pending[-1], (_END, ""))
        if held is _END:
            pending.pop()
            continue
        yield held, label
        if isinstance(held, (Inert, Pairs, list, tuple)) and id(held) not in seen:
            seen.add(id(held))
            pending.append(_inside(held, label))
            with within():
                STATE_LEVELS.check(len(pending))


def _inside(held: Any, label: str) -> Iterator[tuple[Any, str]]:
    """The values in a value, with the keys that lead to them."""
    if isinstance(held, Pairs):
        yield from ((inner, _join(label, key)) for key, inner in held.pairs)
    elif isinstance(held, Inert):
        pairs = [one for one in held.items if isinstance(one, tuple) and len(one) == 2]  # as of an OrderedDict
        rest = (held.arguments, held.state) if pairs else (held.arguments, held.state, held.items)
        yield from ((inner, label) for inner in rest)
        yield from ((inner, _join(label, key)) for key, inner in pairs)
    elif isinstance(held, (list, tuple)):
        yield from ((inner, label) for inner in held)


def _join(label: str, key: Any) -> str:
    is_name = isinstance(key, str) or (isinstance(key, int) and key.bit_length() <= _MAX_KEY_BITS)
    if not is_name or len(label) > _MAX_LABEL_CHARACTERS:
        return label
    return f"{label}.{key}"[:_MAX_LABEL_CHARACTERS] if label else str(key)[:_MAX_LABEL_CHARACTERS]


def _storage(arguments: Any, label: str) -> Iterator[tuple[str, str, str]]:
    """torch/serialization.py, persistent_id: the word storage, type, key, device and number of elements."""
    told = arguments[0] if isinstance(arguments, tuple) and arguments else None
    if isinstance(told, tuple) and len(told) >= 3 and told[0] == "storage" and isinstance(told[2], str):
        yield told[2], told[1].name if isinstance(told[1], Name) else "", label
