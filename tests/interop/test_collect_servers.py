"""`trainspec accept --over` with real servers of nodes, OpenSSH and Slurm, and with what kubectl says of pods."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.interop.test_collect import PORT, PROFILE, printing, program
from tests.node_servers import Servers, slurm_nodes, ssh_nodes, wait_until
from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop import collect

NODES = ["node-0", "node-1"]
SLOW = "slow.txt=echo $$ > FOLDER/pid && mv FOLDER/pid FOLDER/started && exec sleep 300"
"""A tool that says which process it is, and takes longer than any test."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "cluster.yaml").write_text(PROFILE)
    for node, rate in zip(NODES, (400, 200), strict=True):
        program(tmp_path / "tools" / node / "ibstat", printing(PORT.format(rate=rate)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    environments = {node: {"PATH": f"{folder}/tools/{node}:/usr/bin:/bin", "TMPDIR": f"{folder}/tmp"} for node in NODES}
    with ssh_nodes(folder / "servers", NODES, environments) as servers:
        monkeypatch.setenv("PATH", servers.environment["PATH"])
        yield servers


@pytest.fixture
def slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    with slurm_nodes(folder / "servers", NODES, {}) as servers:
        for name, value in servers.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("PATH", f"{folder / 'tools' / 'node-1'}:{os.environ['PATH']}")
        monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
        yield servers


def run(way: str, *words: str, nodes: str = "node-0") -> Result:
    """One call of the command."""
    options = ["--over", way, "--node", nodes, "--into", "gathered", "--format", "concise", *words]
    return CliRunner().invoke(command, ["accept", "cluster.yaml", *options])


def started(folder: Path, way: str, *words: str) -> subprocess.Popen[bytes]:
    """A call in a process of its own, whose slow tool runs on the node."""
    program_of_python = [sys.executable, "-c", "from trainspec_validate.cli.toolbox import main; main()"]
    options = ["--over", way, "--node", "node-0", "--into", "gathered", "--also", SLOW.replace("FOLDER", str(folder))]
    process = subprocess.Popen(
        [*program_of_python, "accept", "cluster.yaml", *options, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert wait_until((folder / "started").exists), process.poll()
    return process


def is_clean(folder: Path) -> bool:
    """Whether neither a file nor the tool of a node is left, after a while."""
    pid = int((folder / "started").read_text())
    return wait_until(lambda: not list((folder / "tmp").iterdir()) and not _runs(pid), seconds=30)


def _runs(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_servers_of_ssh_answer(folder: Path, server: Servers) -> None:
    done = run("ssh", nodes="node-[0-1]")
    assert sorted(server.ports) == NODES
    for node, rate in zip(NODES, (400, 200), strict=True):
        assert (folder / "gathered" / node / "ibstat.txt").read_text() == PORT.format(rate=rate), done.output
    assert "node-1/mlx5_0: 25 GB/s, declared are 50 GB/s" in done.output
    assert not list((folder / "tmp").iterdir())


def test_tools_for_administrators_are_found(folder: Path, server: Servers) -> None:
    """The path of a session of ssh has no directory of tools such as ibstat."""
    if not Path("/usr/sbin/chroot").exists():
        pytest.skip("no tool is in /usr/sbin")
    tools = [collect.Tool("version.txt", "chroot --version")]
    (answer,) = collect.collect(["node-0"], "ssh", folder / "gathered", tools)
    assert sorted(server.ports) == NODES
    assert answer.num_files == 1


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ("", "Host key verification"),
        ("node-1", "Host key for node-0 has changed and you have requested strict checking.; Host key verification"),
    ],
    ids=["unknown", "changed"],
)
def test_a_host_key_is_never_taken_unseen(server: Servers, known: str, reason: str) -> None:
    """No question is asked either, as nobody answers it."""
    keys = server.folder / "known_hosts"
    lines = [line.split(" ", 1) for line in keys.read_text().splitlines()]
    keys.write_text("".join(f"node-0 {key}\n" for name, key in lines if name == known))
    assert f"node-0: did not answer: {reason} failed. (exit 255)" in run("ssh").output


def test_a_key_that_a_server_refuses_is_named(server: Servers) -> None:
    (server.folder / "key.pub").write_text("")
    assert "Permission denied (publickey). (exit 255)" in run("ssh").output


@pytest.mark.slow
def test_a_server_of_ssh_that_is_silent_or_gone_is_named(folder: Path, server: Servers) -> None:
    server.pause("node-1")
    done = run("ssh", "--timeout", "100", nodes="node-[0-1]")
    assert "node-1: did not answer: Connection timed out during banner exchange" in done.output
    assert "node-0: did not answer" not in done.output
    server.kill("node-1")
    shutil.rmtree(folder / "gathered")
    done = run("ssh", nodes="node-[0-1]")
    assert "Connection refused (exit 255)" in done.output
    assert done.output.count("did not answer: no file of it can be read") == 1


@pytest.mark.slow
def test_an_answer_that_takes_most_of_the_room_is_whole(folder: Path, server: Servers) -> None:
    asked = [word for n in range(4) for word in ("--also", f"text-{n}.txt=yes {n} | head -c 7600000")]
    done = run("ssh", *asked)
    sizes = [path.stat().st_size for path in sorted((folder / "gathered" / "node-0").glob("text-*"))]
    assert (sizes, sorted(server.ports)) == ([7_600_000] * 3, NODES)
    assert "node-0: text-3.txt: left out: its command printed nothing or too much" in done.output


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_where_the_command_is_ended(folder: Path, number: signal.Signals) -> None:
    process = started(folder, "ssh")
    process.send_signal(number)
    process.communicate()
    assert is_clean(folder)


@pytest.mark.usefixtures("server")
def test_nothing_is_left_where_the_time_is_over(folder: Path) -> None:
    process = started(folder, "ssh", "--timeout", "8")
    assert b"node-0: did not answer: no end after 8 s" in process.communicate()[1]
    assert is_clean(folder)


def test_nothing_is_left_where_the_connection_breaks(folder: Path, server: Servers) -> None:
    process = started(folder, "ssh")
    for one in server.sessions("node-0"):
        os.kill(one, signal.SIGKILL)
    assert b"(exit 255)" in process.communicate()[1]
    assert is_clean(folder)


@pytest.mark.slow
def test_a_step_of_slurm_prints_the_archive_alone(
    folder: Path, slurm: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings of srun that put the number of the task before each line, or print nothing; a directory not there."""
    for name, value in (("SLURM_LABELIO", "1"), ("SLURM_STDOUTMODE", "none"), ("SLURM_STDINMODE", "none")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TMPDIR", "/absent-on-this-node")
    done = run("slurm", nodes="node-[0-1]")
    assert sorted(slurm.ports) == NODES
    for node in NODES:
        assert (folder / "gathered" / node / "ibstat.txt").read_text() == PORT.format(rate=200), done.output
        assert f"{node}/mlx5_0: 25 GB/s, declared are 50 GB/s" in done.output


@pytest.mark.slow
@pytest.mark.usefixtures("slurm")
def test_nothing_is_left_of_a_step_of_slurm(folder: Path) -> None:
    process = started(folder, "slurm", "--timeout", "8")
    assert b"node-0: did not answer: no end after 8 s" in process.communicate()[1]
    assert is_clean(folder)
    (folder / "started").unlink()
    shutil.rmtree(folder / "gathered")
    process = started(folder, "slurm")
    process.kill()
    process.communicate()
    assert is_clean(folder)


@pytest.mark.slow
def test_nodes_that_slurm_does_not_give_are_named_with_its_words(folder: Path, slurm: Servers) -> None:
    environment = {**os.environ, **slurm.environment}
    drain = ["scontrol", "update", "NodeName=node-1", "State=DRAIN", "Reason=trial"]
    subprocess.run(drain, check=True, env=environment)
    done = run("slurm", "--timeout", "6", nodes="node-[0-1],node-7")
    assert (
        "node-7: did not answer: srun: error: Unable to allocate resources: Invalid node name specified" in done.output
    )
    assert (
        "node-1: did not answer: no end after 6 s; its last message: srun: Required node not available" in done.output
    )
    assert "node-0: did not answer" not in done.output
    slurm.kill("slurmctld")
    shutil.rmtree(folder / "gathered")
    assert "Unable to contact slurm controller" in run("slurm", "--timeout", "60").output


KUBECTL = """\
#!/bin/sh
# in place of kubectl exec --stdin --quiet POD -- sh -s
pod=$4; shift 5
[ "$pod" = cut ] && "$@" 2> /dev/null | head -c 700
[ -f FOLDER/$pod.message ] || exec "$@"
cat FOLDER/$pod.message >&2
exit $(cat FOLDER/$pod.status)
"""
UNSTARTED = 'exec: "sh": executable file not found in $PATH: unknown'
MESSAGES = {
    "absent": (1, 'Error from server (NotFound): pods "absent" not found'),
    "waiting": (1, 'error: unable to upgrade connection: container not found ("main")'),
    "bare": (127, f"OCI runtime exec failed: {UNSTARTED}\ncommand terminated with exit code 127"),
    "closed": (1, 'Error from server (Forbidden): pods "closed" is forbidden: User "u" cannot create "pods/exec"'),
    "killed": (137, "command terminated with exit code 137"),
    "cut": (1, "error: error reading from error stream: next reader: websocket: close 1006: unexpected EOF"),
}
"""What kubectl 1.32 says of pods in which it starts no shell, or not to its end."""


@pytest.mark.parametrize("pod", MESSAGES)
def test_pods_that_do_not_answer_are_named_with_the_words_of_kubectl(
    folder: Path, monkeypatch: pytest.MonkeyPatch, pod: str
) -> None:
    program(folder / "bin" / "kubectl", KUBECTL.replace("FOLDER", str(folder)))
    status, message = MESSAGES[pod]
    (folder / f"{pod}.message").write_text(f"{message}\n")
    (folder / f"{pod}.status").write_text(f"{status}\n")
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{folder / 'tools' / 'node-0'}:{os.environ['PATH']}")
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    done = run("kubernetes", nodes=f"pod-0,{pod}")
    assert f"{pod}: did not answer: {message.replace(chr(10), '; ')} (exit {status})\n" in done.output
    assert (folder / "gathered" / "pod-0" / "ibstat.txt").read_text() == PORT.format(rate=400)
    assert wait_until(lambda: not list((folder / "tmp").iterdir()))


def test_kubectl_without_a_cluster_is_named_with_its_words(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    (folder / "config").write_text("apiVersion: v1\nkind: Config\n")
    monkeypatch.setenv("KUBECONFIG", str(folder / "config"))
    done = run("kubernetes", nodes="pod-0")
    assert "The connection to the server localhost:8080 was refused" in done.output
