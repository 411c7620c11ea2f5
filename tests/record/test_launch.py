"""The launcher: what it takes from a plan, what it refuses, and how it runs a command in its own place."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainspec_record.launch.exported import read_exported
from trainspec_record.launch.launcher import Wishes, prepare
from trainspec_record.launch.processes import processes
from trainspec_record.launch.shell import assignments

from .launch_jobs import exported, finish, launched, start
from .recorded import errors, events, records, values

PYTHON = sys.executable
TRAIN = """
import trainspec_record
with trainspec_record.run() as run:
    for number in range(20):
        with run.step(number):
            run.log(loss=2.0 + number * 1e-3, samples=8, learning_rate=1e-3, gradient_norm=1 + number * 1e-3)
"""


def start_of(folder: Path, *words: str, nodes: int = 1, **environment: str) -> dict[str, str]:
    """What is set on top of an environment for a command; the command as `words`."""
    found = prepare(Wishes(words, exported=exported(folder, nodes), run=str(folder / "r")), environment)
    return {**found.changes, "words": shlex.join(found.words), "notes": "\n".join(found.notes)}


# --- command lines ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "name", "total"),
    [
        ("torchrun --nnodes=2 --nproc-per-node=8 train.py --nproc-per-node 4", "torchrun", 16),
        ("torchrun --nnodes 2 --nproc_per_node 8 -m pkg.train --nnodes 7", "torchrun", 16),
        ("python3 -m torch.distributed.run --nnodes=1 --nproc-per-node=4 train.py", "torchrun", 4),
        ("torchrun --nproc-per-node=gpu train.py", "torchrun", None),
        ("srun -N2 --ntasks-per-node=8 python train.py", "srun", 16),
        ("srun -n16 -c 4 python -m train", "srun", 16),
        ("srun -N 2 torchrun --nnodes=2 --nproc-per-node=8 train.py", "torchrun", 16),
        ("mpirun -np 16 python train.py -np 3", "mpirun", 16),
        ("accelerate launch --num_processes 8 train.py", "accelerate", 8),
        ("deepspeed --num_nodes=2 --num_gpus=4 train.py", "deepspeed", 8),
    ],
)
def test_a_command_line_tells_its_processes(command: str, name: str, total: int | None) -> None:
    found = processes(command.split())
    assert found is not None
    assert (found.kind.name, found.total) == (name, total)


@pytest.mark.parametrize("command", ["python train.py", "python -c 'import torchrun'", "./train -n 4"])
def test_other_commands_tell_nothing(command: str) -> None:
    assert processes(shlex.split(command)) is None


def test_torchrun_is_told_what_the_plan_says(tmp_path: Path) -> None:
    found = start_of(tmp_path, "torchrun", "train.py", "--lr", "1")
    assert found["words"] == "torchrun --nnodes=1 --nproc-per-node=2 --standalone --max-restarts=1 train.py --lr 1"
    assert found["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"


def test_what_the_command_says_of_meeting_stays(tmp_path: Path) -> None:
    found = start_of(tmp_path, "torchrun", "--rdzv_backend=c10d", "--nnodes=1:4", "--max-restarts=9", "train.py")
    assert found["words"] == "torchrun --nproc-per-node=2 --rdzv_backend=c10d --nnodes=1:4 --max-restarts=9 train.py"


def test_nodes_find_each_other_by_variables(tmp_path: Path) -> None:
    found = start_of(tmp_path, "torchrun", "train.py", nodes=2, NODE_RANK="1", MASTER_ADDR="n0")
    assert "--node-rank=1 --master-addr=n0" in found["words"]
    with pytest.raises(ValueError, match="set NODE_RANK: this node; the plan wants --node-rank"):
        start_of(tmp_path, "torchrun", "train.py", nodes=2)


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc-per-node=4 train.py",
        "torchrun --nnodes=3 train.py",
        "torchrun --nnodes=2:4 train.py",
        "srun -n 16 python train.py",
        "mpirun -np 3 python train.py",
        "accelerate launch --num_processes 8 train.py",
    ],
)
def test_another_number_of_processes_is_refused(tmp_path: Path, command: str) -> None:
    with pytest.raises(ValueError, match=r"the plan small has 1 node of 2 ranks, and"):
        start_of(tmp_path, *command.split())


def test_another_number_of_started_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="torchrun started 4 processes"):
        start_of(tmp_path, "python", "train.py", RANK="0", WORLD_SIZE="4")
    start_of(tmp_path, "python", "train.py", RANK="0", WORLD_SIZE="2")
    start_of(tmp_path, "mpirun", "-np", "2", "python", "train.py")


# --- environment --------------------------------------------------------------------------------------------


def test_what_is_set_stays_and_is_told(tmp_path: Path) -> None:
    found = start_of(tmp_path, "python", "train.py", NCCL_IB_HCA="m9", XLA_FLAGS="--mine --other")
    assert "NCCL_IB_HCA" not in found
    assert "NCCL_IB_HCA stays 'm9'" in found["notes"]
    assert found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "3"
    assert found["XLA_FLAGS"] == "--mine --other --xla_gpu_enable_latency_hiding_scheduler=true"


@pytest.mark.parametrize("line", ["rm -rf /", "export A=$(id)", "export A=`id`", "A=1 B=2", "A='x", "export A=${B:-}"])
def test_a_shell_file_that_does_more_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "nccl-env.sh"
    path.write_text(f"# comment\nexport GOOD=1\n{line}\n")
    with pytest.raises(ValueError, match=r"nccl-env.sh:3: only lines as `export NAME=value` are read"):
        assignments(path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nccl-env.sh").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="no text in UTF-8"):
        read_exported(tmp_path)
    (tmp_path / "torchrun.sh").write_text("echo\n")
    (tmp_path / "nccl-env.sh").unlink()
    with pytest.raises(ValueError, match="no line starts with `exec torchrun`"):
        read_exported(tmp_path)


def run_of(folder: Path, *words: str, run: str | None = None, nodes: int = 1, **environment: str) -> Path:
    wishes = Wishes(words, exported=exported(folder, nodes), run=run)
    return Path(prepare(wishes, environment).changes["TRAINSPEC_RUN"])


def test_a_run_has_a_name(tmp_path: Path) -> None:
    assert run_of(tmp_path, "python", "t.py", run="runs/r-7") == Path("runs/r-7").absolute()
    assert run_of(tmp_path, "python", "t.py", TRAINSPEC_RUN="/x/r-8") == Path("/x/r-8")
    assert run_of(tmp_path, "python", "t.py", run="/x/", SLURM_JOB_ID="42") == Path("/x/slurm-42")
    assert run_of(tmp_path, "torchrun", "--rdzv-id", "a/b", "t.py", run="/x/") == Path("/x/a-b")
    assert run_of(tmp_path, "python", "t.py", run="/x/").name.startswith("small-20")
    with pytest.raises(ValueError, match="name its directory with --run"):
        run_of(tmp_path, "python", "t.py", run="/x/", nodes=2)


# --- processes ----------------------------------------------------------------------------------------------


def test_the_command_is_recorded_with_the_documents_of_its_plan(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    policy = tmp_path / "checkpoint.yaml"
    policy.write_text("kind: CheckpointPolicy\n")
    words = ("--policy", str(policy), "--run", "runs/r-1", "--", PYTHON, "train.py")
    code, _, told = launched(*words, cwd=tmp_path, TRAINSPEC_NODE_SAMPLER="none")
    assert (code, told) == (0, "")
    job = tmp_path / "runs" / "r-1" / "job.0.jsonl"
    assert values(job, "train.step.count")[-1] == 20
    (begun,) = events(job, "train.run.start")
    assert [each.partition(" ")[0] for each in begun["a"]["train.policy.refs"]] == ["checkpoint.yaml"]
    assert not errors(job.parent)


UNTIL_SAMPLED = """
    import pathlib, time
    node = pathlib.Path("r-2/node-node-1.0.jsonl")
    while not (node.exists() and '"m":' in node.read_text()):
        time.sleep(0.01)
"""


@pytest.mark.slow
def test_the_node_is_sampled_beside_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN + UNTIL_SAMPLED)
    code, _, told = launched("--agent", "--run", "r-2", "--", PYTHON, "train.py", cwd=tmp_path)
    assert (code, told) == (0, "")
    assert values(tmp_path / "r-2" / "node-node-1.0.jsonl", "train.telemetry.dropped")


@pytest.mark.slow
def test_torchrun_starts_the_ranks_of_the_plan(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(TRAIN)
    words = ("--exported", str(exported(tmp_path / "job")), "--run", "runs/r-3", "--", "torchrun", "train.py")
    code, _, told = launched(*words, cwd=tmp_path, TRAINSPEC_NODE_SAMPLER="none")
    assert code == 0, told
    heads = [records(path)[0] for path in sorted((tmp_path / "runs" / "r-3").glob("rank-*"))]
    assert [(head["rank"], head["world_size"]) for head in heads] == [(0, 2), (1, 2)]


@pytest.mark.parametrize("script", ["raise SystemExit(7)", "import os; os.kill(os.getpid(), 9)"])
def test_the_end_of_the_command_is_passed_on(tmp_path: Path, script: str) -> None:
    alone = subprocess.run([PYTHON, "-c", script], check=False).returncode
    code, _, _ = launched("--run", "r", "--", PYTHON, "-c", script, cwd=tmp_path)
    assert code == alone


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals_go_on_to_the_command(tmp_path: Path, number: signal.Signals) -> None:
    script = (
        f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(40 + {int(number)}))\n"
        "print('ready', flush=True)\nfor _ in range(1_200): time.sleep(0.05)\n"  # a sleep can hold it up
    )
    process = start("--run", "r", "--", PYTHON, "-c", script, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert finish(process)[0] == 40 + number


def test_a_launcher_that_was_suspended_follows_its_command_to_the_end(tmp_path: Path) -> None:
    """The stop is longer than a wait of the launcher with a time limit would be."""
    script = (
        "import pathlib, time\nprint('ready', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.05)\nraise SystemExit(7)"
    )
    process = start("--run", "r", "--", PYTHON, "-c", script, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.2)
    process.send_signal(signal.SIGCONT)
    (tmp_path / "go").touch()
    assert finish(process)[0] == 7


def test_a_command_that_ends_by_a_signal_ends_the_launcher_by_it(tmp_path: Path) -> None:
    process = start("--run", "r", "--", PYTHON, "-c", "print('ready', flush=True); input()", cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] in {-signal.SIGTERM, 1}  # 1 where the input ended first


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--run", "r", "--", "no-such-program"), 127, "there is no command 'no-such-program'"),
        (("--run", "r", "--", "./data"), 126, "./data: Permission denied"),
        (("--run", "r"), 2, "name the command to start"),
        (("--run", "r", "--redact", "missing", "--", "true"), 2, "cannot be read: missing"),
        (("--plan", "plan.yaml", "--", "true"), 2, "`trainspec export` refuses the plan"),
    ],
)
def test_what_cannot_be_started_is_told(tmp_path: Path, words: tuple[str, ...], code: int, message: str) -> None:
    (tmp_path / "data").write_text("no program")
    (tmp_path / "plan.yaml").write_text("kind: TrainingPlan\n")
    found, _, told = launched(*words, cwd=tmp_path)
    assert found == code
    assert message in told


@pytest.mark.parametrize("script", ["raise SystemExit(7)", TRAIN + "raise SystemExit(7)"], ids=["plain", "recorded"])
def test_a_place_that_cannot_be_written_is_told_and_the_command_runs(tmp_path: Path, script: str) -> None:
    """A file in place of the directory refuses the superuser too, unlike permissions."""
    (tmp_path / "file").write_text("")
    code, _, told = launched("--run", "file/r", "--", PYTHON, "-c", script, cwd=tmp_path)
    assert code == 7
    words = f"trainspec-record: nothing is recorded: {tmp_path}/file/r cannot be written: not a directory"
    assert told.splitlines()[0] == f"{words}; the command runs without"


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everything")
def test_a_read_only_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir(mode=0o555)
    code, _, told = launched("--run", "r/1", "--", "true", cwd=tmp_path)
    assert (code, "cannot be written: permission denied" in told) == (0, True)


def test_a_place_is_tried_without_a_trace(tmp_path: Path) -> None:
    code, _, told = launched("--run", "runs/r", "--", "true", cwd=tmp_path)
    assert (code, told, list(tmp_path.iterdir())) == (0, "", [])


@pytest.mark.slow
def test_a_plan_is_exported(tmp_path: Path) -> None:
    beside = Path(PYTHON).parent / "trainspec"
    subprocess.run([beside, "init", "--directory", str(tmp_path), "--num-nodes", "1"], check=True, capture_output=True)
    words = ("--plan", "plan.yaml", "--cluster", "cluster.yaml", "--run", "r-4", "--dry-run", "--")
    code, out, _ = launched(*words, "torchrun", "train.py", cwd=tmp_path)
    assert code == 0
    assert "\ntorchrun --nnodes=1 --nproc-per-node=8 --standalone --max-restarts=0 train.py\n" in out
    assert f"export TRAINSPEC_DOCUMENTS={tmp_path}/plan.yaml:{tmp_path}/cluster.yaml\n" in out
    assert "export TORCH_NCCL_ASYNC_ERROR_HANDLING=3\n" in out
    code, _, told = launched(*words, "torchrun", "--nproc-per-node=4", "train.py", cwd=tmp_path)
    assert code == 2
    assert "the plan my-plan has 1 node of 8 ranks, and the command starts 4 processes on a node" in told


WITH_A_THREAD = """
import os, signal, sys, threading, time
from trainspec_record.launch.child import run_child
spawn = os.posix_spawnp
def spawn_and_see_it_end(*words, **more):
    child = spawn(*words, **more)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    while signal.SIGCHLD in signal.sigpending():
        time.sleep(0.001)
    return child
os.posix_spawnp = spawn_and_see_it_end
threading.Thread(target=time.sleep, args=(600,), daemon=True).start()  # takes signals that the first one blocks
print(run_child(["true"], {"PATH": "/usr/bin:/bin"}), flush=True)
os._exit(0)
"""


def test_the_end_of_a_command_is_seen_where_another_thread_takes_signals() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITH_A_THREAD], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("run", ["link", "link/r"])
def test_a_run_is_recorded_in_a_directory_behind_a_link(run: str, tmp_path: Path) -> None:
    """Directories of runs are often links to another file system; the recorder writes where it is asked to."""
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    (work / "link").symlink_to(elsewhere)
    code, _, told = launched("--run", run, "--", PYTHON, "-c", TRAIN, cwd=work, TRAINSPEC_NODE_SAMPLER="none")
    assert (code, told) == (0, "")
    folder = elsewhere / "r" if run.endswith("r") else elsewhere
    assert {"job.0.jsonl", "rank-000000.0.jsonl"} <= {path.name for path in folder.iterdir()}
