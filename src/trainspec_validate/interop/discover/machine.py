"""Reads from the machine on which `discover` runs: commands, files and variables, all bounded."""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

_MAX_FILE_BYTES = 4 * 2**20
_MAX_NAMES = 65_536
_READ_BYTES = 65_536
_NVML = "trainspec_validate.interop.discover.nvml"
_PLAIN_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class Machine(Protocol):
    """Questions that discovery may ask a machine; every answer is bounded, and any failure gives None."""

    def run(self, command: tuple[str, ...]) -> str | None:
        """Output of a command; None where it is missing, fails, takes too long or prints too much."""
        ...

    def has(self, name: str) -> bool:
        """Whether a program of this name can be started."""
        ...

    def nvml(self) -> str | None:
        """Output of `discover.nvml`; empty where it fails, None where the binding of NVML is not installed."""
        ...

    def read(self, path: str) -> str | None:
        """The text of a file."""
        ...

    def list(self, path: str) -> tuple[str, ...]:
        """Names in a directory, sorted; empty where it cannot be listed."""
        ...

    def variable(self, name: str) -> str | None:
        """An environment variable."""
        ...


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """The machine that this process runs on."""

    root: Path = Path("/")
    """Directory that represents `/` when files are read."""
    timeout_seconds: float = 30.0
    """Longest time that one command may take."""
    max_output_bytes: int = 8 * 2**20
    """Most that one command may print."""

    def run(self, command: tuple[str, ...]) -> str | None:
        """Output of a command. It is found by a plain name in absolute places of PATH and started without a shell."""
        program = _program(command[0]) if command else None
        return None if program is None else self._printed([program, *command[1:]])

    def nvml(self) -> str | None:
        """Report of NVML. Its driver may hang or crash, so that it is asked in a process of its own."""
        if os.name != "posix" or find_spec("pynvml") is None:
            return None
        # what this process takes no notice of, variables of Python among it, its child takes no notice of either
        flag = "-I" if sys.flags.isolated else "-P"
        return self._printed([sys.executable, flag, "-m", _NVML]) or ""

    def _printed(self, command: list[str]) -> str | None:
        """What a program prints that ends well and within the bounds."""
        try:
            process = subprocess.Popen(  # noqa: S603 - a fixed vector of a known program
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError:
            return None
        try:
            printed = self._collect(process)
        finally:
            _stop(process)
        if printed is None or process.returncode != 0:
            return None
        return printed.decode("utf-8", "replace").replace("\r\n", "\n")

    def has(self, name: str) -> bool:
        """Whether a program of this name is in an absolute place of PATH."""
        return _program(name) is not None

    def _collect(self, process: subprocess.Popen[bytes]) -> bytes | None:
        """Everything printed until the command ends; None past a bound."""
        if process.stdout is None:
            return None
        deadline = time.monotonic() + self.timeout_seconds
        printed = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while (left := deadline - time.monotonic()) > 0:
                if not selector.select(left):
                    return None
                part = os.read(process.stdout.fileno(), _READ_BYTES)
                if not part:
                    return self._ended(process, bytes(printed), deadline)
                printed += part
                if len(printed) > self.max_output_bytes:
                    return None
        return None

    @staticmethod
    def _ended(process: subprocess.Popen[bytes], printed: bytes, deadline: float) -> bytes | None:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None
        return printed

    def read(self, path: str) -> str | None:
        """The text of a regular file of at most 4 MiB."""
        try:
            with self._place(path).open("rb") as stream:
                data = stream.read(_MAX_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        return None if len(data) > _MAX_FILE_BYTES else data.decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        """Names in a directory."""
        try:
            with os.scandir(self._place(path)) as entries:
                names = [entry.name for _, entry in zip(range(_MAX_NAMES), entries, strict=False)]
        except (OSError, ValueError):
            return ()
        return tuple(sorted(names))

    def variable(self, name: str) -> str | None:
        """An environment variable of this process."""
        return os.environ.get(name)

    def _place(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def _program(name: str) -> str | None:
    """Where a program lies; None where its name is not plain or it is in no absolute place of PATH."""
    if not _PLAIN_NAME.fullmatch(name) or os.name != "posix":
        return None
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place).is_absolute()]
    return shutil.which(name, path=os.pathsep.join(places))


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a command with everything that it started, and takes its exit status."""
    if process.poll() is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:
            process.kill()
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


@dataclass(frozen=True, slots=True)
class RecordedMachine:
    """A machine that was recorded before."""

    commands: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by absolute path; directories follow from the paths."""
    variables: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    """Programs that were installed and of which some calls gave no answer."""
    nvml_survey: str | None = None
    """Report of NVML; None where its binding was not installed."""

    @classmethod
    def load(cls, directory: Path) -> RecordedMachine:
        """A recording: `*.command` files open with `$ ` and the command, `files.txt` holds `@ ` and a path before each.

        Raises:
            OSError: the directory cannot be read.
        """
        commands: dict[tuple[str, ...], str] = {}
        for path in sorted(directory.glob("*.command")):
            first, _, printed = path.read_text(encoding="utf-8").partition("\n")
            commands[tuple(first.removeprefix("$ ").split())] = printed
        files: dict[str, str] = {}
        listing = directory / "files.txt"
        if listing.exists():
            for block in re.split(r"^@ ", listing.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
                path_text, _, content = block.partition("\n")
                files[path_text.strip()] = content
        variables = directory / "variables.txt"
        pairs = variables.read_text(encoding="utf-8").splitlines() if variables.exists() else []
        return cls(commands, files, {name: value for name, _, value in (pair.partition("=") for pair in pairs)})

    def run(self, command: tuple[str, ...]) -> str | None:
        """Output of the command at that time."""
        return self.commands.get(command)

    def nvml(self) -> str | None:
        """Report of NVML at that time."""
        return self.nvml_survey

    def has(self, name: str) -> bool:
        """Whether calls of the program without a recorded answer had failed."""
        return name in self.silent

    def read(self, path: str) -> str | None:
        """The text that the file had then."""
        return self.files.get(path)

    def list(self, path: str) -> tuple[str, ...]:
        """Names that the directory had then."""
        above = path.rstrip("/") + "/"
        inside = (name[len(above) :] for name in self.files if name.startswith(above))
        return tuple(sorted({rest.partition("/")[0] for rest in inside}))

    def variable(self, name: str) -> str | None:
        """The value that the variable had then."""
        return self.variables.get(name)
