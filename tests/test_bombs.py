"""What would pass a limit of a reader costs little, and ends; the command is run as a process."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "spec" / "v1" / "base"
MEBIBYTE = 1 << 20
PROGRAM = """
import re, resource, sys
from pathlib import Path
from importlib import import_module
from trainspec_validate.system import budget
for name, most in zip(sys.argv[2:6:2], sys.argv[3:6:2]):
    module, _, limit = name.rpartition(":")
    if module:
        object.__setattr__(getattr(import_module("trainspec_validate." + module), limit), "most", float(most))
program, sys.argv[1:] = sys.argv[1], sys.argv[6:]
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
try:
    import_module("trainspec_validate." + program).main()
finally:
    print(re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1], file=sys.stderr)
"""
HEAD = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r-1", "att": 0, "emitter": "e"}
HEAD |= {"time_us": 1_772_000_000_000_000, "scopes": ["job"]}
FIRST = json.dumps(HEAD).encode() + b"\n"
PROMETHEUS = "# TYPE DCGM_FI_DEV_GPU_TEMP gauge\n"


def _heads(num: int) -> Iterator[bytes]:
    for number in range(num):
        yield json.dumps({**HEAD, "emitter": f"e{number}", "host": "h" * 250, "device": "d" * 200}).encode() + b"\n"


def _writers(num: int) -> Iterator[bytes]:
    yield FIRST
    for number in range(num):
        record = b'{"k":"m","time_us":%d,"seq":0,"emitter":"e%d","att":0,"m":{"train.loss.mean":4.5}}\n'
        yield record % (1_772_000_000_000_000 + number, number)


def _event_names(num: int) -> Iterator[bytes]:
    yield FIRST
    for number in range(num):
        record = b'{"k":"e","time_us":%d,"seq":%d,"name":"n%d","id":"x%d","a":{"z%d":1}}\n'
        yield record % (1_772_000_000_000_000 + number, *[number] * 4)


def _settings(text: bytes) -> Callable[[Path, int], list[str]]:
    def make(directory: Path, _: int) -> list[str]:
        (directory / "trainspec.toml").write_bytes(text)
        (directory / "plan.yaml").write_bytes((BASE / "plan.yaml").read_bytes())
        return ["cli.validate", "plan.yaml"]

    return make


def _sparse(directory: Path, size: int) -> list[str]:
    with (directory / "trainspec.toml").open("wb") as file:
        file.truncate(size * MEBIBYTE)
    (directory / "plan.yaml").write_bytes((BASE / "plan.yaml").read_bytes())
    return ["cli.validate", "plan.yaml"]


def _ignores(directory: Path, size: int) -> list[str]:
    text = (BASE / "cluster.yaml").read_bytes()
    (directory / "cluster.yaml").write_bytes(text + b"# trainspec: ignore[TS-PAR-001] xx\n" * (size * 1_000))
    return ["cli.validate", "cluster.yaml"]


def _stream(
    name: str, pieces: Callable[[int], Iterator[bytes]], program: str = "cli.validate"
) -> Callable[[Path, int], list[str]]:
    def make(directory: Path, size: int) -> list[str]:
        opener = gzip.open if name.endswith(".gz") else open
        with opener(directory / name, "wb") as file:
            file.writelines(pieces(size))
        return [program, *(["import"] * (program == "cli.toolbox")), name]

    return make


def _newlines(size: int) -> Iterator[bytes]:
    yield FIRST
    yield from (b"\n" * 100_000 for _ in range(size * 10))


def _noise(size: int) -> Iterator[bytes]:
    yield FIRST
    yield from (b"x\n" * 100_000 for _ in range(size * 10))


def _line(size: int) -> Iterator[bytes]:
    yield FIRST
    yield from (b"a" * MEBIBYTE for _ in range(size))


def _otlp(size: int) -> Iterator[bytes]:
    yield b'{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{}'
    yield b",{}" * (size * 300_000)
    yield b"]}]}]}\n"


def _devices(size: int) -> Iterator[bytes]:
    yield PROMETHEUS.encode()
    for number in range(size * 20_000):
        yield b'DCGM_FI_DEV_GPU_TEMP{gpu="%d",Hostname="h%d"} 40\n' % (number, number)


DOCUMENT, STREAM = 512, 2048
BOMBS: dict[str, tuple[Callable[[Path, int], list[str]], int, int, str, int, tuple[str, float], str]] = {
    # name: file, small size, full size, limit and its small value, what is told, most MiB at full size
    "sparse-settings": (_sparse, 200, 5_000, "", DOCUMENT, ("", 0), "at most 1,000,000 bytes"),
    "dotted-settings": (_settings(b"a" + b".a" * 20_000 + b" = 1\n"), 1, 1, "", DOCUMENT, ("", 0), "one dotted key"),
    "deep-settings": (_settings(b"a = " + b"[" * 400_000), 1, 1, "", DOCUMENT, ("", 0), "keys and parts of keys"),
    "many-settings": (
        *(_settings(b"".join(b"k%d=1\n" % i for i in range(90_000))), 1, 1, "", DOCUMENT),
        *(("", 0), "50,000 keys and parts of keys"),
    ),
    "ignores": (_ignores, 100, 900, "", DOCUMENT, ("", 0), "name at most 1,000 requirements"),
    "newlines": (
        *(_stream("s.jsonl.gz", _newlines), 5, 2_000, "stream", STREAM),
        *(("telemetry.decode.run_file:_MOST_DAMAGED", 10_000), "damaged lines; at byte"),
    ),
    "noise": (
        *(_stream("s.jsonl.gz", _noise), 5, 1_000, "stream", STREAM),
        *(("telemetry.decode.run_file:_MOST_DAMAGED", 10_000), "damaged lines; at byte"),
    ),
    "endless-line": (
        *(_stream("s.jsonl.gz", _line), 40, 3_000, "stream", STREAM),
        *(("telemetry.formats.source:_MOST_OF_A_LINE", 20e6), "without the end of a line|times its size"),
    ),
    "heads": (
        *(_stream("s.jsonl", lambda size: _heads(size * 1_000)), 5, 250, "stream", STREAM),
        *(("telemetry.decode.run_file:MOST_HEADS", 2_000), "heads"),
    ),
    "emitters": (
        *(_stream("s.jsonl", lambda size: _writers(size * 1_000)), 20, 600, "stream", STREAM),
        *(("telemetry.decode.names:_MOST_WRITERS", 10_000), "emitters, in each attempt anew"),
    ),
    "event-names": (
        *(_stream("s.jsonl.gz", lambda size: _event_names(size * 1_000)), 11, 400, "stream", STREAM),
        *(("", 0), "a run may have at most 10,000 names of events"),
    ),
    "otlp": (
        *(_stream("o.json", _otlp), 1, 17, "stream", STREAM),
        *(("telemetry.formats.json_text:_MOST_OBJECTS", 100_000), "objects and lists|longer than 16 MiB|fits no known"),
    ),
    "otlp-import": (
        *(_stream("o.json", _otlp, "cli.toolbox"), 1, 17, "stream", STREAM),
        *(
            ("telemetry.formats.json_text:_MOST_OBJECTS", 100_000),
            "objects and lists|longer than 16 MiB|nothing was converted",
        ),
    ),
    "devices": (
        *(_stream("m.prom", _devices), 1, 60, "stream", STREAM),
        *(("telemetry.formats.prometheus.reader:_MOST_SUBJECTS", 10_000), "devices, hosts and ranks"),
    ),
    "devices-import": (
        *(_stream("m.prom", _devices, "cli.toolbox"), 1, 60, "stream", STREAM),
        *(("telemetry.formats.prometheus.reader:_MOST_SUBJECTS", 10_000), "devices, hosts and ranks"),
    ),
}
"""Name: what makes the file, its small and full size, kind, MiB of memory at most, a lowered limit, what is told."""


def run(name: str, directory: Path, *, is_full: bool, workers: int = 1) -> tuple[int, str, int]:
    """Exit status, what was told, and MiB of memory."""
    make, small, full, kind, _, (limit, most), _ = BOMBS[name]
    program, *arguments = make(directory, full if is_full else small)
    if kind == "stream" and program == "cli.validate":
        arguments += ["--workers", str(workers)]
    lowered = ["", "0"] if is_full else [limit, str(most)]
    command = [sys.executable, "-c", PROGRAM, program, *lowered, "", "0", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=directory, capture_output=True, check=False, timeout=600, text=True, env=environment
    )
    told, _, peak = done.stderr.strip().rpartition("\n")
    return done.returncode, done.stdout + told, int(peak) // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_costs_bounded_memory_and_ends(name: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    code, told, peak = run(name, tmp_path, is_full=False)
    assert code in {1, 2}, told
    assert re.search(BOMBS[name][-1], told), told[-1_000:]
    assert peak < 300, f"{peak} MiB"


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_full_size_costs_bounded_memory_and_ends(name: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    code, told, peak = run(name, tmp_path, is_full=True, workers=2)
    assert code in {1, 2}, told
    assert re.search(BOMBS[name][-1], told), told[-1_000:]
    assert peak < BOMBS[name][4], f"{peak} MiB"


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process from /proc")
@pytest.mark.parametrize("program", [["cli.validate", "-"], ["cli.toolbox", "import", "-"]])
def test_standard_input_is_read_up_to_a_limit(program: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, program[0], "", "0", "", "0", *program[1:]]
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=False
    ) as process:
        assert process.stdin is not None
        try:
            for _ in range(600):
                process.stdin.write(b"a" * MEBIBYTE)
            raise AssertionError("all of it was taken")
        except BrokenPipeError:
            pass
        process.stdin = None
        told, error = process.communicate(timeout=600)
    assert process.returncode in {1, 2}
    assert b"larger than 32 MiB" in told + error
    assert int(error.split()[-1]) // 1024 < 300
