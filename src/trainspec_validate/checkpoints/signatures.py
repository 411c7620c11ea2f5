"""Says which calls of plain names in a pickle fail in a loader for their arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs, Skipped

_NUMBERS: Final = {
    "bool": (0, 1),
    "bytearray": (0, 3),
    "bytes": (0, 3),
    "complex": (0, 2),
    "dict": (0, 1),
    "float": (0, 1),
    "frozenset": (0, 1),
    "int": (0, 2),
    "list": (0, 1),
    "object": (0, 0),
    "range": (1, 3),
    "set": (0, 1),
    "slice": (1, 3),
    "str": (0, 3),
    "tuple": (0, 1),
}
_BUILT_IN: Final = {(module, name): most for name, most in _NUMBERS.items() for module in ("builtins", "__builtin__")}
_TAKEN: Final[dict[tuple[str, str], tuple[int, int]]] = {
    **_BUILT_IN,
    ("_codecs", "encode"): (1, 3),
    ("argparse", "Namespace"): (0, 0),
    ("collections", "Counter"): (0, 1),
    ("collections", "OrderedDict"): (0, 1),
    ("collections", "defaultdict"): (0, 2),
    ("collections", "deque"): (0, 2),
    ("datetime", "date"): (1, 3),
    ("datetime", "datetime"): (1, 8),
    ("datetime", "timedelta"): (0, 7),
    ("datetime", "timezone"): (1, 2),
    ("decimal", "Decimal"): (0, 2),
    ("numpy", "dtype"): (1, 4),
    ("torch", "Size"): (0, 1),
    ("torch", "device"): (1, 2),
    ("torch._utils", "_rebuild_tensor"): (4, 4),
    ("torch._utils", "_rebuild_tensor_v2"): (6, 7),
    ("torch._utils", "_rebuild_tensor_v3"): (7, 8),
    ("torch._utils", "_rebuild_qtensor"): (7, 7),
    ("torch._utils", "_rebuild_parameter"): (3, 3),
    ("torch._utils", "_rebuild_parameter_with_state"): (4, 4),
    ("torch._utils", "_rebuild_sparse_tensor"): (2, 2),
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): (4, 4),
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): (4, 4),
    ("torch._tensor", "_rebuild_from_type_v2"): (4, 4),
    ("uuid", "UUID"): (1, 6),
}
"""Fewest and most arguments."""
_KIND: Final = re.compile(
    r"[<>|=]?(?:[?bhilqpBHILQPefdgFDGOSUVacMmn]|[iu][1248]|f(?:2|4|8|1[02346]|16)|c(?:8|16|2[04]|32)|b1|[SUVaOMmc][0-9]{1,10})"
    r"(?:\[[^\]]{1,20}\])?|(?:u?int|float|complex|bool|str|bytes|object|void|datetime|timedelta|longdouble|double|half)\w*"
    r"|.*[,{(].*",
    re.ASCII | re.DOTALL,
)
"""Types of NumPy in a text: https://numpy.org/doc/stable/reference/arrays.dtypes.html."""
_NUMBER: Final = re.compile(
    r"\s*[-+]?(?:(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:e[-+]?[0-9][0-9_]*)?|inf(?:inity)?|s?nan[0-9]*)\s*",
    re.IGNORECASE,
)
_DEVICE: Final = re.compile(r"[a-z]\w{0,30}(?::[0-9]{1,4})?", re.ASCII)
_LAST_LATIN: Final = "\xff"
_MOST_BYTES: Final = 1 << 34
_DATE_BYTES: Final = {"date": 4, "datetime": 10}


def misfit_of_arguments(function: Name, arguments: Any) -> str:
    """Why a call of a plain name fails for its arguments, in words; empty where it does not or nothing shows it."""
    key = function.module, function.name
    if key not in _TAKEN or not isinstance(arguments, tuple):
        return ""
    fewest, most = _TAKEN[key]
    if not fewest <= len(arguments) <= most:
        taken = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        return f"{function} is given {len(arguments):,} arguments, and takes {taken}"
    check = _CHECKS.get(function.name)
    is_wrong = bool(arguments) and check is not None and not check(function.name, arguments)
    return f"{function} is given what it does not take" if is_wrong else ""


def _is_iterated(_name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    return not (first is None or isinstance(first, int | float | complex | Name))


def _is_small(_name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether bytes that are given as their number are as many as a program may have memory for."""
    first = arguments[0]
    return type(first) is not int or 0 <= first <= _MOST_BYTES


def _is_mapping(name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    if not _is_iterated(name, arguments):
        return False
    pairs = first if isinstance(first, list | tuple) and not isinstance(first, Pairs) else ()
    return all(not isinstance(one, int | float | None) for one in pairs) and not isinstance(first, str | bytes)


def _is_factory(_name: str, arguments: tuple[Any, ...]) -> bool:
    return arguments[0] is None or isinstance(arguments[0], Name | Inert)


def _is_day(name: str, arguments: tuple[Any, ...]) -> bool:
    """The bytes of a date, of a time as well, or its numbers."""
    first = arguments[0]
    if isinstance(first, Inert):
        return True  # bytes of a protocol that has none
    if isinstance(first, bytes | str):
        data = first if isinstance(first, bytes) else first.encode("latin-1", "replace")
        return len(data) == _DATE_BYTES[name] and _is_in_year(data)
    numbers = arguments[:3]
    if len(numbers) < 3 or not all(type(one) is int for one in numbers):
        return False
    year, month, day = numbers
    return bool(1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31)


def _is_in_year(data: bytes) -> bool:
    year, month, day = int.from_bytes(data[:2], "big"), data[2] & 127, data[3]  # its highest bit tells two hours apart
    is_date = 1 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31
    is_time = len(data) == _DATE_BYTES["date"] or (data[4] < 24 and data[5] < 60 and data[6] < 60)
    return bool(is_date and is_time)


def _is_kind(_name: str, arguments: tuple[Any, ...]) -> bool:
    return not isinstance(arguments[0], str) or _KIND.fullmatch(arguments[0]) is not None


def _is_number(_name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    return not isinstance(first, str) or _NUMBER.fullmatch(first) is not None


def _is_size(_name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    return isinstance(first, Inert) or (isinstance(first, list | tuple) and all(_is_length(one) for one in first))


def _is_length(one: Any) -> bool:
    return type(one) is int or isinstance(one, Inert)


def _is_latin(_name: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a text can be encoded, in which protocols below 3 write bytes; other encodings are not looked at."""
    text, code = arguments if len(arguments) == 2 else ("", "")
    if not isinstance(text, str) or text.isascii() or str(code).casefold() not in {"latin1", "latin-1"}:
        return True
    return max(text) <= _LAST_LATIN


def _is_device(_name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    return not isinstance(first, str) or _DEVICE.fullmatch(first) is not None


def _is_uuid(_name: str, arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    if not isinstance(first, str):
        return first is None or isinstance(first, Inert | Skipped)
    digits = first.replace("urn:", "").replace("uuid:", "").strip("{}").replace("-", "")
    return re.fullmatch(r"[0-9a-fA-F]{32}", digits) is not None


_CHECKS: Final[dict[str, Callable[[str, tuple[Any, ...]], bool]]] = {
    **dict.fromkeys(("list", "tuple", "set", "frozenset", "deque", "Counter"), _is_iterated),
    **dict.fromkeys(("bytearray", "bytes"), _is_small),
    **dict.fromkeys(("dict", "OrderedDict"), _is_mapping),
    "defaultdict": _is_factory,
    **dict.fromkeys(("date", "datetime"), _is_day),
    "dtype": _is_kind,
    "Decimal": _is_number,
    "Size": _is_size,
    "encode": _is_latin,
    "device": _is_device,
    "UUID": _is_uuid,
}
