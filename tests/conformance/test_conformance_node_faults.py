"""Faults of networks, disks and clocks on nodes: they arrive there, are undone, and lead to the right verdicts."""

from __future__ import annotations

import ast
import base64
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import failed
from node_runs import kill, leaves_nothing, placed, run, shell, words
from real_nodes import until
from trainspec_conformance import agent
from trainspec_conformance import nodes as of_nodes
from trainspec_conformance.clocks import Clocks
from trainspec_conformance.host_faults import COMMAND
from trainspec_conformance.links import Links
from trainspec_conformance.nodes import Nodes
from trainspec_conformance.privileges import NotAllowedError
from trainspec_conformance.processes import new_mark
from trainspec_conformance.suite import ScenarioResult

from trainspec_validate.documents.types.conformance import StackDescriptor

SECONDS = 60
FAULTS: Mapping[str, tuple[tuple[str, ...], str, str]] = {
    "blackhole": (("sockets",), "no-recovery", "completes"),
    "late-packets": (("sockets",), "false-alarm", "tells-no-fault"),
    "disk-full": (("shards",), "claim", "save-fails-openly"),
    "write-error": (("shards",), "claim", "save-fails-openly"),
    "device-error": (("shards",), "claim", "save-fails-openly"),
    "clock-jump": ((), "dated", "tells-no-fault"),
}
"""By scenario: how the stack works so that it is met, a lie, and the check that sees the lie."""


def able(*more: str) -> StackDescriptor:
    """The stack of one page with all capabilities that these scenarios need."""
    stack = placed(*more)
    return msgspec.structs.replace(stack, capabilities=(*stack.capabilities, "save-stages", "stream"))


def judge(nodes: Nodes, out: Path, name: str, *more: str) -> ScenarioResult:
    """One trial of the stack; a machine that does not allow the fault ends the test."""
    steps = 80 if name == "clock-jump" else 24
    result = run(nodes, out, able(*more), name, "durations-hold", num_steps=steps)
    if result.state == "unsupported":
        pytest.skip(result.reason)
    return result


# --- what the modules of the agent need ---------------------------------------------------------------------


@pytest.mark.parametrize("name", of_nodes.SENT)
def test_modules_for_nodes_need_python_3_8_and_each_other(name: str) -> None:
    text = Path(of_nodes.__file__).with_name(name).read_text(encoding="utf-8")
    tree = ast.parse(text, feature_version=(3, 8))
    found = [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    modules = {alias.name for one in found if isinstance(one, ast.Import) for alias in one.names}
    for one in found:
        if isinstance(one, ast.ImportFrom) and one.module == agent.PACKAGE:
            modules |= {f"{agent.PACKAGE}.{alias.name}" for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            modules.add(str(one.module))
    own = {f"{agent.PACKAGE}.{one.removesuffix('.py')}" for one in of_nodes.SENT}
    assert {one for one in modules if one.partition(".")[0] not in sys.stdlib_module_names} <= own


# --- networks -----------------------------------------------------------------------------------------------

ECHO = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("ready", flush=True)
    connection, _ = server.accept()
    while word := connection.recv(1 << 20):
        connection.sendall(word)
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=60) as peer:
    for line in sys.stdin:
        peer.settimeout(0.5 if line == "silent\\n" else 60)
        peer.sendall(line.encode())
        try:
            print(peer.recv(1 << 20).decode().split()[0], flush=True)
        except TimeoutError:
            print("nothing", flush=True)
"""


@contextmanager
def started(nodes: Nodes, name: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """A command in the network of a node."""
    pipe = subprocess.PIPE
    process = subprocess.Popen([*nodes[name].enter("network"), *command], stdin=pipe, stdout=pipe, text=True, bufsize=1)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def asked(process: subprocess.Popen[str], word: str) -> str:
    """Its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


@pytest.fixture
def links(nodes: Nodes) -> Iterator[Links]:
    """A network of two nodes and the command."""
    try:
        made = Links({name: nodes[name] for name in nodes.names})
    except NotAllowedError as error:
        pytest.skip(str(error))
    yield made
    made.close()


def test_a_connection_between_nodes_outlives_a_cut(nodes: Nodes, links: Links) -> None:
    one, two = (links.addresses[name] for name in ("n1", "n2"))
    with started(nodes, "n1", "python3", "-c", ECHO, one) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        with started(nodes, "n2", "python3", "-c", ASK, one) as client:
            told = [asked(client, "one")]
            assert links.wire.num_touched == 0
            links.wire.cut([one], [two])
            told.append(asked(client, "silent"))
            assert links.wire.num_touched > 0
            links.wire.mend()
            told.append(asked(client, "two"))
    assert told == ["one", "nothing", "silent"], "what was sent into the cut is sent again after it"


def test_the_command_reaches_nodes_from_the_network_of_its_machine(nodes: Nodes, links: Links) -> None:
    with started(nodes, "n1", "python3", "-c", ECHO, links.addresses["n1"]) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        command = [sys.executable, "-c", ASK, links.addresses["n1"]]
        done = subprocess.run(command, input="word\n", capture_output=True, text=True, timeout=SECONDS, check=True)
    assert done.stdout == "word\n"


def has_route(address: str) -> bool:
    """Whether a route of this machine leads to the subnet of an address."""
    target = f"{int.from_bytes(bytes(map(int, address.split('.')[:3])), 'little'):08X}"
    return target in {line.split()[1] for line in Path("/proc/net/route").read_text().splitlines()[1:]}


def test_a_network_is_gone_with_its_end(nodes: Nodes) -> None:
    try:
        made = Links({name: nodes[name] for name in nodes.names})
    except NotAllowedError as error:
        pytest.skip(str(error))
    pids = [int((Path(nodes[name].about.directory) / "network").read_text()) for name in nodes.names]
    assert has_route(made.addresses[COMMAND])
    made.close()
    assert not has_route(made.addresses[COMMAND])
    assert [agent.state(pid) for pid in pids if agent.state(pid) not in {"Z", agent.GONE}] == []


def test_a_node_that_leaves_its_network_is_seen(nodes: Nodes, links: Links) -> None:
    assert not links.is_broken
    os.kill(int((Path(nodes["n2"].about.directory) / "network").read_text()), signal.SIGKILL)
    links._links[1]._threads[0].join(SECONDS)
    assert links.is_broken


def test_a_subnet_that_a_route_leads_to_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainspec_conformance import links as module

    routes = tmp_path / "route"
    head = "Iface Destination Gateway Flags RefCnt Use Metric Mask\n"
    rows = [f"eth0 {int.from_bytes(bytes([198, 18, one, 0]), 'little'):08X} 0 1 0 0 0 00FFFFFF" for one in range(255)]
    routes.write_text(head + "eth0 00000000 0 3 0 0 0 00000000\n" + "\n".join(rows) + "\n")
    monkeypatch.setattr(module, "_ROUTES", routes)
    assert module._free_subnet() == "198.18.255"
    routes.write_text(head + "eth0 000012C6 0 1 0 0 0 0000FEFF\n")
    with pytest.raises(NotAllowedError, match="are taken by its routes"):
        module._free_subnet()


# --- writes -------------------------------------------------------------------------------------------------

WRITE = """
import os, sys
for line in sys.stdin:
    try:
        with open(line.strip(), "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        print(0, flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


def test_writes_of_a_node_fail_below_one_directory(nodes: Nodes, tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    try:
        nodes.call("watch_writes", directory=str(store))
    except NotAllowedError as error:
        pytest.skip(str(error))
    mark = new_mark()
    command = [*nodes["n1"].enter("writes"), "python3", "-c", WRITE]
    variables = {**os.environ, agent.MARK: mark}
    process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        found = [asked(process, str(store / "one"))]
        pids = [pid for pid, name in nodes["n1"].call("marked", mark=mark) if name.startswith("python3")]
        assert (len(nodes["n1"].call("ask", pids=pids)) > 0, nodes["n2"].call("ask", pids=pids)) == (True, [])
        nodes["n1"].call("fail_writes", number=errno.ENOSPC)
        found += [asked(process, str(path)) for path in (store / "two", tmp_path / "other")]
        nodes["n1"].call("mend_writes")
        found.append(asked(process, str(store / "three")))
        failures = nodes.call("num_failed")  # a file that is closed tries again to write what it holds
        assert (failures["n1"] > 0, failures["n2"]) == (True, 0)
    finally:
        process.kill()
        process.communicate()
    assert found == ["0", str(errno.ENOSPC), "0", "0"]
    absent = subprocess.run([*nodes["n1"].enter("writes"), "absent-program"], capture_output=True, check=False)
    assert (absent.returncode, b"absent-program" in absent.stderr) == (127, True)


DEVICE = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from trainspec_conformance import guard
from trainspec_conformance.host_faults import take_device
guard.start()
made = ExitStack()
print(take_device(Path(sys.argv[1]), made).folder, flush=True)
time.sleep(600)
"""


def test_a_suite_that_is_killed_leaves_no_directory_of_a_device(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", DEVICE, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder = process.stdout.readline().strip()
    process.kill()
    process.communicate()
    if not folder:
        pytest.skip("writes of a process cannot be made to fail here")
    until(lambda: not Path(folder).exists(), "the directory is left")


# --- clocks -------------------------------------------------------------------------------------------------

TELL = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"


def test_a_clock_of_a_node_is_offset_and_that_of_its_caller_is_not_passed_on(nodes: Nodes, tmp_path: Path) -> None:
    try:
        clocks = Clocks([COMMAND], tmp_path)
        nodes.call("make_clock", library=base64.b64encode(clocks.library.read_bytes()).decode())
    except NotAllowedError as error:
        pytest.skip(str(error))
    clocks.offset(COMMAND, 9_000_000)
    mark = new_mark()
    command = [*clocks.enter(COMMAND), *nodes["n1"].enter("clock"), "python3", "-c", TELL]
    variables = {**os.environ, agent.MARK: mark}
    process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        before = [float(word) for word in asked(process, "now").split()]
        assert before[0] == pytest.approx(time.time(), abs=3600)
        nodes["n1"].call("offset_clock", seconds=-600_000.5)
        nodes["n2"].call("offset_clock", seconds=600_000)
        after = [float(word) for word in asked(process, "now").split()]
        pids = [pid for pid, name in nodes["n1"].call("marked", mark=mark) if name.startswith("python3")]
        assert (len(nodes["n1"].call("on_clock", pids=pids)), nodes["n2"].call("on_clock", pids=pids)) == (1, [])
    finally:
        process.kill()
        process.communicate()
    passed = after[1] - before[1]
    assert after[0] - before[0] == pytest.approx(passed - 600_000.5, abs=60)


def test_a_library_that_a_node_does_not_load_is_refused(nodes: Nodes) -> None:
    with pytest.raises(NotAllowedError, match="n1: commands do not load the library that offsets a clock"):
        nodes["n1"].call("make_clock", library=base64.b64encode(b"of another machine").decode())


# --- verdicts -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_right_stack_passes_and_a_wrong_one_fails(name: str, nodes: Nodes, tmp_path: Path) -> None:
    judged(name, nodes, tmp_path)


def judged(name: str, nodes: Nodes, out: Path) -> None:
    """Both stacks get their verdicts."""
    options, lie, check = FAULTS[name]
    right = judge(nodes, out / "right", name, *options)
    assert right.state == "pass", words(right)
    wrong = judge(nodes, out / "wrong", name, *options, lie)
    assert (wrong.state, check in failed(wrong)) == ("fail", True), words(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["blackhole", "device-error"])
def test_a_fault_that_meets_nothing_is_an_error(name: str, nodes: Nodes, tmp_path: Path) -> None:
    result = judge(nodes, tmp_path, name)
    assert (result.state, "has not arrived" in result.reason) == ("error", True), words(result)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "option"), [("blackhole", "sockets"), ("device-error", "shards")])
def test_ranks_that_a_fault_would_not_reach_are_unsupported(
    name: str, option: str, nodes: Nodes, tmp_path: Path
) -> None:
    result = run(nodes, tmp_path, able(option, "stay"), name)
    assert (result.state, "it was not started through `enter`" in result.reason) == ("unsupported", True), words(result)


def test_a_node_that_does_not_allow_a_network_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid():
        pytest.skip("root alone makes networks, and starts others")
    program = 'shift 6; exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c "$*"'
    shell(tmp_path, monkeypatch, "ssh", program)
    found = Nodes(["n[1-2]"], "ssh")
    try:
        found.open()
        result = run(found, tmp_path / "out", able("sockets"), "blackhole")
    finally:
        found.close()
    assert result.state == "unsupported"
    assert "a network namespace with a device cannot be made: [Errno 1] Operation not permitted" in result.reason


# --- real ones ----------------------------------------------------------------------------------------------


@contextmanager
def opened(way: str, names: str) -> Iterator[Nodes]:
    """Nodes with their agents."""
    found = Nodes([names], way)
    try:
        found.open()
        yield found
    finally:
        found.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_over_ssh(name: str, ssh: str, tmp_path: Path) -> None:
    with opened("ssh", ssh) as nodes:
        judged(name, nodes, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_under_slurm(name: str, slurm: str, tmp_path: Path) -> None:
    with opened("slurm", slurm) as nodes:
        judged(name, nodes, tmp_path)


END: tuple[Callable[[subprocess.Popen[bytes]], None], ...] = (kill, subprocess.Popen.terminate)


@pytest.mark.slow
@pytest.mark.parametrize("end", END)
def test_nothing_is_left_over_ssh(end: Callable[[subprocess.Popen[bytes]], None], ssh: str, tmp_path: Path) -> None:
    assert leaves_nothing("ssh", ssh, tmp_path, end) or os.geteuid()
