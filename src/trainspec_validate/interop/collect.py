"""Runs the tools of nodes through ssh, srun, kubectl or a local shell, and keeps what each node prints in a directory.

A shell script runs on each node. It writes below one temporary directory of the node, which it removes, and prints an
archive of it. No other file of a node is changed, and it needs nothing but a POSIX shell, `tar`, `du` and `timeout`.
Its input stays open as long as somebody waits for the answer: at its end the script ends its tools and removes what
it wrote, whether the command here was interrupted or killed, or the connection broke.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import selectors
import shlex
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainspec_validate.interop.fragment import ForeignFormatError
from trainspec_validate.interop.readers._hostlist import expand
from trainspec_validate.system import threads
from trainspec_validate.system.atomic import write_atomically
from trainspec_validate.system.boundary import InputError, words_of

MAX_NODES = 10_000
MAX_FILE_BYTES = 8 * 2**20
"""Of what one tool may print."""
MAX_NODE_BYTES = 24 * 2**20
"""Of what one node may answer."""
_MAX_WORDS_BYTES = 4_096
_MAX_FILES = 64
_FRAME_BYTES = 2**20
"""Of what an archive may add to its files."""
_MAX_SCRIPT_BYTES = 32_768
"""Less than a pipe holds, so that a node that reads nothing blocks nobody."""
_READ_BYTES = 1 << 16
_FAILURES = "failures"
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True, slots=True)
class Tool:
    """One command that is run on a node."""

    file: str
    """Name of the file that keeps what it prints."""
    command: str
    """For a POSIX shell."""
    timeout_seconds: int = 60
    is_asked: bool = False
    """Whether the user asks for it, so that the lack of its output is a failure."""


TOOLS = (
    Tool("nvidia-smi.txt", "nvidia-smi -q"),
    Tool("nvlink.txt", "nvidia-smi nvlink --status"),
    Tool("nvlink-errors.txt", "nvidia-smi nvlink --errorcounters"),
    Tool("rocm-smi.txt", "rocm-smi --showproductname --showmeminfo vram --showmaxpower"),
    Tool("amd-smi.txt", "amd-smi static"),
    Tool("amd-smi-ecc.txt", "amd-smi metric --ecc --ecc-blocks"),
    Tool("amd-smi-state.txt", "amd-smi metric --pcie --throttle"),
    Tool("amd-smi-xgmi.txt", "amd-smi xgmi --link-status"),
    Tool("tpu-info.txt", "tpu-info"),
    Tool("ibstat.txt", "ibstat"),
    Tool("ibv_devinfo.txt", "ibv_devinfo"),
    Tool("dmesg.txt", "dmesg --time-format iso"),
)
"""Tools that every collection runs: each is read by `accept`, needs no load, and is left out where it is not
installed."""

_WAYS: Mapping[str, tuple[str, ...]] = {
    "local": (),
    "ssh": ("ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "{node}"),
    "slurm": (
        *("srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist={node}"),
        *("--input=all", "--output=all", "--error=all"),
    ),
    "kubernetes": ("kubectl", "exec", "--stdin", "--quiet", "{node}", "--"),
}
"""How a shell is started on a node."""
WAYS = tuple(_WAYS)
_SHELL = ("sh", "-s")
_LABELS = frozenset({"SLURM_LABELIO", "SRUN_LABELIO"})
"""Variables by which srun puts the number of the task before each line, which no option takes back."""
_GRACE_SECONDS = 3.0
_SHOWN_MESSAGES = 2
"""`ssh`, `srun` and `kubectl` often say the reason in the last message but one."""


def words(way: str, node: str) -> tuple[str, ...]:
    """Words before a command that make it run on a node. Those of ssh pass on one text for a shell."""
    return tuple(part.replace("{node}", node) for part in _WAYS[way])


def variables() -> dict[str, str]:
    """Variables of this process for such a command: those by which srun changes each line are left out."""
    return {name: value for name, value in os.environ.items() if name not in _LABELS}


_HEAD = r"""
main() {
umask 077
PATH=$PATH:/usr/sbin:/sbin:/opt/rocm/bin
command -v timeout > /dev/null 2>&1 || { echo 'this node has no command timeout' >&2; exit 1; }
[ -d "${TMPDIR:-}" ] && [ -w "$TMPDIR" ] || TMPDIR=/tmp
d=$(mktemp -d "$TMPDIR/trainspec-accept.XXXXXXXX") || exit 1
tool= watch=
trap 'kill $tool $watch 2> /dev/null; rm -rf "$d"' EXIT
trap 'exit 1' HUP INT TERM PIPE
exec 3<&0
(while read -r _; do :; done; kill $$ || rm -rf "$d") <&3 > /dev/null 2>&1 &
watch=$!
run() {
  (ulimit -f $4; exec timeout -k 5 "$2" sh -c "$3") < /dev/null > "$d/$1" 2> /dev/null 3<&- &
  tool=$!
  wait $tool
  case $? in 124 | 134 | 137 | 139 | 141 | 143 | 152 | 153) leave "$1" ;; esac
  tool=
  [ "$(du -sk "$d" | cut -f 1)" -le {kib} ] || leave "$1"
  [ -s "$d/$1" ] || rm -f "$d/$1"
}
leave() { rm -f "$d/$1"; echo "$1" >> "$d/failures"; }
"""
_TAIL = r"""
printf '%s\n' '{mark}'
tar -C "$d" -cf - . && printf '%s\n' '{mark}'
}
main; exit
"""
"""The shell reads all of it before anything runs, so that it shares its input with nobody."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Result of one node."""

    node: str
    num_files: int = 0
    failure: str = ""
    """Why it did not answer; empty where it did."""
    unfinished: tuple[str, ...] = ()
    """Files that are left out: their tools took too long, printed too much, were killed, or printed nothing."""


def collect(  # noqa: PLR0913
    nodes: Sequence[str],
    way: str,
    directory: Path,
    tools: Sequence[Tool] = TOOLS,
    *,
    timeout_seconds: float = 600.0,
    num_at_once: int = 32,
) -> Iterator[Answer]:
    """Store what the tools of each node print below a directory; gives each answer in the order of the nodes.

    The directory of a node that did not answer is empty.

    Raises:
        InputError: a node or a file has no usable name, the program that reaches nodes is not installed, or a file
            cannot be written.
    """
    _check(nodes, way, tools)
    deadline = _Deadline(timeout_seconds)
    with threads.pool(max(1, min(num_at_once, len(nodes)))) as pool:
        try:
            yield from pool.map(lambda node: _ask(node, way, tools, deadline, directory), nodes)
        except BaseException:
            deadline.is_over = True
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def named(expressions: Iterable[str]) -> list[str]:
    """The nodes that host list expressions such as `node[01-16]` name.

    Raises:
        InputError: an expression is none, or names too many nodes.
    """
    try:
        return expand(",".join(expressions), limit=MAX_NODES)
    except ForeignFormatError as error:
        raise InputError(str(error)) from error


def script(tools: Iterable[Tool], mark: str) -> str:
    """Script for the shell of a node. The archive follows a line with the mark, whatever the shell prints before."""
    lines = []
    for tool in tools:
        words = [tool.file, str(tool.timeout_seconds), tool.command, str(MAX_FILE_BYTES // 512)]
        if tool.is_asked:
            lines.append(f'run {shlex.join(words)}; [ -e "$d/{tool.file}" ] || echo {tool.file} >> "$d/failures"')
        else:
            lines.append(f"command -v {tool.command.partition(' ')[0]} > /dev/null 2>&1 && run {shlex.join(words)}")
    head = _HEAD.strip().replace("{kib}", str((MAX_NODE_BYTES - _FRAME_BYTES) // 1024))
    return "\n".join([head, *lines, _TAIL.strip().replace("{mark}", mark), ""])


def _check(nodes: Sequence[str], way: str, tools: Sequence[Tool]) -> None:
    for name in nodes:
        if not NODE_NAME.fullmatch(name):
            raise InputError(f"{name!r} is no name of a node (letters, digits and . _ + -)")
    if len(set(nodes)) < len(nodes):
        twice = next(name for name in nodes if nodes.count(name) > 1)
        raise InputError(f"the node {twice} is named twice")
    for tool in tools:
        if not FILE_NAME.fullmatch(tool.file) or tool.file == _FAILURES:
            raise InputError(f"{tool.file!r} is no name of a file (letters, digits and . _ + -)")
    num_bytes = len(script(tools, "").encode())
    if num_bytes > _MAX_SCRIPT_BYTES:
        raise InputError(f"the commands of a node take {num_bytes} bytes, more than {_MAX_SCRIPT_BYTES}")
    command = _WAYS[way]
    if command and shutil.which(command[0]) is None:
        raise InputError(f"{command[0]} is not installed here, and {way} needs it")


@dataclass(slots=True)
class _Deadline:
    """Of each node."""

    seconds: float
    is_over: bool = False
    """Whether all have to end now."""


def _ask(node: str, way: str, tools: Sequence[Tool], deadline: _Deadline, directory: Path) -> Answer:
    place = directory / node
    try:
        place.mkdir(parents=True)
        files = {} if deadline.is_over else _printed(node, way, tools, deadline)
        failed = set(files.pop(_FAILURES, b"").decode("utf-8", "replace").split())
        unfinished = [tool.file for tool in tools if tool.file in failed]
        for name, content in sorted(files.items()):
            write_atomically(place / name, content)
    except _NoAnswerError as error:
        return Answer(node, failure=str(error))
    except OSError as error:
        raise InputError(f"{place.as_posix()}: {words_of(error)}") from error
    return Answer(node, len(files), unfinished=tuple(unfinished))


class _NoAnswerError(Exception):
    """A node gave no archive; the text says why."""


def _printed(node: str, way: str, tools: Sequence[Tool], deadline: _Deadline) -> dict[str, bytes]:
    """What the tools of a node printed, by name of file."""
    mark = f"trainspec-{secrets.token_hex(16)}"
    command = [*words(way, node), *_SHELL]
    try:
        printed, told, status = _run(command, script(tools, mark).encode(), deadline)
    except OSError as error:
        raise _NoAnswerError(f"{command[0]}: {words_of(error)}") from error
    if isinstance(status, str):
        said = _last(told)
        raise _NoAnswerError(status + (f"; its last message: {said}" if said else ""))
    parts = printed.split(f"{mark}\n".encode())
    if status or len(parts) < 3:  # what the shell printed before, the archive, and nothing
        raise _NoAnswerError(_without_archive(told, status))
    try:
        return _unpacked(parts[1])
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise _NoAnswerError(f"its archive cannot be read: {error}") from error


def _without_archive(words: str, status: int) -> str:
    """Why there is no archive: the last messages of a command that failed, and of one that says that it did not."""
    last = _last(words)
    if status and last:
        return f"{last} (exit {status})"
    return f"it printed no whole archive (exit {status})" + (f": {last}" if last else "")


def _last(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if any(map(str.isalnum, line))]
    return "; ".join(dict.fromkeys(lines[-_SHOWN_MESSAGES:]))


def _run(command: list[str], given: bytes, deadline: _Deadline) -> tuple[bytes, str, int | str]:
    """What a command prints, the end of its messages, and its exit status or the reason for which it was ended."""
    with subprocess.Popen(  # noqa: S603 (the words of _WAYS, with a checked name of a node)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=variables(),
    ) as process:
        try:
            streams = (_open(process.stdin), _open(process.stdout), _open(process.stderr))
            printed, words, reason = _exchange(streams, given, deadline)
        except BaseException:
            _end(process)
            raise
        status = _end(process)
    return printed, words.decode("utf-8", "replace"), reason or status


def _exchange(
    streams: tuple[IO[bytes], IO[bytes], IO[bytes]], given: bytes, deadline: _Deadline
) -> tuple[bytes, bytes, str]:
    """Pass the script, and read both streams to their ends within the bounds; the last value says which was passed."""
    to_it, from_it, messages = streams
    printed, words, until = bytearray(), bytearray(), time.monotonic() + deadline.seconds
    with suppress(BrokenPipeError):  # the script is shorter than what a pipe holds
        to_it.write(given)
        to_it.flush()
    with selectors.DefaultSelector() as waiting:
        waiting.register(from_it, selectors.EVENT_READ, printed)
        waiting.register(messages, selectors.EVENT_READ, words)
        while waiting.get_map():
            if deadline.is_over:
                return bytes(printed), bytes(words), "interrupted"
            if time.monotonic() > until:
                return bytes(printed), bytes(words), f"no end after {deadline.seconds:g} s"
            for key, _ in waiting.select(0.2):
                piece = os.read(key.fd, _READ_BYTES)
                if not piece:
                    waiting.unregister(key.fileobj)
                key.data.extend(piece)
            del words[:-_MAX_WORDS_BYTES]
            if len(printed) > MAX_NODE_BYTES:
                return b"", bytes(words), f"it printed more than {MAX_NODE_BYTES} bytes"
    return bytes(printed), bytes(words), ""


def _open(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise BrokenPipeError("a stream of the process is closed")
    return stream


def _end(process: subprocess.Popen[bytes]) -> int:
    """The exit status of what reaches a node; first its input ends, on which the node ends its tools and cleans up."""
    with suppress(OSError):
        _open(process.stdin).close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    return process.wait()


def _unpacked(archive: bytes) -> dict[str, bytes]:
    """The regular files of an archive that have plain names; anything else refuses the archive."""
    files: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as members:
        for member in members:
            name = member.name.removeprefix("./")
            if member.isdir() and name in {"", "."}:
                continue
            if not member.isreg() or member.issparse() or not FILE_NAME.fullmatch(name) or member.size > MAX_FILE_BYTES:
                raise ValueError(f"it holds {name[:64]!r}, which is no file of a tool")
            if len(files) == _MAX_FILES:
                raise ValueError(f"it holds more than {_MAX_FILES} files")
            content = members.extractfile(member)
            files[name] = b"" if content is None else content.read()
    return files
