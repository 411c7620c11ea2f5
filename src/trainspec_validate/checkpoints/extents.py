"""Compares what a tensor or array of a pickle takes with the elements that its storage, or its bytes, hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs, Skipped
from trainspec_validate.checkpoints.tiles import shown, volume
from trainspec_validate.checkpoints.view import is_count
from trainspec_validate.system.digits import is_digits

ELEMENT_BYTES: Final = {
    **dict.fromkeys(
        ("UntypedStorage", "ByteStorage", "CharStorage", "BoolStorage", "QInt8Storage", "QUInt8Storage"), 1
    ),
    **dict.fromkeys(("HalfStorage", "BFloat16Storage", "ShortStorage"), 2),
    **dict.fromkeys(("FloatStorage", "IntStorage", "QInt32Storage"), 4),
    **dict.fromkeys(("DoubleStorage", "LongStorage", "ComplexFloatStorage"), 8),
    "ComplexDoubleStorage": 16,
}
"""Bytes of an element of each type of storage in PyTorch."""
_DTYPE_BYTES: Final = {
    **dict.fromkeys(("uint8", "int8", "bool", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
_GRADIENT_PLACES: Final = {"_rebuild_tensor_v2": 4, "_rebuild_tensor_v3": 4, "_rebuild_qtensor": 5}
"""Of `requires_grad` in the arguments; PyTorch takes a truth value alone: torch/csrc/autograd/python_variable.cpp."""
_REBUILT: Final = frozenset({"_rebuild_tensor", *_GRADIENT_PLACES})
_DTYPE_PLACE: Final = 6
"""Of the type in the arguments of `_rebuild_tensor_v3`, whose storage has none."""
_OF_A_TYPE: Final = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2"})
_MOST_DIGITS: Final = 4
"""Of the size in the name of a type of NumPy."""
_SHOWN: Final = 3
_WITHOUT_SETTER: Final = frozenset(Name("collections", name) for name in ("Counter", "OrderedDict", "defaultdict"))
"""Classes whose objects take a mapping for their state, or a pair of one and of slots: pickle.py, load_build."""
_SCALARS: Final = frozenset({"numpy.core.multiarray", "numpy._core.multiarray"})
_OBJECTS: Final = re.compile(r"[|<>=]?O[0-9]{0,2}|object_?")
"""Types of objects of Python, as a type of NumPy is written."""


@dataclass(slots=True)
class Misfits:
    """Tensors and arrays that reach beyond what is there for them, in words."""

    first: list[str] = field(default_factory=list)
    number: int = 0

    def add(self, words: str) -> None:
        """One more; nothing where there are no words."""
        if words:
            self.number += 1
            if len(self.first) < _SHOWN:
                self.first.append(words)

    def __str__(self) -> str:
        return "; ".join(self.first) + (f"; and {self.number - _SHOWN:,} more" if self.number > _SHOWN else "")


def misfit_of_call(function: Name, arguments: Any) -> str:
    """In which way the tensor or array that a call would make does not fit; empty where it does or nothing shows it."""
    check = _CALLS.get(function.name)
    return check(function, arguments) if check is not None and isinstance(arguments, tuple) else ""


def misfit_of_state(made: Inert, state: Any) -> str:
    """The same of the state that an array of NumPy is given: its version, shape, type, order and bytes."""
    if (
        isinstance(made.function, Name)
        and made.function in _WITHOUT_SETTER
        and not isinstance(state, Pairs | Inert | None)
    ):
        is_pair = isinstance(state, tuple) and len(state) == 2
        return "" if is_pair else f"{made.function} is given a state that is no mapping"
    is_array = isinstance(made.function, Name) and made.function.name == "_reconstruct"
    if not is_array or not isinstance(state, tuple) or len(state) != 5:
        return ""
    return _of_array(state[1], state[2], _num_bytes(state[4]))


def _of_tensor(function: Name, arguments: tuple[Any, ...]) -> str:
    """Storage, offset, size and stride: torch/_utils.py, _rebuild_tensor."""
    if len(arguments) < 4 or not all(isinstance(one, tuple) for one in arguments[2:4]):
        return ""
    storage, offset, size, stride = arguments[:4]
    if not all(type(one) is int or isinstance(one, Inert) for one in (offset, *size, *stride)):
        return "a tensor has an offset, a size or a stride that is no whole number"
    place = _GRADIENT_PLACES.get(function.name, len(arguments))
    if not all(isinstance(one, bool | Inert) for one in arguments[place : place + 1]):
        return "a tensor says neither true nor false to whether it needs a gradient"
    if any(isinstance(one, Inert) for one in (offset, *size, *stride)):
        return ""
    held = _held_bytes(storage)
    width = _element_bytes(function, arguments) if held is not None else None
    if held is None or width is None:
        return ""
    key, num_bytes = held
    if len(size) != len(stride) or not all(map(is_count, (offset, *size, *stride))):
        return f"a tensor on storage {key!r} has an offset, a size or a stride that no tensor has"
    wanted = _extent(offset, size, stride) * width
    if wanted <= num_bytes:
        return ""
    return f"a tensor of shape {shown(size)} reaches byte {wanted:,} of storage {key!r}, which has {num_bytes:,} bytes"


def _of_a_type(_function: Name, arguments: tuple[Any, ...]) -> str:
    """A function, a class and the arguments of the function: torch/_tensor.py, _rebuild_from_type_v2."""
    if len(arguments) < 3 or not isinstance(arguments[0], Name) or arguments[0].name not in _REBUILT:
        return ""
    return misfit_of_call(arguments[0], arguments[2])


def _of_buffer(_function: Name, arguments: tuple[Any, ...]) -> str:
    """Bytes, type, shape and order: numpy/_core/numeric.py, _frombuffer."""
    return _of_array(arguments[2], arguments[1], _num_bytes(arguments[0])) if len(arguments) == 4 else ""


def _of_scalar(function: Name, arguments: tuple[Any, ...]) -> str:
    """Type and bytes: numpy/_core/src/multiarray/multiarraymodule.c, array_scalar; one of Python has none."""
    kind = arguments[0] if arguments else None
    code = kind.arguments[:1] if isinstance(kind, Inert) and isinstance(kind.arguments, tuple) else ()
    is_of_objects = function.module in _SCALARS and code and isinstance(code[0], str) and _OBJECTS.fullmatch(code[0])
    return "a number of NumPy has the type of objects of Python, which NumPy writes for none" if is_of_objects else ""


_CALLS: Final[dict[str, Callable[[Name, tuple[Any, ...]], str]]] = {
    **dict.fromkeys(_REBUILT, _of_tensor),
    **dict.fromkeys(_OF_A_TYPE, _of_a_type),
    "_frombuffer": _of_buffer,
    "scalar": _of_scalar,
}


def _extent(offset: int, size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of a storage up to the last that a tensor takes."""
    if not all(size):
        return 0
    return offset + 1 + sum((number - 1) * step for number, step in zip(size, stride, strict=True))


def _held_bytes(storage: Any) -> tuple[str, int] | None:
    """Key and bytes of a storage: the word storage, type, key, device, number of elements and, of old files, a view."""
    said = storage.arguments[0] if isinstance(storage, Inert) and storage.function == Name("persistent", "id") else None
    if not isinstance(said, tuple) or len(said) < 5 or said[0] != "storage" or not isinstance(said[2], str):
        return None
    width = ELEMENT_BYTES.get(said[1].name) if isinstance(said[1], Name) else None
    view = said[5] if len(said) > 5 else None
    number = view[2] if isinstance(view, tuple) and len(view) == 3 else said[4]
    return (said[2], width * number) if width and is_count(number) else None


def _element_bytes(function: Name, arguments: tuple[Any, ...]) -> int | None:
    """Bytes of an element of a tensor: those of its type, or of its storage."""
    if function.name != "_rebuild_tensor_v3":
        kind = arguments[0].arguments[0][1]
        return ELEMENT_BYTES.get(kind.name) if kind.name != "UntypedStorage" else None
    kind = arguments[_DTYPE_PLACE] if len(arguments) > _DTYPE_PLACE else None
    return _DTYPE_BYTES.get(kind.name) if isinstance(kind, Name) else None


def _of_array(shape: Any, dtype: Any, num_bytes: int | None) -> str:
    width = _item_bytes(dtype)
    if width is None or num_bytes is None or not isinstance(shape, tuple) or not all(map(is_count, shape)):
        return ""
    wanted = volume(shape) * width
    return "" if wanted == num_bytes else f"an array of shape {shown(shape)} has {num_bytes:,} of {wanted:,} bytes"


def _item_bytes(dtype: Any) -> int | None:
    """Bytes of an element of a type of NumPy that is a plain number."""
    if (
        not isinstance(dtype, Inert)
        or dtype.function != Name("numpy", "dtype")
        or not isinstance(dtype.arguments, tuple)
    ):
        return None
    word = dtype.arguments[0] if dtype.arguments else None
    if not isinstance(word, str) or word[:1] not in {"f", "i", "u", "b", "c"}:
        return None
    digits = word[1:]
    return int(digits) if is_digits(digits) and len(digits) <= _MOST_DIGITS else None


def _num_bytes(data: Any) -> int | None:
    """Bytes of the content of an array; old protocols write them as text, one character each."""
    if isinstance(data, Skipped):
        return data.num_bytes
    if isinstance(data, Inert) and data.function == Name("_codecs", "encode") and data.arguments:
        data = data.arguments[0]
    return len(data) if isinstance(data, (bytes, bytearray, str)) else None
