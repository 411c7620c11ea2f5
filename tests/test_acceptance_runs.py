"""`trainspec accept` with streams of a short run: stragglers by node and rank, errors, and what is not judged."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.node_reports import profile, smi
from tests.telemetry.telemetry_makers import Stream
from trainspec_validate.cli.toolbox import command

DURATION = "train.step.duration"
MEGATRON = (
    " [2026-01-01 00:00:{:02}] iteration {:8}/     100 | consumed samples: {:12} | elapsed time per iteration (ms): "
    "1000.0 | learning rate: 1.000000E-04 | global batch size:     8 | lm loss: {:.6E} | loss scale: 1.0 | "
    "grad norm: 1.000 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)


def ranks_of(node: int, slow: int | None = None, seconds: float = 9.0) -> Stream:
    """The step times of the eight ranks of a node, of which one may be slow."""
    stream = Stream(f"ranks-{node}", ("rank",), host=f"node-{node}", world_size=16)
    for step in range(1, 6):
        for rank in range(8 * node, 8 * node + 8):
            stream.sample(10 * step, {DURATION: seconds if rank == slow else 5.0}, rank=rank, step=step)
    return stream


def text_of(stream: Stream) -> str:
    return "".join(json.dumps(line) + "\n" for line in stream.lines)


def accept(root: Path, files: dict[str, str | bytes], *more: str) -> Result:
    """What the command says of two sound nodes with these files among or next to theirs."""
    (root / "cluster.yaml").write_text(profile(2), encoding="utf-8")
    own = {f"node-{i}/smi.txt": smi().replace("0000-0000000000", f"000{i}-0000000000") for i in range(2)}
    own = {name: text.replace(": 1650", f": 165{name[5]}") for name, text in own.items()}
    for name, content in {**own, **files}.items():
        path = root / "nodes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    arguments = ["accept", f"{root}/cluster.yaml", "--from", f"{root}/nodes", *more]
    return CliRunner().invoke(command, arguments, prog_name="trainspec")


@pytest.mark.parametrize("place", ["node-{}/run.jsonl", "node-{}/run/ranks.txt", "run-{}.jsonl"])
@pytest.mark.parametrize("slow", [11, None])
def test_a_straggler_is_named_with_rank_and_node(place: str, slow: int | None, tmp_path: Path) -> None:
    found = accept(tmp_path, {place.format(i): text_of(ranks_of(i, slow)) for i in range(2)})
    told = f"{DURATION} of rank 11 of node-1 is 9 s on average, and 5 s on the median rank"
    assert (told in found.output, found.exit_code) == (slow is not None, int(slow is not None)), found.output
    assert "of no node" not in found.output
    assert "names no straggler" not in found.output


def test_the_median_is_that_of_all_nodes(tmp_path: Path) -> None:
    """All ranks of node-1 are slow, so that none is slower than the others of its node."""
    slow = text_of(ranks_of(1)).replace(": 5.0", ": 9.0")
    found = accept(tmp_path, {"node-0/run.jsonl": text_of(ranks_of(0)), "node-1/run.jsonl": slow})
    assert found.exit_code == 0, "half of the ranks are no stragglers by the definition of the check"
    whole = text_of(ranks_of(0)) + text_of(ranks_of(1, 8)).partition("\n")[2]
    assert accept(tmp_path, {"node-0/run.jsonl": whole, "node-1/run.jsonl": ""}).exit_code == 1


def test_documents_hold_the_digest_of_each_stream(tmp_path: Path) -> None:
    inner, outer = text_of(ranks_of(0)), text_of(ranks_of(1))
    options = ("--output", f"{tmp_path}/a.yaml", "--statement", f"{tmp_path}/s.json")
    accept(tmp_path, {"node-0/run.jsonl": inner, "beside.jsonl": outer}, *options)
    written = (tmp_path / "a.yaml").read_text(encoding="utf-8")
    assert f"sha256:{sha256(inner.encode()).hexdigest()}" in written
    subjects = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["subject"]
    assert subjects[1] == {"name": "beside.jsonl", "digest": {"sha256": sha256(outer.encode()).hexdigest()}}
    again = accept(tmp_path, {}, "--verify", f"{tmp_path}/a.yaml")
    assert "verified" in again.output


def test_what_a_stream_shows_of_devices_is_an_error(tmp_path: Path) -> None:
    """A profile of eight devices a node, and seven of them in the stream of a node."""
    devices = Stream("devices", ("device",), host="node-1")
    for k in range(1, 4):
        for i in range(7):
            devices.sample(30 * k, {"hw.gpu.utilization": 0.9}, device=f"GPU-{i}")
    found = accept(tmp_path, {"node-1/devices.jsonl": text_of(devices), "node-0/run.jsonl": text_of(ranks_of(0))})
    assert (found.exit_code, "error[TS-TEL-081]" in found.output) == (1, True), found.output


def test_errors_of_records_say_nothing_against_the_machine(tmp_path: Path) -> None:
    """They are named, since values of the stream are lost."""
    broken = text_of(ranks_of(1)).replace(": 5.0", ": NaN", 1)
    found = accept(tmp_path, {"node-0/run.jsonl": text_of(ranks_of(0)), "node-1/run.jsonl": broken})
    assert found.exit_code == 0, found.output
    told = [line for line in found.output.splitlines() if "has records that are not read" in line]
    assert len(told) == 1, found.output
    assert "node-1/run.jsonl" in told[0]


def test_an_acceptance_without_streams_judges_no_straggler(tmp_path: Path) -> None:
    found = accept(tmp_path, {}, "--statement", f"{tmp_path}/s.json")
    assert found.exit_code == 0, found.output
    assert "holds no stream of a training run, so that stragglers are not judged" in " ".join(found.output.split())
    predicate = json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["predicate"]
    assert "TS-TEL-035" in predicate["warnedTests"], predicate


def test_a_run_without_times_of_ranks_names_no_straggler(tmp_path: Path) -> None:
    job = Stream().every(range(1, 50), {"train.step.duration": 1.0, "train.loss.mean": 2.0})
    found = accept(tmp_path, {"node-0/run.jsonl": text_of(job)})
    told = " ".join(found.output.split())
    assert "TS-TEL-035" in told or "035" in told.partition("is incomplete")[2], found.output


def test_a_log_of_another_program_is_judged_without_its_warnings(tmp_path: Path) -> None:
    """Megatron-LM reports an iteration again, which is a warning; the console also holds errors of the kernel."""
    steps = [*range(1, 20), 19, *range(20, 30)]
    lines = [MEGATRON.format(i, step, 8 * step, 5.0 - 0.01 * step) for i, step in enumerate(steps)]
    log = "".join(lines) + "[  9.5] NVRM: Xid (PCI:0000:20:00): 95, pid=1, Uncontained\n"
    found = accept(tmp_path, {"node-0/train.log": log})
    assert "xid:95" in found.output, found.output
    assert "warning[" not in found.output
    assert "names no straggler" in found.output


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("run.jsonl.gz", gzip.compress(text_of(ranks_of(0)).encode())[:-30], 1),
        ("run.parquet", b"PAR1" + bytes(64), 2),
    ],
    ids=["cut off", "no footer"],
)
def test_a_damaged_stream_hinders_no_other(name: str, content: bytes, code: int, tmp_path: Path) -> None:
    """What can be read of one is judged; one of which nothing can be read is a failure."""
    found = accept(tmp_path, {f"node-0/{name}": content, "node-1/run.jsonl": text_of(ranks_of(1, 11))})
    assert found.exit_code == code, found.output
    assert f"node-0/{name}" in found.output
    assert "rank 11 of node-1" in found.output


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dcgm.prom", '# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n'),
        ("notes.md", "see ticket\n"),
        ("jobs.txt", "JobID|State|Start|End\n1|COMPLETED|2026-01-01T00:00:00|2026-01-01T01:00:00\n"),
    ],
)
def test_other_files_are_no_runs(name: str, text: str, tmp_path: Path) -> None:
    found = accept(tmp_path, {f"node-0/{name}": text, name: text})
    assert found.exit_code == 0, found.output
    assert "of no node" in found.output
    assert "of no known format" in found.output
    assert "coverage of run" not in found.output
