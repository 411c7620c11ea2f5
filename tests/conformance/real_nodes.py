"""Nodes behind a real sshd and a real Slurm, started on this machine for the time of a test."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

SECONDS = 60
SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey {directory}/host-key
AuthorizedKeysFile {directory}/key.pub
PidFile none
StrictModes no
UsePAM no
"""
SSH_CONFIG = """\
Host *
  IdentityFile {directory}/key
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""
SLURM_CONFIG = """\
ClusterName=trial
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/linear
SchedulerType=sched/builtin
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def until(holds: Callable[[], object], words: str, seconds: float = SECONDS) -> None:
    """Wait for what is ample to come about."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, words
        time.sleep(0.02)


def require(*programs: str) -> None:
    """Skip the test where a program is not installed."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    if missing := [one for one in programs if shutil.which(one, path=path) is None]:
        pytest.skip(f"not installed: {', '.join(missing)}")


def free_ports(number: int) -> list[int]:
    """Ports of the loopback interface that are free."""
    with ExitStack() as held:
        found = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def call(*words: str, variables: Mapping[str, str] | None = None) -> str:
    """Run a program of this machine, and give what it prints."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    all_variables = {**os.environ, "PATH": path, **(variables or {})}
    done = subprocess.run(words, env=all_variables, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return done.stdout + done.stderr


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program that stays in the foreground, until the end of the block."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    program = shutil.which(words[0], path=path) or words[0]
    process = subprocess.Popen([program, *words[1:]], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(SECONDS)


# --- ssh ----------------------------------------------------------------------------------------------------


@contextmanager
def ssh_nodes(directory: Path) -> Iterator[tuple[str, str]]:
    """Two nodes, `n1` and `n2`, with the variable PATH for a program `ssh` that knows them.

    Each has a network of its own where this process may make one, and else a port of its own.
    """
    require("sshd", "ssh", "ssh-keygen")
    for name in ("key", "host-key"):
        call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{directory}/{name}")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with ExitStack() as made:
        places = _networks(made) or [("127.0.0.1", port, ()) for port in free_ports(2)]
        config = SSH_CONFIG.format(directory=directory)
        for number, (address, port, enter) in enumerate(places, start=1):
            file = directory / f"sshd-{number}"
            file.write_text(SSHD_CONFIG.format(port=port, address=address, directory=directory))
            sshd = shutil.which("sshd", path="/usr/sbin:/sbin") or "sshd"
            made.enter_context(running(*enter, sshd, "-D", "-e", "-f", str(file)))
            config += f"Host n{number}\n  HostName {address}\n  Port {port}\n  User {getpass.getuser()}\n"
        (directory / "ssh-config").write_text(config)
        folder = directory / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {directory}/ssh-config "$@"\n')
        (folder / "ssh").chmod(0o755)
        for address, port, _ in places:
            until(lambda to=(address, port): _listens(*to), "sshd does not listen")
        yield f"{folder}:{os.environ['PATH']}", "n[1-2]"


def _networks(made: ExitStack) -> list[tuple[str, int, tuple[str, ...]]]:
    """Address, port and words to enter of two networks behind a bridge; none where that is not allowed."""
    bridge, subnet = f"ts{os.getpid()}", f"10.78.{os.getpid() % 256}"
    try:
        require("ip", "unshare", "nsenter")
        call("ip", "link", "add", bridge, "type", "bridge")
    except (AssertionError, pytest.skip.Exception):
        return []
    made.callback(call, "ip", "link", "del", bridge)
    call("ip", "address", "add", f"{subnet}.1/24", "dev", bridge)
    call("ip", "link", "set", bridge, "up")
    places, own = [], Path("/proc/self/ns/net").stat().st_ino
    for number in (2, 3):
        holder = made.enter_context(running("unshare", "--net", "sleep", "3600"))
        until(lambda pid=holder.pid: Path(f"/proc/{pid}/ns/net").stat().st_ino != own, "there is no network")
        enter = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        pair, netns = f"{bridge}v{number}", str(holder.pid)
        call("ip", "link", "add", pair, "type", "veth", "peer", "name", "eth0", "netns", netns)
        call("ip", "link", "set", pair, "master", bridge, "up")
        call(*enter, "ip", "address", "add", f"{subnet}.{number}/24", "dev", "eth0")
        for name in ("lo", "eth0"):
            call(*enter, "ip", "link", "set", name, "up")
        places.append((f"{subnet}.{number}", 22, enter))
    return places


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=1).close()
    except OSError:
        return False
    return True


# --- Slurm --------------------------------------------------------------------------------------------------


@contextmanager
def slurm_nodes(directory: Path) -> Iterator[tuple[dict[str, str], str]]:
    """An allocation of two nodes of a cluster, with the variables by which its programs find it."""
    require("munged", "slurmctld", "slurmd", "srun", "salloc")
    if os.geteuid():
        pytest.skip("slurmd runs as root alone")
    host = socket.gethostname()
    for name in ("state", "spool-n1", "spool-n2"):
        (directory / name).mkdir()
    config, key = directory / "slurm.conf", directory / "munge.key"
    ports = free_ports(3)
    config.write_text(SLURM_CONFIG.format(host=host, ports=ports, user=getpass.getuser(), directory=directory))
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    munge = [f"--{name}={directory}/munge.{name.partition('-')[0]}" for name in ("socket", "pid-file", "log-file")]
    words = ("munged", "--foreground", "--force", f"--key-file={key}", f"--seed-file={directory}/munge.seed", *munge)
    variables = {"SLURM_CONF": str(config)}
    with ExitStack() as made:
        made.enter_context(running(*words))
        until((directory / "munge.socket").exists, "munged has not begun")
        made.enter_context(running("slurmctld", "-D", "-i", "-f", str(config)))
        for name in ("n1", "n2"):
            made.enter_context(running("slurmd", "-D", "-N", name, "-f", str(config)))
        until(lambda: _num_idle(variables) == 2, "the nodes are not idle")
        told = call("salloc", "--nodes=2", "--no-shell", variables=variables)
        job = told.partition("job allocation ")[2].split()[0]
        made.callback(call, "scancel", job, variables=variables)
        yield {**variables, "SLURM_JOB_ID": job}, "n[1-2]"


def _num_idle(variables: Mapping[str, str]) -> int:
    words = ["sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(words, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    return done.stdout.split().count("idle")
