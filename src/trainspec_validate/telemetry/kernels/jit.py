"""Compiles the loops over records where a compiler is installed."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

_MODULES = (
    *("words", "number", "texts", "pairs", "fold", "joins", "parse", "sequence", "numbering"),
    *("chunks", "fold_general", "fold_fast", "column_fold"),
)
"""In the order of use: a module comes after those whose functions it calls."""
_ENTRIES = frozenset(
    {
        *("fold", "enter", "locate", "join", "parse", "follow", "note", "rounded", "hash_of", "begin", "lockstep"),
        *("number", "register", "group", "select", "enter_rows", "count", "measure"),
        *("take", "without_gaps", "judge_all"),
        *("series", "judge_values", "judge_intervals", "run_equal", "run_above", "see", "compare", "note_all"),
        *("add_along", "note_longest", "note_short", "count_equal", "count_above"),
    }
)
"""Functions that stay functions; all others become part of those that call them."""
_PACKAGE = "trainspec_validate.telemetry.kernels"
_WORTH_LOADING_BYTES = 6_000_000
"""Below this, plain Python has done the work before compiled loops are loaded, which takes a second."""
_WORTH_COMPILING_BYTES = 60_000_000
"""Below this, it has done so before they are compiled, which takes some fifteen seconds."""


def can_compile() -> bool:
    """Whether numba is installed, and the first byte of a word is its lowest, as the loops over texts take it."""
    return sys.byteorder == "little" and importlib.util.find_spec("numba") is not None


def is_compiled() -> bool:
    """Whether the loops of this process are compiled."""
    return compile_loops.cache_info().currsize > 0 and compile_loops()


def compile_for(num_bytes: int) -> None:
    """Compile the loops for so many bytes of records, where that takes less time than to go without."""
    if num_bytes <= _WORTH_LOADING_BYTES:
        return
    is_compiled_before = any(_cache_directory().rglob("parse.parse-*.nbi"))  # the one that takes longest to compile
    if is_compiled_before or num_bytes > _WORTH_COMPILING_BYTES:
        compile_loops()


@cache
def compile_loops() -> bool:
    """Replace the functions of the loops by compiled ones, once in a process; False where numba is not installed.

    The compiled code is kept next to other caches of the user under a name that follows from the text of the loops:
    numba itself does not notice when a function that another one calls has changed.
    https://numba.readthedocs.io/en/stable/user/jit.html#cache
    """
    if not can_compile():
        return False
    numba = _numba()
    with _cache_in(str(_made(_cache_directory()))):
        _compile(numba)
    return True


@contextmanager
def _cache_in(directory: str) -> Iterator[None]:
    """Give the functions that are declared meanwhile this place for their code, and other functions of the process none.

    A function takes its place when it is declared, not when it is compiled.
    """
    config: Any = importlib.import_module("numba.core.config")
    before = config.CACHE_DIR
    config.CACHE_DIR = before or directory
    try:
        yield
    finally:
        config.CACHE_DIR = before


def _compile(numba: ModuleType) -> None:
    compiled: dict[FunctionType, Any] = {}
    for module in _modules():
        for name, value in list(vars(module).items()):
            if not isinstance(value, FunctionType) or name.startswith("__"):
                continue
            if value.__module__ == module.__name__ and not hasattr(value, "only_python"):
                compiler: Any = numba.njit
                inline = "never" if name in _ENTRIES else "always"
                options = {"cache": True, "nogil": True, "error_model": "numpy", "inline": inline}
                # loops only look at arrays of their callers: to count who uses these took twice the time of reading
                # https://numba.readthedocs.io/en/stable/developer/numba-runtime.html
                compiled[value] = compiler(**options, _nrt=False)(value)
            if value in compiled:
                setattr(module, name, compiled[value])


def _numba() -> ModuleType:
    """The compiler, without the settings that it takes from `.numba_config.yaml` in the working directory.

    It reads them when it is imported, and again for each function that it compiles.
    https://numba.readthedocs.io/en/stable/reference/envvars.html
    """
    found = importlib.util.find_spec("numba")
    with chdir(Path(str(found and found.origin)).parent):
        numba = importlib.import_module("numba")
    importlib.import_module("numba.core.config")._config_fname = os.devnull  # type: ignore[attr-defined]
    return numba


def _modules() -> list[ModuleType]:
    return [importlib.import_module(f"{_PACKAGE}.{name}") for name in ("layout", *_MODULES)]


def _cache_directory() -> Path:
    """Where the compiled code of these loops is kept, or would be."""
    if given := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(given)
    text = b"".join(Path(path).read_bytes() for path in (__file__, *(str(module.__file__) for module in _modules())))
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "trainspec" / f"loops-{hashlib.sha256(text).hexdigest()[:16]}"


def _made(directory: Path) -> Path:
    """The directory, or one for this process alone where it cannot be made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="trainspec-loops-"))
    return directory
