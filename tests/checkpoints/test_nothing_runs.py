"""Hostile checkpoints are told, and none of them makes this program run, follow, unpack or swallow anything."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trees import build, call, name, pickled, raw_safetensors, short_text, tuple_of
from trainspec_validate.checkpoints import pickles
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.pickle_code import code_of
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.budget import Limit


class Canary:
    """Creates a directory when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def matters(checkpoint: Checkpoint) -> set[str]:
    return {trouble.aspect for trouble in checkpoint.troubles}


def archive(content: bytes, entry: str = "archive/data.pkl", compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as container:
        container.writestr(entry, content)
    return buffer.getvalue()


HIDDEN: dict[str, Callable[[Path], bytes]] = {
    "reduce": lambda place: pickled(call(name("os", "mkdir"), short_text(str(place)))),
    "inst": lambda place: b"(" + short_text(str(place)) + b"ios\nmkdir\n.",
    "obj": lambda place: b"(" + name("os", "mkdir") + short_text(str(place)) + b"o.",
    "stack-global": lambda place: (
        b"\x80\x04" + short_text("os") + short_text("mkdir") + b"\x93" + tuple_of(short_text(str(place))) + b"R."
    ),
    "newobj": lambda place: b"\x80\x02" + name("os", "mkdir") + tuple_of(short_text(str(place))) + b"\x81.",
    "by-attribute": lambda place: pickled(
        call(call(name("builtins", "getattr"), name("os", "path"), short_text("mkdir")), short_text(str(place)))
    ),
    "extension": lambda _: b"\x80\x02\x82\x01.",
    "nested-load": lambda place: pickled(call(name("torch.storage", "_load_from_bytes"), short_text("x"))),
}


@pytest.mark.parametrize("way", HIDDEN)
@pytest.mark.parametrize("wrapped", [True, False], ids=["zip", "bare"])
def test_a_call_is_told_and_not_made(tmp_path: Path, way: str, wrapped: bool) -> None:
    place = tmp_path / "canary"
    content = HIDDEN[way](place)
    root = tmp_path / "step-1"
    root.mkdir()
    if not wrapped and not content.startswith(b"\x80"):
        content = b"\x80\x02" + content
    (root / "optimizer.pt").write_bytes(archive(content) if wrapped else content)
    (root / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    checkpoint = read_checkpoint(root)
    assert "code" in matters(checkpoint), checkpoint.troubles
    assert not place.exists()


def test_the_canary_sings_for_a_loader_that_unpickles(tmp_path: Path) -> None:
    """The pickle of this test does what it says: only then does its silence elsewhere mean anything."""
    content = pickle.dumps(Canary(tmp_path / "sung"))
    pickle.loads(content)
    assert (tmp_path / "sung").is_dir()
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "optimizer.pt").write_bytes(archive(pickle.dumps(Canary(tmp_path / "silent"))))
    (trouble,) = read_checkpoint(tmp_path / "step-1").troubles
    assert trouble.message.startswith(f"loading it would run {os.mkdir.__module__}.mkdir")
    assert not (tmp_path / "silent").exists()


def test_the_gate_runs_nothing_and_imports_no_framework(tmp_path: Path) -> None:
    build(tmp_path / "step-1", "optimizer.pt  torch exp_avg=F32[4]\n")
    (tmp_path / "step-1" / "rng_state.pth").write_bytes(archive(pickle.dumps(Canary(tmp_path / "canary"))))
    code = (
        "import builtins, pickle, sys\n"
        "def refuse(*_, **__): raise SystemExit('unpickled')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = refuse\n"
        "from trainspec_validate.pipeline.validation import validate\n"
        f"report = validate([{str(tmp_path / 'step-1')!r}])\n"
        "print(sorted(f.requirement for f in report.findings if 'SEC' in f.requirement))\n"
        "print([m for m in ('torch', 'numpy', 'safetensors') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "['TS-SEC-001']"
    assert done.stdout.split("\n")[1] == "[]"
    assert not (tmp_path / "canary").exists()


def deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


LIMITS: dict[str, Callable[[Path], Any]] = {
    "header-claims-too-much": lambda path: path.write_bytes(struct.pack("<Q", 1 << 60) + b"{}"),
    "header-nests": lambda path: raw_safetensors(path, deep(65), b""),
    "header-nests-beyond-the-stack": lambda path: raw_safetensors(path, deep(100_000), b""),
}


@pytest.mark.parametrize("way", LIMITS)
def test_a_header_beyond_the_limits_is_told(tmp_path: Path, way: str) -> None:
    LIMITS[way](tmp_path / "model.safetensors")
    assert matters(read_checkpoint(tmp_path)) == {"limits"}


BROKEN_HEADERS: dict[str, bytes] = {
    "no-object": b"[]",
    "twice": b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[]}}',
    "unknown-type": b'{"a":{"dtype":"X8","shape":[1],"data_offsets":[0,1]}}',
    "negative": b'{"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}}',
    "backwards": b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}}',
    "span": b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1]}}',
    "no-offsets": b'{"a":{"dtype":"U8","shape":[1]}}',
    "huge": b'{"a":{"dtype":"U8","shape":[9223372036854775807,9223372036854775807],"data_offsets":[0,1]}}',
    "more-than-can-be-written": b'{"a":{"dtype":"U8","shape":['
    + b"9223372036854775807," * 300
    + b'1],"data_offsets":[0,1]}}',
    "truth": b'{"a":{"dtype":"U8","shape":[true],"data_offsets":[0,1]}}',
    "metadata": b'{"__metadata__":{"format":1}}',
    "not-text": b'{"\xff":1}',
}


@pytest.mark.parametrize("way", BROKEN_HEADERS)
def test_a_header_that_breaks_the_format_is_told(tmp_path: Path, way: str) -> None:
    raw_safetensors(tmp_path / "model.safetensors", BROKEN_HEADERS[way], b"\0")
    assert matters(read_checkpoint(tmp_path)) == {"container"}


@pytest.mark.parametrize(("begin", "words"), [(1, "leaves a hole"), (0, "overlaps")])
def test_offsets_follow_each_other(tmp_path: Path, begin: int, words: str) -> None:
    first = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
    second = {"dtype": "U8", "shape": [2], "data_offsets": [begin + 2 if begin else 1, begin + 4 if begin else 3]}
    content = bytes(begin + 4 if begin else 3)
    raw_safetensors(tmp_path / "model.safetensors", json.dumps({"a": first, "b": second}).encode(), content)
    (trouble,) = read_checkpoint(tmp_path).troubles
    assert (trouble.aspect, words in trouble.message) == ("tiling", True)


def test_a_container_that_unpacks_to_more_is_told(tmp_path: Path) -> None:
    content = archive(bytes(50_000_000), "archive/data/0", zipfile.ZIP_DEFLATED)
    (tmp_path / "model.pt").write_bytes(content)
    (trouble,) = read_checkpoint(tmp_path).troubles
    assert (trouble.aspect, "unpacks to" in trouble.message) == ("limits", True)


def test_a_container_that_claims_too_many_entries_is_not_opened(tmp_path: Path) -> None:
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65535, 65535, 0, 0, 0)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1 << 40, 1 << 40, 0, 0)
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04" + end64 + struct.pack("<4sLQL", b"PK\x06\x07", 0, 4, 1) + end)
    (trouble,) = read_checkpoint(tmp_path).troubles
    assert (trouble.aspect, "entries" in trouble.message) == ("limits", True)


@pytest.mark.parametrize("entry", ["../evil.pkl", "/evil.pkl", "a\\..\\evil.pkl", "C:evil.pkl"])
def test_a_container_with_paths_that_lead_out_is_told(tmp_path: Path, entry: str) -> None:
    (tmp_path / "model.pt").write_bytes(archive(pickled(b"N"), entry))
    assert "paths" in matters(read_checkpoint(tmp_path))


def test_links_and_pipes_are_told_and_not_opened(tmp_path: Path) -> None:
    outside = tmp_path / "secret.safetensors"
    raw_safetensors(outside, b"{}", b"")
    root = tmp_path / "step-1"
    build(root, "real.safetensors  safetensors a=F32[1]\n")
    (root / "model.safetensors").symlink_to(outside)
    (root / "near.safetensors").symlink_to("real.safetensors")
    os.mkfifo(root / "pipe.safetensors")
    told = {trouble.path: trouble.aspect for trouble in read_checkpoint(root).troubles}
    assert told == {"model.safetensors": "paths", "pipe.safetensors": "paths"}


@pytest.mark.parametrize("target", ["gone.pt", "loop.pt", "sub/../gone.pt", "real.pt/below", "x" * 300])
def test_a_link_that_leads_nowhere_is_told(tmp_path: Path, target: str) -> None:
    build(tmp_path / "step-1", "real.pt  torch a=F32[1]\n")
    (tmp_path / "step-1" / "loop.pt").symlink_to(target)
    (trouble,) = read_checkpoint(tmp_path / "step-1").troubles
    assert (trouble.aspect, trouble.path) == ("paths", "loop.pt")
    assert trouble.message == f"the link to {target!r} leads nowhere"


@pytest.mark.parametrize(
    "path", ["../step-0/model.safetensors", "/etc/hostname", "a//b", "./a", "a\\b", "C:/a", "a/../../b", "a\0b"]
)
def test_a_manifest_with_a_path_that_leads_out_is_told_and_not_followed(tmp_path: Path, path: str) -> None:
    build(tmp_path / "step-1", "model.safetensors  safetensors a=F32[1]\ntrainspec-manifest.json  sealed\n")
    manifest = tmp_path / "step-1" / "trainspec-manifest.json"
    data = json.loads(manifest.read_text())
    data["files"][0]["path"] = path
    manifest.write_text(json.dumps(data))
    checkpoint = read_checkpoint(tmp_path / "step-1")
    assert matters(checkpoint) == {"paths"}
    from trainspec_validate.checkpoints.compare import comparable

    assert comparable(checkpoint) == {}


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 20, 60, 150])
def test_a_pickle_that_ends_early_is_told(tmp_path: Path, cut: int) -> None:
    whole = pickle.dumps({"a": [1, 2, {"b": (3.5, "x" * 100, b"y" * 20)}]}, protocol=4)
    (tmp_path / "state.pt").write_bytes(archive(whole[:cut]))
    assert matters(read_checkpoint(tmp_path)) == {"container"}


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol_are_followed(protocol: int) -> None:
    from trainspec_validate.checkpoints.pickle_values import Pairs
    from trainspec_validate.checkpoints.pickles import follow

    value = {"text": ["a", 1, 2.5, None, True, (1,), (1, 2, 3, 4), b"bytes", 1 << 70], "self": {"n": -1}}
    content = follow(io.BytesIO(pickle.dumps(value, protocol=protocol)))
    assert isinstance(content.value, Pairs)
    found = content.value.texts()["text"]
    assert [x for n, x in enumerate(found) if n != 7] == [x for n, x in enumerate(value["text"]) if n != 7]
    assert content.denied == []


def test_a_container_without_checksums_is_read_and_not_compared(tmp_path: Path) -> None:
    """PyTorch can be told to record none: then all of them are zero."""
    from trainspec_validate.checkpoints.view import Archive
    from trainspec_validate.checkpoints.zips import opened

    content = bytearray(archive(pickled(b"N")))
    with zipfile.ZipFile(io.BytesIO(content)) as container:
        sums = [struct.pack("<L", entry.CRC) for entry in container.infolist()]
    for one in sums:
        content = content.replace(one, bytes(4))
    (tmp_path / "model.pt").write_bytes(content)
    assert read_checkpoint(tmp_path).troubles == []
    with opened(tmp_path / "model.pt", Archive("model.pt")) as container:
        assert container.damaged() == ([], False)


def laughs(levels: int) -> bytes:
    """A pair of a pair of a pair, each the same one twice: small to hold, endless to write out."""
    return b"N" + b"2\x86" * levels


@pytest.mark.parametrize(
    "content",
    [
        laughs(200) + laughs(200) + b"\x93",
        b"}(" + laughs(200) + b"Nu",
        b"t",
        b"N\x87",
        b"\x8b\xff\xff\xff\x7f",
        b"h\x07",
        b"Nb",
        b"I" + b"9" * 5000 + b"\n",
    ],
)
@pytest.mark.parametrize("file", ["state.pt", ".metadata"])
def test_pickles_that_would_never_end_or_make_no_sense_are_told(tmp_path: Path, file: str, content: bytes) -> None:
    (tmp_path / "model.pt").write_bytes(archive(pickled(b"N")))
    whole = b"\x80\x02" + content + b"."
    (tmp_path / file).write_bytes(whole if file == ".metadata" else archive(whole))
    told = matters(read_checkpoint(tmp_path))
    assert told == {"container"} or (content.endswith(b"Nu") and file == "state.pt" and told == set())


def test_a_shape_that_no_file_can_hold_is_told_in_short() -> None:
    """The number of its elements has more digits than Python writes."""
    from trainspec_validate.checkpoints.tiles import Box, fault

    endless = (1 << 62,) * 300
    assert fault(endless, [Box((0,) * 300, (1,) * 300)]).startswith("the pieces cover 1 of 1,208,925,819,614,629,174")
    assert len(fault((1,) * 300, [Box((0,) * 300, endless)])) < 500


def objects_of(state: bytes, kind: bytes = b"'|O'", num_spaces: int = 60) -> bytes:
    """An array of NumPy whose objects are this pickle."""
    header = b" " * num_spaces + b"{'descr': %s, 'fortran_order': False, 'shape': (1,), }\n" % kind
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + state


IMPORT_ALONE = b"cantigravity\nx\n\xff\xff"


@pytest.mark.parametrize(
    "kind",
    [
        *(b"'|O'", b'"|O"', b"'object'", b"'object_'", b"'|' 'O'", b"'\\x4f'", b"'O,i4'", b"u'|O'", b"('O', (2,))"),
        *(b"[('a', \"O\")]", b"[('a', '<f4'), ('b', [('c', '|O8')], (2,))]", b"[('a', ('|O', (2,)))]"),
    ],
)
def test_objects_are_found_however_their_type_is_written(kind: bytes, tmp_path: Path) -> None:
    assert code_of(io.BytesIO(objects_of(IMPORT_ALONE, kind))).denied == ["antigravity.x"]
    for step in ("step-1", "step-2"):
        build(tmp_path / step, "model.safetensors  safetensors a=F32[1]\n")
    assert next(judged_newest_first(tmp_path, code="listed")).faults == ()
    (tmp_path / "step-2" / "w.npy").write_bytes(objects_of(IMPORT_ALONE, kind))
    assert next(judged_newest_first(tmp_path, code="listed")).faults


def test_objects_behind_a_long_header_are_found() -> None:
    assert code_of(io.BytesIO(objects_of(IMPORT_ALONE, num_spaces=1_100_000))).denied == ["antigravity.x"]


@pytest.mark.parametrize(
    "kind", [b"'<f4'", b"[('Object', '<f4'), ('O', '|u1', (2,))]", b"[(('O', 'a'), '<M8[ns]')]", b"('<f4', (2,))"]
)
def test_other_arrays_hold_no_pickle(kind: bytes) -> None:
    found = code_of(io.BytesIO(objects_of(b"\x00" * 64, kind)))
    assert (found.denied, found.damage) == ([], "")


@pytest.mark.parametrize(
    ("state", "requirement"),
    [
        (b"csys\npath\nU\x04evila.", "TS-SEC-001"),
        (b"cantigravity\nx\n\xff\xff", "TS-SEC-001"),
        (b"cos\nenviron\nU\x01aU\x01bs.", "TS-SEC-001"),
        (b"\xc8\xc8\xc8", "TS-CKP-083"),
    ],
)
def test_objects_of_an_array_import_and_change_nothing_unseen(state: bytes, requirement: str, tmp_path: Path) -> None:
    step = tmp_path / "step-1"
    step.mkdir()
    (step / "w.npy").write_bytes(objects_of(state))
    assert requirement in {finding.requirement for finding in validate([step]).findings}


def test_code_behind_more_operations_than_are_followed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pickles, "PICKLE_OPERATIONS", Limit("a pickle", 1_000, "operations"))
    step = tmp_path / "step-1"
    step.mkdir()
    (step / "extra.bin").write_bytes(b"N0" * 2_000 + b"cos\nsystem\n(U\x04truetR.")
    assert "TS-SEC-003" in {finding.requirement for finding in validate([tmp_path]).findings}


@pytest.mark.parametrize("opcode", [b"\x96", b"\x8e", b"M\x01\x02\x96"])
def test_bytes_that_begin_as_a_pickle_of_a_huge_value_are_a_file_as_any_other(opcode: bytes, tmp_path: Path) -> None:
    """The system refuses to go behind such a length, and the file is read from its start to its end all the same."""
    content = opcode + (2**63 - 2).to_bytes(8, "little") + b"whatever follows"
    (tmp_path / "side.dat").write_bytes(content)
    build(tmp_path, "model.safetensors  safetensors w=F32[1]\n")
    assert not read_checkpoint(tmp_path).troubles


def test_code_before_a_huge_value_is_no_file_as_any_other(tmp_path: Path) -> None:
    content = b"\x80\x04cos\nsystem\n\x8c\x04true\x85R0\x96" + (2**63 - 2).to_bytes(8, "little") + b"."
    (tmp_path / "side.dat").write_bytes(content)
    build(tmp_path, "model.safetensors  safetensors w=F32[1]\n")
    (trouble,) = read_checkpoint(tmp_path).troubles
    assert (trouble.path, trouble.message[:36]) == ("side.dat", "the file is no pickle that can be fo")
