"""The only place that reads pickles: as a list of operations over inert values, which imports and calls nothing."""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

from trainspec_validate.checkpoints.allowed import is_allowed
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError

MAX_PICKLE_BYTES = 256 * 1024 * 1024
MAX_OPERATIONS = 20_000_000
"""Far above what an index of 100,000 tensors needs."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of code; it stands for itself and is never looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Inert:
    """What a pickle would build or call: what it names, with which arguments, and which state it is given."""

    function: Any
    arguments: Any = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Pairs:
    """A mapping as the pairs that it was given; keys are not hashed."""

    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def texts(self) -> dict[str, Any]:
        """The pairs whose keys are texts."""
        return {key: value for key, value in self.pairs if isinstance(key, str)}


@dataclass(slots=True)
class Content:
    """What a pickle holds."""

    value: Any
    denied: list[str]
    """Names of code outside the allow-list, each once."""


class _Mark:
    """Where a group on the stack begins."""


_MARK = _Mark()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)


class Machine:
    """Follows the operations of one pickle over inert values."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.denied: dict[str, None] = {}

    def run(self, file: BytesIO) -> Any:
        """The value at the end.

        Raises:
            LimitError: the pickle has too many operations.
            UnreadableError: it breaks the format.
        """
        try:
            for number, (operation, argument, _) in enumerate(pickletools.genops(file)):
                if number > MAX_OPERATIONS:
                    raise LimitError(f"has more than {MAX_OPERATIONS:,} operations")
                if operation.name == "STOP":
                    return self.stack.pop()
                self._step(operation.name, argument)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as error:
            raise UnreadableError(f"is no pickle that can be followed: {error or type(error).__name__}") from error
        raise UnreadableError("is no pickle that can be followed: it has no end")

    def _step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _OPERATIONS:
            _OPERATIONS[name](self, argument)
        elif name not in {"PROTO", "FRAME"}:
            raise ValueError(f"operation {name} is not among those of checkpoints")

    def _group(self) -> list[Any]:
        """What stands above the last mark; both are taken away."""
        place = next((n for n in range(len(self.stack) - 1, -1, -1) if self.stack[n] is _MARK), None)
        if place is None:
            raise ValueError("a group has no begin")
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def _name(self, module: Any, name: Any) -> Name:
        if not isinstance(module, str) or not isinstance(name, str):
            raise TypeError("a name of code is no text")
        found = Name(module, name)
        if not is_allowed(found.module, found.name):
            self.denied[str(found)] = None
        return found

    def global_(self, argument: Any) -> None:
        """A name of code, written in one line."""
        module, _, name = argument.partition(" ")
        self.stack.append(self._name(module, name))

    def stack_global(self, _argument: Any) -> None:
        """A name of code from two texts."""
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(self._name(module, name))

    def extension(self, argument: Any) -> None:
        """A name of code by a number, which only a running program can resolve."""
        self.stack.append(self._name("copyreg", f"extension_{argument}"))

    def inst(self, argument: Any) -> None:
        """A call of a name with the group as arguments."""
        module, _, name = argument.partition(" ")
        self.stack.append(Inert(self._name(module, name), tuple(self._group())))

    def obj(self, _argument: Any) -> None:
        """A call of the first of the group with the others as arguments."""
        function, *arguments = self._group()
        self.stack.append(self._call(function, tuple(arguments)))

    def reduce(self, _argument: Any) -> None:
        """A call, which is not made."""
        arguments, function = self.stack.pop(), self.stack.pop()
        self.stack.append(self._call(function, arguments))

    def newobj_ex(self, _argument: Any) -> None:
        """A call with named arguments, which is not made."""
        named, arguments, function = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.stack.append(self._call(function, (arguments, named)))

    def _call(self, function: Any, arguments: Any) -> Inert:
        if not isinstance(function, Name):
            self.denied["a function that another call returns"] = None
        return Inert(function, arguments)

    def build(self, _argument: Any) -> None:
        """State for what stands below it."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], Inert):
            self.stack[-1].state = state
        else:
            raise ValueError("state is given to what has none")

    def put(self, argument: Any) -> None:
        """Remember the top under a number."""
        self.memo[int(argument)] = self.stack[-1]

    def memoize(self, _argument: Any) -> None:
        """Remember the top under the next number."""
        self.memo[len(self.memo)] = self.stack[-1]

    def get(self, argument: Any) -> None:
        """What was remembered under a number."""
        self.stack.append(self.memo[int(argument)])

    def make(self, size: int | None, kind: Callable[[Iterable[Any]], Any]) -> None:
        """A value of the topmost `size` values, or of the group."""
        self.stack.append(kind(self._group() if size is None else self.take(size)))

    def extend(self, taken: list[Any]) -> None:
        """Put values into the list or set at the top."""
        _list_of(self.stack[-1]).extend(taken)

    def assign(self, taken: list[Any]) -> None:
        """Put pairs into the mapping at the top."""
        pairs = list(zip(taken[::2], taken[1::2], strict=True))
        top = self.stack[-1]
        (top.pairs if isinstance(top, Pairs) else top.items).extend(pairs)

    def take(self, size: int) -> list[Any]:
        """The topmost values, taken away."""
        if size > len(self.stack):
            raise IndexError("the stack is empty")
        taken = self.stack[len(self.stack) - size :]
        del self.stack[len(self.stack) - size :]
        return taken

    def group(self) -> list[Any]:
        """The group, taken away."""
        return self._group()

    def persist(self, argument: Any) -> None:
        """A reference to something outside the pickle."""
        self.stack.append(Inert(Name("persistent", "id"), (argument if argument is not None else self.stack.pop(),)))


def _list_of(value: Any) -> list[Any]:
    found = value.items if isinstance(value, Inert) else value
    if not isinstance(found, list):
        raise TypeError("values are added to what holds none")
    return found


def _pairs(taken: Iterable[Any]) -> Pairs:
    values = list(taken)
    return Pairs(list(zip(values[::2], values[1::2], strict=True)))


_OPERATIONS: dict[str, Callable[[Machine, Any], None]] = {
    "GLOBAL": Machine.global_,
    "STACK_GLOBAL": Machine.stack_global,
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), Machine.extension),
    "INST": Machine.inst,
    "OBJ": Machine.obj,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), Machine.reduce),
    "NEWOBJ_EX": Machine.newobj_ex,
    "BUILD": Machine.build,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine.put),
    "MEMOIZE": Machine.memoize,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PERSID", "BINPERSID"), Machine.persist),
    "MARK": lambda machine, _: machine.stack.append(_MARK),
    "POP": lambda machine, _: machine.stack.__delitem__(-1),
    "POP_MARK": lambda machine, _: machine.group().clear(),
    "DUP": lambda machine, _: machine.stack.append(machine.stack[-1]),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append(Pairs()),
    "EMPTY_SET": lambda machine, _: machine.stack.append([]),
    "LIST": lambda machine, _: machine.make(None, list),
    "TUPLE": lambda machine, _: machine.make(None, tuple),
    "TUPLE1": lambda machine, _: machine.make(1, tuple),
    "TUPLE2": lambda machine, _: machine.make(2, tuple),
    "TUPLE3": lambda machine, _: machine.make(3, tuple),
    "FROZENSET": lambda machine, _: machine.make(None, tuple),
    "DICT": lambda machine, _: machine.make(None, _pairs),
    "APPEND": lambda machine, _: machine.extend(machine.take(1)),
    **dict.fromkeys(("APPENDS", "ADDITEMS"), lambda machine, _: machine.extend(machine.group())),
    "SETITEM": lambda machine, _: machine.assign(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.assign(machine.group()),
}


def follow(file: BytesIO) -> Content:
    """What the next pickle of a file in memory holds, and which names of code it asks for that are not allowed.

    Raises:
        LimitError: it has too many operations.
        UnreadableError: it breaks the format.
    """
    machine = Machine()
    value = machine.run(file)
    return Content(value, list(machine.denied))
