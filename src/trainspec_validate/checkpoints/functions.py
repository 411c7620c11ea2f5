"""Distinguishes functions that a pickle would run from classes that it would make objects of.

Checkpoints hold objects of classes of any program: settings of a program, schedulers, whole models. They hold
calls of functions only to make plain state. So a name of the standard library that is none of plain state, and what is
called of PyTorch or NumPy and rebuilds nothing, differ from the names of all other classes: their classes too where
they are no layers, optimizers or values, as some write files or start processes when they are made.
"""

from __future__ import annotations

import re
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from typing import Final

from trainspec_validate.checkpoints.allowed import is_allowed

_REMOVED: Final = frozenset(
    {"asynchat", "asyncore", "crypt", "distutils", "imp", "lib2to3", "nis", "pipes", "smtpd", "spwd"}
)
"""Modules of the standard library that some supported version of Python lacks."""
_LIBRARY: Final = sys.stdlib_module_names | _REMOVED
_BESIDE: Final = re.compile(
    r"_?test\w*|_?xx\w*|_interp\w*|_distutils_hack|(site|user)customize|pip|pkg_resources|setuptools"
)
"""Modules that come with Python and are not among its names: its tests, experiments and installers."""
_BUILTIN_CLASSES: Final = re.compile(r"[A-Z]\w*(Error|Exception|Warning|Exit|Interrupt|Iteration|Group)")
_INERT_MODULES: Final = frozenset(
    {"abc", "array", "cmath", "collections", "collections.abc", "datetime", "decimal", "enum", "fractions", "ipaddress"}
    | {"math", "ntpath", "numbers", "posixpath", "time", "uuid"}
)
"""Nothing in them runs what it is given, opens a file or starts a program."""
_INERT: Final = {
    "builtins": {"Ellipsis", "NotImplemented", "abs", "all", "any", "bin", "callable", "chr", "divmod", "enumerate"}
    | {
        "format",
        "getattr",
        "hasattr",
        "hash",
        "hex",
        "id",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "max",
        "memoryview",
    }
    | {"min", "next", "oct", "ord", "pow", "print", "property", "repr", "reversed", "round", "sorted", "sum", "super"}
    | {"staticmethod", "classmethod", "type", "zip"},
    "_random": {"Random"},
    "_struct": {"Struct"},
    "copyreg": {"__newobj__", "__newobj_ex__", "_reconstructor"},
    "dataclasses": {"Field", "MISSING", "_HAS_DEFAULT_FACTORY_CLASS", "_MISSING_TYPE"},
    "functools": {"partial", "partialmethod"},
    "http": {"HTTPMethod", "HTTPStatus"},
    "inspect": {"Parameter", "Signature", "_ParameterKind", "_empty"},
    "io": {"BytesIO", "StringIO"},
    "_io": {"BytesIO", "StringIO"},
    "itertools": {"chain", "combinations", "count", "cycle", "islice", "permutations", "product", "repeat"},
    "logging": {"Logger", "RootLogger", "getLogger"},
    "random": {"Random", "SystemRandom"},
    "re": {"RegexFlag", "_compile", "compile"},
    "signal": {"Handlers", "Signals"},
    "socket": {"AddressFamily", "SocketKind"},
    "string": {"Formatter", "Template"},
    "struct": {"Struct"},
    "types": {"GenericAlias", "MappingProxyType", "NoneType", "SimpleNamespace", "UnionType"},
    "urllib.parse": {"ParseResult", "ParseResultBytes", "SplitResult", "SplitResultBytes"},
    "_codecs": {"encode", "decode"},
    "codecs": {"encode", "decode"},
    "_collections_abc": {"dict_items", "dict_keys", "dict_values"},
    "zoneinfo": {"ZoneInfo", "ZoneInfo._unpickle"},
    "pathlib._local": {"Path", "PosixPath", "PurePath", "PurePosixPath", "PureWindowsPath", "WindowsPath"},
}
_REBUILDS: Final = re.compile(
    r"torch(\._utils|\._tensor|\.nn\.parameter|\.nested\._internal\.nested_tensor|\.sparse\w*)?\._?rebuild\w*"
    r"|torch\.jit\._pickle\.\w+"
    r"|numpy\.random\.(\w+\.)?__(\w+_ctor|pyx_unpickle_\w+)|numpy\.ma\.(core|mrecords)\._m\w*reconstruct"
    r"|numpy\._?core\.(multiarray|numeric)\.(_reconstruct|scalar|_frombuffer)|numpy\._?core\.records\.(recarray|record)"
    r"|(numpy|torch)\.(dtype|ndarray|recarray|matrix|finfo|iinfo|poly1d|device)"
    r"|(numpy|torch)\.((u|q|qu|c|b)?(int|float|complex)\d*\w*|(str|bytes|object|void|bool|datetime|timedelta|half|double)\w*)"
)
_KINDS: Final = re.compile(
    r"torch\.(nn|optim|amp|cuda\.amp|ao|quantization|distributions|jit|utils\.(data|hooks)|return_types|torch_version)(\.\w+)*"
    r"|torch\.(fx\.(graph|node|immutable_collections)|storage|sparse|nested|backends|serialization|_tensor|_subclasses)(\.\w+)*"
    r"|torch\.distributed\.(tensor|_tensor|_shard|fsdp|optim|device_mesh|algorithms)(\.\w+)*"
    r"|torch\.distributed\.checkpoint\.(metadata|planner|default_planner|stateful)\.\w+"
    r"|torch\._dynamo\.eval_frame\.OptimizedModule|torch(\._C)?\.(\w*Storage\w*|\w*Tensor\w*|Size|Generator)"
    r"|numpy\.(random|ma|dtypes|polynomial|matrixlib)(\.\w+)*"
)
"""Classes of PyTorch and NumPy that hold layers, optimizers and values, and do nothing but that when they are made."""
RETURNED: Final = "a function that another call returns"


_CALLS: Final = frozenset({"attrgetter", "call", "methodcaller"})
"""What of the module of operators calls others."""


def runs_by_name(module: str, name: str) -> bool:
    """Whether a name is one of the standard library that plain state does not need, or a path to one.

    >>> runs_by_name("posix", "system"), runs_by_name("torch.serialization", "os.system")
    (True, True)
    >>> runs_by_name("functools", "partial"), runs_by_name("my.settings", "Model.Kind")
    (False, False)
    """
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    if is_allowed(module, name):
        return False
    if _is_of_python(module):
        return not _is_inert(module, name)
    return "." in name and _is_of_python(name)


def _is_of_python(module: str) -> bool:
    first = module.partition(".")[0]
    return first in _LIBRARY or _BESIDE.fullmatch(first) is not None


def _is_inert(module: str, name: str) -> bool:
    if name in _INERT.get(module, ()):
        return True
    if module in {"_operator", "operator"}:
        return name not in _CALLS
    if module == "typing":
        return name.lstrip("_")[:1].isupper() and "." not in name
    if module == "builtins":
        return _BUILTIN_CLASSES.fullmatch(name) is not None
    return module in _INERT_MODULES


def runs_when_called(module: str, name: str) -> bool:
    """Whether a name of PyTorch or NumPy is called and makes no plain state; classes begin with a capital letter.

    >>> runs_when_called("torch.storage", "_load_from_bytes"), runs_when_called("torch._C", "PyTorchFileWriter")
    (True, True)
    >>> runs_when_called("torch._utils", "_rebuild_tensor_v9"), runs_when_called("torch.nn.modules.linear", "Linear")
    (False, False)
    """
    if module.partition(".")[0] not in {"torch", "numpy"} or is_allowed(module, name):
        return False
    is_class = name.rpartition(".")[2].lstrip("_")[:1].isupper()
    return (_KINDS if is_class else _REBUILDS).fullmatch(f"{module}.{name}") is None
