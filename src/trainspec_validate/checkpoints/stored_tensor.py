"""Reads the type and the shape of the tensor that a pickle of `torch.save` would build, without building it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from trainspec_validate.checkpoints.pickle_values import Inert, Name
from trainspec_validate.checkpoints.tiles import shown
from trainspec_validate.checkpoints.view import is_count

_DTYPES: Final = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
}
"""Type of the elements by the class of their storage."""
_PERSISTENT: Final = Name("persistent", "id")
_SIZE_PLACE, _DTYPE_PLACE = 2, 6
"""Of shape and type in the arguments of `_rebuild_tensor_v2` and `_rebuild_tensor_v3`."""
_PLAIN: Final = frozenset({"_rebuild_tensor", "_rebuild_tensor_v2"})
_TYPED: Final = "_rebuild_tensor_v3"
_PARAMETERS: Final = frozenset({"_rebuild_parameter", "_rebuild_parameter_with_state"})
_OF_A_TYPE: Final = frozenset({"_rebuild_from_type", "_rebuild_from_type_v2"})
_MOST_LEVELS: Final = 4
"""Calls around a tensor, such as that of a parameter."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Type and shape of a tensor; the type is empty where it is not known."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {shown(self.shape)}".strip()


def stored_tensor(value: Any) -> StoredTensor | None:
    """The tensor that a pickle holds at its top, alone or as a parameter; None for anything else."""
    for _ in range(_MOST_LEVELS):
        if not isinstance(value, Inert) or not isinstance(value.function, Name):
            return None
        function, arguments = value.function.name, value.arguments
        if not isinstance(arguments, tuple):
            return None
        if function in _PLAIN or function == _TYPED:
            return _of_call(function, arguments)
        if function in _PARAMETERS and arguments:
            value = arguments[0]
        elif function in _OF_A_TYPE and len(arguments) > 2:
            value = Inert(arguments[0], arguments[2])
        else:
            return None
    return None


def _of_call(function: str, arguments: tuple[Any, ...]) -> StoredTensor | None:
    """Storage, offset, size, stride and, in the third version, type: torch/_utils.py."""
    shape = arguments[_SIZE_PLACE] if len(arguments) > _SIZE_PLACE else None
    if not isinstance(shape, tuple) or not all(map(is_count, shape)):
        return None
    if function == _TYPED:
        dtype = dtype_name(arguments[_DTYPE_PLACE]) if len(arguments) > _DTYPE_PLACE else ""
    else:
        dtype = _of_storage(arguments[0])
    return StoredTensor(dtype, shape)


def dtype_name(value: Any) -> str:
    """Name of a type of PyTorch, such as float32; empty for anything else."""
    return value.name if isinstance(value, Name) and value.module == "torch" else ""


def _of_storage(storage: Any) -> str:
    said = storage.arguments[0] if isinstance(storage, Inert) and storage.function == _PERSISTENT else None
    kind = said[1] if isinstance(said, tuple) and len(said) > 1 and said[0] == "storage" else None
    return _DTYPES.get(kind.name, "") if isinstance(kind, Name) else ""
