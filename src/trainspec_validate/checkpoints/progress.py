"""Reads how far training was when a file of `torch.save` was written, to order files that are side by side."""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from trainspec_validate.checkpoints.counted import Counted
from trainspec_validate.checkpoints.opening import UnreadableError, open_file
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs, size_of
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.checkpoints.view import Archive, is_count
from trainspec_validate.checkpoints.zips import Zip, opened

GLOBAL_KEYS = ("global_step", "global_steps", "num_updates", "completed_steps", "total_steps", "iter_num")
"""Keys of steps that are counted from the start of training."""
LOCAL_KEYS = ("steps", "step", "iteration", "iter", "it", "current_step", "updates", "train_step", "train_steps")
"""Keys of steps that some programs count anew in each epoch."""
EPOCH_KEYS = ("epoch", "current_epoch")
_KEYS = frozenset((*GLOBAL_KEYS, *LOCAL_KEYS, *EPOCH_KEYS))
_PARTS = re.compile(
    r"(?:train(?:er|ing)?_|extra_)?(?:state|progress|status|meta|metadata|info|loop|iterator)|train(?:er|ing)?"
    r"|optimizer_history",
    re.ASCII | re.IGNORECASE,
)
"""Keys of the part of a state that says how far training is; fairseq keeps the steps in a list of optimizers."""
_PARTS_DEPTH = 2
_OPTIMIZER = re.compile(r"(?:last_|base_)?optim(?!.*history)", re.IGNORECASE)
"""Keys of optimizers: fairseq begins its own with `last_`, and ZeRO the one that it wraps with `base_`."""
LIGHTNING = "pytorch-lightning_version"
"""Key of states of Lightning."""
_INNER_DEPTH = 3
_NUM_VALUES = 1_000
_MOST_CHARACTERS = 100
_ARGUMENTS = "args"
_MAPPINGS = frozenset({"OrderedDict", "defaultdict"})
_NUMBERS = {"FloatStorage": "<f", "DoubleStorage": "<d", "LongStorage": "<q", "IntStorage": "<i"}
_REBUILD = "_rebuild_tensor_v2"
_NUM_PARAMETERS = 16
"""Parameters of an optimizer whose steps are read: those that are frozen have none."""
_NUM_OPTIMIZERS = 64
_NUM_COUNTED = 512
"""Parameters whose steps are read where a difference would be reported."""
_NUM_NAMES = 10_000
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_STATE = 3
"""Place of the state among the pickles after the magic number."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress that a state reports of itself."""

    counts: dict[str, int] = field(default_factory=dict)
    """Steps and epochs by their keys."""
    optimizer_step: int | None = None
    """The highest step of a parameter in an optimizer."""
    has_optimizer: bool = False
    tensors: frozenset[str] = frozenset()
    """Names of tensors that are in no optimizer; files of one model have the same."""
    shapes: frozenset[tuple[str, str]] = frozenset()
    """These names with the sizes of the tensors."""

    @property
    def is_state(self) -> bool:
        """Whether a run can resume from it, as far as its keys show."""
        return bool(self.counts) or self.has_optimizer


def progress_of(path: Path) -> Progress | None:
    """Progress that a file reports; None where it cannot be read as one of `torch.save`."""
    try:
        with open_file(path) as file:
            start = file.read(2)
        return _of_container(path) if start == b"PK" else _of_pickles(path)
    except (OSError, UnreadableError):
        return None


def hold_the_same(one: Path, other: Path) -> bool:
    """Whether two containers have the same entries by their checksums, whatever name each was saved under."""
    try:
        with opened(one, Archive(one.name)) as first, opened(other, Archive(other.name)) as second:
            sums = first.sums()
            return sums is not None and sums == second.sums()
    except (OSError, UnreadableError):
        return False


def _of_container(path: Path) -> Progress | None:
    with opened(path, Archive(path.name)) as container:
        name = next(iter(container.pickles()), "")
        if not name:
            return None
        with container.stream(name) as file:
            value = follow(file).value
        return _progress(value, scalars_of(container, name))


def _of_pickles(path: Path) -> Progress:
    """One pickle, or those of versions before 1.6, whose tensors are not read."""
    with open_file(path) as file:
        value = follow(file).value
        if value == _LEGACY_MAGIC:
            value = [follow(file).value for _ in range(_LEGACY_STATE)][-1]
    return _progress(value, lambda _: None)


def _progress(value: Any, scalar: Callable[[Any], int | None]) -> Progress:
    state = _items(value)
    optimizers = [part for key, part in state.items() if _OPTIMIZER.match(key) and _is_filled(part)]
    steps = [step for part in optimizers for step in _optimizer_steps(part, scalar)]
    tensors = list(islice(_tensors(state), _NUM_NAMES))
    return Progress(
        _counts(state, scalar, _PARTS_DEPTH),
        max(steps, default=None),
        bool(optimizers),
        frozenset(name for name, _ in tensors),
        frozenset((name, _sizes(tensor)) for name, tensor in tensors),
    )


def counted(value: Any, scalar: Callable[[Any], int | None]) -> Counted:
    """Progress that a state, a part of one, or an object with settings reports.

    Args:
        value: as the pickle of it was followed.
        scalar: reads the whole number in a tensor of one element.
    """
    state = _fields(value)
    values = {key: one for key, one in state.items() if _is_plain(one)}
    arguments = _fields(state.get(_ARGUMENTS)).items()
    values |= {f"{_ARGUMENTS}.{key}": one for key, one in islice(arguments, _NUM_VALUES) if _is_plain(one)}
    number = state.get("last_epoch")
    return Counted(
        values,
        max(_all_steps(value, scalar), default=None),
        number if is_count(number) and "_step_count" in state else None,
        "num_bad_epochs" in state,
        tuple(islice(_loop_steps(state), _NUM_PARAMETERS)),
        tuple(islice(_rates(value), _NUM_COUNTED)),
        next(_odd_counts(value), ""),
        is_empty=not _is_filled(value),
    )


def _odd_counts(value: Any) -> Iterator[str]:
    """Steps of an optimizer or a schedule, or of Lightning, that are texts or truth values, in words."""
    for part in _optimizers(value):
        items = _items(part)
        keys = [key for key in ("last_epoch", "_step_count") if "_step_count" in items]
        keys += ["global_step"] if LIGHTNING in items else []
        yield from (f"{key} is {items[key]!r}" for key in keys if isinstance(items.get(key), str | bool))
        parameters = items.get("state")
        for _, one in islice(parameters.pairs if isinstance(parameters, Pairs) else (), _NUM_COUNTED):
            step = _items(one).get("step")
            if isinstance(step, str | bool):
                yield f"step of a parameter is {step!r}"


def _rates(value: Any) -> Iterator[float]:
    for part in _optimizers(value):
        groups = _items(part).get("param_groups")
        for group in groups if isinstance(groups, list) else ():
            rate = _items(group).get("lr")
            if isinstance(rate, int | float):
                yield float(rate)


def _loop_steps(state: dict[str, Any]) -> Iterator[int]:
    """What the loop of Lightning that trains counts: `optimizer_steps` and `optim_step_progress` of its parts."""
    for key, part in _items(_items(state.get("loops")).get("fit_loop")).items():
        path = ("optimizer", "step", "total") if key.endswith(".optim_progress") else ("total",)
        if key.endswith((".optim_progress", ".optim_step_progress")):
            for name in path:
                part = _items(part).get(name)  # noqa: PLW2901
            number = _items(part).get("completed")
            if is_count(number):
                yield number


def _fields(value: Any) -> dict[str, Any]:
    """The pairs of a mapping, or the fields of an object."""
    is_object = isinstance(value, Inert) and isinstance(value.state, Pairs)
    return dict(islice((value.state.texts() if is_object else _items(value)).items(), _NUM_VALUES))


def _is_plain(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _MOST_CHARACTERS)


def _optimizers(value: Any) -> Iterator[Any]:
    """A state, the optimizers in it, and those that they wrap; each once, and so many at most."""
    pending = deque([(value, 0)])
    seen: set[int] = set()
    while pending and len(seen) < _NUM_OPTIMIZERS:
        part, depth = pending.popleft()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list):
            pending += [(one, depth) for one in islice(part, _NUM_OPTIMIZERS)]
            continue
        yield part
        if depth < _INNER_DEPTH:
            inner = ((one, depth + 1) for key, one in _items(part).items() if _OPTIMIZER.match(key))
            pending += islice(inner, _NUM_OPTIMIZERS)


def _all_steps(value: Any, scalar: Callable[[Any], int | None]) -> Iterator[int]:
    """The steps of optimizers in a state; the first parameters may have been frozen for long, so more are read."""
    for part in _optimizers(value):
        yield from _optimizer_steps(part, scalar, _NUM_COUNTED)


def scalars_of(container: Zip, pickle: str) -> Callable[[Any], int | None]:
    """Reader of the whole number in a tensor of one element, out of the storages next to a pickle."""
    return lambda value: _scalar(value, container, pickle)


def _items(value: Any) -> dict[str, Any]:
    """The pairs of a mapping whose keys are texts."""
    if isinstance(value, Pairs):
        return value.texts()
    if isinstance(value, Inert) and isinstance(value.function, Name) and value.function.name in _MAPPINGS:
        return {pair[0]: pair[1] for pair in value.items if isinstance(pair, tuple) and isinstance(pair[0], str)}
    return {}


def _is_filled(value: Any) -> bool:
    return bool(value.pairs) if isinstance(value, Pairs) else value is not None and value != []


def _counts(state: dict[str, Any], scalar: Callable[[Any], int | None], depth: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, value in state.items():
        number = value if is_count(value) else _whole(value) if isinstance(value, float) else scalar(value)
        if key in _KEYS and number is not None:
            found[key] = number
    for key, value in state.items():
        part = value[-1] if isinstance(value, list) and value else value
        if depth and _PARTS.fullmatch(key):
            found = {**_counts(_items(part), scalar, depth - 1), **found}
    return found


def _whole(value: float) -> int | None:
    return int(value) if 0 <= value < 1 << 53 and value.is_integer() else None


def _optimizer_steps(value: Any, scalar: Callable[[Any], int | None], most: int = _NUM_PARAMETERS) -> Iterator[int]:
    """The steps of the first parameters of an optimizer, or of those in a list."""
    for part in islice(value, _NUM_PARAMETERS) if isinstance(value, list) else (value,):
        parameters = _items(part).get("state")
        for _, one in islice(parameters.pairs if isinstance(parameters, Pairs) else (), most):
            step = _items(one).get("step")
            number = step if is_count(step) else scalar(step)
            if number is not None:
                yield number


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Inert) and isinstance(value.function, Name) and value.function.name.startswith("_rebuild_")


def _tensors(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if _is_tensor(value):
            yield key, value
        elif not _OPTIMIZER.match(key):
            yield from ((f"{key}.{name}", inner) for name, inner in _items(value).items() if _is_tensor(inner))


def _sizes(tensor: Inert) -> str:
    """The sizes of a tensor in each dimension; empty where they are not known."""
    is_known = isinstance(tensor.arguments, tuple) and len(tensor.arguments) > 2
    return str(size_of(tensor.arguments[2])) if is_known else ""


def _scalar(value: Any, container: Zip, pickle: str) -> int | None:
    """The whole number in a tensor of one element."""
    if not _is_tensor(value) or value.function.name != _REBUILD or not isinstance(value.arguments, tuple):
        return None
    storage, offset, size = (*value.arguments, None, None, None)[:3]
    said = storage.arguments[0] if isinstance(storage, Inert) and isinstance(storage.arguments, tuple) else None
    if size_of(size) not in {(), (1,)} or not is_count(offset) or not isinstance(said, tuple) or len(said) < 5:
        return None
    form = _NUMBERS.get(said[1].name) if isinstance(said[1], Name) else None
    entry = f"{pickle.removesuffix('.pkl')}/{said[2]}"
    if form is None or entry not in container.names() or offset != 0:
        return None
    with container.stream(entry) as file:
        content = file.read(struct.calcsize(form))
    if len(content) < struct.calcsize(form):
        return None
    (number,) = struct.unpack(form, content)
    return number if is_count(number) else _whole(number) if isinstance(number, float) else None
