"""Keeps the outcome of each mutant in each scenario, so that an interrupted run can continue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from trainspec_validate.documents.types.conformance_report import Verdict
from trainspec_validate.system.atomic import write_atomically

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "conformance/mutants",
    "conformance/scenarios",
    "conformance/trainspec_conformance",
    "reference/trainspec_reference/common",
    "src/trainspec_validate",
    "record/trainspec_record",
)
_SUFFIXES = {".py", ".yaml"}


class Outcome(msgspec.Struct, frozen=True):
    """Result of one scenario."""

    state: Verdict
    message: str = ""
    """The first thing that was wrong, or why it was not run."""


class Results(msgspec.Struct):
    """Results of one mutant so far."""

    mutant: str
    sources: str
    """Digest of all that could change a result."""
    outcomes: dict[str, Outcome] = {}
    """By name of the scenario."""

    def write(self, directory: Path) -> None:
        """Keep them, whole or not at all."""
        write_whole(directory / f"{self.mutant}.json", self)


def write_whole(path: Path, record: msgspec.Struct) -> None:
    """Write a record to a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=1))


def read(directory: Path, mutant: str) -> Results:
    """Kept results of a mutant; none where a source has changed since, or the file is foreign."""
    fresh = Results(mutant, sources_digest())
    try:
        found = msgspec.json.decode((directory / f"{mutant}.json").read_bytes(), type=Results)
    except (OSError, msgspec.DecodeError):
        return fresh
    return found if (found.mutant, found.sources) == (mutant, fresh.sources) else fresh


@cache
def sources_digest() -> str:
    """Digest of the mutants, the suite, its scenarios, and the trainer and the libraries that they run on."""
    return digest_of(path for folder in SOURCES for path in (ROOT / folder).rglob("*"))


def digest_of(paths: Iterable[Path]) -> str:
    """Digest of the names and contents of files of a source."""
    digest = hashlib.sha256()
    for path in sorted(one for one in paths if one.suffix in _SUFFIXES and one.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
