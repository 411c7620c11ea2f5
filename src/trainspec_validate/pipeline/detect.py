"""Says what a file is, by its content: a document, a stream of a known format, a checkpoint, or something else."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.claims import is_emptied, names_kind, why_no_document
from trainspec_validate.pipeline.data_sets import DATA_SET, is_data_set
from trainspec_validate.pipeline.files import (
    QUOTING_SUFFIXES,
    STDIN,
    File,
    RealPaths,
    files_of,
    is_document_name,
    is_stream_name,
)
from trainspec_validate.pipeline.foreign import HELD, why_other
from trainspec_validate.pipeline.run_texts import LOOKS_LIKE_LOG, QUOTES_LOG, looks_like_log, why_no_stream, why_wide
from trainspec_validate.pipeline.unpacked import NOT_LOOKED_INTO, begin_file, counted
from trainspec_validate.system.blanks import is_blank
from trainspec_validate.system.boundary import InputError, UnreadableError, open_regular, unreadable, untrusted
from trainspec_validate.system.budget import OverLimitError
from trainspec_validate.system.packings import unpacked_name

if TYPE_CHECKING:
    from trainspec_validate.checkpoints.inventory import Group

OWN_STEMS = frozenset({"cluster", "plan", "checkpoint"})
"""Starts of names of YAML and JSON files that are documents, unless their text is one of another program."""
_OWN_SUFFIXES = (".prom", ".mllog")
"""Ends of names that no other program uses: such a file is a stream, even where its format cannot be recognised."""
_NUMBERED = re.compile(r"\.[0-9]+\.jsonl(?:\.gz|\.zst)?$")
"""Names that a recorder gives: writer and attempt. One that holds no JSON at all is a stream that was destroyed."""
_STRUCTURED = frozenset(
    {
        *("metric-stream", "parquet", "otlp", "torchtitan", "trainer-state", "slurm-accounting", "kubernetes-list"),
        *("prometheus", "swift-log", "json-rows"),
    }
)
"""Formats that the form of a whole file shows; of the others one line is enough, which a document may quote."""
_PARQUET = "parquet"
_CRASH = "crash-log"
_OWN_COLUMNS = (b"time_us", b"emitter")
_START_BYTES = 262_144
_STATE_NAME = "trainer_state.json"
"""Each checkpoint of the Hugging Face Trainer has the log of the run up to it; a run has one next to them."""
_STATE_STEP = re.compile(r"checkpoint-([0-9]{1,12})")
_TABLE = ".csv"
_OUTPUT = re.compile(r"\.(?:log|txt|(?:std)?(?:out|err)|[oe])(?:[.-]?[0-9]+)?$|(?:^|/)(?:std(?:out|err)|log|nohup)$")
"""What programs print is called so, with a number where logs are rotated, or by PBS."""
_OF_RUNS = frozenset({b"Name", b"State", b"Created", b"Runtime"})
"""Columns of a list of runs that the site of Weights & Biases exports."""
NO_STREAM = "is no stream of a known format"
_LARGE_FILE = b"version https://git-lfs.github.com/spec/"
POINTER = "is a Git LFS pointer, not the file; run `git lfs pull`"
_SACCT = re.compile(rb"[ \t]*(?:JobID|JobIDRaw)[ \t][^\n|]{0,4000}\n[- ]{2,4000}\r?\n")
"""How the columns of sacct begin, as it shows them to a person."""
SACCT = (
    "is a table of sacct in columns, which cut values; "
    "export it with `sacct --parsable2 --duplicates --format=JobID,JobName,State,Start,End,ExitCode,Restarts`"
)
_NO_JOB = re.compile(rb'\s{0,64}\{(?=[\s\S]{0,20000}"jobs"\s{0,8}:\s{0,8}\[\s{0,64}\])')
_OF_SLURM = re.compile(rb'"[Ss]lurm"\s{0,8}:|"accounting_storage|"data_parser')
NO_JOB = "is an answer of sacct or squeue with no job; ask for the jobs of the run: `sacct --json --duplicates -j JOB`"
_JSON_LINES = re.compile(rb"\s*\{[^\n]*\}[ \t\r]*\n\{[^\n]*\}[ \t\r]*(?:\n|$)")
_DOCUMENT_KEY = re.compile(rb"^[ \t\"']{0,8}(?:apiVersion|kind)[\"']?[ \t]{0,8}:", re.MULTILINE)
"""What a text that was meant as a document has, whatever its name is."""
_ORDER_MARK = b"\xef\xbb\xbf"
_OPENING = (b"{", b"[", b"/")
"""How JSON begins, in a list or behind a comment too."""
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, and what it is."""

    kind: Literal["document", "stream", "other"]
    file: File
    format: str = ""
    """Name of the format of a stream; empty where it is unknown, which reading the stream reports."""

    unread: str = ""
    """Why a file whose name is one of a document or stream is not judged; empty for the file of another program."""


@dataclass(frozen=True, slots=True)
class Search:
    """The files and checkpoints behind all arguments, and what could not be searched."""

    files: tuple[File, ...]
    """Each once, in the order of the arguments and then by name."""
    checkpoints: tuple[Group, ...]
    """Checkpoints that are next to each other, each group once."""
    failures: tuple[InputError, ...]
    with_checkpoints: frozenset[str]
    """The arguments that are checkpoints or hold some."""
    unsearched: tuple[tuple[str, str, str], ...] = ()
    """Path, reason and help of directories that were not searched for checkpoints."""


def search(arguments: Iterable[str]) -> Search:
    """The files and checkpoints behind arguments other than standard input."""
    arguments = list(arguments)
    groups: dict[str, Group] = {}
    files: dict[str, File] = {}
    failures: list[InputError] = []
    with_checkpoints: set[str] = set()
    unsearched: dict[str, tuple[str, str, str]] = {}
    places = RealPaths()
    for argument in arguments:
        if argument == STDIN:
            continue
        for group in _checkpoints(argument):
            if isinstance(group, InputError):
                failures.append(group)
                continue
            if group.deep:
                unsearched.setdefault(os.path.realpath(group.deep[0]), _too_deep(group))
            if not group.members:
                continue
            groups.setdefault(os.path.realpath(group.root), group)
            with_checkpoints.add(argument)
        if argument in with_checkpoints and not _is_directory(argument):
            continue
        listed = list(files_of(argument))
        if not listed and argument not in with_checkpoints:
            words = "the directory holds no YAML or JSON file, no stream and no checkpoint"
            failures.append(InputError(f"{argument}: {words}"))
        for file in filter(_is_searched, listed):
            if isinstance(file, InputError):
                failures.append(file)
            elif (real := places.of(file.path)) not in files or not file.found:
                files[real] = file
    members = {member for group in groups.values() for member in group.members}
    left = _begun_again(file.path for file in files.values() if file.found)
    found = (file for file in files.values() if not (file.found and _is_manifest(file.path, members)))
    kept = (file for file in found if file.path not in left)
    named = {os.path.realpath(argument) for argument in arguments if argument != STDIN} if unsearched else set()
    left_out = tuple(words for path, words in unsearched.items() if path not in named)
    return Search(tuple(kept), tuple(groups.values()), tuple(failures), frozenset(with_checkpoints), left_out)


def _is_directory(argument: str) -> bool:
    return os.path.isdir(argument)  # noqa: PTH112 - Path.is_dir raises for a name that is too long


def _is_manifest(path: Path, members: set[Path]) -> bool:
    """Whether a file belongs to a checkpoint and is no document of its own."""
    if path.parent not in members:
        return False
    from trainspec_validate.checkpoints.view import MANIFEST_NAME  # noqa: PLC0415 - start-up

    return path.name == MANIFEST_NAME


def _begun_again(paths: Iterable[Path]) -> set[Path]:
    """The logs in checkpoints of the Hugging Face Trainer with which a later log of the same run begins."""
    states = {path for path in paths if path.name == _STATE_NAME}
    steps = {path: int(found[1]) for path in states if (found := _STATE_STEP.fullmatch(path.parent.name))}
    last: dict[Path, int] = {}
    for path, step in steps.items():
        last[path.parent.parent] = max(step, last.get(path.parent.parent, 0))
    homes = {path.parent for path in states}
    return {path for path, step in steps.items() if step < last[path.parent.parent] or path.parent.parent in homes}


def _checkpoints(argument: str) -> Iterator[Group | InputError]:
    """The checkpoints at or below a directory, or the one that a file is, or whose files begin with the argument."""
    if not _is_directory(argument):
        group = None if is_document_name(argument) or is_stream_name(argument) else _named_checkpoint(argument)
        if group is not None:
            yield group
        return
    from trainspec_validate.checkpoints.inventory import find  # noqa: PLC0415 - start-up

    try:
        with untrusted(unreadable(argument)):
            groups = list(find(Path(argument)))
    except InputError as error:
        yield error
        return
    for group in groups:
        group.deep = [place for place in group.deep if not excluded.covers(place)]
        group.members = [member for member in group.members if not _is_excluded(group, member)]
        if group.cut:
            yield InputError(f"{group.cut}; not all was searched for checkpoints, name their directories")
        if group.members or group.deep:
            yield group


def _is_searched(file: File | InputError) -> bool:
    """Whether no pattern excludes a file that was found, or one that cannot be searched."""
    if isinstance(file, InputError):
        return not (isinstance(file, UnreadableError) and excluded.covers(file.name))
    return not (file.found and excluded.takes(file.path))


def _is_excluded(group: Group, member: Path) -> bool:
    """Whether a checkpoint is excluded: its directory, or all of its files where it has none of its own."""
    names = group.files.get(member, [])
    if names and all(excluded.covers(member.parent / name) for name in names):
        return True
    return excluded.takes(member)


def _too_deep(group: Group) -> tuple[str, str, str]:
    """The first directory that is nested too deep, with the number of all."""
    from trainspec_validate.checkpoints.limits import DEPTH  # noqa: PLC0415 - start-up

    first, num_others = group.deep[0].as_posix(), len(group.deep) - 1
    others = f" (and {num_others:,} more)" if num_others else ""
    reason = f"is below more than {DEPTH.most} levels of directories{others}, and was not searched for checkpoints"
    return first, reason, f"name {first} to have it judged"


def is_checkpoint(argument: str) -> bool:
    """Whether a file that was named is a checkpoint, or the files of one begin with the argument."""
    return _named_checkpoint(argument) is not None


def _named_checkpoint(argument: str) -> Group | None:
    """The checkpoint that a file is; a file that cannot be looked at is left to whoever reads it."""
    from trainspec_validate.checkpoints.inventory import find_named  # noqa: PLC0415 - start-up

    try:
        with untrusted(unreadable(argument)):
            return find_named(Path(argument))
    except InputError:
        return None


def detect(file: File) -> Source:
    """Kind of a file; a page or a program that a pattern found is no log, though it quotes lines of one.

    Raises:
        InputError: the file cannot be read.
    """
    found = _of_content(file)
    return Source("other", file, unread=QUOTES_LOG) if file.found and _is_quoted(found) else found


def _is_quoted(found: Source) -> bool:
    """Whether a stream of lines is in a file whose name is one of a page or a program."""
    if not found.format or Path(unpacked_name(found.file.name)).suffix.lower() not in QUOTING_SUFFIXES:
        return False
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415 - start-up

    return not FORMATS[found.format].is_binary


def _of_content(file: File) -> Source:
    with untrusted(unreadable(file.name)):
        with open_regular(file.path) as opened:
            start = opened.read(_START_BYTES)
        if not start.startswith(_COMPRESSED):
            return _looked_further(file, start) or of_start(file, start)
        from trainspec_validate.telemetry.formats.source import SourceError, head_of  # noqa: PLC0415 - start-up

        try:
            start = head_of(file.path)
            return _looked_further(file, start) or of_start(file, start, is_compressed=True)
        except SourceError:
            return Source("stream", file)


def _looked_further(file: File, start: bytes) -> Source | None:
    """A log whose first record comes after more output of other programs than the start of a file; None otherwise."""
    if len(start) < _START_BYTES or is_document_name(file.name):
        return None
    from trainspec_validate.telemetry.formats.detection import detect_beyond  # noqa: PLC0415 - start-up
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415 - start-up
    from trainspec_validate.telemetry.formats.source import pieces_of  # noqa: PLC0415 - start-up

    first = FORMATS.get(_format_of(file.name, start))
    if first and not first.is_of_engine:
        return None
    pieces = pieces_of(file.path)
    if file.found:
        begin_file(file.path.stat().st_size)
        pieces = counted(pieces)
    try:
        found = detect_beyond(pieces, first)
    except OverLimitError:
        return Source("other", file, unread=NOT_LOOKED_INTO)
    is_stream = found and (found.name != _CRASH or _is_output(file.name))
    return Source("stream", file, found.name) if found and is_stream else None


def of_content(name: str, content: bytes) -> Source:
    """Kind of standard input, whose first bytes are known."""
    file = File(Path(name), name)
    if not content.startswith(_COMPRESSED):
        return of_start(file, content[:_START_BYTES])
    from trainspec_validate.telemetry.formats.source import SourceError, head_bytes, uncompressed  # noqa: PLC0415 - start-up

    try:
        return of_start(file, head_bytes(uncompressed(io.BytesIO(content))), is_compressed=True)
    except SourceError:
        return Source("stream", file)


def of_start(file: File, start: bytes, *, is_compressed: bool = False) -> Source:
    """Kind of a file whose uncompressed content starts so.

    A file that was found is a document only where its name is one of YAML or JSON and it claims to be ours. A file
    that was named and is nothing else is judged as a document.
    """
    found = _format_of(file.name, start)
    if found == _PARQUET and file.found and not is_compressed:
        return _of_parquet(file)
    if found:
        return Source("stream", file, found)
    if words := _in_place_of_a_stream(start, file):
        if not file.found:
            raise InputError(f"{file.name}: {words}")
        return Source("other", file, unread=words)
    if is_stream_name(file.name):
        is_own = file.name.endswith(_OWN_SUFFIXES) or (_NUMBERED.search(file.name) and start.lstrip()[:1] not in b"{[")
        if not file.found or is_own or is_blank(start) or _has_record(start):
            return Source("stream", file)
        return Source("other", file, unread=DATA_SET if is_data_set(start) else NO_STREAM)
    if not file.found:
        return _of_named(file, start, is_compressed=is_compressed)
    if not is_document_name(file.name):
        return Source("other", file, unread=LOOKS_LIKE_LOG if looks_like_log(start) else "")
    reason = _no_document(file.path, start if len(start) < _START_BYTES and not is_compressed else None)
    if reason == "":
        reason = why_no_stream(start)
    return Source("document", file) if reason is None else Source("other", file, unread=reason)


def _in_place_of_a_stream(start: bytes, file: File) -> str:
    """What a text is in place of the file, table or jobs that were meant, and what to do; else empty."""
    is_ours = is_document_name(file.name) or has_own_stream_name(file.name)
    if not is_ours and (words := why_wide(start, is_named=not file.found)):
        return words
    if start.startswith(_LARGE_FILE) or _SACCT.match(start):
        return SACCT if _SACCT.match(start) else POINTER
    return NO_JOB if _NO_JOB.match(start) and _OF_SLURM.search(start) else ""


def _of_parquet(file: File) -> Source:
    """A Parquet file that was found: data of another program where its footer has neither our mark nor our columns."""
    from trainspec_validate.telemetry.formats.parquet import MARK, footer_of  # noqa: PLC0415 - start-up

    try:
        with open_regular(file.path) as opened:
            footer = footer_of(opened)
    except (ValueError, OverLimitError):
        footer = MARK
    if any(sign in footer for sign in (MARK, *_OWN_COLUMNS)):
        return Source("stream", file, _PARQUET)
    return Source("other", file, unread=f"is a Parquet file, and {NO_STREAM}" if b"loss" in footer else "")


def _of_named(file: File, start: bytes, *, is_compressed: bool) -> Source:
    """What a file is that was named and is no stream by its form: a document, where nothing else is known."""
    if not names_kind(start) and holds_document(file.name):  # a document of ours is not read twice
        return Source("other", file, unread=HELD)
    if words := _packed_words(file.name, is_compressed) or _state_words(file, start, is_compressed=is_compressed):
        raise InputError(f"{file.name}: {words}")
    if start.strip() and file.name.lower().removesuffix(".gz").endswith(_TABLE):
        raise InputError(f"{file.name}: {_table_words(start)}")
    is_log = file.name.lower().endswith((".md", ".rst")) or _is_output(file.name)
    if is_log and start.strip() and not _DOCUMENT_KEY.search(start):
        raise InputError(f"{file.name}: {_log_words()}")
    names_us = b'"apiVersion"' in start or b'"kind"' in start
    is_lines = _JSON_LINES.match(start) and not names_us  # metrics.json of Detectron2 is JSON Lines
    return Source("stream" if is_compressed or is_lines else "document", file)


def has_own_stream_name(name: str) -> bool:
    """Whether no other program gives such a name, so that a stream that cannot be recognized was destroyed."""
    return name.endswith(_OWN_SUFFIXES) or _NUMBERED.search(name) is not None


def _log_words() -> str:
    """What a text with the name of a log that no reader takes is, and what is read."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415 - start-up

    read = ", ".join(name.removesuffix("-log") for name in FORMATS if name.endswith("-log") and name != _CRASH)
    return f"is no log of a known format; logs of these programs are read: {read}, mllog, dlrover"


def _table_words(start: bytes) -> str:
    """What a table that was named and that no reader takes is, and what to do."""
    names = {name.strip(b'"\r ') for name in start.removeprefix(_ORDER_MARK).split(b"\n", 1)[0].split(b",")}
    if names >= _OF_RUNS:
        return "is a table of runs of Weights & Biases, without their histories; export the history or a chart of a run"
    return f"is a table, and {NO_STREAM}; `trainspec import --list` shows what is read"


def _packed_words(name: str, is_compressed: bool) -> str:
    """What a compressed file with the name of a document is, and what to do; else empty."""
    is_document = is_compressed and is_document_name(unpacked_name(name))
    return "is compressed, and a document is read as plain text; unpack it" if is_document else ""


def _state_words(file: File, start: bytes, *, is_compressed: bool) -> str:
    """What a file of state is taken for that was named and that no reader takes, and what to do; else empty."""
    from trainspec_validate.checkpoints.content import TAR, kind_of_start, may_hold_state, packed  # noqa: PLC0415 - start-up
    from trainspec_validate.checkpoints.format_table import ARCHIVE, left_out  # noqa: PLC0415 - start-up

    if not may_hold_state(file.name):
        return ""
    reason, kind = left_out(file.path.name), kind_of_start(start, len(start))
    if reason == ARCHIVE or kind == TAR:
        return f"{ARCHIVE}; unpack it, and name the directory"
    if kind:
        kind = packed(kind) if is_compressed else kind
        return f"begins as {kind} does, which is not judged; save it in a format of checkpoints, such as safetensors"
    if reason and b"\0" in start:
        words = "has the name of a file of state, and begins as no format that is judged (safetensors, torch.save)"
        return f"{words}; look whether it is damaged or encrypted"
    return ""


def _format_of(name: str, start: bytes) -> str:
    """The format of a stream that starts so; empty where it is none."""
    if is_document_name(name) and start.removeprefix(_ORDER_MARK).lstrip()[:1] not in _OPENING:
        return ""
    from trainspec_validate.telemetry.formats.detection import detect as format_of  # noqa: PLC0415 - start-up

    found = format_of(start)
    if found is None or (found.name == _CRASH and not _is_output(name)):
        return ""
    return found.name if found.name in _STRUCTURED or not is_document_name(name) else ""


def format_of_start(name: str, start: bytes) -> str:
    """The title of the format of a stream of this name that starts so; empty where it is none."""
    from trainspec_validate.telemetry.formats.format import FORMATS  # noqa: PLC0415 - start-up

    found = _format_of(name, start)
    return FORMATS[found].title if found else ""


def _is_output(name: str) -> bool:
    """Whether a name is one of what a program printed."""
    return _OUTPUT.search(unpacked_name(name.lower())) is not None


def _has_record(start: bytes) -> bool:
    from trainspec_validate.telemetry.formats.format import holds_record  # noqa: PLC0415 - start-up

    return holds_record(start)


def is_foreign(name: str) -> bool:
    """Whether a regular file has the name of a document, and its text is one of another program."""
    try:
        path = Path(name)
        return bool(name) and is_document_name(name) and path.is_file() and _no_document(path) in {"", HELD}
    except (OSError, ValueError):
        return False  # whoever reads it says why


def holds_document(name: str) -> bool:
    """Whether a YAML or JSON file of another program holds a document of ours in a text, as a ConfigMap may."""
    try:
        path = Path(name)
        return is_document_name(name) and path.is_file() and _no_document(path) == HELD
    except (OSError, ValueError):
        return False


def why_unread(path: Path) -> str | None:
    """Why a file with the name of a document is not judged in a directory, by its content alone; None for a document.

    The reason is empty for the text of another program.

    Raises:
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        is_pointer = file.read(len(_LARGE_FILE)) == _LARGE_FILE
    return POINTER if is_pointer else why_no_document(path)


def _no_document(path: Path, whole: bytes | None = None) -> str | None:
    """Why a YAML or JSON file is no document; None where it claims to be one of ours, by its name or in its text."""
    if ".trainspec." in path.name or is_emptied(path):
        return None
    reason = why_no_document(path, whole)
    if reason in {None, HELD} or path.name.split(".")[0] not in OWN_STEMS:
        return reason
    if reason:
        return None
    with open_regular(path) as file:
        return why_other(file.read(MAX_BYTES))
