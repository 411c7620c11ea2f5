"""Runs a command of a stack on another node as if it ran where it was started, for the conformance suite.

One half runs on the machine of the suite, the other is sent to each node with the agent.
"""

from __future__ import annotations

import base64
import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trainspec_conformance import node_clock, node_network
from trainspec_conformance.agent import ASKED, NODE, lines_of

_OF_NODE = ("SLURM_", "SLURMD_", "SSH_", "KUBERNETES_", "CUDA_VISIBLE_DEVICES", "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR")
"""How variables begin that a command has from its node, and not from the machine that it is started from."""
_NO_COMMAND = 127
"""Status of a command that could not be started, as of a shell."""
_PIECE_BYTES = 2048


def enter(words: Sequence[str], command: Sequence[str]) -> int:
    """Run a command on another node as if it ran here: with this environment, directory, input, signals and status."""
    told: dict[str, Any] = {"command": command, "directory": os.fspath(Path.cwd())}
    own = dict(os.environ)
    if own.pop(node_clock.FILE, None) is not None:  # the clock of the command is not that of the node, nor of its shell
        own.pop(node_clock.PRELOAD, None)
    told["variables"] = own
    process = subprocess.Popen(words, stdin=subprocess.PIPE, env=own)  # noqa: S603 - the remote shell
    assert process.stdin is not None  # noqa: S101 - for the type checker
    to_it = process.stdin.fileno()

    def forward(number: int, _frame: object) -> None:
        _write_line(to_it, {"signal": number})

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)
    _write_line(to_it, told)
    threading.Thread(target=_pass_input, args=(to_it,), daemon=True).start()
    return process.wait()


def _pass_input(to_it: int) -> None:
    """Pass on what this process is given, in pieces that a pipe takes whole: a signal may come between two."""
    while new := os.read(0, _PIECE_BYTES):
        _write_line(to_it, {"input": base64.b64encode(new).decode()})
    _write_line(to_it, {"input": ""})


def _write_line(file: int, told: dict[str, Any]) -> None:
    text = json.dumps(told).encode() + b"\n"
    with contextlib.suppress(OSError):  # the end of the remote shell says more
        while text:
            text = text[os.write(file, text) :]


def run(directory: Path, parts: Sequence[str]) -> int:
    """Run the command that a line describes; later lines are its input and signals, and with their end it is killed.

    Args:
        directory: that of the agent.
        parts: those of its node that the trial damages.
    """
    lines = lines_of(0)
    told = json.loads(next(lines, b"null"))
    if told is None:
        return _NO_COMMAND
    own = {name: value for name, value in os.environ.items() if name.startswith(_OF_NODE)}
    given = {name: value for name, value in told["variables"].items() if not name.startswith(_OF_NODE)}
    temporary = tempfile.mkdtemp(prefix="t", dir=directory)
    variables = {**os.environ, **given, **own, "TMPDIR": temporary, NODE: os.fspath(directory)}
    if "clock" in parts:
        variables.update(node_clock.variables_of(directory))
    asking = json.loads((directory / ASKED).read_text()) if "writes" in parts else []
    try:
        if "network" in parts:
            node_network.join(directory)
        process = subprocess.Popen(  # noqa: S603 - the command of the stack
            [*asking, *told["command"]],
            cwd=told["directory"],
            env=variables,
            stdin=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_end_with_parent,  # noqa: PLW1509 - the other threads of this process begin later
        )
    except OSError as error:
        sys.stderr.write(f"{socket.gethostname()}: {error}\n")
        return _NO_COMMAND
    inputs: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_give, args=(inputs, process), daemon=True).start()
    threading.Thread(target=_obey, args=(lines, inputs, process), daemon=True).start()
    status = process.wait()
    shutil.rmtree(temporary, ignore_errors=True)
    return status


def _end_with_parent() -> None:
    """Let the kernel kill this process with the one that has started it, by `prctl(2)`."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _obey(lines: Iterator[bytes], inputs: queue.Queue[bytes], process: subprocess.Popen[bytes]) -> None:
    for line in lines:
        told = json.loads(line)
        if "signal" in told:
            process.send_signal(told["signal"])
        else:
            inputs.put(base64.b64decode(told["input"]))
    process.kill()


def _give(inputs: queue.Queue[bytes], process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None  # noqa: S101 - for the type checker
    with contextlib.suppress(OSError):  # it reads no more
        while new := inputs.get():
            process.stdin.write(new)
            process.stdin.flush()
        process.stdin.close()


def _leave(status: int) -> None:
    """End as a command did: by its signal, where one has ended it."""
    number = -status if status < 0 else status - 128 if 128 < status <= 192 else 0
    if number:
        with contextlib.suppress(OSError):  # of SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(status)


def main(arguments: Sequence[str]) -> None:
    """Run a command, here for another node or there, or carry packets there."""
    directory = Path(__file__).parents[1]
    if arguments[:1] == ["enter"]:
        _leave(enter(json.loads(arguments[1]), arguments[2:]))
    elif arguments[:1] == ["run"]:
        status = run(directory, arguments[1:])
        sys.exit(128 - status if status < 0 else status)
    elif arguments[:1] == ["link"]:
        node_network.carry(directory, *arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
