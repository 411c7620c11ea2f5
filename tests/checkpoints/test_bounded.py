"""Hostile checkpoints cost bounded memory, are refused by the limit that they pass, and are never a mistake of ours."""

from __future__ import annotations

import itertools
import json
import os
import re
import struct
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests import bundles_made, stores_made
from tests.trees import (
    _METADATA,
    build,
    mapping,
    name,
    number,
    object_of,
    pickled,
    raw_safetensors,
    short_text,
    size_of,
)
from trainspec_validate.checkpoints import limits
from trainspec_validate.checkpoints.opening import check_cost
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.statistics import Statistics
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.pipeline.runs import judge_run
from trainspec_validate.system.budget import Limit

MAX_PEAK_BYTES = 512 * 1024 * 1024
COMMAND = """
import re, sys
from pathlib import Path
from trainspec_validate.cli.validate import main
try:
    main()
except SystemExit as end:
    # Not ru_maxrss: it starts from the size of the parent.
    peak = re.search("VmHWM:[^0-9]*([0-9]+)", Path("/proc/self/status").read_text())[1]
    print("peak", peak, "code", end.code, file=sys.stderr)
"""


@contextmanager
def lowered(limit: Limit, most: float) -> Iterator[None]:
    """A limit that small files reach."""
    before = limit.most
    object.__setattr__(limit, "most", most)
    try:
        yield
    finally:
        object.__setattr__(limit, "most", before)


def empty_lists(scale: int) -> bytes:
    return b"[" + b"[]," * (33 * scale) + b"[]]"


def header(content: bytes) -> Callable[[Path], None]:
    return lambda root: raw_safetensors(root / "model.safetensors", content, b"")


def many_files(scale: int) -> bytes:
    files = ",".join(f'{{"path":"{n}","size_bytes":1,"sha256":"{n:064}"}}' for n in range(scale))
    head = '"apiVersion":"trainspec/v1","kind":"CheckpointManifest","save_id":"12345678"'
    return f'{{{head},"files":[{files}]}}'.encode()


def directory(count: int, claimed: int) -> bytes:
    """A zip container with more entries in its directory than its end claims."""
    local = b"PK\x03\x04" + struct.pack("<5H3L2H", 20, 0, 0, 0, 33, 0, 0, 0, 1, 0) + b"a"
    entry = b"PK\x01\x02" + struct.pack("<6H3L5H2L", 20, 20, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, claimed, claimed, count * len(entry), len(local), 0)
    return local + entry * count + end


def write(file: str, content: bytes) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        (root / file).write_bytes(content)

    return run


def trainer_state(content: bytes) -> Callable[[Path], None]:
    """The log of a trainer next to a file of state, without which it makes no checkpoint."""

    def run(root: Path) -> None:
        (root / "rng_state.pth").write_bytes(b"")
        (root / "trainer_state.json").write_bytes(content)

    return run


def bare(body: bytes) -> Callable[[Path], None]:
    return write("optimizer.pt", b"\x80\x02" + body + b".")


def many_times(scale: int, operation: bytes, target: bytes) -> bytes:
    """One tuple, which takes part in many operations on the same value."""
    num_values = max(2, scale // 101)
    value = b"(" + b"K\x01" * num_values + b"tq\x000"
    return value + target + b"h\x01h\x00" + b"".join([operation, b"h\x01h\x00"]) * 3_000 + operation + b"N"


def dcp(body: bytes) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        (root / "__0_0.distcp").write_bytes(b"x")
        (root / ".metadata").write_bytes(pickled(body))

    return run


def shared_entries(scale: int) -> bytes:
    """An index that names one entry many times, in three bytes each."""
    key = object_of(_METADATA, "MetadataIndex", fqn=short_text("a"), offset=size_of((0,)), index=number(0))
    place = {"relative_path": short_text("__0_0.distcp"), "offset": number(0), "length": number(1)}
    info = object_of("torch.distributed.checkpoint.filesystem", "_StorageInfo", **place)
    entries = b"}(" + key + b"q\x00" + info + b"q\x01" + b"h\x00h\x01" * scale + b"u"
    state = {short_text("state_dict_metadata"): mapping({}), short_text("storage_data"): entries}
    return name(_METADATA, "Metadata") + b")\x81" + mapping(state) + b"b"


def side_by_side(scale: int) -> bytes:
    """A tensor whose pieces all begin side by side, so that each has to be compared with each."""
    chunks = b"".join(
        object_of(_METADATA, "ChunkStorageMetadata", offsets=size_of((n, n)), sizes=size_of((scale, 1)))
        for n in range(scale)
    )
    held = {"properties": b"N", "size": size_of((2 * scale, 2 * scale)), "chunks": b"](" + chunks + b"e"}
    tensor = object_of(_METADATA, "TensorStorageMetadata", **held)
    state = {short_text("state_dict_metadata"): mapping({short_text("a"): tensor})}
    state[short_text("storage_data")] = mapping({})
    return name(_METADATA, "Metadata") + b")\x81" + mapping(state) + b"b"


def orbax(content: bytes) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        (root / "_CHECKPOINT_METADATA").write_text('{"init_timestamp_nsecs":1,"commit_timestamp_nsecs":2}')
        (root / "_METADATA").write_bytes(b'{"tree_metadata":' + content + b"}")

    return run


def overlapping(path: Path, count: int, num_values: int) -> None:
    """Tensors that all have the same bytes."""
    place = {"dtype": "F32", "shape": [num_values], "data_offsets": [0, 4 * num_values]}
    raw_safetensors(path, json.dumps({str(n): place for n in range(count)}).encode(), bytes(4 * num_values))


def bundle(size: int, count: int) -> Callable[[Path], None]:
    """An index of TensorFlow whose names share a long beginning, so that few bytes make many."""

    def run(root: Path) -> None:
        tensors = {f"{'n' * size}{n:09}": bundles_made.Held(b"\0" * 4, ()) for n in range(count)}
        bundles_made.bundle(root, "variables", tensors)

    return run


def store(body: bytes) -> Callable[[Path], None]:
    """A checkpoint of Orbax whose manifest of OCDBT has a body after its head."""
    return write("manifest.ocdbt", stores_made.packed("0cdb3a2a", stores_made.HEAD + body))


def endless_nodes(num_nodes: int) -> Callable[[Path], None]:
    """A tree of few bytes, each node of which unpacks to a million."""

    def run(root: Path) -> None:
        zstandard = pytest.importorskip("zstandard")
        (root / "d").mkdir()
        nodes, places = b"", []
        for place in range(num_nodes):
            value = b"%06d" % place + bytes(1_000_000)
            body = b"\x00\x00\x01\x01z" + stores_made.number(len(value)) + b"\x00" + value
            body = zstandard.ZstdCompressor().compress(body)
            places.append(len(nodes))
            nodes += stores_made.packed("0cdb20de", body, method=1)
        places.append(len(nodes))
        (root / "d" / "0a").write_bytes(nodes)
        count = stores_made.number(num_nodes)
        offsets = b"".join(map(stores_made.number, places[:-1]))
        sizes = b"".join(stores_made.number(end - begin) for begin, end in itertools.pairwise(places))
        keys = count + bytes(num_nodes - 1) + b"\x06" * num_nodes + bytes(num_nodes)
        keys += b"".join(b"%06d" % place for place in range(num_nodes))
        top = b"\x01" + stores_made.table(["d/0a"]) + keys + bytes(num_nodes) + offsets + sizes
        top = stores_made.packed("0cdb20de", top + bytes(3 * num_nodes))
        (root / "d" / "0b").write_bytes(top)
        versions = b"\x01\x01\x01\x00\x00" + stores_made.number(len(top)) + bytes(12)
        store(stores_made.table(["d/0b"]) + versions)(root)

    return run


def keras(content: bytes) -> Callable[[Path], None]:
    def run(root: Path) -> None:
        with zipfile.ZipFile(root / "model.keras", "w") as archive:
            archive.writestr("config.json", content)

    return run


HOSTILE: dict[str, tuple[Limit, Callable[[int], Callable[[Path], None]]]] = {
    "header": (limits.JSON_VALUE_BYTES, lambda scale: header(b'{"a":' + empty_lists(scale) + b"}")),
    "header-wide": (
        limits.JSON_VALUE_BYTES,
        lambda scale: header(b'{"__metadata__":{"a":"\\ud83d\\ude00' + b"a" * (99 * scale) + b'"}}'),
    ),
    "header-long-name": (
        limits.NAME_CHARACTERS,
        lambda scale: header(b'{"' + b"a" * (90 * scale) + b'":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}'),
    ),
    "manifest": (limits.JSON_VALUE_BYTES, lambda scale: write("trainspec-manifest.json", empty_lists(scale))),
    "manifest-files": (
        limits.JSON_VALUE_BYTES,
        lambda scale: write("trainspec-manifest.json", many_files(scale * 9 // 10)),
    ),
    "index": (
        limits.JSON_VALUE_BYTES,
        lambda scale: write("model.safetensors.index.json", b'{"weight_map":' + empty_lists(scale) + b"}"),
    ),
    "trainer-state": (limits.JSON_VALUE_BYTES, lambda scale: trainer_state(empty_lists(scale))),
    "signature": (limits.JSON_VALUE_BYTES, lambda scale: write("model.sig", empty_lists(scale))),
    "orbax": (limits.JSON_VALUE_BYTES, lambda scale: orbax(empty_lists(scale))),
    "keras": (limits.JSON_VALUE_BYTES, lambda scale: keras(empty_lists(scale))),
    "zip-directory": (limits.ZIP_ENTRIES, lambda scale: write("optimizer.pt", directory(scale, 1))),
    "zip-large-directory": (limits.ZIP_DIRECTORY_BYTES, lambda scale: write("optimizer.pt", directory(4 * scale, 1))),
    "pickle-lists": (limits.PICKLE_VALUE_BYTES, lambda scale: bare(b"]" * (20 * scale))),
    "pickle-list-of-lists": (limits.PICKLE_VALUE_BYTES, lambda scale: bare(b"(" + b"]" * (19 * scale) + b"l")),
    "pickle-objects": (
        limits.PICKLE_VALUE_BYTES,
        lambda scale: bare(b"cbuiltins\nobject\nq\x00(" + b"h\x00)\x81" * (6 * scale) + b"l"),
    ),
    "pickle-pairs": (limits.PICKLE_VALUE_BYTES, lambda scale: bare(b"}(" + b"NN" * (5 * scale) + b"u")),
    "pickle-numbers": (
        limits.PICKLE_VALUE_BYTES,
        lambda scale: bare(b"(" + (b"G" + struct.pack(">d", 1.5)) * (12 * scale) + b"t"),
    ),
    "pickle-memo": (
        limits.PICKLE_VALUE_BYTES,
        lambda scale: bare(b"N" + b"".join(b"r" + struct.pack("<I", 2 * n + 9) for n in range(4 * scale))),
    ),
    "pickle-calls": (limits.PICKLE_LOOKS, lambda scale: bare(many_times(scale, b"\x85R0", b"cfoo\nBar\nq\x010"))),
    "pickle-states": (limits.PICKLE_LOOKS, lambda scale: bare(many_times(scale, b"b0", b"cfoo\nBar\n)Rq\x010"))),
    "pickle-keys": (limits.PICKLE_LOOKS, lambda scale: bare(many_times(scale, b"Ns0", b"}q\x010"))),
    "pickle-operations": (limits.PICKLE_OPERATIONS, lambda scale: dcp(b"N" + b"N0" * (21 * scale))),
    "pickles-operations": (limits.ALL_OPERATIONS, lambda scale: several(b"\x80\x02N" + b"N0" * (8 * scale) + b".")),
    "dcp": (limits.PICKLE_VALUE_BYTES, lambda scale: dcp(b"(" + b"]" * (19 * scale) + b"l")),
    "dcp-entries": (limits.PIECES, lambda scale: dcp(shared_entries(scale))),
    "dcp-overlaps": (limits.COMPARISONS, lambda scale: dcp(side_by_side(max(300, scale // 100)))),
    "ocdbt-files": (
        limits.STORE_FILES,
        lambda scale: store(stores_made.number(5 * scale) + bytes(15 * scale)),
    ),
    "ocdbt-numbers": (
        limits.STORE_PART_NUMBERS,
        lambda scale: store(
            stores_made.table([""])
            + b"\x01\x01\x00\x00\x00\x00"
            + stores_made.SUMS
            + bytes(8)
            + stores_made.number(5 * scale)
            + bytes(9 * scale)
        ),
    ),
    "ocdbt-nodes": (limits.STORE_UNPACKED_BYTES, lambda scale: endless_nodes(max(3, scale // 6_000))),
    "overlapping-tensors": (
        limits.SHARED,
        lambda scale: lambda root: overlapping(root / "model.safetensors", scale // 4, 100),
    ),
    "tensorflow-names": (limits.TABLE_NAME_BYTES, lambda scale: bundle(10_000, max(300, scale // 125))),
}


def several(content: bytes) -> Callable[[Path], None]:
    def made(root: Path) -> None:
        for rank in range(5):
            (root / f"rank_{rank}.pt").write_bytes(content)

    return made


SMALL = 10_000
FULL = 1_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "step-1"
    build(directory, "good.safetensors  safetensors a=F32[1]\n")
    return directory


@pytest.mark.parametrize("kind", HOSTILE)
def test_the_limit_that_a_file_passes_is_named_and_the_rest_is_judged(root: Path, kind: str) -> None:
    limit, make = HOSTILE[kind]
    make(SMALL)(root)
    share = SMALL / FULL
    with ExitStack() as stack:
        if kind not in {"dcp-overlaps", "tensorflow-names"}:
            stack.enter_context(lowered(limit, max(1, int(limit.most * share))))
        else:
            stack.enter_context(lowered(limit, limit.most / 1000))
        checkpoint = read_checkpoint(root)
        said = [trouble.message for trouble in checkpoint.troubles if trouble.aspect == "limits"]
        if kind == "signature":
            (root / "trainspec-manifest.json").write_bytes(many_files(1))
            said = CliRunner().invoke(toolbox, ["checkpoint", "verify", str(root)]).output.splitlines()
        assert [words for words in said if limit.refusal in words], (said, checkpoint.troubles)
    assert "a" in checkpoint.keys


def peak_and_code(*arguments: object) -> tuple[int, int, str]:
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", textwrap.dedent(COMMAND), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=600)
    found = re.search(r"peak (\d+) code (\d+)", done.stderr)
    assert found, done.stderr
    return int(found[1]) * 1024, int(found[2]), done.stdout


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", HOSTILE)
def test_whole_commands_stay_within_memory(root: Path, kind: str) -> None:
    limit, make = HOSTILE[kind]
    make(FULL)(root)
    if kind == "signature":
        (root / "trainspec-manifest.json").write_bytes(many_files(1))
    peak_bytes, code, told = peak_and_code(root, "--format", "concise")
    assert peak_bytes < MAX_PEAK_BYTES
    assert (code, limit.refusal in told) == (1, True), told[-2000:]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_whole_command_stays_within_memory(root: Path) -> None:
    header(b'{"a":' + empty_lists(300_000) + b"}")(root)
    peak_bytes, code, told = peak_and_code(root, "--format", "concise")
    assert peak_bytes < MAX_PEAK_BYTES
    assert (code, limits.JSON_VALUE_BYTES.refusal in told) == (1, True), told


def deflated(raw: bytes, claimed: int) -> bytes:
    """A container whose entry unpacks to more than its directory says."""
    engine = zlib.compressobj(9, wbits=-15)
    data = engine.compress(raw) + engine.flush()
    entry, sums = b"archive/data.pkl", (zlib.crc32(raw), len(data), claimed)
    local = b"PK\x03\x04" + struct.pack("<5H3L2H", 20, 0, 8, 0, 33, *sums, len(entry), 0) + entry
    place = struct.pack("<6H3L5H2L", 20, 20, 0, 8, 0, 33, *sums, len(entry), 0, 0, 0, 0, 0, 0)
    body = local + data
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(place) + 4 + len(entry), len(body), 0)
    return body + b"PK\x01\x02" + place + entry + end


@pytest.mark.parametrize("claimed", [10, 5_000])
def test_an_entry_that_unpacks_to_more_than_it_says_is_a_failure_of_its_file(root: Path, claimed: int) -> None:
    raw = b"\x80\x02]X" + struct.pack("<I", 50_000_000) + bytes(50_000_000) + b"a."
    (root / "optimizer.pt").write_bytes(deflated(raw, claimed))
    (trouble,) = read_checkpoint(root).troubles
    assert (trouble.aspect, trouble.path) == ("container", "optimizer.pt")


def test_a_large_entry_whose_packed_size_is_a_lie_is_refused(root: Path) -> None:
    raw = bytes(3_000_000)
    content = deflated(raw, len(raw))
    begin = content.index(b"PK\x01\x02")
    packed = begin - 30 - len("archive/data.pkl")
    lie = struct.pack("<2L", len(raw), len(raw))
    content = content.replace(struct.pack("<2L", packed, len(raw)), lie)
    begin = content.index(b"PK\x01\x02")
    end = content[:begin] + bytes(len(raw)) + content[begin:-22]
    place = len(end) - (len(content) - 22 - begin)
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(content) - 22 - begin, place, 0)
    (root / "optimizer.pt").write_bytes(end + tail)
    (trouble,) = read_checkpoint(root).troubles
    assert (trouble.aspect, "compressed, and state is stored" in trouble.message) == ("limits", True), trouble


def test_a_way_of_packing_that_nobody_stores_state_in_is_refused(root: Path) -> None:
    for file, kind in (("a.pt", zipfile.ZIP_LZMA), ("b.pt", zipfile.ZIP_BZIP2)):
        with zipfile.ZipFile(root / file, "w", kind) as archive:
            archive.writestr("archive/data.pkl", pickled(b"(" + b"N" * 900 + b"l"))
    content = bytearray((root / "a.pt").read_bytes())
    content[55:70] = b"\xff" * 15
    (root / "a.pt").write_bytes(content)
    found = {(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles}
    assert found == {("limits", "a.pt"), ("limits", "b.pt")}


def test_a_text_that_is_too_long_to_hold_is_passed_over(root: Path) -> None:
    raw = b"\x80\x02}" + short_text("state") + b"B" + struct.pack("<I", 3_000_000) + bytes(3_000_000) + b"s."
    (root / "arrays.pkl").write_bytes(raw)
    assert read_checkpoint(root).troubles == []
    (root / "arrays.pkl").write_bytes(raw[:-2_000_000])
    assert [trouble.aspect for trouble in read_checkpoint(root).troubles] == ["container"]


def test_values_that_overlap_are_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlapping(root / "model.safetensors", 100, 1_000)
    read: list[int] = []
    add = Statistics.add

    def counted(self: Statistics, content: memoryview) -> None:
        read.append(len(content))
        add(self, content)

    monkeypatch.setattr(Statistics, "add", counted)
    result = judge_run(root, reads_values=True)
    assert sum(read) <= sum(path.stat().st_size for path in root.iterdir())
    said = [found.message for found in result.findings if found.requirement == "TS-SEC-003"]
    assert len(said) == 1
    assert limits.SHARED.refusal in said[0]
    assert "the values of tensor '2' and of those after it are not read" in said[0]


def test_no_more_than_a_thousand_places_are_reported(root: Path) -> None:
    paths = [root / f"state-{number}.pt" for number in range(1_200)]
    for path in paths:
        path.write_bytes(b"\x80\x02cos\nsystem\n.")
    troubles = [one for one in read_checkpoint(root).troubles if one.aspect == "code"]
    assert len(troubles) == 1_000
    assert "more is wrong in this way than the 999 places" in troubles[-1].message


def test_names_of_code_in_one_file_are_one_finding(root: Path) -> None:
    names = b"".join(b"cmine\nx%d\n" % number for number in range(20_000)) + b"cos\nsystem\n"
    (root / "optimizer.pkl").write_bytes(b"\x80\x02(" + names + b"l.")
    (trouble,) = read_checkpoint(root).troubles
    assert trouble.message.startswith(
        "loading it would run os.system, mine.x0, mine.x1, mine.x2, mine.x3 and 9,995 more"
    )


def test_a_manifest_of_the_largest_tree_is_read_again() -> None:
    file = {"path": f"layer-000000/{'x' * 40}.bin", "size_bytes": 10**9, "sha256": "0" * 64}
    text = json.dumps({"files": [file]}, indent=1).encode()
    entry = text[text.index(b"  {") : text.index(b"\n ]")] + b",\n"
    check_cost(text.replace(entry[:-2], entry * (int(limits.ENTRIES.most) - 1) + entry[:-2]))
