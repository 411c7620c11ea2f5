"""Every output is there whole or not at all, behind no link, and what was there before outlasts a failure."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from click.testing import CliRunner
from trainspec_conformance import cli as conformance_program

from trainspec_validate.cli import terminal, toolbox
from trainspec_validate.cli import validate as validate_program
from trainspec_validate.cli.commands import files
from trainspec_validate.system import atomic
from trainspec_validate.system.atomic import new_file, write_all, write_atomically

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
EXAMPLES = ROOT / "examples"
OLD = "what was there before\n"
BASELINE = '{"format_version": "1", "findings": []}'
FEW_BYTES = 64
"""As large as any file may get where a disk is to be full."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "tree").mkdir()
    monkeypatch.chdir(tmp_path / "tree")
    yield tmp_path / "tree"
    assert not list(tmp_path.rglob(".trainspec-*"))


# --- the function --------------------------------------------------------------------------------------------


def test_text_and_bytes_are_written() -> None:
    write_atomically("a", "ä\n\ud800")
    write_atomically("b", b"\x00\xff")
    assert Path("a").read_bytes() == b"\xc3\xa4\n\\ud800"
    assert Path("b").read_bytes() == b"\x00\xff"


def test_permissions_of_a_file_are_kept() -> None:
    Path("old").write_text(OLD, encoding="utf-8")
    Path("old").chmod(0o640)
    write_atomically("old", "new")
    assert stat.S_IMODE(Path("old").stat().st_mode) == 0o640
    assert Path("old").read_text(encoding="utf-8") == "new"


def test_permissions_of_a_new_file_are_those_of_the_process_or_as_told() -> None:
    before = os.umask(0o027)
    try:
        write_atomically("usual", "")
        write_atomically("secret", "", mode=0o600)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(Path(name).stat().st_mode) for name in ("usual", "secret")] == [0o640, 0o600]


@pytest.mark.parametrize("target", ["outside", "absent", "link"])
def test_a_link_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text(OLD, encoding="utf-8")
    Path("link").symlink_to("link" if target == "link" else tmp_path / target)
    with pytest.raises(OSError, match="nothing is written through links") as caught:
        write_atomically("link", "new")
    assert caught.value.errno == errno.ELOOP
    assert Path("link").is_symlink()
    assert (tmp_path / "outside").read_text(encoding="utf-8") == OLD
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize(
    "name", ["link/new", "./link/new", "inside/link/new", "link/absent/new", "link/../new", "inside/../link/new"]
)
def test_a_directory_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    Path("inside").mkdir()
    for place in (Path("link"), Path("inside/link")):
        place.symlink_to(tmp_path / "outside")
    for refused in (lambda: write_atomically(name, "new"), lambda: files.write({Path(name): "new"}, force=True)):
        with pytest.raises((OSError, terminal.Failure), match="link out of the working directory"):
            refused()
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_directory_elsewhere_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    Path("inside/deep").mkdir(parents=True)
    Path("within").symlink_to("inside/deep")
    Path("link").symlink_to(tmp_path / "outside")
    for name in ("within/new", "../outside/new", str(Path("link").absolute() / "other")):
        write_atomically(name, "new")
        assert Path(name).read_text(encoding="utf-8") == "new"


def test_another_name_of_a_file_keeps_its_content(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text(OLD, encoding="utf-8")
    Path("name").hardlink_to(tmp_path / "outside")
    write_atomically("name", "new")
    assert (tmp_path / "outside").read_text(encoding="utf-8") == OLD


def test_nothing_is_overwritten_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("dangling").symlink_to("absent")
    Path("old").write_text(OLD, encoding="utf-8")
    for name in ("old", "dangling"):
        with pytest.raises(FileExistsError):
            write_atomically(name, "new", overwrite=False)

    def write_late() -> None:
        with new_file("late", overwrite=False) as file:
            file.write(b"new")
            Path("late").write_text(OLD, encoding="utf-8")

    with pytest.raises(FileExistsError):
        write_late()
    assert [Path(name).read_text(encoding="utf-8") for name in ("old", "late")] == [OLD, OLD]

    def unable(*_: object) -> None:
        raise OSError(errno.EPERM, "no hard links")

    monkeypatch.setattr(os, "link", unable)
    write_atomically("new", "new", overwrite=False)
    assert Path("new").read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("mistake", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_body_that_raises_leaves_what_was_there(mistake: type[BaseException]) -> None:
    Path("old").write_text(OLD, encoding="utf-8")

    def write_half(name: str) -> None:
        with new_file(name) as file:
            file.write(b"half")
            raise mistake

    for name in ("old", "new"):
        with pytest.raises(mistake):
            write_half(name)
    assert Path("old").read_text(encoding="utf-8") == OLD
    assert not Path("new").exists()


@pytest.mark.parametrize("overwrite", [True, False])
def test_an_interrupt_at_any_line_leaves_the_old_or_the_new(overwrite: bool) -> None:
    """And nothing else next to it: a signal may come between the content, the name and the end."""
    seen = set()
    for number in itertools.count():
        lines, was_interrupted = itertools.count(), False

        def trace(frame: FrameType, event: str, _: object) -> Any:
            if frame.f_code.co_filename != atomic.__file__:
                return None
            if event == "line" and next(lines) == number:  # noqa: B023 - it is removed within the turn
                raise KeyboardInterrupt
            return trace

        if overwrite:
            Path("file").write_text(OLD, encoding="utf-8")
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            write_atomically("file", "new", overwrite=overwrite)
        except KeyboardInterrupt:
            was_interrupted = True
        finally:
            sys.settrace(before)
        found = {path.name: path.read_text(encoding="utf-8") for path in Path().iterdir()}
        assert found in ([{"file": OLD}, {"file": "new"}] if overwrite else [{}, {"file": "new"}])
        seen.add(found.get("file"))
        Path("file").unlink(missing_ok=True)
        if not was_interrupted:
            break
    assert number > 30
    assert seen == {OLD if overwrite else None, "new"}


@pytest.mark.parametrize("failing", ["fsync", "fchmod"])
def test_a_failing_system_leaves_what_was_there(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Path("old").write_text(OLD, encoding="utf-8")
    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomically("old", "new")
    assert Path("old").read_text(encoding="utf-8") == OLD


def test_it_is_on_the_disk_before_it_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    sync, replace = os.fsync, Path.replace

    def see_sync(descriptor: int) -> None:
        order.append("directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def see_replace(path: Path, target: Path) -> Path:
        order.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", see_sync)
    monkeypatch.setattr(Path, "replace", see_replace)
    write_atomically("new", "new")
    assert order == ["file", "name", "directory"]


def test_the_name_beside_it_is_new_and_no_link(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda _: "guessed")
    Path(".trainspec-guessed").symlink_to(tmp_path / "outside")
    with pytest.raises(FileExistsError):
        write_atomically("new", "new")
    assert not (tmp_path / "outside").exists()
    Path(".trainspec-guessed").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "make", "words"),
    [
        ("absent/new", lambda _: None, "No such file or directory"),
        ("directory", Path.mkdir, "Is a directory"),
        ("pipe", os.mkfifo, "No such device"),
        ("nul\0", lambda _: None, "null"),
        ("n" * 300, lambda _: None, "File name too long"),
    ],
)
def test_what_is_no_place_for_a_file_is_refused(name: str, make: Callable[[Path], None], words: str) -> None:
    make(Path(name))
    with pytest.raises(OSError, match=words) as caught:
        write_atomically(name, "new")
    assert caught.value.filename == name


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes everything")
@pytest.mark.parametrize("read_only", ["old", "."])
def test_read_only_files_and_directories_stay(read_only: str) -> None:
    Path("old").write_text(OLD, encoding="utf-8")
    before = Path(read_only).stat().st_mode
    Path(read_only).chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            write_atomically("old", "new")
    finally:
        Path(read_only).chmod(before)
    assert Path("old").read_text(encoding="utf-8") == OLD


def test_pipes_and_devices_are_written_as_they_are() -> None:
    reading, writing = os.pipe()
    write_atomically(f"/dev/fd/{writing}", "text")
    write_atomically("/dev/null", "text")
    assert os.read(reading, 10) == b"text"
    os.close(reading)
    os.close(writing)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    with pytest.raises(OSError, match="No space left"):
        write_atomically("/dev/full", "text")


KILLED = """
import os, signal
from trainspec_validate.system.atomic import new_file
with new_file("old") as file:
    file.write(b"half" * 100_000)
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_leaves_what_was_there(here: Path) -> None:
    Path("old").write_text(OLD, encoding="utf-8")
    done = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert done.returncode == -signal.SIGKILL
    assert Path("old").read_text(encoding="utf-8") == OLD
    for rest in here.glob(".trainspec-*"):  # what a kill leaves cannot be removed by the killed
        rest.unlink()


# --- the commands --------------------------------------------------------------------------------------------

CLUSTER, PLAN = (
    str(EXAMPLES / "clusters" / "dgx-superpod-h100.yaml"),
    str(EXAMPLES / "plans" / "torchtitan-llama3-8b.yaml"),
)
BROKEN = str(EXAMPLES / "broken" / "plan.yaml")
STREAM = str(EXAMPLES / "broken" / "job.jsonl")
TO_OUT = ("--output", "out", "--force")
COMMANDS: dict[str, tuple[str, ...]] = {
    "json": ("trainspec-validate", PLAN, "--format", "json=out", "--fail-on", "never"),
    "sarif": ("trainspec-validate", PLAN, "--format", "sarif=out", "--fail-on", "never"),
    "baseline": ("trainspec-validate", BROKEN, "--write-baseline", "--baseline", "out", "--fail-on", "never"),
    "init": ("trainspec", "init", "cluster", "--directory", "place", "--force"),
    "init-all": ("trainspec", "init", "--directory", "place", "--force"),
    "plan": ("trainspec", "plan", CLUSTER, "--model", "llama3-8b", "--num-ranks", "8", "--output", "place", "--force"),
    "plot": ("trainspec", "plan", CLUSTER, "--model", "llama3-8b", "--num-ranks", "8", "--plot", "out", "--force"),
    "report": ("trainspec", "report", STREAM, *TO_OUT),
    "discover": ("trainspec", "discover", *TO_OUT),
    "import": ("trainspec", "import", "topology.conf", *TO_OUT),
    "import-stream": ("trainspec", "import", "otlp.json", *TO_OUT),
    "export": ("trainspec", "export", PLAN, "--cluster", CLUSTER, "--to", "torchtitan", *TO_OUT),
    "otlp": ("trainspec", "export", STREAM, "--to", "otlp", *TO_OUT),
    "prometheus": ("trainspec", "export", STREAM, "--to", "prometheus", *TO_OUT),
    "parquet": ("trainspec", "export", STREAM, "--to", "parquet", *TO_OUT),
    "conformance": ("trainspec-conformance", "init", "place"),
}
"""Each writes `out`, or files in `place`."""
IN_PLACE = {"init": "cluster.yaml", "init-all": "plan.yaml", "plan": "plan.yaml", "conformance": "shim.py"}


def outputs_of(name: str) -> Path:
    return Path("place", IN_PLACE[name]) if name in IN_PLACE else Path("out")


@cache
def otlp() -> bytes:
    run = subprocess.run([BIN / "trainspec", "export", STREAM, "--to", "otlp"], capture_output=True, check=True)
    return run.stdout


def lay_out_inputs(name: str) -> None:
    if name == "import":
        Path("topology.conf").write_text("SwitchName=s1 Nodes=n[1-8]\n", encoding="utf-8")
    if name == "import-stream":
        Path("otlp.json").write_bytes(otlp())


def run_limited(name: str, most_bytes: int) -> subprocess.CompletedProcess[str]:
    """Run a command as a process that may write no larger files, and so keeps no module that it compiled."""
    lay_out_inputs(name)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    program, *rest = COMMANDS[name]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [BIN / program, *rest], capture_output=True, text=True, check=False, preexec_fn=limit, env=environment
    )


PROGRAMS = {
    "trainspec-validate": validate_program.command,
    "trainspec": toolbox.command,
    "trainspec-conformance": conformance_program.command,
}


@dataclass(frozen=True)
class Done:
    """How a program ended, and what it wrote to standard error."""

    returncode: int
    stderr: str


Start = Callable[[str], Done]


@pytest.fixture
def start(capfd: pytest.CaptureFixture[str]) -> Start:
    """Run a command in this process, as the program does."""

    def run(name: str) -> Done:
        lay_out_inputs(name)
        program, *rest = COMMANDS[name]
        code = terminal.run(PROGRAMS[program], program, rest)
        return Done(code, capfd.readouterr().err)

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_its_output_and_nothing_else(name: str, here: Path, start: Start) -> None:
    Path("place").mkdir()
    done = start(name)
    assert done.returncode in {0, 1}, done.stderr
    assert outputs_of(name).stat().st_size > FEW_BYTES
    assert not list(here.rglob("*.part")) + list(here.rglob("*.tmp"))


def run_limited_here(name: str, most_bytes: int) -> Done:
    """Run a command in this process, which meanwhile may write no larger files."""
    lay_out_inputs(name)
    program, *rest = COMMANDS[name]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with CliRunner().isolation() as (_, err, _), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
        try:
            return Done(terminal.run(PROGRAMS[program], program, rest), err.getvalue().decode())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


Limited = Callable[[str, int], Done | subprocess.CompletedProcess[str]]


@pytest.mark.parametrize(
    ("name", "limited"),
    [*product(COMMANDS, [run_limited_here]), *product(["json", "parquet", "conformance"], [run_limited])],
)
def test_a_command_leaves_what_was_there_where_the_disk_is_full(name: str, limited: Limited) -> None:
    """The limit of the size of files fails as a full disk does: in the middle of what is written."""
    out = outputs_of(name)
    out.parent.mkdir(exist_ok=True)
    out.write_text(BASELINE if name == "baseline" else OLD, encoding="utf-8")
    done = limited(name, FEW_BYTES)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(("Error: ", "trainspec-conformance: "))
    assert "Traceback" not in done.stderr
    assert out.read_text(encoding="utf-8") == (BASELINE if name == "baseline" else OLD)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["init", "init-all", "conformance"])
def test_a_command_leaves_no_part_where_the_disk_is_full(name: str, here: Path) -> None:
    """Neither a directory that is made for the files, nor those of them that have room."""
    sizes = sorted(len(text) for text in _written(name).values())
    for most_bytes in {FEW_BYTES, sizes[-1] - 1}:
        done = run_limited(name, most_bytes)
        assert done.returncode == 2, done.stderr
        assert list(here.iterdir()) == []


def _written(name: str) -> dict[str, bytes]:
    """What a command writes where there is room."""
    run_limited(name, 1 << 20)
    found = {path.name: path.read_bytes() for path in Path("place").iterdir()}
    shutil.rmtree("place")
    return found


def test_files_that_have_their_names_go_where_another_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("old").write_text(OLD, encoding="utf-8")
    replace = Path.replace

    def fail_for_first(path: Path, target: Path) -> Path:
        if target.name == "first":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", fail_for_first)
    with pytest.raises(OSError, match="No space left"):
        write_all({Path("a/b/first"): b"new", Path("a/last"): b"new", Path("old"): b"new"})
    assert [path.name for path in Path().iterdir()] == ["old"]


@pytest.mark.parametrize("dangling", [False, True])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_writes_through_no_link(name: str, dangling: bool, tmp_path: Path, start: Start) -> None:
    out, outside = outputs_of(name), tmp_path / "outside"
    out.parent.mkdir(exist_ok=True)
    if not dangling:
        outside.write_text(BASELINE if name == "baseline" else OLD, encoding="utf-8")
    out.symlink_to(outside)
    done = start(name)
    assert done.returncode == 2, done.stderr
    assert "nothing is written through links" in done.stderr or name == "conformance"
    assert out.is_symlink()
    assert outside.exists() is not dangling
    assert dangling or outside.read_text(encoding="utf-8") == (BASELINE if name == "baseline" else OLD)


def test_a_report_can_go_to_what_the_shell_has_open() -> None:
    text = (
        f"{BIN}/trainspec-validate {PLAN} --quiet --fail-on never --format json=/dev/fd/3 3>&1 | grep -c format_version"
    )
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr


def test_all_files_of_a_command_are_written_or_none(start: Start) -> None:
    Path("place").mkdir()
    Path("place/plan.yaml").mkdir()
    done = start("init-all")
    assert done.returncode == 2
    assert "place/plan.yaml: cannot be written: is a directory" in done.stderr
    assert [path.name for path in Path("place").iterdir()] == ["plan.yaml"]
