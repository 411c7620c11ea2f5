"""Whole processes whose standard streams are full, closed or gone, or that are told to end, and their exit codes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainspec_validate.cli import terminal
from trainspec_validate.system.process import Guard, Terminated, ended_by_signals, refusal_of_the_system

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
GOOD = str(ROOT / "examples" / "plans" / "torchtitan-llama3-8b.yaml")
CLUSTER = str(ROOT / "examples" / "clusters" / "dgx-superpod-h100.yaml")
BROKEN = str(ROOT / "examples" / "broken" / "plan.yaml")
STREAM = str(ROOT / "examples" / "broken" / "job.jsonl")

PRINTING: dict[str, tuple[str, int]] = {
    "a pass": (f"trainspec-validate {GOOD} --fail-on never", 0),
    "json": (f"trainspec-validate {GOOD} --fail-on never --format json", 0),
    "a list": (f"trainspec-validate {GOOD} --list-files", 0),
    "findings": (f"trainspec-validate {BROKEN}", 1),
    "help of the gate": ("trainspec-validate --help", 0),
    "version of the gate": ("trainspec-validate --version", 0),
    "help": ("trainspec --help", 0),
    "help of a command": ("trainspec plan --help", 0),
    "version": ("trainspec --version", 0),
    "a table": ("trainspec catalog", 0),
    "a page": ("trainspec explain TS-PAR-001", 0),
    "a schema": ("trainspec schema TrainingPlan", 0),
    "formats": ("trainspec import --list", 0),
    "a stream": (f"trainspec export {STREAM} --to otlp", 0),
    "a document": (
        f"trainspec export {GOOD} --cluster {ROOT}/examples/clusters/dgx-superpod-h100.yaml --to torchtitan",
        0,
    ),
    "completion": ("trainspec completion bash", 0),
    "help of the recorder": ("trainspec-record --help", 0),
    "help of its command": ("trainspec-record launch --help", 0),
    "version of the recorder": ("trainspec-record --version", 0),
    "a dry run": ("trainspec-record launch --dry-run --run run -- true", 0),
    "help of the suite": ("trainspec-conformance --help", 0),
    "version of the suite": ("trainspec-conformance --version", 0),
    "scenarios": ("trainspec-conformance list", 0),
}
SHORT = {"a pass", "findings", "help of the gate", "version", "a stream", "help of the recorder"}
NAMES = [pytest.param(name, marks=() if name in SHORT else pytest.mark.long) for name in PRINTING]
REFUSED = {
    "an option of the gate": "trainspec-validate --nope",
    "a file": "trainspec-validate absent.yaml",
    "a command": "trainspec nope",
    "an option of the recorder": "trainspec-record --nope",
    "a command of the suite": "trainspec-conformance nope",
}


def shell(line: str, place: Path) -> tuple[int, str]:
    """Exit code and standard error of a line of a shell, in which the programs are found."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    text = f"set -o pipefail; {line}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, cwd=place, env=environment)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert "mistake is ours" not in done.stderr
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_delivered_is_no_pass(name: str, tmp_path: Path) -> None:
    line, _ = PRINTING[name]
    for place, reason in ((">/dev/full", "no space left on device"), (">&-", "it is closed")):
        code, told = shell(f"{line} {place}", tmp_path)
        assert code == 2, (place, told)
        assert f"standard output cannot be written: {reason}" in told
    assert shell(f"{line} >/dev/full 2>/dev/full", tmp_path) == (2, "")


@pytest.mark.parametrize("name", NAMES)
def test_standard_error_does_not_change_the_answer(name: str, tmp_path: Path) -> None:
    line, expected = PRINTING[name]
    for place in ("2>/dev/full", "2>&-"):
        assert shell(f"{line} {place}", tmp_path) == (expected, "")


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("place", ["", "2>/dev/full", "2>&-", ">&-", ">/dev/full", ">&- 2>&-"])
def test_a_refusal_is_one_wherever_it_is_told(name: str, place: str, tmp_path: Path) -> None:
    assert shell(f"{REFUSED[name]} {place}", tmp_path)[0] == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_that_goes_away_makes_no_pass(name: str, tmp_path: Path) -> None:
    line, expected = PRINTING[name]
    program, *arguments = line.split()
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([BIN / program, *arguments], stdout=writer, stderr=subprocess.PIPE, check=False, cwd=tmp_path)
    os.close(writer)
    assert done.returncode == (expected or 141)
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("line", ["trainspec import -", "trainspec export - --to otlp", "trainspec-validate -"])
def test_a_closed_standard_input_cannot_be_read(line: str, tmp_path: Path) -> None:
    code, told = shell(f"{line} <&-", tmp_path)
    assert code == 2
    assert "Error: standard input is closed" in told


def test_an_output_beside_a_closed_stream_is_whole(tmp_path: Path) -> None:
    """A file that took the number of a closed stream would get what is meant for that stream."""
    code, _ = shell(f"trainspec-validate {BROKEN} --format json=out.json <&- >&- 2>&-", tmp_path)
    assert code == 2
    assert (tmp_path / "out.json").read_text(encoding="utf-8").startswith("{\n")
    assert (tmp_path / "out.json").read_text(encoding="utf-8").endswith("}\n")


def test_quiet_needs_no_standard_output(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes((ROOT / "spec" / "v1" / "base" / "plan.yaml").read_bytes())
    assert shell("trainspec-validate plan.yaml --quiet --select TS-PAR-001 --fail-on never >&-", tmp_path)[0] == 0


@pytest.mark.parametrize("directory", ["absent", "/proc"])
def test_without_a_place_for_temporary_files_it_is_not_our_mistake(directory: str) -> None:
    error = FileNotFoundError(errno.ENOENT, f"No usable temporary directory found in ['{directory}']")
    assert refusal_of_the_system(error).startswith("no usable temporary directory")
    assert refusal_of_the_system(OSError(errno.ENOSPC, "No space left on device", "/tmp/x")) == (
        "/tmp/x: no space left on device"
    )
    assert refusal_of_the_system(OSError(errno.EINVAL, "Invalid argument")) == ""


# --- signals -------------------------------------------------------------------------------------------------

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def wait_for(process: subprocess.Popen[bytes], start: bytes) -> None:
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith(start), line


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_ends_a_program_that_waits(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """It waits for what is to come through its standard input, of which it has taken all but what a pipe holds."""
    text = "import trainspec_validate.cli.validate_command, trainspec_validate.cli.validate as c; c.main()"
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", text, "-"], cwd=tmp_path, **streams)  # type: ignore[call-overload]
    assert process.stdin is not None
    process.stdin.write(b" " * (1 << 20))
    process.stdin.flush()
    process.send_signal(number)
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    assert out == b""
    assert b"Traceback" not in err


WRITES = """
import os, signal, sys
from trainspec_validate.cli import terminal
from trainspec_validate.system.atomic import new_file
import click

@click.command()
def command():
    with new_file("old") as file:
        file.write(b"half")
        os.kill(os.getpid(), int(sys.argv[1]))

sys.exit(terminal.run(command, "program", []))
"""


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_leaves_nothing_half_written(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", WRITES, str(int(number))], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert (tmp_path / "old").read_text(encoding="utf-8") == "old"


def test_a_signal_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    line = "trap '' TERM HUP; python3 -c 'import os,signal,subprocess,sys; sys.exit(subprocess.call(sys.argv[1:]))'"
    text = WRITES.replace("int(sys.argv[1])", "signal.SIGTERM")
    (tmp_path / "script.py").write_text(text, encoding="utf-8")
    assert shell(f"{line} {sys.executable} script.py", tmp_path)[0] == 0
    assert (tmp_path / "old").read_text(encoding="utf-8") == "half"


LOADED = """
import os, signal, sys
from importlib import import_module
from importlib.abc import MetaPathFinder

class Interrupts(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[3]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupts())
module, function = sys.argv[1:3]
loaded = set(sys.modules)
start = getattr(import_module(module), function)
print(sorted(name for name in set(sys.modules) - loaded if name in {"click", "typing", "argparse"}))
sys.exit(start())
"""
SCRIPTS = {
    program: entry
    for folder in (".", "record", "conformance")
    for program, entry in tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"][
        "scripts"
    ].items()
}


@pytest.mark.parametrize("program", sorted(SCRIPTS))
def test_an_interrupt_while_a_program_is_loaded_is_quiet(program: str, tmp_path: Path) -> None:
    """It ends by the signal, which a shell reports as 130, and nothing large is loaded before that is so."""
    module, _, function = SCRIPTS[program].partition(":")
    first = "argparse" if program == "trainspec-record" else "click"
    words = [sys.executable, "-c", LOADED, module, function, first]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert done.stdout in {"[]\n", ""}


AT_THE_END = """
import atexit, os, signal, sys
from importlib import import_module
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.SIGINT)
module, function = sys.argv[1:3]
sys.argv[1:] = ["--help"]
sys.exit(getattr(import_module(module), function)())
"""


@pytest.mark.parametrize("program", sorted(SCRIPTS))
def test_an_interrupt_while_a_program_is_left_is_quiet(program: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", AT_THE_END, *SCRIPTS[program].split(":")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
    assert "Exit codes:" in done.stdout or "Commands" in done.stdout


MISTAKEN = {
    "as an error of a library": """
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        raise ImportError("the library failed")
""",
    "as a refusal": """
    try:
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        raise terminal.Failure("cannot be read")
""",
    "by a callback": """
    thing = type("Thing", (), {})()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), number))
    del thing
""",
}


@pytest.mark.parametrize("way", sorted(MISTAKEN))
@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_that_is_taken_for_something_else(number: signal.Signals, code: int, way: str, tmp_path: Path) -> None:
    """Foreign code turns an interrupt into an error of its own, and Python drops one that a callback raises."""
    text = f"""
import os, signal, sys, weakref
import click
from trainspec_validate.cli import terminal
signal.signal(signal.SIGINT, signal.default_int_handler)
number = {int(number)}

@click.command()
def command():
{MISTAKEN[way]}

sys.exit(terminal.run(command, "program", []))
"""
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, "")


WITH_WORKERS = """
import os, signal, sys, time
from trainspec_validate.telemetry.fold import large

def slow(share, path):
    os.write(2, b"begun\\n")
    time.sleep(600)

if __name__ == "__main__":
    from trainspec_validate.cli import terminal
    import click

    large._fold_aside = slow
    large._warm_up = lambda stretch: None

    @click.command()
    def command():
        large._folded([[None], [None]])

    sys.exit(terminal.run(command, "program", []))
"""


@pytest.mark.parametrize("to_all", [False, True])
@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
def test_workers_end_with_the_program_and_say_nothing(
    number: signal.Signals, code: int, to_all: bool, tmp_path: Path
) -> None:
    (tmp_path / "script.py").write_text(WITH_WORKERS, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "script.py"],
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    for _ in range(2):
        wait_for(process, b"begun")
    (os.killpg if to_all else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["script.py"]
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


@pytest.fixture
def nobody_listens() -> Iterator[None]:
    """No handler, whatever tests before have left in this process."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("nobody_listens")
def test_handlers_are_given_back() -> None:
    def end() -> None:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)

    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with pytest.raises(Terminated) as caught:
        end()
    assert caught.value.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


# --- read-only places ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f"trainspec-validate {GOOD} --format json=out.json",
        f"trainspec-validate {GOOD} --write-baseline",
        f"trainspec report {STREAM} -o out.html",
        f"trainspec export {STREAM} --to parquet --output out.parquet",
        "trainspec init",
        "trainspec-conformance init mine",
    ],
)
def test_a_place_that_takes_no_file_is_told(line: str, tmp_path: Path) -> None:
    """Nothing can be made in the directories of the kernel, not even by the superuser."""
    code, told = shell(f"cd /proc/self/fdinfo && {line}", tmp_path)
    assert code == 2
    assert told


def test_a_guard_passes_on_what_a_stream_has() -> None:
    guard = Guard(None)
    assert (guard.write(""), guard.write("x"), guard.isatty(), guard.encoding) == (0, 1, False, "utf-8")
    assert guard.trouble == "it is closed"
    assert terminal.is_terminal(None) is False


def test_a_directory_as_standard_input_is_no_pass(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        command = [sys.executable, "-m", "trainspec_validate", "-"]
        done = subprocess.run(command, stdin=directory, capture_output=True, check=False)
    finally:
        os.close(directory)
    assert done.returncode not in {0, 3}
    assert b"is a directory" in done.stderr
