"""Reads pickles: as a list of operations over inert values, which imports and calls nothing."""

from __future__ import annotations

import pickletools
import sys
from collections.abc import Callable, Collection, Iterable
from typing import Any, BinaryIO

from trainspec_validate.checkpoints.allowed import is_allowed
from trainspec_validate.checkpoints.calls import run_by_call
from trainspec_validate.checkpoints.extents import Misfits, misfit_of_call, misfit_of_state
from trainspec_validate.checkpoints.functions import RETURNED, Way, class_inside, runs_by_name
from trainspec_validate.checkpoints.held import STORED, is_only_called, misfills, stores_function, stores_method
from trainspec_validate.checkpoints.limits import (
    ALL_OPERATIONS,
    PICKLE_LOOKS,
    PICKLE_OPERATIONS,
    PICKLE_VALUE_BYTES,
    SPENT,
    within,
)
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pickle_content import Content
from trainspec_validate.checkpoints.pickle_operations import COSTS, FETCHES, LITERALS, Fetched, fetched, operations
from trainspec_validate.checkpoints.pickle_stack import Stack
from trainspec_validate.checkpoints.pickle_values import (
    MOST_FIELDS,
    SLOT_BYTES,
    Inert,
    InertError,
    Items,
    Name,
    Pairs,
    Record,
    Skipped,
    checked_keys,
    flat_bytes,
    is_flat,
    items_of,
    look_into,
    pairs_of,
    size_of,
)
from trainspec_validate.checkpoints.signatures import misfit_of_arguments
from trainspec_validate.system.budget import Count, OverLimitError, check_time

_MAX_PROTOCOL = 5
_OPERATIONS_A_LOOK = 100_000
"""Between two looks at the time."""
NUMPY_START = b"\x93NUMPY"
_MAX_NAME_CHARACTERS = 1_000
_RECORD_BYTES = 128
"""Of an object with fields, its place in a list or mapping and the empty tuple of its values."""
_INERT_BYTES = 200 + 3 * SLOT_BYTES
"""Of what stands for an object, which a record replaces, with its class and its empty arguments on the stack."""
_MEMO_BYTES = 100
_PAIR_BYTES = 72
_FREE_NUMBERS = 1_000
_NUMBERS_AN_OPERATION = 10
"""Numbers of the memo that are plausible; CPython reserves 16 bytes for each up to the largest, used or not."""


_FILLING = frozenset({"APPEND", "APPENDS", "ADDITEMS", "SETITEM", "SETITEMS", "BUILD"})
"""Operations that give something to the value below, and take it off the stack first."""
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}


class Machine(Stack):
    """Follows the operations of one pickle over inert values."""

    frame_end = 0
    current = ""
    """The operation that is followed."""

    def __init__(
        self, records: Collection[str] = (), fetched: Fetched | None = None, *, is_tolerant: bool = False
    ) -> None:
        """A machine without values.

        Args:
            is_tolerant: continue after what inert values do not take and objects of a program may.
            records: names of classes whose objects are made smaller once they have their fields.
            fetched: numbers under which the pickle fetches values again; no others are remembered where there are
                `records`.
        """
        super().__init__()
        self.is_tolerant = is_tolerant
        self.records = frozenset(records)
        self.fetched = fetched or Fetched()
        self.num_first = 0
        """Numbers of the memo that were given without a gap, where there are `records`."""
        self.scattered: set[int] = set()
        """The others."""
        self.held_bytes: float = 0
        """Of values that the memo holds, and that are counted once more so."""
        self.floor_bytes: float = 0
        """Bytes of values that may be held from elsewhere, so that they are not given back."""
        self.layouts: dict[tuple[str, ...], tuple[str, ...]] = {}
        self.texts: dict[str, str] = {}
        """Texts of fields."""
        self.memo: list[Any] = []
        self.sparse_memo: dict[int, Any] = {}
        """What is remembered under numbers that do not follow each other."""
        self.denied: dict[str, None] = {}
        self.references: list[Any] = []
        """What persistent ids say."""
        self.misfits = Misfits()
        self.is_called = False
        """Whether anything would be called."""
        self.most_operations = PICKLE_OPERATIONS.most
        self.operations, self.looks = Count(PICKLE_OPERATIONS), Count(PICKLE_LOOKS)
        self.value_bytes = Count(PICKLE_VALUE_BYTES)
        self.value_bytes.add(len(self.fetched.marks))

    def run(self, file: BinaryIO) -> Any:
        """The value at the end.

        Raises:
            OverLimitError: the pickle has more operations or values than the limits.
            UnreadableError: it breaks the format.
        """
        before, spent = self.operations.used, SPENT.get()
        left = ALL_OPERATIONS.most - spent.used if spent else PICKLE_OPERATIONS.most
        self.most_operations = min(PICKLE_OPERATIONS.most, before + left)
        try:
            return self._follow(file)
        except ValueError as error:
            raise UnreadableError(f"is no pickle that can be followed: {error}") from error
        except (IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
            words = f"the operation {self.current} is not given what it takes"
            raise UnreadableError(f"is no pickle that can be followed: {words}") from error
        finally:
            if spent:
                spent.used += self.operations.used - before

    def _follow(self, file: BinaryIO) -> Any:
        """The value at the end; the loop is as short as it can be, as each operation takes it."""
        stack, value_bytes, counted, size_of_argument = self.stack, self.value_bytes, self.operations, sys.getsizeof
        most_operations, most_bytes, first = self.most_operations, PICKLE_VALUE_BYTES.most, int(counted.used) + 1
        for number, (name, argument) in enumerate(operations(file), start=first):
            counted.used, self.current = number, name
            cost, kind, action = _STEPS[name]
            value_bytes.used += cost if argument is None or kind == _FETCH else cost + size_of_argument(argument)
            if number > most_operations or value_bytes.used > most_bytes:
                self._refuse(number)
            if not number % _OPERATIONS_A_LOOK:
                check_time()
            if kind == _CONSTANT:
                stack.append(action)
            elif kind == _LITERAL and type(argument) is not Skipped:
                stack.append(argument)
            elif kind <= _ACTION:
                action(self, argument)
            elif name == "STOP":
                self._check_frame(file, None)
                return self._pop()
            elif name == "FRAME":
                self._check_frame(file, argument)
            else:
                self._take(name, argument)
        raise ValueError("it has no end")

    def _refuse(self, number: int) -> None:
        PICKLE_OPERATIONS.check(number)
        PICKLE_VALUE_BYTES.check(self.value_bytes.used)
        raise OverLimitError(ALL_OPERATIONS)

    def _check_frame(self, file: BinaryIO, size: int | None) -> None:
        place = file.tell()
        if place < self.frame_end and not self.is_tolerant:
            raise ValueError("a frame states more bytes than it has")
        self.frame_end = place + (size or 0)

    def _take(self, name: str, argument: Any) -> None:
        try:
            self._step(name, argument)
        except (TypeError, AttributeError, InertError):
            if not self.is_tolerant or name not in _FILLING:
                raise

    def _step(self, name: str, argument: Any) -> None:
        if name in _OPERATIONS:
            _OPERATIONS[name](self, argument)
        elif name in LITERALS:
            if name in {"INT", "LONG"} and not self.is_tolerant:
                raise ValueError("a number has more digits than loaders read")
            self.stack.append(argument)
        elif name == "PROTO":
            if argument > _MAX_PROTOCOL:
                raise ValueError(f"protocol {argument} is unknown")
        else:
            raise ValueError(f"operation {name} is not among those of checkpoints")

    def _name(self, module: Any, name: Any) -> Name:
        if not isinstance(module, str) or not isinstance(name, str):
            raise ValueError("a name of code is no text")
        if len(module) + len(name) > _MAX_NAME_CHARACTERS:
            raise ValueError("a name of code is longer than any")
        found = Name(module, name)
        if not is_allowed(found.module, found.name):
            self.denied[str(found)] = None
            if runs_by_name(module, name):
                self.functions[str(found)] = None
            self.floor_bytes = self.value_bytes.used + 1
        if is_only_called(found):
            self.only_called.add(found)
        return found

    def global_(self, argument: Any) -> None:
        """A name of code, written in one line."""
        module, _, name = argument.partition(" ")
        self.stack.append(self._name(module, name))

    def stack_global(self, _argument: Any) -> None:
        """A name of code from two texts."""
        name, module = self._pop(), self._pop()
        self.stack.append(self._name(module, name))

    def extension(self, argument: Any) -> None:
        """A name of code by a number, which only a running program can resolve."""
        self.stack.append(self._name("copyreg", f"extension_{argument}"))

    def inst(self, argument: Any) -> None:
        """A call of a name with the group as arguments."""
        module, _, name = argument.partition(" ")
        arguments = tuple(self._group())
        self.stack.append(self._call(self._name(module, name), arguments))

    def obj(self, _argument: Any) -> None:
        """A call of the first of the group with the others as arguments."""
        function, *arguments = self._group()
        self.stack.append(self._call(function, tuple(arguments)))

    def reduce(self, _argument: Any) -> None:
        """A call, which is not made."""
        arguments, function = self._pop(), self._pop()
        self.stack.append(self._call(function, arguments))

    def newobj(self, _argument: Any) -> None:
        """A new object of a class, which is not made."""
        arguments, function = self._pop(), self._pop()
        self.stack.append(self._call(function, arguments, "bare" if arguments == () else "made"))

    def newobj_ex(self, _argument: Any) -> None:
        """A call with named arguments, which is not made."""
        named, arguments, function = self._pop(), self._pop(), self._pop()
        self.stack.append(self._call(function, (arguments, named), "made"))

    def _call(self, function: Any, arguments: Any, way: Way = "called") -> Inert:
        if not isinstance(arguments, tuple | Inert):
            raise ValueError("the arguments of a call are no tuple")
        self.is_called = True
        look_into(arguments, self.looks)
        for run in run_by_call(function, arguments, way):
            self.functions[run] = None
            if run == RETURNED:
                self.denied[run] = None
        if not isinstance(function, Name):
            return Inert(function, arguments)
        self.misfits.add(misfit_of_call(function, arguments))
        if way == "called":
            self.misfits.add(misfit_of_arguments(function, arguments))
        if function.name in self.records and arguments == ():
            return Inert(function, arguments, before=(self.value_bytes.used - _INERT_BYTES, self.held_bytes))
        return Inert(function, arguments)

    def build(self, _argument: Any) -> None:
        """State for what is below it."""
        state = self._pop()
        if isinstance(state, tuple | list | Pairs | Inert):
            look_into(state, self.looks)
        is_class = isinstance(self.stack[-1], Name) or class_inside(self.stack[-1]) is not self.stack[-1]
        if is_class or stores_function(state) or stores_method(self.stack[-1], state):
            self.functions[STORED] = None
        if isinstance(self.stack[-1], Inert):
            self.stack[-1].state = state
            self.misfits.add(misfit_of_state(self.stack[-1], state))
            if self.stack[-1].before is not None:
                self._make_smaller(self.stack[-1])
        else:
            raise InertError("state is given to what has none")

    def _make_smaller(self, made: Inert) -> None:
        """Replace the object at the top by its fields alone, and give back the bytes of what is dropped so."""
        state, before = made.state, made.before
        if before is None or not isinstance(state, Pairs) or len(state.pairs) > MOST_FIELDS:
            return
        if not all(isinstance(key, str) and is_flat(value) for key, value in state.pairs):
            return
        keys = tuple(key for key, _ in state.pairs)
        values = tuple(self._kept(value) for _, value in state.pairs)
        kept = _RECORD_BYTES + sum(SLOT_BYTES if isinstance(value, str) else flat_bytes(value) for value in values)
        if keys not in self.layouts:
            self.held_bytes += sum(map(flat_bytes, keys)) + _MEMO_BYTES
        self.stack[-1] = Record(made.function, self.layouts.setdefault(keys, keys), values)
        begin, held = before
        if begin >= self.floor_bytes:
            self.value_bytes.used = min(self.value_bytes.used, begin + kept + 2 * (self.held_bytes - held))

    def _kept(self, value: Any) -> Any:
        """The field of a record; equal texts are held once, and for good."""
        if not isinstance(value, str):
            return size_of(value)
        if value not in self.texts:
            self.held_bytes += _MEMO_BYTES + flat_bytes(value)
        return self.texts.setdefault(value, value)

    def duplicate(self, _argument: Any) -> None:
        """The top once more."""
        top = self._top()
        if isinstance(top, Inert):
            top.before = None
        self.floor_bytes = self.value_bytes.used + 1
        self.stack.append(top)

    def put(self, argument: Any) -> None:
        """Remember the top under a number."""
        self._remember(int(argument))

    def memoize(self, _argument: Any) -> None:
        """Remember the top under the next number."""
        in_order, others = (self.num_first, self.scattered) if self.records else (len(self.memo), self.sparse_memo)
        self._remember(in_order + len(others))

    def _remember(self, number: int) -> None:
        top = self._top()
        if number < 0:
            raise ValueError("it remembers a value under a negative number")
        if number > _FREE_NUMBERS + _NUMBERS_AN_OPERATION * self.operations.used:
            raise ValueError(f"it remembers a value under the number {number}, for which a loader reserves memory")
        if self.records:
            self._hold(number)
        elif number == len(self.memo):
            self.memo.append(top)
            self.sparse_memo.pop(number, None)  # numbered twice, it would shift the next one
        elif number < len(self.memo):
            self.memo[number] = top
        else:
            self.value_bytes.add(_MEMO_BYTES)
            self.sparse_memo[number] = top

    def _hold(self, number: int) -> None:
        """Remember the top only where it is fetched again."""
        if number == self.num_first:
            self.num_first += 1
            while self.num_first in self.scattered:
                self.scattered.remove(self.num_first)
                self.num_first += 1
        elif number > self.num_first and number not in self.scattered:
            self.floor_bytes = self.value_bytes.used + 1
            self.value_bytes.add(_MEMO_BYTES)
            self.scattered.add(number)
        if number not in self.fetched:
            return
        top = self.stack[-1]
        if is_flat(top):
            top = size_of(top)
            self.held_bytes += _MEMO_BYTES + flat_bytes(top)
        else:
            self.floor_bytes = self.value_bytes.used + 1
            if isinstance(top, Inert):
                top.before = None
        self.value_bytes.add(_MEMO_BYTES)
        self.sparse_memo[number] = top

    def get(self, argument: Any) -> None:
        """Value that was remembered under a number."""
        number = int(argument)
        is_listed = 0 <= number < len(self.memo)
        if not is_listed and number not in self.sparse_memo:
            raise ValueError(f"it fetches a value under the number {number}, and there is none")
        found = self.memo[number] if is_listed else self.sparse_memo[number]
        if self.records and type(found) is tuple:
            self.looks.add(len(found))
        if self.records and not isinstance(found, Name) and not is_flat(found):
            self.floor_bytes = self.value_bytes.used + 1  # more may be put into it, which stays
        self.stack.append(found)

    def make(self, size: int | None, kind: Callable[[Iterable[Any]], Any]) -> None:
        """A value of the topmost `size` values, or of the group."""
        self.stack.append(kind(self._group() if size is None else self.take(size)))

    def extend(self, taken: list[Any]) -> None:
        """Put values into the list at the top."""
        self._fill(taken)
        items_of(self._top(), "list").extend(taken)

    def include(self, taken: list[Any]) -> None:
        """Put values into the set at the top."""
        self._fill(taken)
        items_of(self._top(), "set").extend(checked_keys(taken, self.looks))

    def freeze(self) -> None:
        """The group as a set that does not change."""
        self.stack.append(tuple(checked_keys(self._group(), self.looks)))

    def assign(self, taken: list[Any]) -> None:
        """Put pairs into the mapping at the top."""
        self.value_bytes.add(_PAIR_BYTES * len(taken) // 2)
        self._fill(taken[1::2], taken[::2])
        pairs = pairs_of(taken, self.looks).pairs
        items_of(self._top(), "mapping").extend(pairs)

    def _fill(self, values: list[Any], keys: list[Any] | None = None) -> None:
        """Note what an object does with items that is none of a known container."""
        if type(self._top()) is Inert and (found := misfills(self._top(), keys or [], values)):
            self.functions[found] = None

    def map_group(self) -> None:
        """The group as a mapping."""
        taken = self._group()
        self.value_bytes.add(_PAIR_BYTES * len(taken) // 2)
        self.stack.append(pairs_of(taken, self.looks))

    def persist(self, argument: Any) -> None:
        """A reference to something outside the pickle."""
        said = argument if argument is not None else self._pop()
        if not isinstance(said, tuple):
            raise ValueError("a persistent id is no tuple")
        self.floor_bytes = self.value_bytes.used + 1
        self.references.append(said)
        self.stack.append(Inert(Name("persistent", "id"), (said,)))


_OPERATIONS: dict[str, Callable[[Machine, Any], None]] = {
    "GLOBAL": Machine.global_,
    "STACK_GLOBAL": Machine.stack_global,
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), Machine.extension),
    "INST": Machine.inst,
    "OBJ": Machine.obj,
    "REDUCE": Machine.reduce,
    "NEWOBJ": Machine.newobj,
    "NEWOBJ_EX": Machine.newobj_ex,
    "BUILD": Machine.build,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine.put),
    "MEMOIZE": Machine.memoize,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PERSID", "BINPERSID"), Machine.persist),
    "MARK": Machine.mark,
    "POP": lambda machine, _: machine.drop(),
    "POP_MARK": lambda machine, _: machine.group().clear(),
    "DUP": Machine.duplicate,
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "EMPTY_DICT": lambda machine, _: machine.stack.append(Pairs()),
    "EMPTY_SET": lambda machine, _: machine.stack.append(Items()),
    "LIST": lambda machine, _: machine.stack.append(machine.group()),
    "TUPLE": lambda machine, _: machine.make(None, tuple),
    "TUPLE1": lambda machine, _: machine.make(1, tuple),
    "TUPLE2": lambda machine, _: machine.make(2, tuple),
    "TUPLE3": lambda machine, _: machine.make(3, tuple),
    "FROZENSET": lambda machine, _: machine.freeze(),
    "DICT": lambda machine, _: machine.map_group(),
    "APPEND": lambda machine, _: machine.extend(machine.take(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.group()),
    "ADDITEMS": lambda machine, _: machine.include(machine.group()),
    "SETITEM": lambda machine, _: machine.assign(machine.take(2)),
    "SETITEMS": lambda machine, _: machine.assign(machine.group()),
}


_FETCH, _ACTION, _CONSTANT, _LITERAL, _OTHER = range(5)


def _step_of(name: str) -> tuple[int, int, Any]:
    """What an operation costs, how it is followed, and what follows it."""
    cost = COSTS.get(name, SLOT_BYTES)
    if name in _CONSTANTS:
        return cost, _CONSTANT, _CONSTANTS[name]
    if name in LITERALS:
        return cost, _LITERAL, None
    if name not in _OPERATIONS or name in _FILLING:
        return cost, _OTHER, None
    return cost, _FETCH if name in FETCHES else _ACTION, _OPERATIONS[name]


_STEPS = {operation.name: _step_of(operation.name) for operation in pickletools.opcodes}


def follow(file: BinaryIO, records: Collection[str] = ()) -> Content:
    """Content of the next pickle of a file, and the names of code in it that are not allowed.

    Args:
        file: is read from where it is.
        records: names of classes of which the pickle has many objects. They become a `Record` each, and the file, which
            can be searched, is read twice.

    Raises:
        LimitError: it has more operations or values than the limits.
        UnreadableError: it breaks the format.
    """
    with within():
        machine = Machine(records, fetched(file) if records else None)
        value = machine.run(file)
    names, functions = list(machine.denied), list(machine.functions)
    return Content(value, names, machine.references, functions, misfits=machine.misfits)
