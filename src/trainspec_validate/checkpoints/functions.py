"""Distinguishes functions that a pickle would run from classes that it would make objects of.

Checkpoints hold objects of classes of any program: settings of a program, schedulers, whole models. They hold
calls of functions only to make plain state. So a name of the standard library that is none of plain state, and what is
called of PyTorch or NumPy and rebuilds nothing, differ from the names of all other classes: their classes too where
they are no layers, optimizers or values, as some write files or start processes when they are made.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Iterator
from typing import Any, Final, Literal

from trainspec_validate.checkpoints.allowed import is_allowed
from trainspec_validate.checkpoints.libraries import (
    EVALUATING,
    FRAMEWORKS,
    is_beside,
    is_kind,
    is_over_numbers,
    is_rebuilder,
)
from trainspec_validate.checkpoints.pickle_values import Inert, Name

_OF_OTHER_VERSIONS: Final = frozenset(
    {"annotationlib", "asynchat", "asyncore", "binhex", "compression", "crypt", "distutils", "dummy_threading"}
    | {"formatter", "imp", "lib2to3", "macpath", "nis", "parser", "pipes", "profiling", "smtpd", "spwd", "symbol"}
)
"""Modules of the standard library that the running version of Python may lack."""
_LIBRARY: Final = sys.stdlib_module_names | _OF_OTHER_VERSIONS
_BESIDE: Final = re.compile(r"_[a-z]\w*|test\w*|xx\w*|(site|user)customize|pip|pkg_resources|setuptools")
"""Modules that come with Python and are not among its names: hidden ones, tests, experiments and installers."""
_BUILTIN_CLASSES: Final = re.compile(r"[A-Z]\w*(Error|Exception|Warning|Exit|Interrupt|Iteration|Group)")
_CLASSES_ALONE: Final = frozenset(
    {"abc", "collections.abc", "decimal", "enum", "fractions", "ipaddress", "numbers", "typing", "uuid"}
)
"""Modules whose classes hold values; their functions, and the modules that they import, are others."""
_ON_VALUES: Final = {
    "builtins": {"abs", "all", "any", "bin", "callable", "chr", "divmod", "format", "hasattr", "hash", "hex", "id"}
    | {"isinstance", "issubclass", "len", "max", "min", "next", "oct", "ord", "pow", "print", "repr", "round"}
    | {"sorted", "sum"},
    "operator": set(operator.__all__) - {"attrgetter", "call", "getitem", "itemgetter", "methodcaller"},
    "math": {name for name in dir(math) if not name.startswith("_")},
    "posixpath": {"basename", "commonprefix", "dirname", "isabs", "join", "normcase", "normpath", "split", "splitext"},
    "time": {"gmtime", "localtime", "monotonic", "perf_counter", "process_time", "strftime", "time"},
}
_ON_VALUES["_operator"], _ON_VALUES["cmath"] = _ON_VALUES["operator"], _ON_VALUES["math"]
_ON_VALUES["ntpath"] = _ON_VALUES["posixpath"]
"""Functions that settings hold, such as the one of `functools.partial(max, 1)`; no plain state calls them."""
_INERT: Final = {
    "builtins": {"Ellipsis", "NotImplemented", "classmethod", "enumerate", "getattr", "iter", "memoryview", "property"}
    | {"reversed", "staticmethod", "super", "type", "zip"},
    "_operator": {"attrgetter", "getitem", "itemgetter", "methodcaller"},
    "operator": {"attrgetter", "getitem", "itemgetter", "methodcaller"},
    "_random": {"Random"},
    "_struct": {"Struct"},
    "array": {"_array_reconstructor", "array"},
    "collections": {"ChainMap", "Counter", "OrderedDict", "UserDict", "UserList", "UserString", "defaultdict", "deque"},
    "copyreg": {"__newobj__", "__newobj_ex__", "_reconstructor"},
    "dataclasses": {"Field", "MISSING", "_HAS_DEFAULT_FACTORY_CLASS", "_MISSING_TYPE"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone", "tzinfo"},
    "functools": {"partial", "partialmethod", "reduce"},
    "_functools": {"reduce"},
    "http": {"HTTPMethod", "HTTPStatus"},
    "inspect": {"Parameter", "Signature", "_ParameterKind", "_empty"},
    "io": {"BytesIO", "StringIO"},
    "os": {"stat_result", "terminal_size"},
    "_io": {"BytesIO", "StringIO"},
    "itertools": {"chain", "combinations", "count", "cycle", "islice", "permutations", "product", "repeat"},
    "logging": {"Logger", "RootLogger", "getLogger"},
    "random": {"Random", "SystemRandom"},
    "re": {"RegexFlag", "_compile", "compile"},
    "signal": {"Handlers", "Signals"},
    "socket": {"AddressFamily", "SocketKind"},
    "string": {"Formatter", "Template"},
    "struct": {"Struct"},
    "time": {"struct_time"},
    "types": {"GenericAlias", "MappingProxyType", "NoneType", "SimpleNamespace", "UnionType"},
    "typing": {"_AnnotatedAlias", "_GenericAlias", "_LiteralGenericAlias", "_SpecialForm", "_UnionGenericAlias"},
    "urllib.parse": {"ParseResult", "ParseResultBytes", "SplitResult", "SplitResultBytes"},
    "_codecs": {"encode"},
    "codecs": {"encode"},
    "_collections_abc": {"dict_items", "dict_keys", "dict_values"},
    "zoneinfo": {"ZoneInfo", "ZoneInfo._unpickle"},
    "pathlib._local": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
}
"""Names that plain state is made with. None of them runs what it is given, opens a file or starts a program."""
RETURNED: Final = "a function that another call returns"
_HIDDEN: Final = re.compile(r"(?:^|\.)__\w*__(?:\.|$)")
"""A part of a name that leads from a module or class to how it was made, and so to every function."""
_REBUILDS_OF_PROGRAMS: Final = re.compile(
    r"_*(re(build|construct|store|create)|pyx_unpickle|new_\w*Index$)\w*", re.ASCII
)
"""Functions that programs give to `__reduce__`, by their names: they make one object of its parts.

One of Cython begins with `__pyx_unpickle`; others with `unpickle` in their names load pickles, as that of numba does.
"""
_VALUES_OF_PROGRAMS: Final = {
    "pandas._libs.internals": {"_unpickle_block"},
    "pandas._libs.tslibs.nattype": {"_nat_unpickle"},
    "pandas._libs.tslibs.timedeltas": {"_timedelta_unpickle"},
    "pandas._libs.tslibs.timestamps": {"_unpickle_timestamp"},
    "pyarrow.lib": {"chunked_array", "field", "py_buffer", "schema", "type_for_alias"},
    "pytz": {"_p"},
}
_OF_PROCESSES: Final = frozenset(
    {"Popen", "Process", "Pool", "Thread", "Timer", "ThreadPool", "ProcessPoolExecutor", "ThreadPoolExecutor"}
    | {"FileIO", "GzipFile", "BZ2File"}
    | {"LZMAFile", "Unpickler", "InteractiveConsole", "InteractiveInterpreter", "CDLL", "PyDLL", "FileFinder"}
    | {"SourceFileLoader", "SourcelessFileLoader", "ExtensionFileLoader", "SimpleQueue", "Connection", "Client"}
)
"""Classes of Python that start or open something when they are made, which modules of programs import."""
_OF_FILES: Final = re.compile(r"\w*(TemporaryFile|TemporaryDirectory|ZipFile|TarFile|FileHandler)", re.ASCII)
"""Names under which programs import those that write files."""
_ITERATES: Final = frozenset(
    {
        "list",
        "tuple",
        "set",
        "frozenset",
        "dict",
        "OrderedDict",
        "deque",
        "Counter",
        "enumerate",
        "zip",
        "iter",
        "reversed",
    }
    | {"chain", "combinations", "cycle", "islice", "permutations", "product", "bytearray", "bytes"}
)
"""Classes that take the items of what they are given, one by one."""
_OR: Final = (Name("operator", "or_"), Name("_operator", "or_"))
_BOUND_TO_FILES: Final = frozenset({"_io", "io", "numpy", "pathlib"})
"""Modules whose objects have methods that write files."""
_OF_STORAGES: Final = frozenset({"dump", "from_file", "save", "tofile"})
"""Methods of storages, arrays and programs of PyTorch that write files."""
_METHODS: Final = frozenset(
    {name for kind in (str, bytes, int, float, list, dict, set, tuple) for name in dir(kind) if name[0] != "_"}
    | {"cpu", "detach", "item", "max", "mean", "min", "numpy", "std", "sum", "tolist"}
)
"""Methods of values, arrays and tensors, which run nothing and write nowhere."""
_TAKEN_FOR_CONTAINERS: Final = frozenset({"Namespace", "SimpleNamespace", "partial", "partialmethod"})
"""Classes whose objects a container takes for another one, where they have what it calls."""
_PATH: Final = re.compile(r"\w+(\.\w+)+")
_OBJECTS: Final = frozenset({"builtins.object", "__builtin__.object"})
_MAKES_CLASSES: Final = frozenset({("abc", "ABCMeta"), ("enum", "EnumMeta"), ("enum", "EnumType")})


def runs_by_name(module: str, name: str) -> bool:
    """Whether a name may run something, be it called or only given to an object of a library that then calls it.

    Such are those of the standard library that plain state does not need, those of a framework that are not listed,
    functions of the packages next to it, and paths to any of these.

    >>> runs_by_name("posix", "system"), runs_by_name("torch.serialization", "os.system")
    (True, True)
    >>> runs_by_name("functools", "partial"), runs_by_name("my.settings", "Model.Kind")
    (False, False)
    >>> runs_by_name("torch.hub", "load"), runs_by_name("torch.nn.functional", "relu"), runs_by_name("my", "run")
    (True, False, False)
    """
    module, name = of_today(module, name)
    if is_allowed(module, name):
        return False
    if is_of_python(module):
        return not _is_inert(module, name)
    if _HIDDEN.search(name) is not None or ("." in name and is_of_python(name)):
        return True
    if module.partition(".")[0] in FRAMEWORKS:
        return not (is_kind(module, name) if is_class(name) else _is_listed(module, name))
    if is_class(name):
        return False
    return _leads_through_modules(name) or (is_beside(module, name) and not is_rebuilt(module, name))


def _is_listed(module: str, name: str) -> bool:
    return is_rebuilder(module, name) or is_over_numbers(module, name)


def _leads_through_modules(name: str) -> bool:
    """Whether a path leads through what is no class, such as a module that another one imports."""
    return any(not is_class(part) for part in name.split(".")[:-1])


def is_of_python(module: str) -> bool:
    """Whether a module comes with Python."""
    first = module.partition(".")[0]
    return first in _LIBRARY or _BESIDE.fullmatch(first) is not None


def _is_inert(module: str, name: str) -> bool:
    if name in _INERT.get(module, ()) or name in _ON_VALUES.get(module, ()):
        return True
    if module == "builtins":
        return _BUILTIN_CLASSES.fullmatch(name) is not None
    return module in _CLASSES_ALONE and name[:1].isupper() and "." not in name


Way = Literal["called", "made", "bare"]
"""How a pickle uses a name: as a function, as a class of a new object, or as one that is made without arguments."""


def runs_when_called(module: str, name: str, way: Way = "called") -> bool:
    """Whether a name makes no plain state; classes begin with a capital letter.

    >>> runs_when_called("torch.storage", "_load_from_bytes"), runs_when_called("torch._C", "PyTorchFileWriter")
    (True, True)
    >>> runs_when_called("torch._utils", "_rebuild_tensor_v9"), runs_when_called("torch.nn.modules.linear", "Linear")
    (False, False)
    >>> runs_when_called("builtins", "pow"), runs_when_called("builtins", "getattr")
    (True, False)
    >>> runs_when_called("sympy", "sympify"), runs_when_called("sympy", "Poly"), runs_when_called("my", "Settings")
    (True, True, False)
    """
    module, name = of_today(module, name)
    if name in _ON_VALUES.get(module, ()) or (module, name) in _MAKES_CLASSES:
        return True
    first = module.partition(".")[0]
    if (module, name) == ("torch.distributed.device_mesh", "DeviceMesh"):
        return way == "called"  # it connects to other processes; what trainers save has its fields alone
    if is_allowed(module, name) or (is_of_python(module) and _is_inert(module, name)):
        return False
    if is_of_python(module):
        return "." in name and not is_class(name)
    if first in FRAMEWORKS:
        return not (is_kind if is_class(name) else is_rebuilder)(module, name)
    if first in EVALUATING and way != "bare":
        return True
    if is_class(name):
        own = name.rpartition(".")[2]
        return own in _OF_PROCESSES or _OF_FILES.fullmatch(own) is not None
    return "." in name or (way == "called" and not is_rebuilt(module, name))


def is_rebuilt(module: str, name: str) -> bool:
    """Whether a function of a program, by its name, makes an object of its parts; it may call the first of them.

    >>> is_rebuilt("jax._src.array", "_reconstruct_array"), is_rebuilt("my.trainer", "start")
    (True, False)
    """
    return name in _VALUES_OF_PROGRAMS.get(module, ()) or _REBUILDS_OF_PROGRAMS.fullmatch(name) is not None


def is_rebuilt_by_a_program(module: str, name: str) -> bool:
    """Whether `is_rebuilt`, and the function is none of PyTorch or NumPy: it may return a function."""
    return module.partition(".")[0] not in FRAMEWORKS and is_rebuilt(module, name)


def is_of_a_program(path: str) -> bool:
    """Whether a full name of code is none of Python, PyTorch or the other frameworks that are listed.

    >>> is_of_a_program("my.Settings"), is_of_a_program("torch.nn.Linear"), is_of_a_program("a pickle inside")
    (True, False, False)
    """
    is_name = _PATH.fullmatch(path) is not None
    return is_name and not is_of_python(path) and path.partition(".")[0] not in FRAMEWORKS


def is_class(name: str) -> bool:
    """Whether the last part of a name is that of a class: it begins with a capital letter."""
    return name.rpartition(".")[2].lstrip("_")[:1].isupper()


def names_in(value: Any, depth: int = 4) -> Iterator[Name]:
    """The names of code in the arguments of a call, without those that other calls are made with."""
    if isinstance(value, Name):
        yield value
    elif depth and isinstance(value, Inert):
        for part in (value.arguments, value.items, value.state):
            yield from names_in(part, depth - 1)
    elif depth and isinstance(value, tuple | list):
        for part in value:
            yield from names_in(part, depth - 1)


def misuses(function: Name, arguments: Any) -> bool:
    """Whether a call of a name that makes plain state is one that such state does not need.

    Such calls fetch a hidden attribute, an attribute whose name is computed or a method of a file, make a class, or
    call a function for each value, other than for the union of types.

    >>> misuses(Name("builtins", "getattr"), ("object", "__globals__"))
    True
    >>> misuses(Name("builtins", "getattr"), ("object", "name"))
    False
    """
    called = of_today(function.module, function.name)
    given = arguments if isinstance(arguments, tuple) else (arguments,) * 3
    if called == ("builtins", "getattr"):
        fetched = given[1] if len(given) > 1 else None
        if fetched == "__new__" and isinstance(given[0], Name) and str(given[0]) in _OBJECTS:
            return False  # it makes an object without anything else, as the operation NEWOBJ does
        is_odd = not isinstance(fetched, str) or fetched.startswith("__")
        return is_odd or _writes_files(given[0]) or _is_of_a_framework(given[0], fetched)
    if called[0] in {"operator", "_operator"} and called[1] in {"attrgetter", "methodcaller"}:
        return not _reads_values(called[1], given)
    if called in {("functools", "reduce"), ("_functools", "reduce")}:
        return not _is_union(given)
    if called in {("builtins", "type"), ("builtins", "iter")}:
        return len(given) > 1
    if called[1] in _ITERATES and called[0] in _INERT:
        return any(map(_is_of_a_program, given))
    return called[0] in {"operator", "_operator"} and called[1] == "getitem" and not isinstance(given[0], Name)


def _is_of_a_framework(target: Any, fetched: Any) -> bool:
    """Whether an attribute of a framework is neither a function over numbers, a value of a class nor of an object."""
    if not isinstance(fetched, str):
        return True
    if isinstance(target, Inert):
        made = target.function
        is_known = isinstance(made, Name) and made.module.partition(".")[0] in FRAMEWORKS
        return is_known and (fetched.startswith("_") or fetched in _OF_STORAGES)
    if not isinstance(target, Name) or target.module.partition(".")[0] not in FRAMEWORKS:
        return False
    return not (fetched[:1].isupper() or is_over_numbers(f"{target.module}.{target.name}", fetched))


def _reads_values(called: str, given: tuple[Any, ...]) -> bool:
    """Whether what fetches attributes, or calls a method, does it by names of which none runs anything."""
    if called == "methodcaller":
        return bool(given) and isinstance(given[0], str) and given[0] in _METHODS
    names = [part for one in given for part in (one.split(".") if isinstance(one, str) else [""])]
    return all(part and not part.startswith("_") for part in names)


def _is_of_a_program(value: Any) -> bool:
    """Whether a value is an object of a class that may run what it likes when a container takes its items."""
    made = value.function if isinstance(value, Inert) else None
    if not isinstance(made, Name):
        return made is not None
    if made.name in _TAKEN_FOR_CONTAINERS:
        return True
    return not is_allowed(made.module, made.name) and not is_of_python(made.module)


def _is_union(given: tuple[Any, ...]) -> bool:
    """Whether the arguments of `reduce` make one type of several, as `int | None` is pickled: the or of classes."""
    if len(given) != 2 or given[0] not in _OR or not isinstance(given[1], list | tuple):
        return False
    return all(isinstance(one.function if isinstance(one, Inert) else one, Name) for one in given[1])


def _writes_files(target: Any) -> bool:
    made = target.function if isinstance(target, Inert) else target
    return isinstance(made, Name) and made.module.partition(".")[0] in _BOUND_TO_FILES


def class_inside(function: Any) -> Any:
    """The name of a class inside another one, or of what makes a time zone, that a call of `getattr` fetches."""
    if not isinstance(function, Inert) or not isinstance(function.function, Name):
        return function
    called, given = function.function, function.arguments
    is_fetched = of_today(called.module, called.name) == ("builtins", "getattr")
    if not is_fetched or not isinstance(given, tuple) or len(given) != 2 or not isinstance(given[0], Name):
        return function
    outer, name = given
    if not isinstance(name, str):
        return function
    module, path = outer.module, f"{outer.name}.{name}"
    is_own = not is_of_python(module) and module.partition(".")[0] not in FRAMEWORKS
    return Name(module, path) if (is_own and name[:1].isupper()) or _is_inert(module, path) else function


def class_of_partial(function: Any, arguments: Any) -> Any:
    """The class of an object with named arguments of `__new__`, as protocols before 4 make it; else the function.

    It is `functools.partial(object.__new__, class, …)` without arguments: cpython/Lib/pickle.py, save_reduce.
    """
    if not isinstance(function, Inert) or function.function != Name("functools", "partial") or arguments != ():
        return function
    state = function.state
    if not isinstance(state, tuple) or len(state) != 4 or not isinstance(state[1], tuple) or not state[1]:
        return function
    new = state[0]
    is_new = isinstance(new, Inert) and isinstance(new.function, Name) and isinstance(new.arguments, tuple)
    if not is_new or of_today(new.function.module, new.function.name) != ("builtins", "getattr"):
        return function
    is_of_object = len(new.arguments) == 2 and str(new.arguments[0]) in _OBJECTS and new.arguments[1] == "__new__"
    return state[1][0] if is_of_object and isinstance(new.arguments[0], Name) else function


def of_today(module: str, name: str) -> tuple[str, str]:
    """A name of Python 2 as that of Python 3."""
    return NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
