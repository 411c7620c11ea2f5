"""Finds what is not judged in a directory and looks like ours: links and hidden files, which a search leaves out."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Final

from trainspec_validate.documents.types import KINDS
from trainspec_validate.pipeline import excluded
from trainspec_validate.pipeline.archives import packed_documents, unpacked_text
from trainspec_validate.pipeline.claims import (
    claimed,
    claims,
    has_readable_document,
    hidden_claims,
    holds_encoded,
    holds_in_cells,
    is_in_ebcdic,
    is_in_toml,
    names_kind,
    start_of,
)
from trainspec_validate.pipeline.data_sets import DATA_SET, holds_tokens, is_of_no_run, is_plain_array
from trainspec_validate.pipeline.detect import (
    NO_STREAM,
    OWN_STEMS,
    Search,
    detect,
    has_own_stream_name,
    is_checkpoint,
    is_foreign,
)
from trainspec_validate.pipeline.files import (
    QUOTING_SUFFIXES,
    SKIPPED_DIRECTORIES,
    STDIN,
    File,
    is_candidate,
    is_document_name,
    is_stream_name,
    linked_matches,
    may_be_renamed,
)
from trainspec_validate.pipeline.foreign import HELD
from trainspec_validate.pipeline.layers import MOST_LAYERS, NotFollowedError, TooDeepError
from trainspec_validate.pipeline.links import is_ours_by_name, leads_to_ours, link_reason
from trainspec_validate.pipeline.packed_streams import UNREAD_PACKING, packed_stream_reason
from trainspec_validate.pipeline.run_texts import (
    LOOKS_LIKE_LOG,
    MOST_QUOTED,
    looks_like_log,
    why_no_stream,
)
from trainspec_validate.pipeline.run_texts import REMEDIES as REMEDIES_OF_TEXTS
from trainspec_validate.pipeline.scripts import IN_SCRIPT, PACKED_IN_SCRIPT, is_script, writes_document
from trainspec_validate.pipeline.texts import Text
from trainspec_validate.pipeline.unpacked import is_not_searched, why_not_searched
from trainspec_validate.system.boundary import InputError, open_regular
from trainspec_validate.system.budget import Count, Limit, OverLimitError
from trainspec_validate.system.digits import is_digits
from trainspec_validate.system.packings import is_packed, unpacked_name
from trainspec_validate.system.repository import TOOLS, absent_submodules, absent_submodules_below, is_absent_submodule

_CLAIMS: Final = "claims to be ours under a name that is not searched"
_ENVIRONMENT = "pyvenv.cfg"
_START_BYTES: Final = 262_144
_ODD_SUFFIXES: Final = frozenset({".otlp", ".metrics"})
"""Ends of names that exporters give to streams, and other programs to other files."""
_PROGRAM: Final = re.compile(rb"#!|(?:[^\n]{0,1000}\n){0,100}?#(?:SBATCH|PBS|BSUB|PJM|COBALT)[ \t]")
"""How a program begins: with its interpreter, or with what it asks of a scheduler."""
_COMMENT: Final = re.compile(rb"^[ \t]{0,100}(?:#|//)[^\n]*\n?", re.MULTILINE)
_FIRST_BYTES: Final = 4_096
_LOG_BYTES: Final = 65_536
PACKED_DOCUMENT: Final = "is a compressed document"
UNREAD_DOCUMENT: Final = "has the name of a document, and is compressed in a way that is not read here, or is damaged"
_TABLES: Final = frozenset({".csv", ".tsv"})
_YAML: Final = (".yaml", ".yml")
_NOTEBOOK: Final = ".ipynb"
_TOML: Final = "is a document in TOML, which is not read"
TOO_DEEP: Final = f"is compressed more than {MOST_LAYERS} times over, and was not looked into"
NO_READER: Final = "is compressed with zstd, which cannot be read here"
_OWN_NAME: Final = re.compile(r"(?:cluster|plan|checkpoint|policy)\b", re.IGNORECASE)
_UNKNOWN_LOG: Final = "is a log in no format that is read"
_ONE_OF_STATE: Final = "is a directory of packages, and holds a file of state"
NO_SUBMODULE: Final = "is a submodule that is not checked out"
CHECK_OUT: Final = "run git submodule update --init"
_UNPACK: Final = "unpack it"
_OWN_FILE: Final = "write the document to a file of its own"
_USUAL: Final = {
    HELD: _OWN_FILE,
    IN_SCRIPT: _OWN_FILE,
    PACKED_IN_SCRIPT: _OWN_FILE,
    PACKED_DOCUMENT: _UNPACK,
    UNREAD_DOCUMENT: _UNPACK,
    TOO_DEEP: _UNPACK,
    NO_READER: "install trainspec-validate[telemetry], or unpack it",
    _TOML: "write it in YAML or JSON",
    _UNKNOWN_LOG: "write a metric stream",
    LOOKS_LIKE_LOG: "write a metric stream",
    **REMEDIES_OF_TEXTS,
    NO_SUBMODULE: CHECK_OUT,
}
"""What to do about a file that is left out for a reason."""
_N5_NAME: Final = "attributes.json"
_MOST_LEVELS: Final = 100
_MOST_ENTRIES: Final = Limit("a directory", 1_000_000, "entries")
Skipped = tuple[str, str, str]
"""Path, reason and help of one thing that was left out."""


def overlooked(arguments: Iterable[str], judged: Collection[str]) -> Iterator[Skipped]:
    """Entries that the searches of directories and patterns leave out, by name.

    Args:
        arguments: what the user named.
        judged: real paths of the files and checkpoints that were looked at. A link to one of them leaves nothing out.
    """
    told = set(judged)
    from trainspec_validate.checkpoints.format_table import REMEDIES  # noqa: PLC0415 - start-up

    for argument in arguments:
        if argument in {"", STDIN}:
            continue  # an empty path names nothing, and Path would read it as the working directory
        path = Path(argument)
        if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
            tree = _Tree(path, told)
            tree.scan()
            found = [*tree.hidden_documents(), *tree.unfollowed(), *tree.state(), *tree.submodules()]
        else:
            links = [link for link in linked_matches(argument) if is_ours_by_name(link.name)]
            found = [(link, link_reason(link)) for link in links if not excluded.takes(link)]
        for file, reason in found:
            real = os.path.realpath(file)
            if real not in told:
                told.add(real)
                usual = _UNPACK if is_not_searched(reason) or reason.endswith(UNREAD_PACKING) else _USUAL.get(reason)
                remedy = usual or REMEDIES.get(reason, f"name {file.as_posix()}")
                yield file.as_posix(), reason, f"{remedy} to have it judged"


def passed_by(arguments: Iterable[str], found: Search, judged: Iterable[str] = ()) -> Iterator[Skipped]:
    """Entries that a search leaves out, by name; `judged` are paths of files that were looked at besides."""
    seen = {os.path.realpath(path) for path in judged}
    seen |= {os.path.realpath(member) for group in found.checkpoints for member in group.members}
    return chain(found.unsearched, overlooked(arguments, seen))


def is_passed_over(name: str) -> bool:
    """Whether a regular file is one of another program, which a search of its directory passes over in silence."""
    if is_document_name(name):
        return is_foreign(name)
    try:
        path = Path(name)
        if not name or not path.is_file() or is_checkpoint(name):
            return False
        source = detect(File(path, name, argument=name))
        if is_stream_name(name):
            return source.unread == DATA_SET
        return source.kind == "other" and not (source.unread or _reason(path))
    except (InputError, OSError, ValueError):
        return False  # whoever reads it says why


def why_left_out(name: str) -> str:
    """Why a changed file of another program cannot be judged, or a submodule without its files; empty for the rest."""
    try:
        path = Path(name)
        if not name or is_document_name(name) or has_own_stream_name(name) or is_checkpoint(name):
            return ""
        if path.is_dir():
            return NO_SUBMODULE if is_absent_submodule(path) else ""
        is_ours = path.name.split(".")[0] in OWN_STEMS or bool(packed_documents(path))
        return _cannot_be_read(path, name) if path.is_file() and not is_ours else ""
    except (OSError, ValueError, OverLimitError):
        return ""  # whoever reads it says why


def _cannot_be_read(path: Path, name: str) -> str:
    """Why no reader takes a file that was named, in the words of a search; empty where one takes it."""
    try:
        source = detect(File(path, name))
        if source.format or (source.kind != "stream" and path.stat().st_size):
            return ""
    except InputError:
        pass
    try:
        found = detect(File(path, name, argument=name))
    except InputError:
        return ""
    return "" if found.kind == "document" else found.unread or _reason(path) or NO_STREAM


def _reason(file: Path) -> str:
    """Why a file that no search takes is left out, by its name and its content; empty for that of another program."""
    from trainspec_validate.checkpoints.format_table import left_out  # noqa: PLC0415 - start-up

    by_name = "" if holds_tokens(file) else left_out(file.name)
    if is_plain_array(file):
        return ""
    return by_name or _state_reason(file) or _stream_reason(file) or _document_reason(file)


@dataclass(slots=True)
class _Tree:
    """A directory with what a search passes by."""

    root: Path
    judged: Collection[str]
    """Real paths of files and checkpoints."""
    hidden: list[Path] = field(default_factory=list)
    """Files by the names of documents or streams that are hidden or below a directory that is passed by."""
    links: list[Path] = field(default_factory=list)
    named: dict[Path, str] = field(default_factory=dict)
    """Files of state by their names, archives and arrays, and why they are left out where no checkpoint has them."""
    absent: list[Path] = field(default_factory=list)
    """Submodules that are not checked out."""
    searched: set[str] = field(default_factory=set)
    """Real paths of the directories that were entered."""

    def scan(self) -> None:
        """Enter all directories but those of tools; what cannot be entered is an error of the search itself."""
        from trainspec_validate.checkpoints.format_table import ARRAYS, N5  # noqa: PLC0415 - start-up

        pending = [(self.root, False, 0)]
        self.absent += absent_submodules_below(self.root)
        num_entries = Count(_MOST_ENTRIES)
        try:
            while pending:
                parent, hidden, level = pending.pop()
                self.searched.add(real := os.path.realpath(parent))
                self.absent += absent_submodules(parent)
                for entry in _entries(parent) if level <= _MOST_LEVELS else ():
                    num_entries.add(1)
                    is_hidden = hidden or _is_passed_by(entry.name)
                    if not entry.is_dir(follow_symlinks=False) and excluded.takes(entry.path):
                        continue
                    if entry.is_symlink():
                        link = Path(parent, entry.name)
                        self.links += [] if hidden or (real in self.judged and not leads_to_ours(link)) else [link]
                    elif entry.is_dir(follow_symlinks=False):
                        pending += [] if is_of_a_tool(entry) else [(Path(parent, entry.name), is_hidden, level + 1)]
                    elif is_hidden and is_ours_by_name(entry.name):
                        self.hidden.append(Path(parent, entry.name))
                    elif reason := _reason(file := Path(parent, entry.name)):
                        self.named[parent if reason in {ARRAYS, N5} else file] = reason
        except OverLimitError:
            return  # the search reports that it could not look at all of it

    def state(self) -> Iterator[tuple[Path, str]]:
        """Files that no checkpoint has, or that are none of its state; those of packages by their directory."""
        from trainspec_validate.checkpoints.format_table import is_of_state  # noqa: PLC0415 - start-up

        packages: dict[Path, int] = {}
        for file, reason in sorted(self.named.items()):
            real = Path(os.path.realpath(file))
            is_covered = any(str(place) in self.judged for place in (real, *real.parents))
            if is_covered and (is_of_state(reason) or str(real) in self.judged):  # of a checkpoint, judged as such
                continue
            parts = file.relative_to(self.root).parts
            first = next((place for place, part in enumerate(parts) if part in SKIPPED_DIRECTORIES), None)
            if first is None:
                yield file, reason
            else:
                folder = self.root.joinpath(*parts[: first + 1])
                packages[folder] = packages.get(folder, 0) + 1
        for folder, num in packages.items():
            yield folder, f"is a directory of packages, and holds {num:,} files of state" if num > 1 else _ONE_OF_STATE

    def submodules(self) -> Iterator[tuple[Path, str]]:
        """Submodules of Git that are not checked out, so that nobody can say what they hold."""
        for place in sorted(self.absent):
            if not excluded.covers(place):
                yield place, NO_SUBMODULE

    def hidden_documents(self) -> Iterator[tuple[Path, str]]:
        """Files that claim to be ours, hidden or in directories of packages."""
        for file in sorted(self.hidden):
            if hidden_claims(file):
                passed = next(part for part in file.relative_to(self.root).parts if _is_passed_by(part))
                is_dotted = passed.startswith(".")
                yield file, "is hidden by a name that begins with a dot" if is_dotted else f"is below {passed}"

    def unfollowed(self) -> Iterator[tuple[Path, str]]:
        """Links to directories that were not entered, and links by the name of a document or stream to other files."""
        top = os.path.realpath(self.root)
        for link in sorted(self.links):
            target = os.path.realpath(link)
            if os.path.isdir(target):  # noqa: PTH112 - raises for a name that is too long
                inside = (
                    target in self.searched
                    or target in self.judged
                    or any(part in TOOLS or part in SKIPPED_DIRECTORIES for part in Path(target).parts)
                )
                if not inside and not _is_passed_by(link.name):
                    yield link, "is a link to a directory elsewhere, which is not followed"
            elif is_ours_by_name(link.name):
                inside = link.exists() and target.startswith(top + os.sep)
                if inside and not hidden_claims(Path(target)):
                    continue
                yield link, link_reason(link)
            elif self._may_hold_state(link, Path(target)):
                yield link, link_reason(link)

    def _may_hold_state(self, link: Path, target: Path) -> bool:
        """Whether a link has the name of a file of state, or leads nowhere and has the name of a checkpoint.

        Links in a checkpoint that was judged, and links into one, leave nothing out.
        """
        from trainspec_validate.checkpoints.format_table import left_out  # noqa: PLC0415 - start-up
        from trainspec_validate.checkpoints.save_names import STEP_NAME  # noqa: PLC0415 - start-up

        if not left_out(link.name) and (link.exists() or not STEP_NAME.match(link.name)):
            return False
        holder = Path(os.path.realpath(link.parent))
        return not any(str(place) in self.judged for place in (holder, *holder.parents, target, *target.parents))


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_passed_by(name: str) -> bool:
    return name.startswith(".") or name in SKIPPED_DIRECTORIES


def is_of_a_tool(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory of version control or an environment of Python."""
    mark = TOOLS.get(entry.name, _ENVIRONMENT)
    return os.path.lexists(os.path.join(entry.path, mark))  # noqa: PTH118


def _state_reason(file: Path) -> str:
    """Why a file is left out whose content, and not its name, shows that it holds state; empty for anything else."""
    from trainspec_validate.checkpoints.content import TAR, kind_of, may_hold_state  # noqa: PLC0415 - start-up
    from trainspec_validate.checkpoints.format_table import ARCHIVE, BINARY, N5, STATE, is_bare  # noqa: PLC0415

    if file.name == _N5_NAME:
        return N5 if _is_n5(file) else ""
    if not may_hold_state(file.name):
        return ""
    kind = kind_of(file)
    if kind == TAR:
        return ARCHIVE
    return STATE.format(kind) if kind else BINARY if is_bare(file.name) and _is_binary(file) else ""


def _stream_reason(file: Path) -> str:
    """Why a file is left out that holds a stream under a name that no search takes; empty for anything else."""
    stem = unpacked_name(file.name)
    if is_candidate(file.name):
        return ""
    if stem == file.name and file.suffix not in _ODD_SUFFIXES:
        return _log_reason(file)
    from trainspec_validate.telemetry.formats.detection import detect  # noqa: PLC0415 - start-up
    from trainspec_validate.telemetry.formats.source import SourceError, head_of, is_compressed  # noqa: PLC0415 - start-up

    try:
        reason = "" if is_compressed(file) else packed_stream_reason(file)
        found = None if reason else detect(head_of(file))
    except (SourceError, OSError):
        found, reason = None, ""
    if found:
        return f"holds a stream ({found.title}) under a name that is not searched"
    return reason or packed_stream_reason(file) or (_log_reason(file) if is_digits(file.suffix[1:]) else "")


def _log_reason(file: Path) -> str:
    """Why a text under the name of no log is left out that holds one; empty for anything else."""
    from trainspec_validate.telemetry.formats.detection import detect  # noqa: PLC0415 - start-up

    try:
        with open_regular(file) as opened:
            start = opened.read(_LOG_BYTES)
    except OSError:
        return ""
    if b"\0" in start:
        return ""
    if file.suffix.lower() in QUOTING_SUFFIXES:
        return why_no_stream(start, MOST_QUOTED + 1)
    is_program = _PROGRAM.match(start) is not None
    start = _COMMENT.sub(b"", start)
    found = detect(start)
    if found and found.name.endswith("-log"):
        if is_program and not _has_many_lines(start, found.looks_like):
            return ""
        return f"holds a stream ({found.title}) under a name that is not searched"
    if is_program and not _has_many_lines(start, lambda line: looks_like_log(line + b"\n" + line)):
        return ""
    return LOOKS_LIKE_LOG if looks_like_log(start) else ""


def _has_many_lines(text: bytes, looks_like: Callable[[bytes], bool]) -> bool:
    """Whether a text has more lines of a log than a program quotes."""
    return any(True for _ in islice(filter(looks_like, text.splitlines()), MOST_QUOTED, None))


def _document_reason(file: Path) -> str:
    """Why a file is left out that claims to be ours under a name that no search takes; empty for anything else."""
    from trainspec_validate.checkpoints.format_table import ARCHIVE  # noqa: PLC0415 - start-up

    if is_packed_document(file.name):
        return packed_reason(file)[0]
    suffix, name = file.suffix, file.name.lower()
    if name.endswith(".log"):
        return "" if is_of_no_run(file) else _UNKNOWN_LOG
    is_judged = is_document_name(file.name) or is_stream_name(file.name)
    try:
        found = None if is_judged else packed_documents(file)
    except (OverLimitError, NotFollowedError) as error:
        return why_not_looked_into(error)
    if found is not None:
        return "" if not found else ARCHIVE if found[0][0] else PACKED_DOCUMENT
    if is_document_name(file.name):
        return ""
    if suffix.lower() == _NOTEBOOK and holds_in_cells(file):
        return HELD
    if suffix.lower() == ".toml" and is_in_toml(claimed(file)):
        return _TOML
    if suffix.isascii():
        content = claimed(file)
        if content and (may_be_renamed(file.name) or _is_whole_document(file, content)):
            return _CLAIMS
        if content and writes_document(file.name, content):
            return IN_SCRIPT
        return _encoded_reason(file)
    odd = next(f"U+{ord(character):04X}" for character in suffix if not character.isascii())
    return f"ends in {odd}, which is no letter of ASCII, and claims to be ours" if hidden_claims(file) else ""


def _encoded_reason(file: Path) -> str:
    """Why a text is left out that holds a document in base64; empty for programs, which hold examples."""
    if may_be_renamed(file.name) or file.suffix.lower() in _TABLES:
        return HELD if holds_encoded(file) else ""
    is_of_shell = is_script(file.name, start_of(file))
    return PACKED_IN_SCRIPT if is_of_shell and holds_encoded(file) else ""


def _is_whole_document(file: Path, content: bytes) -> bool:
    """Whether the whole text of a file is a document of ours, whatever its name; programs are not looked at."""
    facts = Text(file, content).facts
    is_wide = b"\0" in content and facts.failure is not None
    is_later = facts.failure is not None and has_readable_document(content)
    return facts.kind in KINDS or is_in_ebcdic(content) or is_later or (is_wide and names_kind(content))


def why_not_looked_into(error: OverLimitError | NotFollowedError) -> str:
    """Why the documents in a compressed file are not known, with the limit that the search met."""
    if isinstance(error, NotFollowedError):
        return TOO_DEEP if isinstance(error, TooDeepError) else NO_READER
    return why_not_searched(error)


def is_packed_document(name: str) -> bool:
    """Whether a name is one of a compressed document."""
    return is_packed(name) and is_document_name(unpacked_name(name))


def packed_reason(file: Path) -> tuple[str, bytes]:
    """Why a compressed file is not judged, and its start; the reason is empty for that of another program.

    A file that cannot be unpacked here is named where its name is one of YAML, or one that documents of ours have: JSON
    is compressed by many programs.
    """
    try:
        start = unpacked_text(file)
    except (OverLimitError, NotFollowedError) as error:
        return why_not_looked_into(error), b""
    if start is not None:
        return PACKED_DOCUMENT if claims(start) else "", start
    is_likely = unpacked_name(file.name).lower().endswith(_YAML) or _OWN_NAME.match(file.name)
    return UNREAD_DOCUMENT if is_likely else "", b""


def _is_n5(file: Path) -> bool:
    """Whether a file describes an array or a group of N5; https://github.com/saalfeldlab/n5#file-system-specification."""
    try:
        with open_regular(file) as opened:
            start = opened.read(_START_BYTES)
    except OSError:
        return False
    return b'"n5"' in start or all(key in start for key in (b'"dimensions"', b'"blockSize"', b'"dataType"'))


def _is_binary(file: Path) -> bool:
    """Whether a file has zero bytes near its start, or begins as a pickle does."""
    try:
        with open_regular(file) as opened:
            start = opened.read(_START_BYTES)
    except OSError:
        return False
    return b"\0" in start or start[:1] == b"\x80"
