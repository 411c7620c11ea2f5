"""`trainspec-record` on damaged input: files of plans, streams of earlier attempts, files of the kernel, probes."""

from __future__ import annotations

import io
import json
import logging
import os
import random
import re
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from subprocess import CompletedProcess, SubprocessError
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import click
import msgspec

import trainspec_record
from tests.fuzz.mutate import ODD
from tests.fuzz.seeds import ROOT, Files
from tests.fuzz.standing import standing_for_a_process
from tests.record import launch_jobs
from trainspec_record import command, guard
from trainspec_record.clock import Clock
from trainspec_record.identity import identity
from trainspec_record.launch import exported
from trainspec_record.launch.child import NOT_EXECUTABLE, NOT_FOUND
from trainspec_record.node import clock_offset, sampler
from trainspec_record.node.probe import SIZE_BYTES, Probe
from trainspec_validate.cli import terminal
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.documents.types.stream import Head, StreamRecord

_PLACE: Final = {"TRAINSPEC_HOST": "node-1", "TRAINSPEC_NODE_SAMPLER": "none"}
_OURS = re.compile(r"recorded nothing: (?!(\w*Exists|\w*NotFound|IsA\w*|NotA\w*|Permission|OS)Error)")
_NUM_STEPS = 3
_PORT = "sys/class/infiniband/mlx5_0/ports/1/counters"
_ZONE, _CARD = "sys/class/powercap/intel-rapl:0", "sys/class/drm/card0/device"


# --- a launcher ---------------------------------------------------------------------------------------------


@cache
def plans() -> tuple[Files, ...]:
    """What `trainspec export` wrote of a plan, with a key, and the documents themselves."""
    with tempfile.TemporaryDirectory() as directory:
        place = launch_jobs.exported(Path(directory), 2)
        written = {path.name: path.read_bytes() for path in place.iterdir()}
    base = {path.name: path.read_bytes() for path in sorted((ROOT / "spec/v1/base").glob("*.yaml"))}
    return ({**written, "key": b"0123456789abcdef0123456789abcdef\n"}, base)


@click.command()
@click.argument("told")
def launched(told: str) -> None:
    """Run `trainspec-record` with words in an environment, both in JSON."""
    words, environment = json.loads(told)
    here = SimpleNamespace(run=_export, SubprocessError=SubprocessError)
    known = {"PATH": "/nowhere", **environment}
    with patch.dict(os.environ, known, clear=True), patch.object(exported, "subprocess", here):
        try:
            code = command.main(words)
        except SystemExit as error:  # of the parser of the command line
            code = int(error.code or 0)
    click.get_current_context().exit(1 if code in {NOT_EXECUTABLE, NOT_FOUND} else code)


def _export(words: list[str], **_: Any) -> CompletedProcess[str]:
    out, err = io.BytesIO(), io.BytesIO()
    code = standing_for_a_process(toolbox, words[1:], out, err)
    return CompletedProcess(words, code, out.getvalue().decode(), err.getvalue().decode(errors="replace"))


def launches(files: Files, dice: random.Random) -> list[str]:
    """Words for a launcher that starts nothing, or `true`, with sound and odd ones."""
    if "torchrun.sh" in files:
        documents = ["--exported", "tree", *dice.choice(([], ["--redact", "tree/key"]))]
    else:
        documents = ["--plan", "tree/plan.yaml", "--cluster", "tree/cluster.yaml"]
    started = dice.choice(("torchrun train.py", "srun -N 2 torchrun train.py", "mpirun -np 16 python train.py"))
    words = ["launch", *documents, *dice.choice((["--run", "out/r"], ["--run", "out/"], [])), "--dry-run", "--"]
    words += started.split() if dice.random() < 0.9 else ["torchrun", f"--nnodes={_odd(dice)}", "train.py"]
    if dice.random() < 0.1:
        words[dice.randrange(len(words))] = _odd(dice)
    if dice.random() < 0.1:
        words = ["launch", "--exported", "tree", "--run", "out/r", "--", "/bin/true"]
    known = {"NODE_RANK": "0", "MASTER_ADDR": "node-1", "TORCHELASTIC_RUN_ID": "mine"}
    names = ("RANK", "WORLD_SIZE", "SLURM_NTASKS", "TRAINSPEC_RUN", "TRAINSPEC_HOST", "NODE_RANK", "XLA_FLAGS")
    odd = {dice.choice(names): _odd(dice)} if dice.random() < 0.4 else {}
    return [json.dumps([words, {**known, **odd}])]


def _odd(dice: random.Random) -> str:
    return dice.choice(ODD).replace(b"\0", b"")[:300].decode("utf-8", "surrogateescape")


# --- a run that continues -----------------------------------------------------------------------------------


@cache
def attempts() -> tuple[Files, ...]:
    """A run of two attempts, the second of which has ended without a word or by an error."""
    found = []
    for last in (RuntimeError, None):
        with tempfile.TemporaryDirectory() as directory, _recording(Path(directory)):
            for error in (RuntimeError, last):
                with suppress(RuntimeError):
                    _train(12, error)
            found.append({path.name: path.read_bytes() for path in sorted(Path(directory).iterdir())})
    whole = found[1]
    cut = {name: text[: text.rindex(b"\n", 0, len(text) * 3 // 4) + 20] for name, text in whole.items()}
    return (found[0], cut, cut)


@contextmanager
def _recording(folder: Path, **environment: str) -> Iterator[None]:
    """Record into a folder; what the recorder does to this process is taken back."""
    told = {**_PLACE, "TRAINSPEC_RUN": str(folder), **environment}
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with patch.dict(os.environ, told, clear=True), patch.object(guard, "_told", set()):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _train(num_steps: int, error: type[Exception] | None = None) -> None:
    with trainspec_record.run(flops_per_token=1.0, peak_flops=1e9) as run:
        with run.restore("step-2", 2):
            pass
        for number in range(2, 2 + num_steps):
            with run.step(number):
                run.log(samples=4, tokens=64, loss=2.0 + 1 / (number + 1), learning_rate=1e-3, gradient_norm=1.0)
            if number % 3 == 2:
                with run.checkpoint():
                    pass
        if error:
            raise error


class _Messages(logging.Handler):
    """Keeps the warnings of the recorder."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one."""
        self.found.append(record.getMessage())


@contextmanager
def _no_mistake() -> Iterator[_Messages]:
    """Raise what the recorder keeps from a training program as its own mistake; print the rest."""
    messages = _Messages()
    guard.LOGGER.addHandler(messages)
    try:
        yield messages
    finally:
        guard.LOGGER.removeHandler(messages)
    for message in messages.found:
        terminal.tell(message)
        assert not _OURS.search(message), message


@click.command()
@click.argument("environment")
def continued(environment: str) -> None:
    """Train some steps of the run in `tree`, whose earlier attempts are damaged; what is written is read again."""
    tree = Path("tree")
    before = {path: path.read_bytes() for path in tree.iterdir() if _is_plain(path)}
    with _recording(tree, **json.loads(environment)), _no_mistake():
        _train(_NUM_STEPS)
    for path in tree.iterdir():
        if _is_plain(path):
            _assert_records(path, before.get(path))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _assert_records(path: Path, before: bytes | None) -> None:
    """What the recorder wrote into a file are whole records, and nothing that was whole has gone."""
    content = path.read_bytes()
    if content == before:
        return
    kept = before[: before.rfind(b"\n") + 1] if before else b""
    assert content.startswith(kept), f"{path.name}: whole lines have changed"
    added = content[len(kept) :]
    assert not added or added.endswith(b"\n"), f"{path.name} ends with half a line"
    for line in added.splitlines():
        assert len(line) < 1_000_000
        msgspec.json.decode(line, type=Head if b'"head"' in line[:12] else StreamRecord)


def environments(_files: Files, dice: random.Random) -> list[str]:
    """Variables by which a launcher places a process in its run."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TRAINSPEC_ATTEMPT", "TORCHELASTIC_RESTART_COUNT", "TRAINSPEC_HOST")
    found: dict[str, str] = {}
    if dice.random() < 0.3:
        found[dice.choice(names)] = _odd(dice) if dice.random() < 0.7 else "1"
    return [json.dumps(found)]


# --- a node -------------------------------------------------------------------------------------------------


@cache
def hosts() -> tuple[Files, ...]:
    """Files of a kernel, and the answer of chrony."""
    told = {
        "proc/meminfo": "MemTotal:  1000 kB\nMemFree:  400 kB\nBuffers:  50 kB\nCached:  200 kB\n",
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
        "proc/stat": "cpu 1 2 3\nbtime 1760000000\n",
        **{f"{_PORT}/{name}": "10\n" for name in ("port_rcv_data", "port_xmit_data", "symbol_error", "link_downed")},
        **{f"sys/class/net/eth0/statistics/{name}": "7\n" for name in ("rx_bytes", "tx_bytes", "rx_crc_errors")},
        "sys/class/net/eth0/type": "1\n",
        **{f"{_ZONE}/{name}": text for name, text in (("name", "package-0\n"), ("energy_uj", "900\n"))},
        f"{_ZONE}/max_energy_range_uj": "1000\n",
        "sys/class/hwmon/hwmon3/name": "power_meter\n",
        "sys/class/hwmon/hwmon3/power1_average": "450000000\n",
        **{f"{_CARD}/{name}": text for name, text in (("vendor", "0x1002\n"), ("unique_id", "a1b2c3\n"))},
        **{f"{_CARD}/mem_info_vram_{name}": "1000\n" for name in ("used", "total")},
        f"{_CARD}/gpu_busy_percent": "97\n",
        f"{_CARD}/hwmon/hwmon1/power1_average": "750000000\n",
        f"{_CARD}/hwmon/hwmon1/energy1_input": "123\n",
        f"{_CARD}/hwmon/hwmon1/temp2_label": "junction\n",
        f"{_CARD}/hwmon/hwmon1/temp2_input": "61000\n",
        f"{_CARD}/ras/umc_err_count": "ue: 1\nce: 2\n",
        "chrony": "A29FC87B,node-9,3,1760000000.1,-0.000012,0.00001,0.00002,1.0,0.0,0.01,0.02,0.001,64.0,Normal\n",
    }
    files = {name: text.encode() for name, text in told.items()}
    without_cards = {name: text for name, text in files.items() if "infiniband" not in name}
    return (files, without_cards)


@click.command()
@click.argument("environment")
def sampled(environment: str) -> None:
    """Sample the node that `tree` describes twice; what is written is read again."""
    root, out = Path("tree"), Path("out/r").absolute()
    told = {**_PLACE, "TRAINSPEC_RUN": str(out), **json.loads(environment)}
    with suppress(ValueError), patch.object(guard, "_told", set()), _no_mistake():
        who = identity(told)
        assert who is not None
        chrony = (root / "chrony").read_bytes().decode("utf-8", "replace") if _is_plain(root / "chrony") else None
        with patch.object(clock_offset, "chrony_answer", lambda: chrony):
            found = sampler.Sampler(who, Clock(), lambda: _sources(who, told, root), root)
            stream = guard.never_raises(None)(found.open)()
            found.sample()
            found.sample()
        if stream is not None:
            stream.drain()
            stream.close()
            _assert_records(stream.path, None)


def _sources(who: Any, told: dict[str, str], root: Path) -> list[Any]:
    found = sampler.sources_of(who, told, root)
    source = guard.never_raises(None)(clock_offset.clock_source)(clock_offset.chrony_answer)
    return [*found, *([source] if source is not None else [])]


# --- probes -------------------------------------------------------------------------------------------------


@cache
def messages() -> tuple[Files, ...]:
    """Probes of other nodes of a run, and an answer that nobody asked for."""
    with _probe() as (probe, _):
        known = b"P" + probe._secret + b"12345678"
    asked, answered = known.ljust(SIZE_BYTES, b"\0"), (b"A" + known[1:]).ljust(SIZE_BYTES, b"\0")
    return ({"1": asked, "2": asked, "3": answered}, {"1": answered, "2": asked})


@contextmanager
def _probe() -> Iterator[tuple[Probe, socket.socket]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", 0))
        other.settimeout(0)
        probe = Probe("mine", "node-1", "node-2", other.getsockname(), 0)
        with probe._socket:
            yield probe, other


@click.command()
def probed() -> None:
    """Send each file of `tree` to the port on which a node answers the probes of others."""
    with _no_mistake(), patch.object(guard, "_told", set()), _probe() as (probe, other):
        probe._send()
        for path in sorted(path for path in Path("tree").rglob("*") if _is_plain(path)):
            content = path.read_bytes()[:60_000]
            other.sendto(content, ("127.0.0.1", probe.port))
            probe._receive()
        answers = list(_received(other))
        assert all(len(answer) == SIZE_BYTES and answer[1:17] == probe._secret for answer in answers)
        assert all(value >= 0 for value in probe.window())


def _received(other: socket.socket) -> Iterator[bytes]:
    with suppress(BlockingIOError):
        while True:
            yield other.recv(65_536)
