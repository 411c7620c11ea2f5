"""`trainspec accept --over`: nodes that answer, that do not, and that answer with something else."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.commands import accept
from trainspec_validate.cli.toolbox import command
from trainspec_validate.interop import collect
from trainspec_validate.system.boundary import InputError

PORT = "CA 'mlx5_0'\n\tFirmware version: 28.39.1002\n\tPort 1:\n\t\tState: Active\n\t\tRate: {rate}\n"
PROFILE = """\
apiVersion: trainspec/v1
kind: ClusterProfile
metadata: {name: hall-a}
num_nodes: 2
num_accelerators: 2
node_groups:
  - name: compute
    num_nodes: 2
    num_accelerators_per_node: 1
    accelerator: {model: nvidia-h100-sxm-80gb}
    nics:
      - {name: rail, num_per_node: 1, technology: infiniband, rate_bytes_per_second: 50e9, devices: [mlx5_0]}
"""
SSH = """\
#!/bin/sh
# in place of ssh: a shell with the tools of a node; some nodes do not answer, or answer with something else
while [ "${1#-}" != "$1" ]; do case $1 in -o) shift 2 ;; *) shift ;; esac; done
node=$1; shift
export TMPDIR=FOLDER/tmp PATH=FOLDER/tools/$node:$PATH
case $node in
  closed) echo "ssh: connect to host closed port 22: Connection refused" >&2; exit 255 ;;
  hanging) sleep 60 ;;
  endless) cat /dev/zero ;;
  odd) mark=$(sed -n "s/.*\\(trainspec-[0-9a-f]\\{32\\}\\).*/\\1/p; /^main; exit/q" | head -n 1)
    echo "$mark"; cat FOLDER/odd.tar; echo "$mark"; exit 0 ;;
  cut) "$@" | head -c 600; exit 0 ;;
  torn) "$@" 2> /dev/null | head -c 600; echo "sh: I/O error" >&2; exit 0 ;;
  talking) echo "Welcome to this machine"; exec "$@" ;;
  *) exec "$@" ;;
esac
"""


def program(path: Path, text: str) -> None:
    """A program of a node."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def printing(text: str) -> str:
    """A program that prints."""
    return f"#!/bin/sh\ncat <<'END'\n{text}END\n"


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nodes behind a program in place of ssh."""
    program(tmp_path / "bin" / "ssh", SSH.replace("FOLDER", str(tmp_path)))
    (tmp_path / "tmp").mkdir()
    for node, rate in (("node-0", 400), ("node-1", 200), ("talking", 400)):
        program(tmp_path / "tools" / node / "ibstat", printing(PORT.format(rate=rate)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "cluster.yaml").write_text(PROFILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """One call of the command."""
    return CliRunner().invoke(command, ["accept", "cluster.yaml", *words])


def test_the_command_names_all_ways() -> None:
    assert accept._WAYS == collect.WAYS


def test_nodes_are_asked_and_judged(nodes: Path) -> None:
    done = run("--over", "ssh", "--node", "node-[0-1]", "--into", "gathered", "--format", "concise")
    assert done.exit_code == 1
    assert "node-1/mlx5_0: 25 GB/s, declared are 50 GB/s" in done.output
    assert "node-0/mlx5_0" not in done.output
    assert (nodes / "gathered" / "node-0" / "ibstat.txt").read_text() == PORT.format(rate=400)
    assert not list((nodes / "tmp").iterdir())


def test_a_link_that_leads_nowhere_takes_no_files(nodes: Path) -> None:
    (nodes / "gathered").symlink_to("absent")
    done = run("--over", "ssh", "--node", "node-0", "--into", "gathered")
    assert (done.exit_code, "Errno" in done.output) == (2, False)
    assert "gathered: the link leads nowhere; remove it, or give --into a new directory" in done.output


def test_the_same_files_give_the_same_result_again(nodes: Path) -> None:
    first = run("--over", "ssh", "--node", "node-[0-1]", "--into", "gathered", "--format", "concise")
    again = run("--from", "gathered", "--format", "concise")
    assert (again.exit_code, again.output) == (first.exit_code, first.output)


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ("closed", "ssh: connect to host closed port 22: Connection refused (exit 255)"),
        ("hanging", "no end after 2 s"),
        ("endless", f"it printed more than {collect.MAX_NODE_BYTES} bytes"),
        ("odd", "its archive cannot be read: it holds '../outside', which is no file of a tool"),
        ("cut", "it printed no whole archive (exit 0)"),
        ("torn", "it printed no whole archive (exit 0): sh: I/O error"),
    ],
)
def test_a_node_without_an_answer_is_named_and_counted(nodes: Path, node: str, reason: str) -> None:
    (nodes / "outside").write_text("what a node wants to write elsewhere")
    (nodes / "made").mkdir()
    subprocess.run(["tar", "-P", "-cf", "../odd.tar", "../outside"], cwd=nodes / "made", check=True)
    (nodes / "outside").unlink()
    done = run(
        "--over", "ssh", "--node", f"node-0,{node}", "--into", "gathered", "--timeout", "2", "--format", "concise"
    )
    assert f"{node}: did not answer: {reason}" in done.output
    assert f"{node} did not answer: no file of it can be read" in done.output
    assert done.exit_code == 1
    assert not list((nodes / "gathered" / node).iterdir())
    assert not (nodes / "outside").exists()
    assert not (nodes / "gathered" / "outside").exists()


def test_an_archive_that_unpacks_to_more_than_it_holds_is_refused(nodes: Path) -> None:
    """A sparse file of many megabytes takes some bytes in an archive, for each of 64 files."""
    with (nodes / "sparse").open("wb") as file:
        file.truncate(8 << 20)
    subprocess.run(["tar", "--sparse", "-cf", "odd.tar", "sparse"], cwd=nodes, check=True)
    assert (nodes / "odd.tar").stat().st_size < 1 << 20
    done = run("--over", "ssh", "--node", "odd", "--into", "gathered", "--format", "concise")
    assert "odd: did not answer: its archive cannot be read: it holds 'sparse'" in done.output


def test_only_files_of_tools_are_named_as_left_out(nodes: Path) -> None:
    (nodes / "failures").write_text("ibstat.txt " + "".join(f"name-{n} " for n in range(9)))
    subprocess.run(["tar", "-cf", "odd.tar", "failures"], cwd=nodes, check=True)
    done = run("--over", "ssh", "--node", "odd", "--into", "gathered", "--format", "concise")
    assert (done.output.count(": left out: "), "odd: ibstat.txt: left out" in done.output) == (1, True)


def test_what_a_shell_prints_at_its_start_changes_nothing(nodes: Path) -> None:
    run("--over", "ssh", "--node", "talking", "--into", "gathered")
    assert (nodes / "gathered" / "talking" / "ibstat.txt").read_text() == PORT.format(rate=400)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "#!/bin/sh\necho started\nsleep 60\n",
        "#!/bin/sh\necho started\nkill -9 $$\n",
        "#!/bin/sh\nexec cat /dev/zero\n",
        "#!/bin/sh\nexit 1\n",
        "no program",
    ],
    ids=["hangs", "is killed", "is endless", "prints nothing", "no program"],
)
def test_what_a_tool_did_not_finish_is_left_out_and_said(nodes: Path, text: str) -> None:
    program(nodes / "tools" / "node-0" / "diagnose", text)
    done = run(
        *("--over", "ssh", "--node", "node-0", "--into", "gathered", "--also", "more.txt=diagnose", "--timeout", "4"),
    )
    is_late = "sleep" in text
    if is_late:  # the time of the tool is that of the node, which passes first
        assert "node-0: did not answer: no end after 4 s" in done.output
    else:
        said = "node-0: more.txt: left out: its command printed nothing or too much, took too long or was killed\n"
        assert done.output.count(said) == 1
        assert [path.name for path in (nodes / "gathered" / "node-0").iterdir() if path.name != "dmesg.txt"] == [
            "ibstat.txt"
        ]


def test_a_tool_that_fails_and_says_why_is_kept(nodes: Path) -> None:
    program(nodes / "tools" / "node-0" / "diagnose", "#!/bin/sh\necho 'GPU 3 failed'\nexit 226\n")
    run("--over", "ssh", "--node", "node-0", "--into", "gathered", "--also", "more.txt=diagnose --all")
    assert (nodes / "gathered" / "node-0" / "more.txt").read_text() == "GPU 3 failed\n"


def test_the_nodes_of_the_profile_are_asked_where_none_are_named(nodes: Path) -> None:
    layout = "layout:\n  nodes:\n    - {name: node-0, group: compute}\n    - {name: closed, group: compute}\n"
    (nodes / "cluster.yaml").write_text(PROFILE + layout)
    done = run("--over", "ssh", "--into", "gathered")
    assert sorted(path.name for path in (nodes / "gathered").iterdir()) == ["closed", "node-0"]
    assert "closed: did not answer" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give either --from DIR, or --over and --into DIR"),
        (("--from", "tools", "--over", "ssh"), "give either --from DIR, or --over and --into DIR"),
        (("--from", "tools", "--node", "node-0"), "belong to --over"),
        (("--over", "ssh", "--node", "node-0"), "--over wants --into DIR"),
        (("--over", "ssh", "--into", "new"), "name them with --node"),
        (("--over", "ssh", "--into", "tools", "--node", "node-0"), "tools: is there already"),
        (("--over", "ssh", "--into", "new", "--node", "-oProxyCommand=x"), "is no name of a node"),
        (("--over", "ssh", "--into", "new", "--node", "a/../b"), "is no name of a node"),
        (("--over", "ssh", "--into", "new", "--node", "a,a"), "the node a is named twice"),
        (("--over", "ssh", "--into", "new", "--node", "a[1"), "do not match"),
        (("--over", "ssh", "--into", "new", "--node", "a[1-999999]"), "10,000"),
        (("--over", "ssh", "--into", "new", "--node", "a", "--also", "../x=ls"), "is no name of a file"),
        (("--over", "ssh", "--into", "new", "--node", "a", "--also", "ls"), "is no FILE=COMMAND"),
        (("--over", "ssh", "--into", "new", "--node", "a", "--also", f"x=echo {'y' * 40_000}"), "more than 32768"),
        (("--over", "slurm", "--into", "new", "--node", "a"), "srun is not installed here"),
    ],
)
def test_wrong_use_asks_no_node(
    nodes: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str
) -> None:
    if "slurm" in words:
        monkeypatch.setenv("PATH", str(nodes / "bin"))
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")
    assert not (nodes / "new").exists()


def test_this_machine_is_asked_without_a_network(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(nodes / "bin" / "ibstat", printing(PORT.format(rate=400)))
    monkeypatch.setenv("TMPDIR", str(nodes / "tmp"))
    run("--over", "local", "--into", "gathered")
    assert (nodes / "gathered" / platform.node() / "ibstat.txt").read_text() == PORT.format(rate=400)
    assert not list((nodes / "tmp").iterdir())


@pytest.mark.parametrize(
    ("way", "name", "most"),
    [
        ("slurm", "srun", "--nodelist=node-0 --input=all --output=all --error=all sh -s"),
        ("kubernetes", "kubectl", "node-0 -- sh -s"),
    ],
)
def test_what_starts_a_shell_gets_the_node(nodes: Path, way: str, name: str, most: str) -> None:
    program(nodes / "bin" / name, f'#!/bin/sh\necho "$*" > {nodes}/words\nexec sh -s\n')
    run("--over", way, "--node", "node-0", "--into", "gathered")
    assert (nodes / "words").read_text().rstrip("\n").endswith(most)


def test_an_interrupt_ends_all_shells(nodes: Path) -> None:
    others = {*_children()}  # of tests that ran in this process
    answers = collect.collect(["hanging", "node-0"], "ssh", nodes / "gathered", timeout_seconds=60)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(answers)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert {*_children()} <= others


def _children() -> list[str]:
    task = Path(f"/proc/self/task/{os.getpid()}/children")
    if not task.exists():
        pytest.skip("this kernel lists no children")
    return task.read_text().split()


def test_many_nodes_are_asked_at_once_and_told_in_order(nodes: Path) -> None:
    names = [f"node-{number}" for number in range(40)]
    answers = list(collect.collect(names, "ssh", nodes / "gathered", timeout_seconds=60, num_at_once=8))
    assert [answer.node for answer in answers] == names
    assert [answer.num_files > 0 for answer in answers[:2]] == [True, True]


def test_a_directory_that_cannot_be_written_is_an_error_of_input(nodes: Path) -> None:
    (nodes / "gathered").write_text("a file")
    with pytest.raises(InputError, match="gathered/node-0"):
        list(collect.collect(["node-0"], "ssh", nodes / "gathered"))
