"""A file that cannot be read fails alone, with exit status 2; a mistake of ours is exit status 3."""

from __future__ import annotations

import ast
import errno
import json
import lzma
import os
import pickle
import re
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli import terminal
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline import reading, streams, validation
from trainspec_validate.system.boundary import (
    UnreadableError,
    open_regular,
    reason_of,
    refusal_of,
    untrusted,
    words_of,
)
from trainspec_validate.system.budget import Limit, OverLimitError
from trainspec_validate.telemetry.fold import engine, large

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "spec" / "v1" / "base"
GOOD = (BASE / "plan.yaml").read_text(encoding="utf-8")
BAD = GOOD.replace("  data: 4", "  dtaa: 4")
HEAD = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r-1", "att": 0, "scopes": ["rank"]}
TIME = 1_767_225_600_000_000


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "FORCE_COLOR", "TRAINSPEC_DEBUG"):
        monkeypatch.delenv(name, raising=False)


def write(name: str, text: str | bytes) -> str:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM)


def stream(name: str, *, run: str = "r-1", rank: int = 0, num: int = 5) -> str:
    """A stream of one rank with a few values."""
    lines: list[Any] = [{**HEAD, "run": run, "emitter": name, "rank": rank, "time_us": TIME}]
    for number in range(num):
        values = {"train.rank.step": float(number)}
        lines.append({"k": "m", "time_us": TIME + number * 1_000_000, "seq": number, "m": values})
    return write(f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


# --- what is a failure of an input, and what is a mistake of ours -------------------------------------------

OF_INPUTS: list[Exception] = [
    *(OSError(errno.EIO, "input/output error"), OSError("no number"), PermissionError(errno.EACCES, "denied")),
    *(FileNotFoundError(errno.ENOENT, "gone"), IsADirectoryError(errno.EISDIR, "a directory"), EOFError()),
    *(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")),
    *(ValueError("embedded\nnull byte"), RecursionError("too deep"), OverflowError("inf"), MemoryError()),
    *(struct.error("short"), zlib.error("bad"), lzma.LZMAError("bad"), zipfile.BadZipFile("no zip")),
    OverLimitError(Limit("a file of this test", 1, "bytes")),
]
OF_OURS: list[Exception] = [
    *(KeyError("k"), IndexError(0), TypeError("t"), AttributeError("a"), AssertionError(), ZeroDivisionError()),
    *(NotImplementedError(), RuntimeError("r"), NameError("n"), ImportError("i")),
]


@pytest.mark.parametrize("error", OF_INPUTS, ids=repr)
def test_what_content_and_storage_raise_is_a_failure_of_the_file(error: Exception) -> None:
    with pytest.raises(UnreadableError) as failed, untrusted(lambda *words: UnreadableError("x.yaml", *words)):
        raise error
    name, reason, remedy = failed.value.name, failed.value.reason, failed.value.help
    assert str(failed.value) == f"{name}: {reason}; {remedy}"
    assert reason
    assert remedy
    assert "\n" not in str(failed.value)
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)


def test_errors_of_libraries_are_failures_of_the_file() -> None:
    pa = pytest.importorskip("pyarrow")
    zstandard = pytest.importorskip("zstandard")
    assert refusal_of(pa.ArrowKeyError("no column"))
    assert refusal_of(zstandard.ZstdError("damaged"))


@pytest.mark.parametrize("error", OF_OURS, ids=repr)
def test_a_mistake_of_ours_passes_through(error: Exception) -> None:
    assert refusal_of(error) is None
    with pytest.raises(type(error)), untrusted(lambda *words: UnreadableError("x.yaml", *words)):
        raise error


@pytest.mark.slow
def test_a_module_that_cannot_be_loaded_is_a_mistake_of_ours(tmp_path: Path) -> None:
    """It is loaded while a file is read, and its compiled form ends early, as after a full disk."""
    compiled = tmp_path / "compiled"
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-m", "trainspec_validate", stream("s")]
    whole = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert whole.returncode in {0, 1}, whole.stderr
    [file] = compiled.rglob("trainspec_validate/telemetry/formats/native.*.pyc")
    os.truncate(file, 16)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "The mistake is ours" in done.stderr


@pytest.mark.parametrize("error", [*OF_INPUTS, *OF_OURS], ids=repr)
def test_whatever_a_rule_raises_is_a_mistake_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(validation, "run_rules", broken)
    assert terminal.run(command, PROGRAM, [write("plan.yaml", GOOD)]) == 3
    assert "The mistake is ours" in capsys.readouterr().err


@pytest.mark.parametrize("error", OF_INPUTS, ids=repr)
def test_whatever_a_check_of_streams_raises_is_a_mistake_of_ours(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("trainspec_validate.telemetry.judge.evaluate_all", broken)
    assert terminal.run(command, PROGRAM, [stream("s")]) == 3
    assert "The mistake is ours" in capsys.readouterr().err


@pytest.mark.parametrize("error", OF_INPUTS, ids=repr)
def test_one_file_fails_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    load = reading.load_text

    def broken(content: bytes, path: str) -> object:
        if path == "b/hostile.yaml":
            raise error
        return load(content, path)

    monkeypatch.setattr(reading, "load_text", broken)
    for name in ("a/plan.yaml", "b/hostile.yaml", "c/plan.yaml"):
        write(name, BAD)
    result = invoke(".")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: b/hostile.yaml: ")
    assert len(result.stderr.splitlines()) == 1
    assert "a/plan.yaml" in result.stdout
    assert "c/plan.yaml" in result.stdout
    assert "hostile" not in result.stdout


# --- settings -----------------------------------------------------------------------------------------------

SETTINGS: dict[str, bytes] = {
    "deep": b"a = " + b"[" * 100_000,
    "digits": b"a = " + b"9" * 5_000,
    "nul": b'waivers = "a\\u0000b.yaml"',
    "long": b'waivers = "' + b"x" * 5_000 + b'"',
    "surrogate": b'waivers = "\xed\xa0\x80"',
    "large": b"#" * 1_000_001,
    "not-toml": b"=",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_that_cannot_be_read_are_wrong_use(name: str) -> None:
    write("trainspec.toml", SETTINGS[name])
    result = invoke(write("plan.yaml", GOOD))
    assert result.exit_code == 2, result.exception
    assert len(result.stderr.splitlines()) == 1


def test_settings_are_told_with_their_limit() -> None:
    write("trainspec.toml", SETTINGS["large"])
    assert "a settings file may have at most 1,000,000 bytes" in invoke(write("plan.yaml", GOOD)).stderr


# --- names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["x" * 300, "x/" * 3_000 + "y", "a\\u0000b", "x" * 255 + ".yaml", "\\ud800"])
def test_no_name_in_a_reference_stops_the_run(file: str) -> None:
    write("plan.yaml", re.sub(r"(?m)^cluster:.*\n(?:  .*\n)*", "", GOOD) + f'cluster: {{file: "{file}"}}\n')
    result = invoke(".")
    assert result.exit_code == 1, result.exception
    assert max(map(len, result.stdout.splitlines())) < 2_000


def test_no_name_in_a_baseline_stops_the_run() -> None:
    names = ["x" * 300, "a/" * 3_000, "a\0b", "\N{SNOWMAN}" * 100]
    entries = [{"file": name, "requirement": "TS-PAR-001", "pointer": "", "count": 1} for name in names]
    write("known.json", json.dumps({"format_version": "1", "findings": entries}))
    result = invoke(write("plan.yaml", GOOD), "--baseline", "known.json")
    assert result.exit_code in {0, 1}, result.exception


@pytest.mark.parametrize("name", ["x" * 300 + ".yaml", "a/" * 3_000, "x" * 300 + "*", "\udcff.yaml"])
def test_no_argument_stops_the_run(name: str) -> None:
    result = invoke(name, write("plan.yaml", BAD))
    assert result.exit_code == 2, result.exception
    assert "plan.yaml" in result.stdout


# --- what is no file, or no longer one ----------------------------------------------------------------------


def _fifo(name: str) -> None:
    os.mkfifo(name)


def _device(name: str) -> None:
    Path(name).symlink_to("/dev/zero")


def _loop(name: str) -> None:
    Path(name).symlink_to(name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("suffix", ["yaml", "json", "jsonl", "jsonl.gz", "parquet", "prom", "log"])
@pytest.mark.parametrize("make", [_fifo, _device, _loop])
def test_what_is_no_file_is_told_and_hinders_no_other(make: Callable[[str], None], suffix: str) -> None:
    make(f"odd.{suffix}")
    write("plan.yaml", BAD)
    result = invoke(f"odd.{suffix}", ".")
    assert result.exit_code == 2, result.exception
    assert f"Error: odd.{suffix}: " in result.stderr
    assert "plan.yaml" in result.stdout


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("suffix", ["yaml", "jsonl", "prom"])
def test_a_pipe_in_a_directory_is_told(suffix: str) -> None:
    _fifo(f"odd.{suffix}")
    write("plan.yaml", BAD)
    result = invoke(".")
    assert result.exit_code == 2
    assert "this is not a regular file" in result.stderr
    assert "plan.yaml" in result.stdout
    imported = CliRunner().invoke(toolbox, ["import", f"odd.{suffix}"], prog_name="trainspec")
    assert imported.exit_code == 2


def test_a_directory_that_cannot_be_listed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refused(path: Any = ".") -> Any:
        if Path(path).name == "shut":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    write("shut/plan.yaml", BAD)
    write("open/plan.yaml", BAD)
    monkeypatch.setattr(os, "scandir", refused)
    result = invoke(".")
    assert result.exit_code == 2
    assert "shut: the directory cannot be read: permission denied" in result.stderr
    assert "open/plan.yaml" in result.stdout


def test_directories_end_at_a_limit() -> None:
    deep = Path(*["d"] * 101)
    write(str(deep / "plan.yaml"), BAD)
    write("plan.yaml", BAD)
    result = invoke(".")
    assert result.exit_code == 2
    assert "a directory may have at most 100 levels of directories" in result.stderr
    assert "\nplan.yaml" in f"\n{result.stdout}"


@pytest.mark.parametrize("change", ["unlink", "truncate", "directory", "text"])
@pytest.mark.parametrize("suffix", ["yaml", "jsonl"])
def test_what_changes_between_search_and_reading_fails_alone(
    change: str, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream("b") if suffix == "jsonl" else write("b.yaml", BAD)
    write("a.yaml", BAD)
    search = validation.search

    def changing(*arguments: Any) -> Any:
        found = search(*arguments)
        _change(Path(f"b.{suffix}"), change)
        return found

    monkeypatch.setattr(validation, "search", changing)
    result = invoke(".")
    assert result.exit_code in {1, 2}, result.exception
    assert "a.yaml" in result.stdout
    assert result.stderr.count("b.") == (change in {"unlink", "directory"})


def _change(path: Path, how: str) -> None:
    if how == "truncate":
        os.truncate(path, path.stat().st_size // 2)
        return
    path.unlink()
    if how == "directory":
        path.mkdir()
    elif how == "text":
        path.write_bytes(b"\xff\x00" * 100)


@pytest.mark.parametrize("change", ["unlink", "truncate", "directory", "text"])
@pytest.mark.parametrize("is_large", [False, True])
def test_a_stream_that_changes_takes_no_other_with_it(
    change: str, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_large:  # read by several processes
        monkeypatch.setattr(engine, "AT_ONCE_BYTES", 0)
        monkeypatch.setattr(large, "_LEAST_BYTES", 200)
    for rank in range(3):
        stream(f"rank-{rank}", rank=rank)
    stream("other", run="r-2")
    grouped = streams.runs

    def changing(files: Sequence[Any]) -> Any:
        found = grouped(files)
        _change(Path("rank-1.jsonl"), change)
        return found

    monkeypatch.setattr(streams, "runs", changing)
    result = invoke(".", "--workers", "2", "--format", "json")
    assert result.exit_code in {0, 1, 2}, result.exception
    assert result.stderr.count("rank-1.jsonl: ") == (change in {"unlink", "directory"})
    judged = {entry["path"] for entry in json.loads(result.stdout)["documents"]}
    wanted = {"rank-0.jsonl", "rank-2.jsonl", "other.jsonl"}
    assert judged == wanted | (set() if change in {"unlink", "directory"} else {"rank-1.jsonl"})


def test_streams_that_all_vanish_are_each_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [stream(f"rank-{rank}", rank=rank) for rank in range(5)]
    grouped = streams.runs

    def vanishing(files: Sequence[Any]) -> Any:
        found = grouped(files)
        for name in names:
            Path(name).unlink()
        return found

    monkeypatch.setattr(streams, "runs", vanishing)
    result = invoke(".")
    assert result.exit_code == 2
    assert sorted(line.split(": ")[1] for line in result.stderr.splitlines()) == names


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path)


# --- content ------------------------------------------------------------------------------------------------


def _parquet(name: str, **columns: Any) -> str:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet as pq

    head = {**HEAD, "emitter": "p", "rank": 0, "time_us": TIME}
    num = 4
    found: dict[str, Any] = {
        **{key: pa.array([None] * num, pa.int64()) for key in ("att", "step", "rank")},
        "time_us": pa.array([TIME + number for number in range(num)], pa.int64()),
        "seq": pa.array([None, *range(num - 1)], pa.int64()),
        **{key: pa.array([None] * num, pa.string()) for key in ("host", "device", "emitter")},
        "train.rank.step": pa.array([None, 1.0, 2.0, 3.0], pa.float64()),
        "json": pa.array([json.dumps(head), None, None, None], pa.string()),
        **columns,
    }
    table = pa.table(found).replace_schema_metadata({b"trainspec.stream": b"1"})
    pq.write_table(table, name, use_dictionary=False)
    return name


def _wrong(*texts: bytes | None) -> Any:
    """A column of texts that are no UTF-8."""
    import pyarrow as pa

    return pa.array(texts, pa.binary()).view(pa.string())


def test_parquet_of_sound_texts_is_read() -> None:
    assert invoke(_parquet("s.parquet"), "--select", "TS-TEL-001").exit_code == 0


def test_parquet_of_texts_that_are_no_utf8_is_told() -> None:
    pytest.importorskip("pyarrow")
    for name in ("host", "device", "emitter"):
        result = invoke(_parquet(f"{name}.parquet", **{name: _wrong(None, b"\xff", b"a", b"b")}))
        assert result.exit_code == 1, result.exception
        assert "TS-TEL-001" in result.stdout
    result = invoke(_parquet("json.parquet", json=_wrong(b'{"k":"\xff"}', None, b"\xff", None)))
    assert result.exit_code == 1, result.exception
    assert "is not UTF-8" in result.stdout


@pytest.mark.slow
def test_any_damage_of_parquet_is_told() -> None:
    content = Path(_parquet("s.parquet")).read_bytes()
    for place in range(0, len(content), 29):
        damaged = bytearray(content)
        damaged[place] ^= 0x81
        result = invoke(write("s.parquet", bytes(damaged)))
        assert result.exit_code in {0, 1, 2}, (place, result.exception)


@pytest.mark.parametrize(
    ("num_bytes", "num_footer_bytes", "told"),
    [
        (90 << 20, 80 << 20, "the footer of a Parquet file may have at most 67,108,864 bytes"),
        (90 << 20, 0xFFFF_FFF0, "its footer of 4,294,967,280 bytes begins before the file does"),
        (1 << 20, 2 << 20, "its footer of 2,097,152 bytes begins before the file does"),
        (1 << 20, 1 << 19, "its content cannot be read: "),
    ],
)
def test_the_stated_length_of_a_footer_is_not_believed(num_bytes: int, num_footer_bytes: int, told: str) -> None:
    pytest.importorskip("pyarrow")
    with Path("s.parquet").open("wb") as file:
        file.write(b"PAR1")
        file.truncate(num_bytes)
        file.seek(0, 2)
        file.write(num_footer_bytes.to_bytes(4, "little") + b"PAR1")
    result = invoke("s.parquet")
    assert result.exit_code == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PAR1PAR1", "it has 8 bytes, and the shortest Parquet file has more"),
        (b"PAR1PAR1PAR1", "its footer of 827,474,256 bytes begins before the file does"),
        (b"PAR1" + bytes(60), "it does not end with the mark of a Parquet file, PAR1"),
    ],
)
def test_a_cut_parquet_file_is_said_to_be_no_sound_one(content: bytes, told: str) -> None:
    pytest.importorskip("pyarrow")
    result = invoke(write("s.parquet", content))
    assert result.exit_code == 2
    assert f"the file is no sound Parquet: its content cannot be read: {told}" in result.stderr


def test_words_of_libraries_are_one_line() -> None:
    assert words_of(ValueError("no page\nError: at\r\n\t7")) == "no page Error: at 7"
    assert words_of(ValueError()) == "ValueError"
    assert len(words_of(ValueError("x" * 5_000))) == 200


@pytest.mark.parametrize("reads", ["read", "row_batches", "num_row_groups"])
def test_parquet_that_became_a_pipe_is_told(reads: str) -> None:
    pytest.importorskip("pyarrow")
    os.mkfifo("s.parquet")
    script = (
        "from pathlib import Path\nfrom trainspec_validate.telemetry.formats import parquet\n"
        f"found = parquet.{reads}(Path('s.parquet'))\nlist(found)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=False)
    assert "this is not a regular file" in done.stderr


PROMETHEUS = '# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{{gpu="0",Hostname="h"}} 40 {}\n'


@pytest.mark.parametrize("time", ["1e308", "-1e308", "1e309", "9" * 400, "nan"])
def test_no_time_of_prometheus_stops_the_run(time: str) -> None:
    write("m.prom", PROMETHEUS.format(time))
    result = invoke("m.prom")
    assert result.exit_code in {0, 1}, result.exception
    imported = CliRunner().invoke(toolbox, ["import", "m.prom"], prog_name="trainspec")
    assert imported.exit_code in {0, 1, 2}, imported.exception


@pytest.mark.parametrize("number", ["9" * 308, "9" * 399, "1e308", "-1", "[]", "{}"])
@pytest.mark.parametrize("key", ["bandwidth", "latency", "npus_count"])
def test_no_number_of_a_simulator_stops_the_import(key: str, number: str) -> None:
    values = {"topology": "Ring", "npus_count": "8", "bandwidth": "50", "latency": "500", key: number}
    write("network.yml", "".join(f"{name}: [ {value} ]\n" for name, value in values.items()))
    imported = CliRunner().invoke(toolbox, ["import", "network.yml"], prog_name="trainspec")
    assert imported.exit_code in {0, 2}, imported.exception


@pytest.mark.parametrize("value", ["[]", "[4]", "{}", "None", "-1", "1.5", "x", "9" * 400])
@pytest.mark.parametrize("key", ["num_experts", "num_layers", "world_size"])
def test_no_argument_of_megatron_stops_the_import(key: str, value: str) -> None:
    values = {"hidden_size": "64", "num_layers": "4", "num_attention_heads": "4", "world_size": "8", key: value}
    lines = "".join(f"  {name} {'.' * (48 - len(name))} {one}\n" for name, one in values.items())
    write("a.log", f"{'-' * 24} arguments {'-' * 24}\n{lines}{'-' * 20} end of arguments {'-' * 21}\n")
    arguments = ["import", "a.log", "--format", "megatron-arguments"]
    imported = CliRunner().invoke(toolbox, arguments, prog_name="trainspec")
    assert imported.exit_code in {0, 2}, imported.exception


def test_a_reader_of_an_import_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    write("network.yml", "topology: [ Ring ]\nnpus_count: [ 8 ]\nbandwidth: [ 50 ]\nlatency: [ 500 ]\n")

    def broken(_: object) -> None:
        raise OverflowError("int too large")

    monkeypatch.setattr("trainspec_validate.cli.commands.import_.recognise", broken)
    imported = CliRunner().invoke(toolbox, ["import", "network.yml"], prog_name="trainspec")
    assert imported.exit_code == 2
    assert "a number in it is too large" in imported.stderr


# --- standard input, and files that are followed ------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [["trainspec_validate.cli.validate", "-"], ["trainspec_validate.cli.toolbox", "import", "-"]]
)
def test_a_closed_standard_input_is_told(arguments: list[str]) -> None:
    program = f"import sys; from {arguments[0]} import main; sys.argv[1:] = {arguments[1:]!r}; main()"
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -c "$1" <&-', sys.executable, program], capture_output=True, check=False, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "standard input is closed" in done.stderr


def test_a_followed_stream_that_vanishes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stream("a")
    name = stream("b", rank=1)
    looks = []

    def change(_: float) -> None:
        looks.append(1)
        if len(looks) == 1:
            Path(name).unlink()
        else:
            end = {"k": "e", "time_us": TIME + 9_000_000, "seq": 5, "name": "train.run.end"}
            end["a"] = {"train.run.id": "r-1", "train.run.status": "completed"}
            with Path("a.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(end) + "\n")

    monkeypatch.setattr("trainspec_validate.cli.following.sleep", change)
    result = invoke(".", "--follow")
    assert result.exit_code == 2, result.exception
    assert result.stderr.count("b.jsonl: ") == 1


def test_a_document_beside_a_followed_stream_is_told() -> None:
    stream("a")
    write("plan.yaml", GOOD)
    Path("odd.yaml").mkdir()
    _fifo("pipe.yaml")
    result = invoke(".", "--follow")
    assert result.exit_code == 2, result.exception
    assert "pipe.yaml: this is not a regular file" in result.stderr


def test_the_words_of_the_system_are_small_and_names_keep_their_letters() -> None:
    assert reason_of(OSError(errno.EACCES, os.strerror(errno.EACCES), "/A/B")) == "permission denied"
    assert reason_of(OSError("/A/B.json: not a regular file")) == "/A/B.json: not a regular file"
    assert reason_of(OSError(errno.EINVAL, "the name A is none")) == "the name A is none"


def _is_of_an_error(called: ast.expr) -> bool:
    """Whether text of an error is in an expression."""
    return any(
        (isinstance(part, ast.Attribute) and part.attr == "strerror")
        or (isinstance(part, ast.Call) and ast.unparse(part) == "str(error)")
        for part in ast.walk(called)
    )


@pytest.mark.slow
def test_no_message_changes_the_letters_of_an_error() -> None:
    sources = [path for package in ("src", "conformance") for path in (ROOT / package).rglob("*.py")]
    found = [
        f"{path.name}:{call.lineno}"
        for path in sources
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in {"lower", "upper", "capitalize", "title", "casefold"} and _is_of_an_error(call.func.value)
    ]
    assert len(sources) > 400
    assert not found
