"""Says where a pickle may hold a function, for what is never called there may be called by a library that gets it."""

from __future__ import annotations

from typing import Any, Final

from trainspec_validate.checkpoints.allowed import is_allowed
from trainspec_validate.checkpoints.functions import is_class, is_of_python, of_today
from trainspec_validate.checkpoints.libraries import EVALUATING, FRAMEWORKS
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs

STORED: Final = "a function that is stored under a name which loaders call"
FILLED: Final = "what an object that is no container does with items"
_CALLS_WHAT_IT_IS_GIVEN: Final = {
    "builtins": {"getattr", "iter", "type"},
    "functools": {"reduce"},
    "operator": {"attrgetter", "getitem", "methodcaller"},
    "copyreg": {"__newobj__", "__newobj_ex__", "_reconstructor"},
    "abc": {"ABCMeta"},
    "enum": {"EnumMeta", "EnumType"},
    "torch.distributed.device_mesh": {"DeviceMesh"},
}
_CALLS_WHAT_IT_IS_GIVEN["_functools"] = _CALLS_WHAT_IT_IS_GIVEN["functools"]
_CALLS_WHAT_IT_IS_GIVEN["_operator"] = _CALLS_WHAT_IT_IS_GIVEN["operator"]
_ENDS: Final = ("_rebuild_from_type", "_rebuild_from_type_v2", "_ctor")
_CALLED_BY_LOADERS: Final = frozenset({"__setstate__", "add", "append", "extend"})
_OF_CONTAINERS: Final = frozenset(
    {name for kind in (dict, list, set) for name in dir(kind)} | _CALLED_BY_LOADERS | {"__getattr__", "__call__"}
) - {"copy", "count", "index", "sort", "union", "remove", "reverse"}
"""Names under which libraries call methods of what they take for a container."""
_LOOKED_UP: Final = frozenset({"_modules", "_parameters", "_buffers"})
"""Parts of a layer of PyTorch that are its attributes too, and hold layers and tensors."""
_NAMESPACES: Final = frozenset({("argparse", "Namespace"), ("types", "SimpleNamespace")})
_MAKES_FUNCTIONS: Final = frozenset(
    {("functools", "partial"), ("functools", "partialmethod"), ("builtins", "getattr"), ("builtins", "staticmethod")}
    | {("builtins", "classmethod"), ("builtins", "property"), ("operator", "attrgetter"), ("operator", "itemgetter")}
    | {("operator", "methodcaller"), ("_operator", "attrgetter"), ("_operator", "methodcaller")}
)
_CONTAINERS: Final = frozenset(
    {"list", "dict", "set", "bytearray", "OrderedDict", "defaultdict", "Counter", "deque", "UserDict", "UserList"}
    | {"AttributeDict", "immutable_list", "immutable_dict", "ChainMap"}
)


def is_only_called(name: Name) -> bool:
    """Whether a name belongs to plain state only where it is called, so that what it is given is seen.

    >>> is_only_called(Name("builtins", "getattr")), is_only_called(Name("builtins", "max"))
    (True, False)
    """
    module, own = of_today(name.module, name.name)
    if own in _CALLS_WHAT_IT_IS_GIVEN.get(module, ()) or module.partition(".")[0] in EVALUATING:
        return True
    return module.partition(".")[0] in FRAMEWORKS and own.endswith(_ENDS)


def stores_function(state: Any, depth: int = 3) -> bool:
    """Whether the state of an object gives it a function under a name that unpicklers call on objects."""
    if isinstance(state, Inert):
        return depth > 0 and any(stores_function(part, depth - 1) for part in (state.arguments, state.items))
    pairs = state.pairs if isinstance(state, Pairs) else ()
    if any(_is_stored(key, value) for key, value in pairs):
        return True
    if not isinstance(state, tuple | list) or depth == 0:
        return False
    if len(state) == 2 and _is_called(state[0]) and isinstance(state[1], Inert | Name):
        return True
    return any(stores_function(part, depth - 1) for part in state)


def _is_stored(key: Any, value: Any) -> bool:
    if (_is_called(key) and isinstance(value, Inert | Name)) or (_is_hidden(key) and _is_function(value)):
        return True
    if not isinstance(key, str) or key not in _LOOKED_UP:
        return False
    held = value.pairs if isinstance(value, Pairs) else value.items if isinstance(value, Inert) else ()
    pairs = [pair for pair in held if isinstance(pair, tuple) and len(pair) == 2]
    return any(isinstance(one, Name) or _is_function(one) for _, one in pairs)


def stores_method(made: Any, state: Any) -> bool:
    """Whether a namespace is given a function under the name of a method of containers.

    A library that takes it for one calls that.
    """
    if not isinstance(made, Inert) or not isinstance(made.function, Name):
        return False
    if of_today(made.function.module, made.function.name) not in _NAMESPACES:
        return False
    parts = state if isinstance(state, tuple) else (state,)
    pairs = (pair for part in parts if isinstance(part, Pairs) for pair in part.pairs)
    return any(_is_function(value) and (not isinstance(key, str) or key in _OF_CONTAINERS) for key, value in pairs)


def misfills(made: Any, keys: list[Any], values: list[Any]) -> str:
    """The fault of items that are put into an object, in words; empty where there is none.

    A class of a program may be derived from a container, and no function is under a name that unpicklers call.
    """
    if not isinstance(made, Inert):
        return ""
    if any(_is_stored(key, value) for key, value in zip(keys, values, strict=False)):
        return STORED
    if not isinstance(made.function, Name):
        return FILLED
    module, name = of_today(made.function.module, made.function.name)
    is_known = is_of_python(module) or module.partition(".")[0] in FRAMEWORKS
    return FILLED if is_known and name not in _CONTAINERS else ""


def _is_function(value: Any) -> bool:
    """Whether a value is a function, or an object that calls one; types of numbers are none."""
    if isinstance(value, Name):
        return not is_class(value.name) and not is_allowed(value.module, value.name)
    made = value.function if isinstance(value, Inert) else None
    return isinstance(made, Name) and of_today(made.module, made.name) in _MAKES_FUNCTIONS


def _is_called(key: Any) -> bool:
    """Whether a key is one of these names, or a text that a call makes and no reader can tell."""
    made = key.function if isinstance(key, Inert) else None
    is_made = isinstance(made, Name) and of_today(made.module, made.name) == ("builtins", "str")
    return is_made or (isinstance(key, str) and key in _CALLED_BY_LOADERS)


def _is_hidden(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("__") and key.endswith("__") and len(key) > len("____")
