"""Reads what `torch.save` writes: zip containers around a pickle, the programs in them, and old bare pickles."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, BinaryIO, Final, TypeVar

from trainspec_validate.checkpoints.boundary import judged
from trainspec_validate.checkpoints.bundles import counts_saves
from trainspec_validate.checkpoints.formats import keras
from trainspec_validate.checkpoints.lone_values import words_of
from trainspec_validate.checkpoints.opening import LimitError, UnreadableError, open_file
from trainspec_validate.checkpoints.pickle_code import code_after, code_at_start, code_of
from trainspec_validate.checkpoints.pickle_content import Content
from trainspec_validate.checkpoints.pickle_values import Pairs
from trainspec_validate.checkpoints.pickles import follow
from trainspec_validate.checkpoints.programs import instantiators
from trainspec_validate.checkpoints.progress import LIGHTNING as _LIGHTNING
from trainspec_validate.checkpoints.progress import counted, scalars_of
from trainspec_validate.checkpoints.records import (
    lacks_of_container,
    lacks_of_legacy,
    save_is_missing,
    state_is_missing,
    storage_bytes,
)
from trainspec_validate.checkpoints.stated_steps import stated_steps
from trainspec_validate.checkpoints.view import OWN_STEPS, Archive, Checkpoint, StepClaim, is_count
from trainspec_validate.checkpoints.zips import Zip, opened
from trainspec_validate.system.boundary import reason_of

_T = TypeVar("_T")
Scalar = Callable[[Any], int | None]
"""Reads the whole number in a tensor of one element."""
_SUFFIXES = (".pt", ".pth", ".pth.tar", ".ckpt", ".bin", ".pkl", ".pickle")
_OTHERS_TOO = (".pth.tar", ".ckpt", ".bin", ".pkl", ".pickle")
"""Suffixes that other programs give to other files."""
_OF_TORCH: Final = re.compile(
    r"\.(pt|pth|pth\.tar)$|(?:^|/)(pytorch_model|adapter_model|optimizer|scheduler|training_args)[^/]*\.bin$",
    re.IGNORECASE,
)
"""Names of files that programs give to `torch.load` alone."""
_ZIP_START = b"PK"
_STEP = "global_step"
_ITERATION = "iteration"
_STATE = "state_dict"
_MODELS = frozenset({"model", "state_dict", "model_state_dict", "module"})
"""Keys of a model next to which programs save its step; other files count calls of their own."""
PARTS_OF_STATE = re.compile(
    r"(?:train(?:er|ing)?_)?(?:state|progress|status|meta|metadata|info|loop)|train(?:er|ing)?",
    re.ASCII | re.IGNORECASE,
)
"""Keys of the part of a state that says how far training is."""
_HINTS = "."
"""Key of the steps of such parts, by their names."""
_HAS_MODEL = ""
"""Key of the note that a state has a model."""
_WITHOUT_STATE = frozenset({"meta.pt", "metadata.pt"})
"""Files of Lightning whose model is in files of PyTorch DCP next to them."""
_OF_A_RANK = "model_optim_rng.pt"
"""The file that Megatron-LM writes for each rank in its own format."""
_COUNTED_ANEW = re.compile(r"^random_states_[0-9]{1,7}\.pkl$")
"""Files of Accelerate, whose step begins again with each pass over the data:
https://github.com/huggingface/accelerate/blob/16cb6eb8/src/accelerate/accelerator.py, _do_sync"""
_VALUES = "/data/"
_HELP_CODE = "save plain state only (tensors, numbers, texts), best in a format without code such as safetensors"
_BROKEN = "restore the file from another copy"
_NO_SAVE = "write it with torch.save, or name it .pkl and read it with pickle.load"
PICKLE_STARTS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
_JOBLIB = "joblib.numpy_pickle.NumpyArrayWrapper"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
# Magic number, protocol version, system, state, keys of storages: torch/serialization.py, _legacy_save.
_LEGACY_PICKLES = 5
_LEGACY_STATE = 3
_KINDS: Final = (
    (re.compile(r"(?:^|/)code/|(?:^|/)constants\.pkl$", re.IGNORECASE), "the code of TorchScript in it"),
    (re.compile(r"\.(?:pyc?|so|pyd|dll|dylib)$|(?:^|/)\.data/extern_modules$", re.IGNORECASE), "a program in it"),
    (re.compile(r"(?:^|/)(?:archive_format|serialized_exported_program\.json)$"), "the program of torch.export in it"),
)
"""Entries by which loaders take a container for one with a program: torch.load gives those of TorchScript to torch.jit,
which runs `__setstate__`; torch.package imports modules; torch.export evaluates the sizes of its graph as text."""
_CONTAINER: Final = b"PK\x03\x04"


def read(checkpoint: Checkpoint) -> None:
    """Add what the containers of `torch.save`, and bare pickles, hold."""
    paths = [path for path, fact in checkpoint.files.items() if is_known(checkpoint, path) and fact.kind == "file"]
    if not paths:
        return
    checkpoint.formats.append("torch.save")
    checkpoint.examined |= {"container", "limits", "code", "paths"}
    for path in paths:
        with judged(checkpoint, path):
            _read_file(checkpoint, path)


def is_known(checkpoint: Checkpoint, path: str) -> bool:
    """Whether a file has the name of one that `torch.save` writes, in any letter case, or begins as one at the top."""
    return path.lower().endswith(_SUFFIXES) or path in checkpoint.unnamed


def _read_file(checkpoint: Checkpoint, path: str) -> None:
    try:
        with open_file(checkpoint.root / path) as file:
            start = file.read(len(_ZIP_START))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {reason_of(error)}") from error
    if start in PICKLE_STARTS:
        read_bare(checkpoint, path)
    elif start in {_ZIP_START, b""} or not path.lower().endswith(_OTHERS_TOO):
        _claim(checkpoint, path, read_archive(checkpoint, Archive(path), partial(_of_steps, checkpoint, path)) or {})


def _of_steps(checkpoint: Checkpoint, path: str, value: Any, scalar: Scalar) -> dict[str, Any]:
    checkpoint.said[path] = said = counted(value, scalar)
    _state_steps(checkpoint, path, value, scalar)
    if said.odd_count:
        checkpoint.report("container", path, f"{said.odd_count}, and no whole number from 0", _BROKEN)
    state = value.texts() if isinstance(value, Pairs) else {}
    found = {key: state[key] for key in (_LIGHTNING, *OWN_STEPS) if key in state}
    mappings = ((key, part.texts()) for key, part in state.items() if isinstance(part, Pairs))
    parts = ((key, part) for key, part in mappings if PARTS_OF_STATE.fullmatch(key))
    found[_HINTS] = {f"{key}.{name}": part[name] for key, part in parts for name in OWN_STEPS if name in part}
    return {**found, _STATE: _STATE in state, _HAS_MODEL: not _MODELS.isdisjoint(state)} if state else {}


def _claim(checkpoint: Checkpoint, path: str, state: dict[str, Any]) -> None:
    """Lightning tells the steps in its file, where `last.ckpt` has no other step; Megatron in that of each rank."""
    if path.rpartition("/")[2] == _OF_A_RANK:
        checkpoint.claim(path, state.get(_ITERATION), f"{path} ({_ITERATION})")
    step = state.get(_STEP)
    is_said = checkpoint.step is not None and not (checkpoint.is_bundle and counts_saves(checkpoint.bundle))
    if _LIGHTNING in state and checkpoint.claim(path, step, f"{path} (global_step)") and not is_said:
        checkpoint.step = step
    if _LIGHTNING in state:
        _claim_state(checkpoint, path, state)
    elif not _COUNTED_ANEW.match(path):
        own = _claims(path, {key: state[key] for key in OWN_STEPS if key in state})
        checkpoint.own_steps += own if state.get(_HAS_MODEL) else []
        checkpoint.hinted_steps += [*(() if state.get(_HAS_MODEL) else own), *_claims(path, state.get(_HINTS, {}))]


def _claims(path: str, steps: dict[str, Any]) -> list[StepClaim]:
    return [StepClaim(path, step, f"{path} ({key})") for key, step in steps.items() if is_count(step)]


def _claim_state(checkpoint: Checkpoint, path: str, state: dict[str, Any]) -> None:
    """Note a file of Lightning without the model that Lightning restores from it."""
    is_sharded = path.rpartition("/")[2] in _WITHOUT_STATE or any(name.endswith(".distcp") for name in checkpoint.files)
    if not state[_STATE] and not is_sharded:
        words = f"the state of Lightning has no {_STATE}, so no model"
        checkpoint.report("resume-state", path, words, "resume from an earlier checkpoint")


def read_bare(checkpoint: Checkpoint, path: str) -> None:
    """One pickle, or the five that old versions write before the bytes of tensors."""
    try:
        with open_file(checkpoint.root / path) as file:
            content = follow(file)
            tell_code(checkpoint, path, content)
            _tell_misfits(checkpoint, path, content)
            _note_lone(checkpoint, path, content)
            if content.value == _LEGACY_MAGIC:
                _read_legacy(checkpoint, path, file)
                tell_code(checkpoint, path, code_after(file))  # what a second call of a loader reads
            else:
                _state_steps(checkpoint, path, content.value)
                _tell_loader(checkpoint, path, content.value)
                if content.references:
                    words = "the file refers to values outside of itself, which no loader of a bare pickle finds"
                    checkpoint.report("files", path, words, _BROKEN)
                further = code_after(file)
                further.denied = [name for name in further.denied if name not in content.denied]
                tell_code(checkpoint, path, further)
    except LimitError as error:
        checkpoint.report("limits", path, f"the pickle {error}")
    except UnreadableError as error:
        if not _is_of_joblib(checkpoint, path):
            checkpoint.report("container", path, f"the file {error}", _BROKEN)


def _tell_loader(checkpoint: Checkpoint, path: str, value: Any) -> None:
    """Report a bare pickle where programs call torch.load, which reads none: the first pickle has to be its number."""
    is_of_lightning = isinstance(value, Pairs) and _LIGHTNING in value.texts()
    if _OF_TORCH.search(path) or is_of_lightning:
        words = "the file is a bare pickle: torch.load wants what torch.save writes, and says `Invalid magic number`"
        checkpoint.report("container", path, words, _NO_SAVE)


def _state_steps(checkpoint: Checkpoint, path: str, value: Any, scalar: Scalar = lambda _: None) -> None:
    """Note the counts in a file, those of tensors in containers only; and what Lightning would call."""
    tell_code(checkpoint, path, Content(None, [], functions=list(instantiators(value))))
    if not _COUNTED_ANEW.match(path.rpartition("/")[2]):
        checkpoint.stated[path] = stated_steps(value, scalar)


def _is_of_joblib(checkpoint: Checkpoint, path: str) -> bool:
    """Whether joblib wrote a file, with the bytes of arrays inside of its pickle; the code before them is told."""
    try:
        with open_file(checkpoint.root / path) as file:
            code = code_at_start(file)
    except OSError:
        return False
    if _JOBLIB not in code.denied:
        return False
    tell_code(checkpoint, path, code)
    checkpoint.note_functions(path, ["what follows its first array, which is not read"])
    checkpoint.unread[path] = (
        "is a file of joblib with arrays inside of its pickle, and nothing after the first is read"
    )
    return True


def _read_legacy(checkpoint: Checkpoint, path: str, file: BinaryIO) -> None:
    """The pickles after the magic number, and the bytes of tensors that the last of them lists."""
    references: list[Any] = []
    for place in range(1, _LEGACY_PICKLES):
        content = follow(file)
        if place == _LEGACY_STATE:
            _state_steps(checkpoint, path, content.value)
            _note_lone(checkpoint, path, content)
        tell_code(checkpoint, path, content)
        _tell_misfits(checkpoint, path, content)
        references += content.references
    checkpoint.examined.add("files")
    for words in lacks_of_legacy(file, content.value, references):
        checkpoint.report("files", path, words, _BROKEN)


def tell_code(checkpoint: Checkpoint, path: str, content: Content) -> None:
    """Report the names of code that are not those of plain state."""
    checkpoint.examined.add("code")
    checkpoint.note_functions(path, content.functions)
    checkpoint.report_code(path, (*content.functions, *content.denied), _HELP_CODE)
    if content.limit:
        checkpoint.report("limits", path, f"the pickle {content.limit}")
    if content.damage:
        checkpoint.report("container", path, f"the pickle of its objects {content.damage}")


def read_archive(checkpoint: Checkpoint, archive: Archive, take: Callable[[Any, Scalar], _T]) -> _T | None:
    """Judge a zip container, which is kept to compare its checksums.

    Args:
        checkpoint: gets the findings.
        archive: the container.
        take: gets the value of the first pickle and what reads a tensor of one element; makes what is kept of it,
            which is returned.
    """
    found: list[_T] = []
    with judged(checkpoint, archive.path, "the container"):
        with opened(checkpoint.root / archive.path, archive) as container:
            checkpoint.examined.add("files")
            _note_values(checkpoint, archive, container)
            _tell_names(checkpoint, archive.path, container)
            tell_code(checkpoint, archive.path, Content(None, [], functions=_programs(container)))
            held: set[str] = set()
            for name in container.pickles():
                with container.stream(name) as file:
                    content = follow(file)
                tell_code(checkpoint, archive.path, content)
                held |= storage_bytes(content.references).keys()
                _tell_lacks(checkpoint, archive, lacks_of_container(container, name, content.references))
                _tell_misfits(checkpoint, archive.path, content, f"{archive.label!r}: " if archive.label else "")
                if not found:
                    _note_lone(checkpoint, archive.path, content)
                    found.append(take(content.value, scalars_of(container, name)))
                del content  # before the next one is read
            if absent := _missing_state(checkpoint, archive, container):
                _tell_lacks(checkpoint, archive, [f"the record {absent!r} is missing, which says what the state is"])
            for name in container.unnamed(held):
                with container.stream(name) as file:
                    tell_code(checkpoint, archive.path, code_of(file))
        checkpoint.keep(archive)
    return found[0] if found else None


def _missing_state(checkpoint: Checkpoint, archive: Archive, container: Zip) -> str:
    is_named = _OF_TORCH.search(archive.path) is not None or archive.path in checkpoint.unnamed
    is_whole = archive.num_bytes is None and is_named
    if is_whole and not _programs(container):
        return state_is_missing(container) or save_is_missing(container)
    return state_is_missing(container)


def _programs(container: Zip) -> list[str]:
    return [*_programs_in(container), *keras.programs_in(container)]


def _note_lone(checkpoint: Checkpoint, path: str, content: Content) -> None:
    checkpoint.lone.pop(path, None)
    if words := words_of(content):
        checkpoint.lone[path] = words


def _note_values(checkpoint: Checkpoint, archive: Archive, container: Zip) -> None:
    """Note the bytes of tensors in a whole file: those around them differ with the numbers that the state holds."""
    values = [container.size(name) for name in container.names() if _VALUES in f"/{name}"]
    if archive.num_bytes is None and values:
        checkpoint.value_bytes[archive.path] = sum(values)


def _tell_lacks(checkpoint: Checkpoint, archive: Archive, lacks: Iterable[str]) -> None:
    where = f"{archive.label!r}: " if archive.label else ""
    for words in lacks:
        checkpoint.report("files", archive.path, where + words, _BROKEN)


def _tell_misfits(checkpoint: Checkpoint, path: str, content: Content, where: str = "") -> None:
    """Report tensors and arrays that a loader refuses, as they take more than what is there for them."""
    if content.misfits.number:
        checkpoint.report("files", path, f"{where}{content.misfits}", _BROKEN)


def state_of(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    """The keys and values at the top of the state in a zip container; none where it cannot be read."""
    try:
        with opened(checkpoint.root / path, Archive(path)) as container:
            for name in container.pickles()[:1]:
                with container.stream(name) as file:
                    value = follow(file).value
                    return value.texts() if isinstance(value, Pairs) else {}
    except UnreadableError:
        return {}
    return {}


def _tell_names(checkpoint: Checkpoint, path: str, container: Zip) -> None:
    for name, why in container.unsafe_names():
        checkpoint.report("paths", path, f"the entry {name!r} {why}", "do not unpack this container")


def _programs_in(container: Zip) -> Iterator[str]:
    """Programs and inner containers, each in words with the name of one entry, that loaders run or unpickle."""
    names = container.names()
    for pattern, words in _KINDS:
        if name := next(filter(pattern.search, names), ""):
            yield f"{words} ({name})"
    for name in container.unnamed():
        with container.stream(name) as file:
            if file.read(len(_CONTAINER)) == _CONTAINER:
                yield f"the pickles of a container in it ({name})"
                return
