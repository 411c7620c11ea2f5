"""Wheels of what is installed here, and locks of them: the actions install from these without a network."""

from __future__ import annotations

import hashlib
import re
import shutil
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_COPIED = shutil.ignore_patterns(
    *(".*_cache", ".venv*", ".git", ".hypothesis", "build", "site", "__pycache__", "dist", "tests", "benchmarks"),
)
LOCKS = ("run.txt", "build.txt", "conformance.txt")
_UNPACKED = frozenset({"INSTALLER", "REQUESTED", "direct_url.json"})


def copy_action(folder: Path) -> Path:
    """A checkout of this repository whose locks are satisfied by the wheels in `folder / "wheels"`."""
    action, wheels = folder / "action", folder / "wheels"
    wheels.mkdir(parents=True)
    shutil.copytree(ROOT, action, ignore=NOT_COPIED)
    made: dict[str, str] = {}
    for lock in LOCKS:
        path = action / "requirements" / lock
        names = re.findall(r"^([\w.-]+)==", path.read_text(encoding="utf-8"), re.MULTILINE)
        lines = [made.setdefault(name, _line(distribution(name), wheels)) for name in names]
        path.write_text("".join(lines), encoding="utf-8")
    return action


def _line(found: Distribution, wheels: Path) -> str:
    """Pack what is installed; the line of a lock for it."""
    name = re.sub(r"[-_.]+", "_", found.metadata["Name"])
    tags = re.findall(r"^Tag: (\S+)$", found.read_text("WHEEL") or "", re.MULTILINE)
    path = wheels / f"{name}-{found.version}-{tags[0]}.whl"
    if not path.exists():
        _pack(found, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return f"{found.metadata['Name']}=={found.version} --hash=sha256:{digest}\n"


def _pack(found: Distribution, path: Path) -> None:
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for file in _files(found):
            archive.write(found.locate_file(file), file)
            record.append(f"{file},,\n")
            if file.endswith(".dist-info/WHEEL"):
                folder = file.rpartition("/")[0]
        archive.writestr(f"{folder}/RECORD", "".join([*record, f"{folder}/RECORD,,\n"]))


def _files(found: Distribution) -> Iterable[str]:
    for file in found.files or ():
        parts = file.parts
        if parts[0] != ".." and "__pycache__" not in parts and file.name not in {*_UNPACKED, "RECORD"}:
            yield file.as_posix()
