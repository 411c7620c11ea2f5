"""Which room owns which third-party library, and which write files and print."""

from __future__ import annotations

import ast
import logging.config
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest
from importlinter.cli import lint_imports

from tests.every import every
from tests.import_statements import import_statements

PACKAGE = "trainspec_validate"
SOURCE = Path(__file__).resolve().parents[1] / "src" / PACKAGE
ROOT = SOURCE.parents[1]
RECORDER = SOURCE.parents[1] / "record" / "trainspec_record"

# Third-party library: the modules below the package (patterns) that may import it.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "yaml": ("documents.load", "documents.load.*"),
    "jsonschema_rs": ("documents.schema", "telemetry.formats.native"),
    "click": ("cli", "cli.*"),
    "msgspec": (
        "documents.types",
        "documents.types.*",
        "telemetry.formats.json_text",
        "telemetry.formats.native",
        "telemetry.view.event_blocks",
        "telemetry.view.event_log",
        "telemetry.view.run_records",
        "checkpoints.envelope",
        "checkpoints.signature",
        "pipeline.claims",
        "system.structs",
    ),
    "cryptography": ("checkpoints.envelope",),
    "pyarrow": ("telemetry.formats.parquet", "telemetry.user_rules.tables"),
    "narwhals": ("telemetry.user_rules.*",),
    "duckdb": ("telemetry.user_rules.engines",),
    "polars": ("telemetry.user_rules.engines",),
    "pyspark": ("telemetry.fold.spark", "telemetry.user_rules.engines"),
    "zstandard": ("telemetry.formats.source", "checkpoints.formats._ocdbt", "checkpoints.unpacked"),
    "numba": ("telemetry.kernels.jit",),
    "numpy": ("checkpoints.*", "report.run_page.*", "system.crc32c", "telemetry.*"),
    "rich": ("*",),
    "pydantic": ("models.*",),
    "pynvml": ("interop.discover.nvml",),
    "mcp": ("cli.commands.mcp",),
}

# Imported inside functions only, because start-up would pay for it.
LAZY = {
    *("rich", "cryptography", "pynvml", "pyarrow", "zstandard", "narwhals", "duckdb", "polars", "pyspark", "numba"),
    "mcp",
}


@dataclass(frozen=True)
class Import:
    """One imported name, where it stands, and whether importing the module runs it."""

    module: str
    target: str
    line: int
    eager: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def dotted(path: Path) -> str:
    """The module below the package; the package itself is `__init__`."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)


def targets(statement: ast.Import | ast.ImportFrom, path: Path) -> Iterator[str]:
    """Absolute names; for `from a import b` it is `a.b`, whether b is a module or not."""
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names)
        return
    base = statement.module or ""
    if statement.level:
        package = (PACKAGE, *path.relative_to(SOURCE).parts[:-1])
        base = ".".join(part for part in (*package[: len(package) - statement.level + 1], base) if part)
    yield from (f"{base}.{alias.name}" for alias in statement.names)


def imports(path: Path) -> Iterator[Import]:
    for statement, eager in import_statements(ast.parse(path.read_text(encoding="utf-8"))):
        for target in targets(statement, path):
            yield Import(dotted(path), target, statement.lineno, eager)


@cache
def every_import() -> tuple[Import, ...]:
    return tuple(found for path in sorted(SOURCE.rglob("*.py")) for found in imports(path))


@pytest.mark.slow
def test_something_was_read() -> None:
    assert every_import()


def test_rooms_import_only_the_rooms_below_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The contracts are in `pyproject.toml`; what broke one is in the output."""
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)  # it would silence the loggers of later tests
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.slow
def test_third_party_libraries_stay_in_their_rooms() -> None:
    known = {*sys.stdlib_module_names, PACKAGE}
    foreign = [i for i in every_import() if i.target.split(".")[0] not in known]
    strays = [
        str(i) for i in foreign if not any(fnmatchcase(i.module, p) for p in LIBRARIES.get(i.target.split(".")[0], ()))
    ]
    assert not strays


def test_slow_libraries_are_imported_inside_functions() -> None:
    assert not [str(i) for i in every_import() if i.eager and i.target.split(".")[0] in LAZY]


FRAMEWORKS = {
    "adapters": {"accelerate", "deepspeed", "jax", "keras", "lightning", "numpy", "orbax", "pytorch_lightning", "torch"}
    | {"torchtitan", "transformers"},
    "noise": {"jax", "torch"},
}
"""Rooms of the recorder that a program loads with the framework that it uses, and what they may import."""


def test_the_recorder_stands_alone() -> None:
    """A training script imports it: it knows the standard library and itself, and nothing of the validator."""
    found = set()
    for path in RECORDER.rglob("*.py"):
        names = {
            name.split(".")[0]
            for statement, _ in import_statements(ast.parse(path.read_text(encoding="utf-8")))
            for name in (
                each.name if isinstance(statement, ast.Import) else statement.module for each in statement.names
            )
            if name and not getattr(statement, "level", 0)
        }
        found |= names - FRAMEWORKS.get(path.relative_to(RECORDER).parts[0], set())
    assert "trainspec_record" in found
    assert found - {"trainspec_record", *sys.stdlib_module_names} == set()


# --- who opens a file for writing -------------------------------------------------------------------------------

WRITERS: dict[str, str] = {
    "src/trainspec_validate/system/atomic.py": "the one place",
    "src/trainspec_validate/telemetry/fold/large.py": "files of a temporary directory of its own",
    "src/trainspec_validate/telemetry/fold/spill.py": "files of a temporary directory of its own",
    "src/trainspec_validate/telemetry/user_rules/tables.py": "files of a temporary directory of its own",
    "src/trainspec_validate/pipeline/files.py": "standard input, in a temporary directory of its own",
    "src/trainspec_validate/telemetry/formats/parquet.py": "Arrow, on a file of the caller",
    "record/trainspec_record/stream.py": "appends to a stream, whose reader expects a cut last line",
    "record/trainspec_record/past.py": "cuts off the half line at the end of a stream",
    "record/trainspec_record/claim.py": "locks a stream",
    "record/trainspec_record/succession.py": "appends the end of a killed process to its stream",
    "record/trainspec_record/checkpoints.py": "a manifest: a new file, fsync, then one rename",
    "record/trainspec_record/adapters/checkpoints.py": "a mark in a checkpoint that the trainer is writing",
    "reference/minimal/*.py": "programs to copy from: a trace, and a pointer after its commit",
    "reference/trainspec_reference/common/checkpoints.py": "a commit: files, fsync, then one rename",
    "conformance/trainspec_conformance/testbed/plain/storage.py": "a shard of a save that is not committed",
    "reference/trainspec_reference/jax/storage.py": "an index in the directory of a save that is not committed",
    "reference/trainspec_reference/common/trace.py": "appends to the trace of a process",
    "reference/trainspec_reference/common/controller.py": "a lock",
    "conformance/trainspec_conformance/history.py": "appends to the trace of a trial",
    "conformance/trainspec_conformance/agent.py": "files of a temporary directory of its own",
    "conformance/trainspec_conformance/commands.py": "a file by which nodes show that they see a directory",
    "conformance/trainspec_conformance/processes.py": "the log that a stack appends to",
    "conformance/trainspec_conformance/probing.py": "the log that a probe appends to",
    "conformance/trainspec_conformance/damage.py": "damages checkpoints",
    "conformance/trainspec_conformance/stored_values.py": "changes values of checkpoints in place",
    "conformance/trainspec_conformance/archive_sums.py": "changes checksums of checkpoints in place",
    "conformance/trainspec_conformance/trial.py": "moves the directory of a trial",
    "conformance/trainspec_conformance/isolating.py": "moves the store of a stack, and what it left next to it",
    "conformance/trainspec_conformance/means.py": "keeps a checkpoint of the stack as evidence",
    "conformance/trainspec_conformance/memory.py": "control groups",
    "conformance/trainspec_conformance/node_clock.py": "memory that processes share",
    "conformance/trainspec_conformance/node_network.py": "a device, and a file of the directory of an agent",
    "conformance/trainspec_conformance/templates/shim.py": "a template of a program that stands alone",
    "conformance/mutants/honest.py": "a lock",
    "conformance/mutants/lies_of_hosts.py": "a planted fault",
    "conformance/mutants/lies_of_outcomes.py": "losses that a mutant records",
    "conformance/mutants/lies_of_stores.py": "copies that a mutant hides",
    "conformance/mutants/lies_of_shortcuts.py": "positions and manifests that a mutant writes",
    "conformance/mutants/reach.py": "a pipe",
    "conformance/mutants/entries.py": "appends the names of functions that ran",
    "conformance/stacks/shims/*.py": "programs that stacks run without TrainSpec: answers, traces and planted faults",
    "conformance/results/reproduce_*.py": "programs that stand alone and damage checkpoints of their own",
}
"""Module (pattern) to why it may open a file for writing, or put one in place of another."""
_WRITING_CALLS = {
    *("write_text", "write_bytes", "touch", "hardlink_to", "symlink_to", "rename", "renames", "link", "symlink"),
    *("copyfile", "copy", "copy2", "copytree", "move", "mkstemp", "NamedTemporaryFile", "mknod", "mkfifo", "truncate"),
    *("ParquetWriter", "write_parquet", "write_csv", "savez", "savez_compressed", "tofile", "FileIO", "FileHandler"),
    *("save", "save_file", "savetxt", "savefig"),
}
_OF_A_MODULE = {"copy", "copy2", "move", "link", "symlink", "truncate", "save"}
"""Names that other objects have too; they count on a module of `_MODULES`."""
_MODULES = {"os", "shutil", "np", "numpy", "jnp", "torch", "safetensors"}
_WRITING_FLAGS = ("O_WRONLY", "O_RDWR", "O_CREAT", "O_APPEND", "O_TRUNC")


def writes(call: ast.Call, named: Mapping[str, ast.expr] = MappingProxyType({})) -> bool:
    """Whether a call opens a file for writing, or makes, moves or replaces one; `named` tells values of names."""
    function = call.func
    name = getattr(function, "id", getattr(function, "attr", ""))
    owner = getattr(getattr(function, "value", None), "id", "")
    if (owner, name) == ("os", "open") or name == "open_regular":
        names = [node.id for node in ast.walk(call) if isinstance(node, ast.Name)]
        text = " ".join(map(ast.unparse, [call, *(named[each] for each in names if each in named)]))
        return any(flag in text for flag in _WRITING_FLAGS) and "/dev/null" not in text and "devnull" not in text
    if name in {"open", "fdopen"}:
        return opens_for_writing(call, owner, is_method=isinstance(function, ast.Attribute))
    if name == "ZipFile":
        return len(call.args) > 1
    if name == "replace":  # of a path it has one argument, of a text two
        return owner == "os" or (len(call.args) == 1 and not call.keywords)
    return name in _WRITING_CALLS and (name not in _OF_A_MODULE or owner in _MODULES)


def opens_for_writing(call: ast.Call, owner: str, *, is_method: bool) -> bool:
    first = 0 if is_method and owner not in {"os", "io", "gzip", "bz2", "lzma", "codecs"} else 1
    named = [keyword.value for keyword in call.keywords if keyword.arg == "mode"]
    mode = next(iter(named or call.args[first : first + 1]), None)
    if mode is None:
        return False
    if isinstance(mode, ast.Constant) and isinstance(mode.value, str):
        return bool(set(mode.value) & set("wax+"))
    return ast.unparse(call.func) in {"open", "os.fdopen"} or (is_method and bool(named))


@cache
def writers() -> set[str]:
    """Modules of the four distributions that write files."""
    found = set()
    for folder in ("src", "record", "reference", "conformance"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
            named = {
                target.id: node.value
                for node in nodes
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            if any(isinstance(node, ast.Call) and writes(node, named) for node in nodes):
                found.add(path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Path(x).write_text(y)", True),
        ("path.open('wb')", True),
        ("path.open(mode='a')", True),
        ("open(path, 'r+b')", True),
        ("open(path, mode)", True),
        ("os.open(path, os.O_CREAT | os.O_EXCL)", True),
        ("open_regular(path, os.O_RDWR)", True),
        ("open_regular(path)", False),
        ("os.replace(a, b)", True),
        ("new.replace(path)", True),
        ("new.rename(path)", True),
        ("shutil.copyfile(a, b)", True),
        ("pq.ParquetWriter(path, schema)", True),
        ("zipfile.ZipFile(path, 'w')", True),
        ("np.save(path, array)", True),
        ("np.savez_compressed(path, array)", True),
        ("torch.save(state, path)", True),
        ("self._backend.save(state)", False),
        ("os.open(path, flags)", False),
        ("path.open('rb')", False),
        ("path.open()", False),
        ("open(path)", False),
        ("archive.open(name)", False),
        ("text.replace('a', 'b')", False),
        ("os.open(path, os.O_RDONLY)", False),
        ("values.copy()", False),
    ],
)
def test_what_counts_as_writing(source: str, expected: bool) -> None:
    (call,) = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)][:1]
    assert writes(call) is expected


@pytest.mark.slow
def test_one_module_writes_outputs() -> None:
    """An output is whole and no link is followed because everything goes through `atomic`."""
    assert not [name for name in writers() if not any(fnmatchcase(name, pattern) for pattern in WRITERS)]


@every("pattern", sorted(WRITERS))
def test_every_exception_is_needed(pattern: str) -> None:
    assert any(fnmatchcase(name, pattern) for name in writers())


# --- who prints ---------------------------------------------------------------------------------------------------

PRINTERS: dict[str, str] = {
    "src/trainspec_validate/cli/terminal.py": "the one place",
    "src/trainspec_validate/cli/commands/tables.py": "lays a table out, and hands the text on",
    "src/trainspec_validate/interop/discover/nvml.py": "a process of its own, which the caller reads",
    "record/trainspec_record/printing.py": "the one place of the recorder",
    "record/trainspec_record/digests.py": "a process of its own, which the recorder reads",
    "conformance/trainspec_conformance/node_commands.py": "a process on a node, whose output is that of a rank",
    "conformance/trainspec_conformance/ask_before_writing.py": "a process that becomes a rank, whose output this is",
    "conformance/trainspec_conformance/summary.py": "lays a table out, and hands the text on",
}
"""Module to why it may print."""
PROGRAMS_OF_STACKS = (
    *("conformance/stacks/", "conformance/results/"),
    *("conformance/trainspec_conformance/templates/", "conformance/trainspec_conformance/testbed/"),
)
"""What stacks run, and not the suite."""
_PRINTING = re.compile(
    r"print|sys\.__?std(out|err)__|sys\.std(out|err)\.(write|writelines|buffer\.write)|(rich\.)?print|pprint"
    r"|click\.(echo|echo_via_pager|secho|prompt|confirm|pause|progressbar)|(rich\.console\.)?Console"
    r"|traceback\.print_\w+|warnings\.warn"
)


def printers() -> set[str]:
    found = set()
    for folder in ("src", "record", "conformance/trainspec_conformance"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            text = path.read_text(encoding="utf-8")
            if name.startswith(PROGRAMS_OF_STACKS) or re.search(r"print|\.std|echo|Console|warn\(", text) is None:
                continue
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            if any(_PRINTING.fullmatch(ast.unparse(call.func)) for call in calls):
                found.add(name)
    return found


def test_one_module_prints() -> None:
    """What is printed is safe for a log because everything goes through `terminal`, which makes it so."""
    assert printers() == set(PRINTERS)
