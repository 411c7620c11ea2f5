"""Real servers of nodes on this machine, for tests of what reaches nodes: OpenSSH, and Slurm with MUNGE.

Each node of OpenSSH is a server of its own on loopback, with its own host key; each node of Slurm is a `slurmd` of its
own. Both end with the block in which they run, together with all that they started. A test is skipped where the servers
are not installed, or do not start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_PROGRAMS = "/usr/sbin:/usr/bin:/sbin:/bin"
_LONGEST_SECONDS = 60.0
"""For a server to answer; a test that waits longer is skipped, with the reason."""

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host-{node}
AuthorizedKeysFile {folder}/key.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
_SSH = """\
Host {node}
  HostName 127.0.0.1
  Port {port}
  HostKeyAlias {node}
"""
_SSH_OF_ALL = """\
Host *
  IdentityFile {folder}/key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  LogLevel ERROR
"""
_SLURM = """\
ClusterName=trial
SlurmctldHost=localhost
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
SlurmUser=root
StateSaveLocation={folder}/state
SwitchType=switch/none
TaskPlugin=task/none
SelectType=select/cons_tres
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_SLURM_NODE = "NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN"


@dataclass(frozen=True, slots=True)
class Servers:
    """The servers of nodes that run."""

    folder: Path
    """Holds their settings and keys; nothing is written elsewhere."""
    environment: Mapping[str, str]
    """What a program needs that is to reach them: `PATH` for OpenSSH, `SLURM_CONF` for Slurm."""
    ports: Mapping[str, int]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    """By name of the node, and of the server where it is for all nodes."""

    def kill(self, node: str) -> None:
        """End the server of a node as a machine that fails does, with all that runs below it."""
        _kill_all(self.processes[node])

    def sessions(self, node: str) -> list[int]:
        """Processes of sshd that serve a connection; where they are killed, what runs in them stays."""
        names = ((pid, Path(f"/proc/{pid}/comm")) for pid in below(self.processes[node].pid))
        return [pid for pid, name in names if name.exists() and name.read_text().startswith("sshd")]

    def pause(self, node: str) -> None:
        """Let the server of a node accept connections, and answer nothing."""
        self.processes[node].send_signal(signal.SIGSTOP)


def wait_until(condition: Callable[[], bool], *, seconds: float = _LONGEST_SECONDS) -> bool:
    """Whether a condition holds before the time has passed."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they started, parents first."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):
                words = (place / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(words[1]), []).append(int(place.name))
    found, pending = [], [pid]
    while pending:
        more = children.get(pending.pop(), [])
        found += more
        pending += more
    return found


@contextlib.contextmanager
def ssh_nodes(folder: Path, nodes: Sequence[str], environments: Mapping[str, Mapping[str, str]]) -> Iterator[Servers]:
    """One OpenSSH server for each node. A program `ssh` that knows them is in `folder/bin`, the first of its PATH.

    The server of a node sets the variables that `environments` has for it in each session.
    """
    _require(("sshd", "ssh", "ssh-keygen"))
    ssh = shutil.which("ssh", path=_PROGRAMS)
    folder.mkdir(parents=True, exist_ok=True)
    if not os.geteuid():
        Path("/run/sshd").mkdir(exist_ok=True)  # sshd refuses to start without it
    for name in ("key", *(f"host-{node}" for node in nodes)):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    ports = dict(zip(nodes, _free_ports(len(nodes)), strict=True))
    known = [f"{node} {(folder / f'host-{node}.pub').read_text()}" for node in nodes]
    (folder / "known_hosts").write_text("".join(known))
    hosts = "".join(_SSH.format(node=node, port=port) for node, port in ports.items())
    (folder / "ssh.conf").write_text(hosts + _SSH_OF_ALL.format(folder=folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {ssh} -F {folder}/ssh.conf "$@"\n')
    (folder / "bin" / "ssh").chmod(0o755)
    servers = Servers(folder, {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}, ports)
    with contextlib.ExitStack() as running:
        for node, port in ports.items():
            variables = " ".join(f'"{name}={value}"' for name, value in environments.get(node, {}).items())
            settings = _SSHD.format(folder=folder, node=node, port=port) + (
                f"SetEnv {variables}\n" if variables else ""
            )
            (folder / f"sshd-{node}.conf").write_text(settings)
            _start(servers, running, node, ["sshd", "-D", "-e", "-f", str(folder / f"sshd-{node}.conf")])
        for port in ports.values():
            if not wait_until(lambda port=port: _answers(port)):  # type: ignore[misc]
                pytest.skip(f"sshd does not start here: {_log(servers)}")
        yield servers


@contextlib.contextmanager
def slurm_nodes(folder: Path, nodes: Sequence[str], environments: Mapping[str, Mapping[str, str]]) -> Iterator[Servers]:
    """A Slurm controller with one slurmd for each node, all on this machine, and a MUNGE of their own.

    `environments` has the variables of the server of each node. A job has those of the program that starts it.
    """
    _require(("slurmd", "srun"))
    ports = dict(zip(nodes, _free_ports(len(nodes)), strict=True))
    lines = [_SLURM_NODE.format(node=node, port=number) for node, number in ports.items()]
    with contextlib.ExitStack() as running:
        servers = running.enter_context(slurm_controller(folder, "\n".join(lines), ports))
        for node in nodes:
            _start(servers, running, node, ["slurmd", "-D", "-N", node], environments.get(node, {}))
        if not wait_until(lambda: _num_idle(servers) == len(nodes)):
            pytest.skip(f"Slurm does not start here: {_log(servers)}")
        yield servers


@contextlib.contextmanager
def slurm_controller(folder: Path, nodes: str, ports: Mapping[str, int]) -> Iterator[Servers]:
    """A Slurm controller that knows nodes by their lines of slurm.conf, with a MUNGE of its own."""
    _require(("munged", "slurmctld", "sinfo"))
    if os.geteuid():
        pytest.skip("Slurm is started by the superuser alone here")
    (folder / "state").mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (port,) = _free_ports(1)
    (folder / "slurm.conf").write_text(_SLURM.format(folder=folder, port=port, nodes=nodes))
    servers = Servers(folder, {"SLURM_CONF": str(folder / "slurm.conf")}, ports)
    own = {
        option: f"{folder}/munge.{name}"
        for option, name in (("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
    }
    munged = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
    with contextlib.ExitStack() as running:
        _start(servers, running, "munged", [*munged, *(f"--{option}={path}" for option, path in own.items())])
        wait_until(Path(own["socket"]).exists)
        _start(servers, running, "slurmctld", ["slurmctld", "-D"])
        if not wait_until(lambda: bool(_told(servers, "--noheader"))):
            pytest.skip(f"Slurm does not start here: {_log(servers)}")
        yield servers


def _require(programs: Sequence[str]) -> None:
    absent = [name for name in programs if shutil.which(name, path=_PROGRAMS) is None]
    if absent:
        pytest.skip(f"not installed: {', '.join(absent)}")


def _free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _start(
    servers: Servers,
    running: contextlib.ExitStack,
    name: str,
    words: Sequence[str],
    variables: Mapping[str, str] | None = None,
) -> None:
    program = str(shutil.which(words[0], path=_PROGRAMS))
    log = running.enter_context((servers.folder / "servers.log").open("ab"))
    process = subprocess.Popen(
        [program, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        env={**os.environ, **servers.environment, **(variables or {})},
    )
    servers.processes[name] = process
    running.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a server as it wants to be ended, and then what is left of it: a session of sshd outlives its server."""
    others = below(process.pid)
    for number in (signal.SIGTERM, signal.SIGCONT):
        process.send_signal(number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    _kill(others)
    _kill_all(process)


def _kill(pids: Sequence[int]) -> None:
    for pid in reversed(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _kill_all(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)  # it starts no more
        _kill([process.pid, *below(process.pid)])
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _num_idle(servers: Servers) -> int:
    return len(_told(servers, "--noheader", "--Node", "--states=idle", "--format=%N").split())


def _told(servers: Servers, *options: str) -> str:
    environment = {**os.environ, **servers.environment}
    return subprocess.run(["sinfo", *options], capture_output=True, text=True, check=False, env=environment).stdout


def _log(servers: Servers) -> str:
    return (servers.folder / "servers.log").read_text(errors="replace")[-500:]
