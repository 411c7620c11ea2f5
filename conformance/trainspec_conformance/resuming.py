"""Keeps what a run of the suite was asked for until it ends, so that it can continue if interrupted."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trainspec_conformance.history import read_history
from trainspec_conformance.records import Ended, Entry
from trainspec_conformance.trial import HISTORY, Setting
from trainspec_validate.documents.types.conformance import StackDescriptor, Task
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.structs import decoded

UNFINISHED = "unfinished.json"
MAX_BYTES = 1_000_000
_NEUTRAL = re.compile(r"[0-9a-f]{10}")
"""Name of the directory of a trial that runs."""


class Unfinished(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options and criteria of a run; kept next to the trials until the run has ended."""

    directory: str
    """Working directory, which paths are relative to."""
    stack: str
    """Path of the descriptor."""
    names: tuple[str, ...]
    profile: str | None
    trials: int | None
    seed: int
    gaps: str | None
    settings_from: str | None
    over: str | None
    nodes: tuple[str, ...]
    command: tuple[str, ...]
    digests: dict[str, str]
    """Of everything that has to be the same when the run continues, by its name in messages."""
    versions: dict[str, str]


def digest(value: object) -> str:
    """Digest of anything that has a form in JSON."""
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()


def digests(stack: StackDescriptor, scenarios: str, requirements: str) -> dict[str, str]:
    """Values that must not change when a run continues."""
    return {"the descriptor": digest(stack), "the scenarios": scenarios, "the requirements": requirements}


def keep(out: Path, unfinished: Unfinished) -> None:
    """Write down what was asked for."""
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / UNFINISHED, msgspec.json.format(msgspec.json.encode(unfinished), indent=1))


def read_unfinished(out: Path) -> Unfinished:
    """Options of an interrupted run.

    Raises:
        ValueError: there is none in this directory, or the file was changed.
    """
    path = out / UNFINISHED
    if not path.is_file():
        raise ValueError(f"{out}: there is no {UNFINISHED}, so no run in this directory was interrupted")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: it has more than {MAX_BYTES:,} bytes")
    try:
        return decoded(path.read_bytes(), Unfinished)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error


def changes(before: Unfinished, now: dict[str, str], versions: dict[str, str]) -> Sequence[str]:
    """Names of values that changed since the run began."""
    found = [name for name, value in before.digests.items() if now.get(name) != value]
    return [*found, *(["the versions of the components"] if versions != before.versions else [])]


def discard_leftovers(out: Path) -> None:
    """Remove directories of trials that were running when the suite was killed."""
    for path in [
        one for one in out.iterdir() if _NEUTRAL.fullmatch(one.name) and one.is_dir() and not one.is_symlink()
    ]:
        shutil.rmtree(path)


def ended_trial(setting: Setting) -> list[Entry] | None:
    """The history of a trial that has come to its end; what is left of any other is removed."""
    directory = setting.directory
    if not directory.exists():
        return None
    try:
        entries = read_history(directory / HISTORY)
        if any(isinstance(entry.record, Ended) for entry in entries[-1:]) and _is_of(setting):
            return entries
    except (OSError, ValueError):
        pass
    shutil.rmtree(directory)
    return None


def _is_of(setting: Setting) -> bool:
    """Whether the first start of a trial was given the job of this one."""
    path = setting.directory / "task-0.json"
    if not path.exists():  # it asks a probe alone
        return True
    told, wanted = decoded(path.read_bytes(), Task).job, setting.scenario.job
    chosen = {"num_ranks": wanted.num_ranks, "seed": wanted.seed, "learning_rate_factor": wanted.learning_rate_factor}
    return msgspec.structs.replace(told, **chosen) == wanted  # a start may have others than its scenario
