"""Defines what a check sees of checkpoints: files, what the formats say, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, TypeGuard

from trainspec_validate.checkpoints.content import STATE_SUFFIXES
from trainspec_validate.checkpoints.counted import Counted
from trainspec_validate.checkpoints.functions import is_of_a_program
from trainspec_validate.checkpoints.limits import NAME_CHARACTERS, PIECES, SHARED, within
from trainspec_validate.checkpoints.statistics import Piece, Statistics
from trainspec_validate.documents.types import CheckpointManifest
from trainspec_validate.system.budget import Count

MANIFEST_NAME = "trainspec-manifest.json"
SIGNATURE_NAME = "model.sig"
"""Default of the OpenSSF model-signing format."""

MAX_TROUBLES = 1_000
_NAMES_SHOWN = 5
_MOST_NAMES = 10_000
"""Of code that are counted in one file."""
_MOST_FUNCTIONS = 5
"""Of one aspect that are reported one by one, as of one requirement."""

Aspect = Literal[
    "mark",
    "residue",
    "files",
    "container",
    "checksum",
    "tiling",
    "shards",
    "resume-state",
    "step",
    "rng",
    "code",
    "paths",
    "limits",
]
"""Aspects that a reader of a format can examine; each is the matter of one requirement."""


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value from a file is a whole number from 0 that fits into 63 bits."""
    return type(value) is int and 0 <= value < 1 << 63


@dataclass(frozen=True, slots=True)
class FileFact:
    """One entry below a checkpoint directory."""

    path: str
    """Relative to the checkpoint, with forward slashes."""
    kind: Literal["file", "link", "special"]
    size_bytes: int
    modified_ns: int
    """Nanoseconds since 1970 UTC."""
    target: str = ""
    """Target of a link, as written; of a file, that of the link of a cache that leads to it."""
    identity: tuple[int, int] = (0, 0)
    """Number of the file in its file system, and when it last changed in any way: other content has others."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Fault that a reader found: the matter, the file, the fact and the remedy."""

    aspect: Aspect
    path: str
    """Relative to the checkpoint; empty for the directory itself."""
    message: str
    help: str = ""


OWN_STEPS = ("step", "global_step", "current_step", "iteration", "iter_num", "step_count", "step_nr", "num_updates")
"""Keys by which programs save the step of a state."""


@dataclass(frozen=True, slots=True)
class StepClaim:
    """A place that says how many optimizer steps are in the state."""

    path: str
    step: int
    words: str
    """How a sentence names the place, such as `trainer_state.json (global_step)`."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One zip container: a whole file, or a stretch of one."""

    path: str
    offset: int = 0
    num_bytes: int | None = None
    """None for up to the end of the file."""
    label: str = ""
    """Name that the index of the checkpoint gives its content."""


@dataclass(slots=True)
class Checkpoint:
    """One checkpoint directory, or files side by side that are one, and everything that was read of it."""

    root: Path
    """The directory that paths are relative to."""
    name: str
    """As the user named it, with forward slashes."""
    step: int | None
    """Step that the name of the directory says."""
    files: dict[str, FileFact]
    bundle: str = ""
    """Common part of the names of its files, where they are next to those of other checkpoints."""
    folders: tuple[str, ...] = ()
    """Every directory below it, relative."""
    formats: list[str] = field(default_factory=list)
    """Formats that were recognised, in words."""
    examined: set[Aspect] = field(default_factory=set)
    """Aspects that were examined; others are never a pass."""
    troubles: list[Trouble] = field(default_factory=list)
    claims: list[StepClaim] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    """Files whose presence commits the checkpoint; they are written last."""
    archives: list[Archive] = field(default_factory=list)
    """Containers whose content carries a checksum of the format."""
    keys: set[str] = field(default_factory=set)
    """Names of tensors and other state that indexes and headers say."""
    save_ids: set[str] = field(default_factory=set)
    """Identities of saves that the format records in addition to the manifest: one for each of its parts."""
    pieces: list[Piece] = field(default_factory=list)
    """Where the values of tensors are, as far as it is known."""
    statistics: list[Statistics] | None = None
    """Statistics of these values; None before they are read."""
    recorded: dict[str, str] = field(default_factory=dict)
    """SHA-256 of files, as a file of the format records it."""
    manifest: CheckpointManifest | None = None
    manifest_problem: str = ""
    """Why the manifest that is there cannot be read."""
    _num_reported: dict[str, int] = field(default_factory=dict)
    _num_pieces: Count = field(default_factory=lambda: Count(PIECES))
    _num_names: Count = field(default_factory=lambda: Count(PIECES))
    _num_characters: Count = field(default_factory=lambda: Count(NAME_CHARACTERS))
    _held_bytes: dict[str, int] = field(default_factory=dict)
    said: dict[str, Counted] = field(default_factory=dict)
    """Progress that files of `torch.save` report of the run, by their paths."""
    moments: set[str] = field(default_factory=set)
    """Shards with moments or steps of an optimizer, which each step changes."""
    value_bytes: dict[str, int] = field(default_factory=dict)
    """Bytes of the values of tensors in containers, by their paths."""
    code: dict[str, dict[str, None]] = field(default_factory=dict)
    """Names of code in files, by their paths, which are reported once for each file."""
    functions: list[tuple[str, str]] = field(default_factory=list)
    """Files whose pickles would run a function that makes no plain state, and the function; the first few."""
    is_covered: bool = False
    """Whether the manifest of a directory above lists every file of it."""
    unread: dict[str, str] = field(default_factory=dict)
    """Files that no reader judges and that may hold code, and why."""
    programs: set[str] = field(default_factory=set)
    """Those of them with code that a loader runs where it is asked to, which no digest makes safe."""
    doubts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Files that a reader cannot decide on, with the fact and what to do."""
    manifest_digest: str = ""
    """SHA-256 of the manifest as it was read."""
    tree: dict[str, FileFact] = field(default_factory=dict)
    """Every entry below the directory, those of other checkpoints included: what a manifest covers."""
    tree_folders: tuple[str, ...] = ()
    """Every directory below it, those of other checkpoints included."""
    unnamed: frozenset[str] = frozenset()
    """Files at its top that `torch.save` wrote, as their begin shows and their names do not."""
    empty_folders: tuple[str, ...] = ()
    """Those of them without any entry."""
    own_steps: list[StepClaim] = field(default_factory=list)
    """Steps next to a model in one file, under names that programs choose, which may count something else."""
    hinted_steps: list[StepClaim] = field(default_factory=list)
    """Steps next to no model, or in a part of the state: they count where an older name agrees with its state."""
    stated: dict[str, dict[str, int]] = field(default_factory=dict)
    """Counts of steps and epochs under any such key, by the paths of files: what they count is not known."""
    lone: dict[str, str] = field(default_factory=dict)
    """The one value in files of `torch.save` and pickles that hold no state, in words, by their paths."""
    is_for_use: bool = False
    """Whether a trainer left it as a model for use, without state that a run resumes from."""
    pointers: tuple[str, ...] = ()
    """Files in whose places Git LFS left pointers."""
    unlisted: tuple[tuple[str, str], ...] = ()
    """Entries of the tree that could not be listed, and why."""

    @property
    def label(self) -> str:
        """Name by which pointers refer to it: the name of the directory, or of the bundle."""
        return self.bundle or self.root.name

    @property
    def is_bundle(self) -> bool:
        """Whether it is files side by side, not a directory of its own."""
        return bool(self.bundle)

    @property
    def manifest_name(self) -> str:
        """Name of its manifest: in its directory, or next to the files that are one checkpoint."""
        return f"{self.bundle}.{MANIFEST_NAME}" if self.bundle else MANIFEST_NAME

    @property
    def state_files(self) -> list[str]:
        """Files of state, by the ends of their names or by their begin."""
        return [path for path in self.files if path.lower().endswith(STATE_SUFFIXES) or path in self.unnamed]

    @property
    def sealed(self) -> frozenset[str]:
        """Files that the manifest holds a digest of."""
        return frozenset(file.path for file in self.manifest.files) if self.manifest else frozenset()

    @property
    def uncovered(self) -> list[tuple[str, str]]:
        """Files that nothing judges or covers, or whose code runs on request, and why."""
        sealed = self.sealed - self.programs
        return [(path, why) for path, why in self.unread.items() if path not in sealed]

    @property
    def is_complete(self) -> bool:
        """Whether nothing speaks against its having been committed."""
        blocking: set[Aspect] = {"mark", "files", "container", "shards"}
        return bool(self.formats) and not any(trouble.aspect in blocking for trouble in self.troubles)

    def place(self, path: str) -> str:
        """The name in findings of a file, or of the directory itself."""
        if not path:
            return self.name
        return (self.root / path).as_posix() if self.bundle else f"{self.name}/{path}"

    def report(self, aspect: Aspect, path: str, message: str, help_text: str = "") -> None:
        """Note something that is wrong; the aspect counts as looked at."""
        self.examined.add(aspect)
        number = self._num_reported[aspect] = self._num_reported.get(aspect, 0) + 1
        if number < MAX_TROUBLES:
            self.troubles.append(Trouble(aspect, path, message, help_text))
        elif number == MAX_TROUBLES:
            words = f"more is wrong in this way than the {MAX_TROUBLES - 1:,} places that are reported"
            self.troubles.append(Trouble(aspect, "", words, help_text))

    def forget(self, paths: frozenset[str]) -> None:
        """Drop all that was read of files, and what was wrong with them."""
        self.troubles = [trouble for trouble in self.troubles if trouble.path not in paths]
        self._num_reported = dict(Counter(trouble.aspect for trouble in self.troubles))
        self.archives = [archive for archive in self.archives if archive.path not in paths]
        self.pieces = [piece for piece in self.pieces if piece.path not in paths]
        self.functions = [(path, name) for path, name in self.functions if path not in paths]
        for path in paths:
            self.unread.pop(path, None)
            self.doubts.pop(path, None)
            self.code.pop(path, None)

    def report_code(self, path: str, names: Iterable[str], help_text: str) -> None:
        """Note names of code in a file, those that run something first; the file has one finding for all of them."""
        self.examined.add("code")
        held = self.code.setdefault(path, {})
        before, words = len(held), _of_code(held)
        held.update(dict.fromkeys(islice(names, max(0, _MOST_NAMES - len(held)))))
        if before < len(held):
            told = Trouble("code", path, _of_code(held), help_text)
            places = [n for n, one in enumerate(self.troubles) if (one.path, one.message) == (path, words)]
            if before and places:
                self.troubles[places[0]] = told
            elif not before:
                self.report("code", path, told.message, help_text)

    def note_functions(self, path: str, names: Iterable[str]) -> None:
        """Note that loading a file would run functions."""
        self.functions += [(path, name) for name in islice(names, max(0, _MOST_FUNCTIONS - len(self.functions)))]

    def hold(self, piece: Piece) -> None:
        """Note where values of a tensor are; those beyond as many bytes as their file has are not read.

        Raises:
            LimitError: there are more pieces than the limit.
        """
        with within():
            self._num_pieces.add()
            self._num_characters.add(len(piece.name))
        size = self.files[piece.path].size_bytes
        before = self._held_bytes.get(piece.path, 0)
        after = before + max(0, min(piece.num_bytes, size - piece.offset))
        self._held_bytes[piece.path] = after
        if after <= size:
            self.pieces.append(piece)
        elif before <= size:
            words = f"the values of tensor {piece.name!r} and of those after it are not read, as tensors share bytes"
            self.report("limits", piece.path, f"{words}: {SHARED.refusal}", "write each tensor in bytes of its own")

    def keep(self, archive: Archive) -> None:
        """Note a container for the comparison of its checksums.

        Raises:
            LimitError: there are more pieces than the limit.
        """
        with within():
            self._num_pieces.add()
        self.archives.append(archive)

    def know(self, names: Iterable[str]) -> None:
        """Note names of tensors and other state.

        Raises:
            LimitError: there are more names, or longer ones, than the limits.
        """
        with within():
            for name in names:
                if name not in self.keys:
                    self._num_names.add()
                    self._num_characters.add(len(name))
                    self.keys.add(name)

    def claim(self, path: str, step: object, words: str) -> bool:
        """Note a place that says the step; False where what it says is none."""
        if is_count(step):
            self.claims.append(StepClaim(path, step, words))
            return True
        return False


def _of_code(names: Collection[str]) -> str:
    """What loading a file would run, in words."""
    shown = ", ".join(islice(names, _NAMES_SHOWN))
    if len(names) == 1:
        return f"loading it would run {shown}, which is not among the names that plain state needs{_of_programs(names)}"
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    words = f"loading it would run {shown}{more}, which are not among the names that plain state needs"
    return words + _of_programs(names)


def _of_programs(names: Collection[str]) -> str:
    """That nothing here judges the code of programs, which may run anything."""
    found = [name for name in names if is_of_a_program(name)]
    if len(found) > 1:
        return f"; what {found[0]} and {len(found) - 1:,} more of other programs do is not judged"
    return f"; what {found[0]} of another program does is not judged" if found else ""


@dataclass(frozen=True, slots=True)
class Pointer:
    """A small file next to checkpoints that names the newest of them."""

    name: str
    """As the user named the directory, with forward slashes."""
    content: str
    target: Checkpoint | None
    """The checkpoint that it names, where there is one."""
    problem: str = ""
    """Why its content is not a pointer."""


@dataclass(frozen=True, slots=True)
class SavedStep:
    """A save that a stream says was committed and not deleted."""

    id: str
    step: int


@dataclass(frozen=True, slots=True)
class Series:
    """The checkpoints of one directory, in the order of their steps."""

    root: Path
    name: str
    checkpoints: tuple[Checkpoint, ...]
    pointers: tuple[Pointer, ...] = ()
    saved: tuple[SavedStep, ...] | None = None
    """Saves in the streams next to them; None where there are none, or of several runs."""
    reads_values: bool = False
    """Whether the values of tensors are read too."""
    beside: Iterable[Checkpoint] = ()
    """Others in the directory that are not judged; read where a name alone decides nothing."""

    @property
    def stepped(self) -> tuple[Checkpoint, ...]:
        """Those whose names say a step."""
        return tuple(one for one in self.checkpoints if one.step is not None)
