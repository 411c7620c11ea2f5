"""Gathers the files of the playground: the editor, Pyodide, packages without native code, the validator."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trainspec_site import editor_modules
from trainspec_site.npm import PYODIDE, AssetError, run
from trainspec_validate.model.catalog import models

RUNTIME = ("pyodide.mjs",)
LOCK = "pyodide-lock.json"
LIBRARY = "python_stdlib.zip"
PACKED = ("pyodide.asm.mjs", "pyodide.asm.wasm")
"""Compressed by gzip, whatever the host of the site does. No name of theirs makes a server unpack them on the way."""
WHEEL_TAGS = ["--platform", "pyemscripten_2026_0_wasm32", "--python-version", "3.14", "--abi", "cp314"]
PURE = ("attr", "attrs", "jsonschema", "pyrsistent", "yaml")
PURE_NOTICES = ("attrs", "jsonschema", "pyrsistent", "PyYAML")
OURS = ("trainspec_validate",)
NOT_LOADED = (
    "trainspec_validate/interop/",
    "trainspec_validate/cli/",
    "trainspec_validate/report/run_page/",
    "trainspec_validate/telemetry/checks/",
    "trainspec_validate/telemetry/decode/",
    "trainspec_validate/telemetry/fold/",
    "trainspec_validate/telemetry/kernels/",
    "trainspec_validate/telemetry/user_rules/",
    "trainspec_validate/telemetry/view/",
    "trainspec_validate/data/schemas/draft-07/",
    "jsonschema/tests/",
    "jsonschema/benchmarks/",
)
"""Parts that judge no text of the playground: readers of logs, command lines, checks of whole runs, tests."""
CHARACTER_SETS = (
    "big5", "cp0", "cp1", "cp7", "cp8", "cp9", "euc_", "gb", "hp_", "hz", "iso2022", "iso8859", "johab", "koi8", "mac_",
    "palmos", "ptcp", "shift_jis", "tis_",
)  # fmt: skip
LIBRARY_NOT_LOADED = (
    *(f"encodings/{name}" for name in CHARACTER_SETS),
    "_pydatetime.py", "_pyio.py", "_pyrepl/", "bdb.py", "cProfile.py", "doctest.py", "ftplib.py", "http/server.py",
    "idlelib/", "imaplib.py", "mailbox.py", "multiprocessing/", "nntplib.py", "optparse.py", "pdb.py", "plistlib.py",
    "poplib.py", "profile.py", "pstats.py", "pydoc.py", "pydoc_data/", "smtplib.py", "socketserver.py", "trace.py",
    "turtle.py", "unittest/", "wsgiref/", "xml/dom/", "xml/sax/", "xmlrpc/",
)  # fmt: skip
"""Parts of Python's library for terminals, networks, processes, other character sets, tests, or without native code."""
PACKAGES = "packages.tar.bz2"
NATIVE = {".so", ".pyd", ".pyi"}
FIRST_DAY = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive, so that equal contents make equal archives."""
EXAMPLES: Mapping[str, Mapping[str, str]] = {
    "A cluster with ten mistakes": {"cluster.yaml": "broken/cluster.yaml"},
    "A plan that does not fit its schema": {"plan.yaml": "broken/plan.yaml", "cluster.yaml": "broken/cluster.yaml"},
    "Llama 3 405B: cluster, plan and policy": {
        "cluster.yaml": "clusters/meta-llama3-24k.yaml",
        "plan.yaml": "plans/llama3-405b-16384.yaml",
        "checkpoint.yaml": "policies/llama3-405b-16384.yaml",
    },
    "A TPU pod": {"cluster.yaml": "clusters/google-tpu-v5p-pod.yaml"},
    "Checkpoints on spot machines": {
        "checkpoint.yaml": "policies/spot-64.yaml",
        "cluster.yaml": "clusters/gcp-a3-ultra-h200.yaml",
    },
    "A stream with five damaged records": {"job.jsonl": "broken/records.jsonl"},
}


def write(root: Path, target: Path, cache: Path) -> None:
    """Write all that the playground loads into a folder; what is fetched once stays in the cache.

    Raises:
        AssetError: npm or pip cannot fetch what is not in the cache, or its digest differs.
    """
    wheel = _wheel(root / "requirements" / "docs.txt", cache)
    target.mkdir(parents=True, exist_ok=True)
    for name, content in PYODIDE.files(cache, *RUNTIME).items():
        (target / name).write_bytes(content)
    for name, content in PYODIDE.files(cache, *PACKED).items():
        (target / f"{name}.packed").write_bytes(gzip.compress(content, mtime=0))
    (lock,) = PYODIDE.files(cache, LOCK).values()
    (target / LOCK).write_text(json.dumps(json.loads(lock) | {"packages": {}}), encoding="utf-8")
    (library,) = PYODIDE.files(cache, LIBRARY).values()
    (target / f"{LIBRARY}.packed").write_bytes(gzip.compress(_smaller_library(library), mtime=0))
    shutil.copy(wheel, target / wheel.name)
    _pack(target / PACKAGES, [*_pure_files(), *_our_files(root)])
    sets = {title: example_texts(root / "examples", files) for title, files in EXAMPLES.items()}
    modules = editor_modules.write(target / "modules", cache)
    runtime = (*RUNTIME, LOCK, *(f"{name}.packed" for name in (*PACKED, LIBRARY)))
    loaded = [*(target / name for name in (*runtime, PACKAGES, wheel.name)), *modules]
    manifest = {
        "archives": {PACKAGES: "bztar", wheel.name: "zip"},
        "num_bytes": sum(path.stat().st_size for path in loaded),
        "examples": sets,
        "models": list(models()),
    }
    (target / "manifest.json").write_text(json.dumps(manifest, ensure_ascii=False), encoding="utf-8")


def example_texts(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Texts by the names that they have in the playground, where they refer to each other by these names."""
    texts = {name: (folder / path).read_text(encoding="utf-8") for name, path in files.items()}
    for other, path in files.items():
        texts = {name: text.replace(f"file: ../{path}", f"file: {other}") for name, text in texts.items()}
    return texts


def _wheel(lock: Path, cache: Path) -> Path:
    """The wheel of msgspec for Pyodide, of the version and with a digest that the lock names."""
    cache.mkdir(parents=True, exist_ok=True)
    text = lock.read_text(encoding="utf-8")
    pin = re.search(r"^msgspec==(?P<version>\S+) \\\n(?P<hashes>(?:    --hash=\S+(?: \\)?\n)+)", text, re.MULTILINE)
    if pin is None:
        raise AssetError(f"{lock.name} does not lock msgspec")
    pattern = f"msgspec-{pin['version']}-*wasm32.whl"
    if not list(cache.glob(pattern)):
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        run([*pip, "--only-binary=:all:", *WHEEL_TAGS, "--dest", str(cache), f"msgspec=={pin['version']}"])
    path = next(cache.glob(pattern))
    if f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}" not in pin["hashes"]:
        raise AssetError(f"{path.name} has a digest that {lock.name} does not name")
    return path


def _pure_files() -> Iterator[tuple[str, Path]]:
    """Files of installed packages, without their native parts, and their licences."""
    home = Path(sysconfig.get_path("purelib"))
    notices = [path.name for name in PURE_NOTICES for path in home.glob(f"{name}-*.dist-info")]
    for name in (*PURE, *notices):
        yield from _files(home / name, name)


def _our_files(root: Path) -> Iterator[tuple[str, Path]]:
    for name in OURS:
        yield from _files(root / "src" / name, name)
    yield from _files(Path(__file__).parent / "in_browser", "")


def _files(folder: Path, prefix: str) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in NATIVE:
            yield f"{prefix}/{path.relative_to(folder).as_posix()}".lstrip("/"), path


def _pack(target: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Pack files as a tape archive of bzip2: a quarter smaller than one of gzip, and Python itself unpacks it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, path in files:
            if name.startswith(NOT_LOADED):
                continue
            content = path.read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    target.write_bytes(bz2.compress(packed.getvalue()))


def _smaller_library(content: bytes) -> bytes:
    """Python's library without the parts that nothing loads here, and not compressed: the whole of it will be."""
    smaller = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as library, zipfile.ZipFile(smaller, "w") as archive:
        for name in sorted(library.namelist()):
            if not name.startswith(LIBRARY_NOT_LOADED):
                archive.writestr(zipfile.ZipInfo(name, FIRST_DAY), library.read(name))
    return smaller.getvalue()
