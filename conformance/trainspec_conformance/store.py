"""Finds the checkpoints of a stack, and their files that hold state."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from pathlib import Path

from trainspec_validate.documents.types.conformance import Store

MAX_FILES = 100_000
CANARY = "canary-was-executed"
MAX_POINTER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Stored:
    """One checkpoint in the store."""

    name: str
    step: int
    path: Path


class CheckpointStore:
    """The store of one trial."""

    def __init__(self, out: Path, store: Store) -> None:
        self.directory = out / store.directory
        self.canary = out / CANARY
        """What a hostile file makes where it is executed: not in the store itself, which may be moved meanwhile."""
        self._store = store
        self._pattern = _pattern(store.name)
        self._line = _pattern(store.pointer_line) if store.pointer_line else None
        self._names: frozenset[str] | None = None

    def limited_to(self, names: frozenset[str]) -> CheckpointStore:
        """The same store as if it held only these of its checkpoints."""
        found = copy.copy(self)
        found._names = names
        return found

    def checkpoints(self) -> list[Stored]:
        """Every checkpoint by its name, from the oldest step to the newest; not links."""
        if not self.directory.is_dir():
            return []
        found = []
        for path in self.directory.iterdir():
            match = self._pattern.fullmatch(path.name)
            if match and not path.is_symlink() and (self._names is None or path.name in self._names):
                found.append(Stored(path.name, int(match.group(1)), path))
        return sorted(found, key=lambda one: (one.step, one.name))

    def name_of(self, step: int) -> str:
        """Name that a checkpoint of that step gets: with as many digits as the existing names."""
        names = [match[1] for one in self.checkpoints() if (match := self._pattern.fullmatch(one.name))]
        width = max((len(digits) for digits in names if digits.startswith("0")), default=0)
        return self._store.name.replace("{step}", f"{step:0{width}}")

    def payload(self, checkpoint: Stored) -> list[Path]:
        """Files that hold state, sorted: no links, no manifest, nothing empty."""
        if checkpoint.path.is_file():
            return [checkpoint.path]
        found: set[Path] = set()
        for pattern in self._store.payload:
            for path in checkpoint.path.glob(pattern):
                if len(found) >= MAX_FILES:
                    break
                if path.is_file() and not path.is_symlink() and path.name != "trainspec-manifest.json":
                    found.add(path)
        return sorted(path for path in found if path.stat().st_size)

    @property
    def pointer(self) -> Path | None:
        """The file that names the newest checkpoint, where the stack has one."""
        return self.directory / self._store.pointer if self._store.pointer else None

    def pointed(self) -> str | None:
        """The checkpoint that the pointer names, or all that it says where it names none; None where there is none."""
        if self.pointer is None or not self.pointer.is_file():
            return None
        with self.pointer.open("rb") as file:
            text = file.read(MAX_POINTER_BYTES).decode("utf-8", "replace").strip()
        lines = [line.strip() for line in text.splitlines()] if self._line else []
        found = next((match for line in lines if self._line and (match := self._line.fullmatch(line))), None)
        if found is None:
            return text
        return next((one.name for one in self.checkpoints() if one.step == int(found[1])), self.name_of(int(found[1])))

    def pointing(self, name: str) -> bytes:
        """Content of a pointer to this checkpoint; other lines stay as they are."""
        step = self._pattern.fullmatch(name)
        if self.pointer is None or self._line is None or self._store.pointer_line is None or step is None:
            return name.encode()
        lines = self.pointer.read_text(encoding="utf-8", errors="replace").splitlines()
        told = next((match[1] for held in lines if (match := self._line.fullmatch(held.strip()))), "")
        digits = step[1] if told.startswith("0") else str(int(step[1]))
        line = self._store.pointer_line.replace("{step}", digits)
        kept = [line if self._line.fullmatch(held.strip()) else held for held in lines]
        return "".join(f"{one}\n" for one in (kept if line in kept else [line, *kept])).encode()


def _pattern(text: str) -> re.Pattern[str]:
    before, _, after = text.partition("{step}")
    return re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
