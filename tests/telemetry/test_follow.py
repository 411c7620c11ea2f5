"""A live run is judged while it is written: each finding once, no false alarm, in the end what one reading gives."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from split_makers import put, seen

from tests.streams_made.damage import BASES, kinds
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, together
from trainspec_validate.cli import following, terminal
from trainspec_validate.cli.validate import command as gate
from trainspec_validate.documents.types.stream import encode_record
from trainspec_validate.model.finding import Finding, Severity, Span
from trainspec_validate.model.requirements import load_index
from trainspec_validate.telemetry import follow
from trainspec_validate.telemetry.fold.build import view_of
from trainspec_validate.telemetry.fold.engine import Options, circumstances, read_run
from trainspec_validate.telemetry.follow import Follower
from trainspec_validate.telemetry.judge import judge_run

INDEX = load_index()
WANTED = [requirement for requirement in INDEX.by_id.values() if requirement.check == "stream"]
DAMAGE = {kind.name: kind for kind in kinds()}
ROUGH = frozenset({"TS-TEL-040"})
"""What compares averages, which are rough while a run is a few values old."""
SMALL = Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True)


def time_of(line: bytes) -> int:
    """Time of a line; a line that is no record was written right after the one before it."""
    try:
        return int(json.loads(line)["time_us"])
    except (ValueError, KeyError, TypeError):
        return 0


def pieces(files: Mapping[str, bytes], num: int) -> Iterator[tuple[int, dict[str, bytes]]]:
    """Moments, and how far each file is written then: its lines up to that moment, and a part of the next one."""
    times = {name: [time_of(line) for line in text.splitlines()] for name, text in files.items()}
    for name, text in files.items():  # the heads that a file begins with are written together
        num_heads = sum(b'"k":"head"' in line for line in text.splitlines())
        times[name][:num_heads] = [times[name][0]] * num_heads
    first = min(times[name][0] for name in files)
    last = max(max(moments) for moments in times.values())
    for number in range(1, num + 1):
        now = first + (last - first) * number // num
        found = {}
        for name, text in files.items():
            lines = text.splitlines(keepends=True)
            whole = next((place for place, moment in enumerate(times[name]) if moment > now), len(lines))
            cut = b"" if whole == len(lines) else lines[whole][: 7 * number % len(lines[whole])]
            found[name] = b"".join(lines[:whole]) + cut
        yield now, {name: text for name, text in found.items() if text}


def followed(files: Mapping[str, bytes], folder: Path, num: int = 12) -> tuple[Follower, list[Finding]]:
    """Follow files that are written in pieces; gives all that was told."""
    follower = Follower(WANTED, INDEX, {})
    told: list[Finding] = []
    folder.mkdir(exist_ok=True)
    for now, texts in pieces(files, num):
        for name, text in texts.items():
            with (folder / name).open("ab") as file:
                file.write(text[file.tell() :])
        told += follower.look(sorted(folder.iterdir()), now)[0]
    told += follower.look(sorted(folder.iterdir()), now)[0]
    return follower, told


def stream_files(name: str) -> dict[str, bytes]:
    """The streams of a damaged run."""
    kind = DAMAGE[name]
    return {name: text for name, text in kind.apply(make_run(BASES[kind.base])).items() if isinstance(text, bytes)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "files",
    [by_emitter(make_run(SMALL).streams), together(make_run(replace(SMALL, faults=False)).streams)],
    ids=["by emitter", "together"],
)
def test_a_sound_run_gives_no_alarm_at_any_time(files: dict[str, bytes], tmp_path: Path) -> None:
    follower, told = followed(files, tmp_path / "live", 40)
    alarms = [f"{finding.requirement} {finding.message}" for finding in told if finding.requirement not in ROUGH]
    assert alarms == []
    assert follower.has_ended
    assert not follower.refused


def test_in_the_end_the_same_was_seen(tmp_path: Path) -> None:
    files = by_emitter(make_run(SMALL).streams)
    follower, _ = followed(files, tmp_path / "live")
    wanted = seen(read_run(put(files, tmp_path / "whole")))
    found = [one.file for one in follower.followed.values()]
    view = view_of(follower.digest, circumstances(found, follower.digest, Options(is_live=True)))
    assert seen(view) == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("not-a-number", "counters-reset-again-and-again", "device-without-name", "second-job-writer", "hole"),
        *("duplicate-key", "values-written-twice", "step-jump", "lost-records", "hang", "frozen-loss", "cut-line"),
    ],
)
def test_damage_is_told_once_and_all_of_it(name: str, tmp_path: Path) -> None:
    files = stream_files(name)
    _, told = followed(files, tmp_path / "live")
    whole = put(files, tmp_path / "whole")
    wanted = {finding.requirement for finding in judge_run(whole, WANTED, INDEX, {})[1].findings}
    assert wanted
    assert wanted <= {finding.requirement for finding in told}
    messages = Counter((finding.requirement, finding.path, finding.message) for finding in told)
    assert max(messages.values()) == 1


def test_what_is_kept_does_not_grow_with_the_records(tmp_path: Path) -> None:
    """After ten times as many records of the same series the digest holds no more than before."""
    head = make_run(SMALL).streams[0].head
    lines = [encode_record(msgspec.structs.replace(head, scopes=("rank",))) + b"\n"]
    sample = '{{"k":"m","time_us":{},"seq":{},"rank":{},"m":{{"train.step.duration":1.5,"hw.power":2}}}}\n'
    lines += [sample.format(1772000000000000 + n * 1_000_000, n, n % 7).encode() for n in range(20_000)]
    path = tmp_path / "rank.jsonl"
    follower = Follower(WANTED[:1], INDEX, {})
    sizes = []
    for start in range(0, len(lines), 2_000):
        with path.open("ab") as file:
            file.write(b"".join(lines[start : start + 2_000]))
        follower.look([path], 1772000000000000)
        sizes.append(len(pickle.dumps(follower.digest)))
    assert follower.digest.num_records == 20_000
    assert sizes[-1] < 1.1 * sizes[1]


def test_a_head_that_is_not_on_its_line_yet(tmp_path: Path) -> None:
    ((name, text),) = together(make_run(SMALL).streams).items()
    follower = Follower(WANTED[:1], INDEX, {})
    path = tmp_path / name
    for size in (0, 1, 2, 9, 200):
        path.write_bytes(text[:size])
        follower.look([path], 0)
        assert not follower.followed
        assert not follower.refused
    path.write_bytes(text)
    follower.look([path], 0)
    assert follower.digest.num_records == text.count(b"\n") - len(make_run(SMALL).streams)


def test_files_that_cannot_be_followed(tmp_path: Path) -> None:
    files = by_emitter(make_run(SMALL).streams)
    text = next(iter(files.values()))
    paths = [tmp_path / "packed.jsonl.gz", tmp_path / "headless.jsonl", tmp_path / "other.txt"]
    for path, content in zip(paths, (gzip.compress(text), text.partition(b"\n")[2], b"hello\nworld\n"), strict=True):
        path.write_bytes(content)
    follower = Follower(WANTED[:1], INDEX, {})
    follower.look(paths, 0)
    assert set(follower.refused) == {path.as_posix() for path in paths}
    assert "plain JSON Lines" in follower.refused[paths[0].as_posix()]
    assert "does not begin with a head" in follower.refused[paths[1].as_posix()]


def test_a_head_that_breaks_the_schema_is_named(tmp_path: Path) -> None:
    text = next(iter(by_emitter(make_run(SMALL).streams).values()))
    path = tmp_path / "run.jsonl"
    path.write_bytes(re.sub(rb'"att":\d+', b'"att":"first"', text, count=1))
    follower = Follower(WANTED[:1], INDEX, {})
    follower.look([path], 0)
    words = 'the first line is no head: att is "first": "first" is not of type "integer" (TS-TEL-001)'
    assert follower.refused == {path.as_posix(): words}


@pytest.mark.parametrize(("damage", "code"), [(b"", 0), (b"NaN", 1)])
def test_at_the_terminal(damage: bytes, code: int, tmp_path: Path) -> None:
    """The command ends when the run does, and its exit code is that of the worst finding."""
    recent = replace(
        SMALL, faults=False, step_seconds=1.0, evaluation_seconds=1.0, start_us=time.time_ns() // 1000 - 90_000_000
    )
    files = by_emitter(make_run(recent).streams)
    if damage:
        files["job.0.jsonl"] = re.sub(rb'("train.gradient.norm":)[^,}]+', rb"\1" + damage, files["job.0.jsonl"])
    parts = [texts for _, texts in pieces(files, 4)]
    _grow(parts[0], tmp_path)
    options = ["--follow", "--interval", "0.05", *(f"--ignore={name}" for name in sorted(ROUGH))]
    command = [sys.executable, "-m", "trainspec_validate", str(tmp_path), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for texts in parts[1:]:
            time.sleep(0.3)
            assert process.poll() is None, "it goes on while the run does"
            _grow(texts, tmp_path)
        said, complaints = process.communicate(timeout=600)
    assert (process.returncode, complaints) == (code, "")
    assert ("TS-TEL-015" in said) == bool(code)


def _grow(texts: Mapping[str, bytes], folder: Path) -> None:
    """Write what is new; the job, whose stream says that the run ends, writes last."""
    for name in sorted(texts, reverse=True):
        with (folder / name).open("ab") as file:
            file.write(texts[name][file.tell() :])


def _shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def _replaced(path: Path) -> None:
    beside = path.with_name("other")
    beside.write_bytes(path.read_bytes() + b"\n")
    beside.replace(path)


def _moved_behind_a_link(path: Path) -> None:
    moved = path.with_name("moved")
    path.rename(moved)
    path.symlink_to(moved)


def _made_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Path.unlink, "no such file"),
        (_shortened, "shorter"),
        (_replaced, "another file has taken the place"),
        (_moved_behind_a_link, "another file has taken the place"),
        (_made_directory, "not a regular file"),
    ],
)
def test_a_file_that_goes_is_told_once_and_the_others_go_on(
    change: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    files = by_emitter(make_run(SMALL).streams)
    gone, other = (tmp_path / name for name in sorted(files)[:2])
    for path in (gone, other):
        path.write_bytes(files[path.name][: len(files[path.name]) // 2].rpartition(b"\n")[0] + b"\n")
    follower = Follower(WANTED[:1], INDEX, {})
    follower.look([gone, other], 0)
    before = follower.digest.num_records
    change(gone)
    other.write_bytes(files[other.name])
    for _ in range(2):
        _, judgement = follower.look([gone, other], 0)
    assert judgement is not None
    assert list(follower.refused) == [gone.as_posix()]
    assert reason in follower.refused[gone.as_posix()]
    assert follower.digest.num_records > before


def test_a_pipe_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "job.jsonl")
    follower = Follower(WANTED[:1], INDEX, {})
    assert follower.look([tmp_path / "job.jsonl"], 0) == ([], None)
    assert "not a regular file" in follower.refused[(tmp_path / "job.jsonl").as_posix()]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(gate, [*(str(argument) for argument in arguments), "--follow"])


def test_an_interrupted_look_that_saw_nothing_is_no_mistake_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "look", interrupt)
    assert invoke(tmp_path).exit_code in {1, terminal.INTERRUPTED}  # of click's runner: it aborts
    assert isinstance(invoke(tmp_path).exception, SystemExit)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130)])
def test_a_signal_is_no_pass(tmp_path: Path, number: int, code: int) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 60_000_000)
    records = [json.loads(line) for line in next(iter(by_emitter(make_run(recent).streams).values())).splitlines()]
    kept = [record for record in records if record.get("name") not in {"train.run.end", "train.attempt.end"}]
    for record in kept:
        if "train.loss.mean" in record.get("m", {}):
            record["m"]["train.flops.utilization"] = 10.0
    (tmp_path / "job.jsonl").write_text("".join(json.dumps(record) + "\n" for record in kept))
    handled = "signal.signal(signal.SIGHUP, signal.SIG_DFL); signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"import signal; {handled}; from trainspec_validate.cli.validate import main; main()"
    arguments = [sys.executable, "-c", program, str(tmp_path), "--follow", "--interval", "0.05", "--fail-on", "never"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, "coverage of run" in out, bool(first)) == (code, True, True), err


def test_what_cannot_be_followed_is_part_of_the_exit_code(tmp_path: Path) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 600_000_000)
    put(by_emitter(make_run(recent).streams), tmp_path)
    (tmp_path / "other.jsonl.gz").write_bytes(gzip.compress(b'{"k":"m"}\n'))
    found = invoke(tmp_path, "--fail-on", "never")
    assert found.exit_code == terminal.WRONG_USE
    assert found.stderr.count("other.jsonl.gz: only metric streams in plain JSON Lines can be followed") == 1


def test_the_end_of_a_file_without_a_line_end_is_named(tmp_path: Path) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 600_000_000)
    put(by_emitter(make_run(recent).streams), tmp_path)
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    name, size = min(sizes.items())
    with (tmp_path / name).open("ab") as file:
        file.write(b'{"k":"m"')
    (tmp_path / "late.jsonl").write_bytes(b'{"k":"head"')
    found = invoke(tmp_path, "--fail-on", "never")
    assert f"{name}: the last 8 bytes, from byte {size:,} on" in found.stderr
    assert "late.jsonl: the last 11 bytes, from byte 0 on" in found.stderr
    assert found.stderr.count("from byte") == 2


def test_a_signal_names_what_was_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(iter(by_emitter(make_run(SMALL).streams).values()))
    lines = [line for line in text.splitlines(keepends=True) if b".end" not in line]
    (tmp_path / "job.jsonl").write_bytes(b"".join(lines)[:-1])

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(following, "sleep", interrupt)
    found = invoke(tmp_path)
    assert f"the last {len(lines[-1]) - 1:,} bytes, from byte {sum(map(len, lines[:-1])):,} on" in found.stderr
    assert "coverage of run" in found.stdout


def test_a_signal_in_the_first_look_says_that_it_came_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = next(iter(by_emitter(make_run(SMALL).streams).values()))
    (tmp_path / "job.jsonl").write_bytes(text)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "_news", interrupt)
    told = invoke(tmp_path).stderr
    assert f"the last {len(text):,} bytes, from byte 0 on; the command was stopped before it judged them" in told
    assert "no line end" not in told


def test_what_the_search_leaves_out_is_named(tmp_path: Path) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 600_000_000)
    files = by_emitter(make_run(recent).streams)
    folder = tmp_path / "run"
    folder.mkdir()
    put(files, folder)
    (tmp_path / "outside.jsonl").write_bytes(next(iter(files.values())))
    (folder / "link.jsonl").symlink_to("../outside.jsonl")
    (folder / ".hidden.jsonl").write_bytes(next(iter(files.values())))
    found = invoke(folder, "--fail-on", "never")
    assert f"left out: {folder / 'link.jsonl'}: it is a link, which is not followed" in found.stderr
    assert f"left out: {folder / '.hidden.jsonl'}: it is hidden by a name that begins with a dot" in found.stderr
    assert found.exit_code == terminal.OK
    assert invoke(folder, "--fail-on", "unjudged").exit_code == terminal.FINDINGS


def test_documents_beside_are_named_as_not_judged(tmp_path: Path) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 600_000_000)
    put(by_emitter(make_run(recent).streams), tmp_path)
    (tmp_path / "plan.yaml").write_text(
        "apiVersion: trainspec/v1\nkind: TrainingPlan\nnum_steps: x\n", encoding="utf-8"
    )
    found = invoke(tmp_path, "--fail-on", "never")
    assert f"left out: {tmp_path / 'plan.yaml'}: documents are judged without --follow" in found.stderr


def test_a_part_that_was_read_and_is_written_anew_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = by_emitter(make_run(SMALL).streams)
    put(files, tmp_path)
    name = min(files)
    looks = Follower.look

    def look(self: Follower, *given: Any) -> Any:
        told = looks(self, *given)
        with (tmp_path / name).open("r+b") as file:
            file.seek(files[name].index(b"time_us"))
            file.write(b"emit_us")
        return told

    monkeypatch.setattr(Follower, "look", look)
    found = invoke(tmp_path, "--fail-on", "never")
    assert f"Error: {tmp_path / name}: what was read of it has been changed since" in found.stderr
    assert found.exit_code == terminal.WRONG_USE


@pytest.mark.parametrize("when", ["before a look", "after the last look"])
def test_a_replaced_file_is_not_called_a_longer_one(when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As programs that rotate logs do: the file is renamed, and another, larger one takes its name."""
    files = by_emitter(make_run(SMALL).streams)
    name = max(files, key=lambda each: len(files[each]))
    lines = files[name].splitlines(keepends=True)
    (tmp_path / name).write_bytes(b"".join(lines[: len(lines) // 2]))
    looks, num_looks = Follower.look, 0

    def look(self: Follower, *given: Any) -> Any:
        nonlocal num_looks
        num_looks += 1
        if num_looks == 2 and when == "before a look":
            rotate()
        return looks(self, *given)

    def rotate() -> None:
        (tmp_path / name).rename(tmp_path / f"{name}.1")
        (tmp_path / name).write_bytes(files[name])

    def stop(_: float) -> None:
        if num_looks == 2:
            if when == "after the last look":
                rotate()
            raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "look", look)
    monkeypatch.setattr(following, "sleep", stop)
    told = invoke(tmp_path, "--fail-on", "never").stderr
    assert f"Error: {tmp_path / name}: another file has taken the place of the one that was followed" in told
    assert "what was read counts, the rest is not judged; run the command again" in told
    assert "no line end is there" not in told
    assert f"left out: {tmp_path / name}.1: it was followed as {tmp_path / name} until it was renamed" in told


def test_a_place_that_cannot_be_searched_is_an_error(tmp_path: Path) -> None:
    recent = replace(SMALL, faults=False, start_us=time.time_ns() // 1000 - 600_000_000)
    put(by_emitter(make_run(recent).streams), tmp_path)
    found = invoke(tmp_path, tmp_path / "absent", "--fail-on", "never")
    assert f"Error: {tmp_path / 'absent'}: no such file or directory" in found.stderr
    assert found.exit_code == terminal.WRONG_USE


def test_documents_beside_that_cannot_be_read_are_wrong_use(tmp_path: Path) -> None:
    put(by_emitter(make_run(SMALL).streams), tmp_path)
    os.mkfifo(tmp_path / "plan.yaml")
    found = invoke(tmp_path / "plan.yaml", tmp_path)
    assert found.exit_code == terminal.WRONG_USE
    assert "not a regular file" in found.stderr


@pytest.mark.parametrize("wanted", ["json", "sarif=out.sarif"])
def test_a_format_that_following_cannot_write_is_refused(wanted: str, tmp_path: Path) -> None:
    found = invoke(tmp_path, "--format", wanted)
    assert found.exit_code == terminal.WRONG_USE
    assert "use --format concise with it" in found.stderr
    assert not Path("out.sarif").exists()


@pytest.mark.parametrize(
    "change",
    [Path.unlink, lambda path: path.rename(path.with_suffix(".old")), _shortened],
    ids=["gone", "moved", "cut"],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_it_ends_once_no_stream_is_left(
    change: Callable[[Path], object], is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = together(make_run(SMALL).streams).values()
    path = tmp_path / "run.jsonl"
    path.write_bytes(text[: len(text) // 2].rpartition(b"\n")[0] + b"\n")
    looks: list[float] = []

    def wait(_seconds: float) -> None:
        looks.append(len(looks) * 30.0)
        if len(looks) == 2:
            change(path)

    monkeypatch.setattr(following, "sleep", wait)
    monkeypatch.setattr(following, "monotonic", lambda: len(looks) * 30.0)
    result = invoke(path if is_named else tmp_path)
    assert result.exit_code == 2
    assert "no stream is left to follow, and none came in 60 s" in result.output
    assert f"Error: {path}: " in result.output
    assert 4 <= len(looks) <= 5


def test_another_stream_that_comes_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = by_emitter(make_run(SMALL).streams)
    names = sorted(files)
    (tmp_path / names[0]).write_bytes(files[names[0]][: len(files[names[0]]) // 2].rpartition(b"\n")[0] + b"\n")
    looks: list[int] = []

    def wait(_seconds: float) -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            (tmp_path / names[0]).unlink()
        if len(looks) == 3:
            for name in names[1:]:
                (tmp_path / name).write_bytes(files[name])

    monkeypatch.setattr(following, "sleep", wait)
    monkeypatch.setattr(following, "monotonic", lambda: len(looks) * 25.0)
    result = invoke(tmp_path)
    assert result.exit_code == 2  # the one that is gone
    assert "no stream is left" not in result.output


def test_a_file_without_a_head_that_goes_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"k":"head"')
    follower = Follower(WANTED[:1], INDEX, {})
    follower.look([path], 0)
    assert follower.headless
    path.unlink()
    follower.look([], 0)
    assert not follower.headless


# --- while it lasts -----------------------------------------------------------------------------------------

STEADY = replace(SMALL, faults=False, num_steps=400, step_seconds=1.0)


class Live:
    """A run that is written up to a moment, and is looked at then and later."""

    def __init__(self, folder: Path, files: Mapping[str, bytes]) -> None:
        self.folder, self.follower = folder, Follower(WANTED, INDEX, {})
        self.begin = min(time_of(text.splitlines()[0]) for text in files.values())
        self.lines = {name: text.splitlines(keepends=True) for name, text in files.items()}

    def write(self, seconds: float, names: str = "") -> None:
        """Write all records up to a moment of the run, of the files whose names hold a word."""
        until = self.begin + round(seconds * 1e6)
        for name in sorted(name for name in self.lines if names in name):
            path = self.folder / name
            path.write_bytes(b"".join(line for line in self.lines[name] if time_of(line) <= until))
            os.utime(path, ns=(until * 1000, until * 1000))

    def look(self, seconds: float) -> list[Finding]:
        """What is new at a moment of the run."""
        return self.follower.look(sorted(self.folder.iterdir()), self.begin + round(seconds * 1e6))[0]


def live(folder: Path) -> Live:
    return Live(folder, by_emitter(make_run(STEADY).streams))


def test_a_hang_is_reported_once_while_it_lasts(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(150)
    assert [f.requirement for f in run.look(150) if f.requirement not in ROUGH] == []
    assert run.follower.waits == {}
    run.look(172)
    (what,) = (what for what in run.follower.waits if what.startswith("no step after step"))
    assert "no event says why" in run.follower.waits[what]
    told = [finding for seconds in range(180, 260, 5) for finding in run.look(seconds)]
    found = [finding for finding in told if finding.requirement == "TS-TEL-033"]
    assert len(found) == 1
    assert "no step is completed for" in found[0].message
    run.write(270)
    run.look(270)
    assert not any(what.startswith("no step") for what in run.follower.waits)


def test_a_rank_that_falls_silent_is_reported_while_the_others_go_on(tmp_path: Path) -> None:
    run = live(tmp_path)
    name = next(name for name in sorted(run.lines) if name.startswith("rank"))
    told: list[Finding] = []
    for seconds in range(10, 260, 10):
        for other in run.lines:
            if other != name or seconds <= 120:
                run.write(seconds, other)
        told += run.look(seconds)
        if seconds == 150:
            assert any(what.startswith("nothing from rank") for what in run.follower.waits)
    found = [finding for finding in told if finding.path.endswith(name) and finding.requirement == "TS-TEL-023"]
    assert len({finding.evidence.series for finding in found if finding.evidence}) == len(found) > 0
    assert "before now, and attempt 0 continues" in found[0].message


def test_a_finding_whose_line_moves_is_the_same_and_one_that_comes_to_it_is_new(tmp_path: Path) -> None:
    run = live(tmp_path)
    first, second, third = (finding_at(line) for line in (5, 9, 12))
    assert list(run.follower._new([first])) == [first]
    assert list(run.follower._new([second])) == []
    assert list(run.follower._new([second, third])) == [third]
    assert list(run.follower._new([third])) == []
    assert run.follower.withdrawn == [second]
    assert list(run.follower._new([])) == []
    assert list(run.follower._new([first])) == [first]


def finding_at(line: int) -> Finding:
    """One finding of a kind."""
    span = Span(line, 1, line, 2)
    return Finding("TS-TEL-049", "goodput-closed", Severity.ERROR, f"at line {line}", "job.jsonl", span=span)


def test_scopes_are_not_asked_for_before_their_emitters_can_have_come(tmp_path: Path) -> None:
    run = live(tmp_path)
    (node,) = (name for name in run.lines if name.startswith("node"))
    del run.lines[node]
    told: dict[int, set[str]] = {}
    for seconds in (5, 30, 90):
        run.write(seconds)
        told[seconds] = {finding.requirement for finding in run.look(seconds)}
    assert ["TS-TEL-071" in told[seconds] for seconds in told] == [False, False, True]


def test_a_clock_that_is_wrong_makes_no_hang_and_no_silence(tmp_path: Path) -> None:
    """One writer is ten minutes ahead of the others; that its clock is wrong is another finding."""
    run = live(tmp_path)
    name = next(name for name in sorted(run.lines) if name.startswith("rank"))
    run.lines[name] = [
        re.sub(rb'"time_us":(\d+)', lambda found: b'"time_us":%d' % (int(found[1]) + 600_000_000), line)
        for line in run.lines[name]
    ]
    told: set[str] = set()
    for seconds in range(20, 200, 20):
        run.write(seconds)
        path = run.folder / name
        until = run.begin + (seconds + 600) * 1_000_000
        path.write_bytes(b"".join(line for line in run.lines[name] if time_of(line) <= until))
        os.utime(path, ns=((until - 600_000_000) * 1000,) * 2)
        told |= {finding.requirement for finding in run.look(seconds)}
        assert run.follower.waits == {}
    assert not told & {"TS-TEL-023", "TS-TEL-033"}
    assert "TS-TEL-016" in told


def set_back(time_us: int, start_us: int) -> bytes:
    """Ten minutes less from a moment on."""
    return b'"time_us":%d' % (time_us - 600_000_000 * (time_us > start_us))


def test_a_clock_that_is_set_back_and_file_times_behind_it_make_no_hang(tmp_path: Path) -> None:
    """Ten minutes back at 100 s, and a file server a minute behind."""
    run = live(tmp_path)
    start = run.begin + 100_000_000
    pattern = re.compile(rb'"time_us":(\d+)')
    back = {
        name: [pattern.sub(lambda found: set_back(int(found[1]), start), line) for line in lines]
        for name, lines in run.lines.items()
    }
    told: set[str] = set()
    for seconds in range(10, 200, 10):
        run.write(seconds)
        for name, lines in run.lines.items():
            num = sum(time_of(line) <= run.begin + seconds * 1_000_000 for line in lines)
            (tmp_path / name).write_bytes(b"".join(back[name][:num]))
            os.utime(tmp_path / name, ns=((run.begin + (seconds - 60) * 1_000_000) * 1000,) * 2)
        told |= {finding.requirement for finding in run.look(seconds)}
        assert not [what for what in run.follower.waits if "no step" in what]
    assert "TS-TEL-033" not in told


def test_what_a_lost_file_would_show_is_no_fault_of_the_run(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(150)
    run.look(150)
    job = next(name for name in run.lines if name.startswith("job"))
    (tmp_path / job).rename(tmp_path / "gone")
    told = {
        finding.requirement
        for seconds in (160, 200, 300)
        for finding in run.follower.look([tmp_path / name for name in run.lines], run.begin + seconds * 1_000_000)[0]
    }
    assert not told & {"TS-TEL-023", "TS-TEL-033"}
    assert run.follower.waits == {}
    assert len(run.follower.refused) == 1


def test_a_second_run_in_the_directory_is_refused_by_name(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(100)
    other = run.folder / "zz-job.0.jsonl"
    job = next(name for name in run.lines if name.startswith("job"))
    name = json.loads(run.lines[job][0])["run"].encode()
    other.write_bytes((tmp_path / job).read_bytes().replace(b'"run":"%s"' % name, b'"run":"another"'))
    os.utime(other, (0, 0))
    run.look(100)
    assert "it is of run another" in run.follower.refused[other.as_posix()]


def test_the_run_that_was_written_last_is_followed(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(100)
    old = run.folder / "a-job.0.jsonl"
    job = next(name for name in run.lines if name.startswith("job"))
    name = json.loads(run.lines[job][0])["run"].encode()
    old.write_bytes(b"".join(run.lines[job]).replace(b'"run":"%s"' % name, b'"run":"old"'))
    os.utime(old, (0, 0))
    run.look(100)
    assert not run.follower.has_ended
    assert "it is of run old" in run.follower.refused[old.as_posix()]


def evaluations(run: Live, *spans: tuple[int, int]) -> None:
    """Add evaluations, in which nothing else is written, by an emitter of their own."""
    job = next(name for name in run.lines if name.startswith("job"))
    head = json.loads(run.lines[job][0])
    found: list[dict[str, object]] = [head | {"emitter": "evaluator", "scopes": ["emitter"]}]
    for number, span in enumerate(spans):
        for word, at in zip(("begin", "end"), span, strict=True):
            time_us = run.begin + at * 10**6
            event = {"k": "e", "time_us": time_us, "seq": len(found) - 1, "observed_us": time_us, "step": 1}
            found.append(event | {"name": f"train.evaluation.{word}", "id": f"eval-{number}"})
            if word == "end":
                found[-1]["a"] = {"train.evaluation.set": "held-out"}
    for name, lines in run.lines.items():
        during = [[run.begin + at * 10**6 for at in span] for span in spans]
        during_all = [one for one in lines if any(begin < time_of(one) < end for begin, end in during)]
        run.lines[name] = [one for one in lines if one not in during_all or b'"k":"e"' in one]
    run.lines["evaluator.0.jsonl"] = [json.dumps(one, separators=(",", ":")).encode() + b"\n" for one in found]


def test_an_evaluation_as_long_as_those_before_explains_that_no_update_comes(tmp_path: Path) -> None:
    run = live(tmp_path)
    evaluations(run, (80, 110), (150, 350))
    waits = {}
    for seconds in (130, 175, 235, 320, 360):
        run.write(seconds)
        run.look(seconds)
        waited = [what for what in run.follower.waits if "nothing" not in what]
        waits[seconds] = [what.split(" since")[0].split(" step")[0] for what in waited]
    assert waits == {130: [], 175: [], 235: [], 320: ["an evaluation"], 360: []}


def test_a_rank_that_hangs_and_shows_that_it_lives_is_behind_all_the_time(tmp_path: Path) -> None:
    run = live(tmp_path)
    name = max(name for name in run.lines if name.startswith("rank"))
    begin = run.begin + 120 * 10**6
    alive = [line for line in run.lines[name] if time_of(line) <= begin]
    last = json.loads(alive[-1])
    for place in range(1, 20):
        time_us = begin + place * 10**7
        beat = last | {"time_us": time_us, "observed_us": time_us, "seq": last["seq"] + place}
        alive.append(json.dumps(beat, separators=(",", ":")).encode() + b"\n")
    run.lines[name] = alive
    found, withdrawn = [], []
    for seconds in range(100, 220, 2):
        run.write(seconds)
        found += [finding for finding in run.look(seconds) if finding.requirement == "TS-TEL-032"]
        withdrawn += [finding for finding in run.follower.withdrawn if finding.requirement == "TS-TEL-032"]
    assert (len(found), withdrawn) == (1, [])


def paused(run: Live, *spans: tuple[int, int]) -> None:
    """Leave out all samples of some times."""
    for name, lines in run.lines.items():
        during = [[run.begin + at * 10**6 for at in span] for span in spans]
        kept = [one for one in lines if b'"k":"e"' in one or not any(a < time_of(one) < b for a, b in during)]
        run.lines[name] = kept


def no_update(run: Live, seconds: int) -> bool:
    run.write(seconds)
    run.look(seconds)
    return any(what.startswith("no step") for what in run.follower.waits)


def test_a_pause_that_came_twice_before_is_a_habit(tmp_path: Path) -> None:
    run = live(tmp_path)
    paused(run, (60, 100), (120, 160), (180, 220), (240, 400))
    assert [no_update(run, at) for at in (90, 110, 150, 170, 215, 230, 290, 330)] == [
        *(True, False, True, False, False, False, False, True)
    ]


def test_a_declared_warm_up_has_two_minutes(tmp_path: Path) -> None:
    run = live(tmp_path)
    paused(run, (100, 400))
    job = next(name for name in run.lines if name.startswith("job"))
    place = next(at for at, line in enumerate(run.lines[job]) if time_of(line) > run.begin + 100 * 10**6)
    last = json.loads(run.lines[job][place - 1])
    time_us = run.begin + 101 * 10**6
    event = {"k": "e", "time_us": time_us, "seq": last["seq"] + 1, "name": "train.step.warmup_reset", "step": 1}
    event |= {"id": "w", "observed_us": time_us, "a": {"train.step.warmup.reason": "compilation"}}
    run.lines[job].insert(place, json.dumps(event, separators=(",", ":")).encode() + b"\n")
    assert [no_update(run, at) for at in (130, 210, 240)] == [False, False, True]


def test_a_job_that_is_gone_gives_one_line_on_its_emitters(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(150)
    run.look(150)
    run.look(190)
    assert [what for what in run.follower.waits if what.startswith("nothing")] == ["nothing from any emitter"]
    assert "wrote before: node/h-00000, rank-000000, rank-000001" in run.follower.waits["nothing from any emitter"]


def test_a_metric_that_is_reported_seldom_is_not_missing_yet(tmp_path: Path) -> None:
    run = live(tmp_path)
    late = run.begin + 250 * 10**6
    for name, lines in run.lines.items():
        early = [re.sub(rb'"train.loss.mean":[^,}]*,', b"", line) for line in lines if time_of(line) < late]
        run.lines[name] = [*early, *(line for line in lines if time_of(line) >= late)]
    found = []
    for seconds in range(20, 300, 10):
        run.write(seconds)
        found += [finding.message for finding in run.look(seconds) if "train.loss.mean" in finding.message]
    assert found == []


def test_a_line_longer_than_a_block_leaves_what_was_read_as_it_is(tmp_path: Path) -> None:
    run = live(tmp_path)
    job = next(name for name in run.lines if name.startswith("job"))
    run.write(100)
    run.look(100)
    with (tmp_path / job).open("ab") as file:
        file.write(b'{"k":"m","x":"%s"}\n' % (b"x" * 20_000_000))
    run.look(101)
    assert list(run.follower.rewritten()) == []


def test_a_long_line_without_an_end_is_not_looked_through_at_every_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = live(tmp_path)
    job = next(name for name in run.lines if name.startswith("job"))
    run.write(100)
    run.look(100)
    path, reads, read = tmp_path / job, [], follow.blocks
    monkeypatch.setattr(follow, "blocks", lambda path, start: reads.append(path.name) or read(path, start))
    os.truncate(path, path.stat().st_size + 20_000_000)
    for seconds in range(101, 111):
        run.look(seconds)
    assert reads.count(job) == 2, "as it grew, and once more, since it may change within a tick of its clock"
    with path.open("ab") as file:
        file.write(b"\n" + b"".join(line for line in run.lines[job] if time_of(line) > run.begin + 100_000_000))
    run.look(1_000)
    assert run.follower.followed[path.as_posix()].offset == path.stat().st_size


def test_a_file_that_is_renamed_is_named_by_its_new_name(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(100)
    run.look(100)
    job = next(name for name in run.lines if name.startswith("job"))
    (tmp_path / job).rename(tmp_path / "job.0.jsonl.1")
    run.follower.look([], run.begin + 110 * 10**6)
    assert "it was renamed to job.0.jsonl.1" in run.follower.refused[(tmp_path / job).as_posix()]


def test_a_file_that_is_renamed_to_a_name_that_is_searched_is_not_read_again(tmp_path: Path) -> None:
    run = live(tmp_path)
    run.write(100)
    run.look(100)
    job = next(name for name in run.lines if name.startswith("job"))
    (tmp_path / job).rename(tmp_path / "before.jsonl")
    told = [finding.requirement for seconds in (101, 102) for finding in run.look(seconds)]
    assert set(told) <= ROUGH
    assert (tmp_path / "before.jsonl").as_posix() not in run.follower.followed
    assert "it was renamed to before.jsonl" in run.follower.refused[(tmp_path / job).as_posix()]


def test_an_attempt_that_ended_without_another_is_named(tmp_path: Path) -> None:
    run = live(tmp_path)
    ends = {name: [line for line in lines if b"train.run.end" not in line] for name, lines in run.lines.items()}
    last = max(time_of(line) for lines in ends.values() for line in lines)
    run.lines = ends
    seconds = (last - run.begin) / 1e6
    run.write(seconds)
    run.look(seconds)
    run.look(seconds + 25)
    assert [what for what in run.follower.waits if what.startswith("no attempt after attempt 0")]


def test_what_cannot_be_followed_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "[titan] 2025-01-01 00:00:0{},000 - root - INFO - step:  {}  loss: 12.2  grad_norm: 1.0  tps: 100\n"
    Path("train.log").write_text("".join(line.format(step, step) for step in range(1, 9)))
    for arguments, words in [
        (["-"], "--follow reads files that grow"),
        (["run", "--statistics", "--quiet"], "--follow has no --statistics and no --quiet"),
        (["train.log"], "no PATH can be followed"),
    ]:
        result = CliRunner().invoke(gate, [*arguments, "--follow"])
        assert (result.exit_code, words in result.output) == (2, True), result.output


@pytest.mark.parametrize("grows", [True, False])
def test_a_log_that_cannot_be_followed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, grows: bool
) -> None:
    line = "iter {}: loss 2.5, time 250.00ms, mfu 30.00%\\n"
    log = tmp_path / "train.log"
    log.write_text("".join(line.format(step) for step in range(9)))
    monkeypatch.setattr(following, "LOST_SECONDS", 0.0)
    looks = iter(range(9, 20))

    def wait(seconds: float) -> None:
        step = next(looks, None)
        if step is None:
            raise KeyboardInterrupt
        if grows:
            log.write_text(log.read_text() + line.format(step))

    monkeypatch.setattr(following, "sleep", wait)
    result = CliRunner().invoke(gate, [str(tmp_path), "--follow"])
    assert "its format is nanogpt-iterations-log, and only metric streams in plain JSON Lines can" in result.output
    assert "judge it again as it grows, such as with `watch -n 60 trainspec-validate FILE`" in result.output
    assert ("Error: no stream is left to follow" in result.output) is grows
    assert (next(looks, None) is not None) is grows


def test_a_name_cannot_pass_for_a_line_about_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in by_emitter(make_run(SMALL).streams).items():
        Path(f"now: no step {name}").write_bytes(text + b"{}\n")
    result = CliRunner().invoke(gate, [*(path.name for path in Path().iterdir()), "--follow", "--interval", "0.05"])
    lines = [line for line in result.stdout.splitlines() if "TS-TEL-001" in line]
    assert lines
    assert not [line for line in lines if line.startswith("now:")]
