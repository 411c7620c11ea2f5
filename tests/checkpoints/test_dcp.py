"""Damage to distributed checkpoints of PyTorch is told from the files alone."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import trees
from tests.trees import NOW_SECONDS, build, call, mapping, name, pickled, short_text
from trainspec_validate.checkpoints.formats.dcp import stored_tensor
from trainspec_validate.checkpoints.limits import PICKLE_VALUE_BYTES, LimitError, UnreadableError
from trainspec_validate.checkpoints.pickle_values import Inert, Name, Pairs
from trainspec_validate.checkpoints.pickles import Machine, fetched, follow
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.checkpoints.view import Trouble
from trainspec_validate.pipeline.validation import validate

METADATA = "torch.distributed.checkpoint.metadata"
WHOLE = "step-60  dcp 2 weight=F32[4,3] bias=F32[4]\n"


def told(root: Path) -> set[tuple[str, str]]:
    return {(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles}


def test_a_whole_checkpoint_is_read(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    checkpoint = read_checkpoint(tmp_path / "step-60")
    assert checkpoint.formats == ["PyTorch DCP"]
    assert checkpoint.troubles == []
    assert {"mark", "files", "tiling", "container", "code", "paths", "limits"} <= checkpoint.examined
    assert (checkpoint.is_complete, len(checkpoint.archives)) == (True, 4)


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        ("step-60/.metadata  removed", ("mark", "")),
        ("step-60/.metadata  cut 1", ("container", ".metadata")),
        ("step-60/.metadata  text nothing", ("container", ".metadata")),
        ("step-60/__1_0.distcp  removed", ("files", "__1_0.distcp")),
        ("step-60/__1_0.distcp  cut 1", ("files", "__1_0.distcp")),
        ("step-60/__1_0.distcp  text ''", ("files", "__1_0.distcp")),
        ("step-60/__2_0.distcp  text old", ("residue", "__2_0.distcp")),
        ("step-60/.metadata.tmp  text half", ("residue", ".metadata.tmp")),
    ],
)
def test_damage_is_told(tmp_path: Path, damage: str, wanted: tuple[str, str]) -> None:
    build(tmp_path, f"{WHOLE}{damage}\n")
    assert told(tmp_path / "step-60") == {wanted}


def test_a_file_without_a_byte_is_of_a_thread_that_had_nothing_to_write(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    (tmp_path / "step-60/__1_1.distcp").write_bytes(b"")
    assert told(tmp_path / "step-60") == set()
    (tmp_path / "step-60/__1_1.distcp").write_bytes(b"left")
    assert told(tmp_path / "step-60") == {("residue", "__1_1.distcp")}


def test_a_flipped_byte_is_told_by_the_checksum(tmp_path: Path) -> None:
    build(tmp_path, f"{WHOLE}step-60/__0_0.distcp  flipped\n")
    found = [finding for finding in validate([tmp_path]).findings if finding.severity == "error"]
    assert [(f.requirement, Path(f.path).name) for f in found] == [("TS-CKP-084", "__0_0.distcp")]


def test_a_shard_of_a_later_save_under_the_old_index_is_told(tmp_path: Path) -> None:
    build(tmp_path, f"{WHOLE}step-60/__0_0.distcp  age -600\n")
    assert (tmp_path / "step-60" / "__0_0.distcp").stat().st_mtime == NOW_SECONDS + 600
    found = {finding.requirement for finding in validate([tmp_path]).findings}
    assert found == {"TS-CKP-070", "TS-CKP-090"}


@pytest.mark.parametrize("lost", ["offset", "chunk"])
def test_pieces_that_do_not_cover_the_tensor_are_told(tmp_path: Path, lost: str) -> None:
    build(tmp_path, WHOLE)
    index = tmp_path / "step-60" / ".metadata"
    content = index.read_bytes()
    piece = b"J\x02\x00\x00\x00J\x00\x00\x00\x00ttRX"
    shifted = piece.replace(b"\x02", b"\x01", 1)
    assert content.count(piece) == 2
    where = content.index(piece) if lost == "chunk" else content.rindex(piece)
    index.write_bytes(content[:where] + shifted + content[where + len(piece) :])
    assert told(tmp_path / "step-60") == {("tiling", ".metadata")}


@pytest.mark.parametrize(
    ("indexed", "held"),
    [("F32[4,3]", "F32[3,4]"), ("F32[4]", "F32[2,2]"), ("F32[2,3]", "F32[2,1]")],
)
def test_a_file_that_holds_another_shape_than_the_index_says(tmp_path: Path, indexed: str, held: str) -> None:
    shape = f"[{', '.join(held[4:-1].split(','))}]"
    found = swapped(tmp_path, indexed, held)
    assert [(one.aspect, one.path) for one in found] == [("tiling", ".metadata")]
    assert f"'weight': the file holds float32 {shape} for the piece" in found[0].message


def swapped(root: Path, indexed: str, held: str) -> list[Trouble]:
    """What is wrong with an index of one tensor next to the file of another one, whose bytes it names."""
    build(root, f"mine  dcp 1 weight={indexed}\nother  dcp 1 weight={held}\n")
    content = (root / "other" / "__0_0.distcp").read_bytes()
    index = (root / "mine" / ".metadata").read_bytes()
    before = trees.number(len((root / "mine" / "__0_0.distcp").read_bytes()))
    assert index.count(before) == 1
    (root / "mine" / ".metadata").write_bytes(index.replace(before, trees.number(len(content))))
    (root / "mine" / "__0_0.distcp").write_bytes(content)
    return read_checkpoint(root / "mine").troubles


@pytest.mark.parametrize(("indexed", "held"), [("F32[4]", "BF16[4]"), ("I64[4]", "F32[4]"), ("BF16[2]", "I64[2]")])
def test_a_file_that_holds_another_type_than_the_index_says(tmp_path: Path, indexed: str, held: str) -> None:
    words = {"F32": "float32", "BF16": "bfloat16", "I64": "int64"}
    mine, other = (words[each.partition("[")[0]] for each in (indexed, held))
    (found,) = swapped(tmp_path, indexed, held)
    assert (found.aspect, found.path) == ("tiling", ".metadata")
    assert f"the file holds {other} [{held[-2]}]" in found.message
    assert f"the index says {mine} [{indexed[-2]}]" in found.message


def test_pieces_of_another_type_are_counted(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    index = tmp_path / "step-60" / ".metadata"
    index.write_bytes(index.read_bytes().replace(b"float32", b"float16", 1))
    (found,) = read_checkpoint(tmp_path / "step-60").troubles
    assert found.message.endswith("and the index says float16 [2, 3]; 1 more piece differs")


ARGUMENTS = (Inert(Name("persistent", "id"), (("storage", Name("torch", "FloatStorage"), "0", "cpu", 6),)), 0, (2, 3))
PLAIN = Inert(Name("torch._utils", "_rebuild_tensor_v2"), (*ARGUMENTS, (3, 1), False, None))
TYPED = Inert(
    Name("torch._utils", "_rebuild_tensor_v3"), (*ARGUMENTS, (3, 1), False, None, Name("torch", "float8_e5m2"))
)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (PLAIN, "float32 [2, 3]"),
        (TYPED, "float8_e5m2 [2, 3]"),
        (Inert(Name("torch._utils", "_rebuild_parameter"), (PLAIN, True, None)), "float32 [2, 3]"),
        (
            Inert(Name("torch._tensor", "_rebuild_from_type_v2"), (PLAIN.function, Name("a", "B"), PLAIN.arguments)),
            "float32 [2, 3]",
        ),
        (Inert(Name("torch._utils", "_rebuild_sparse_tensor"), (Name("torch", "sparse_coo"), ())), "None"),
        (5, "None"),
        (Pairs(), "None"),
    ],
)
def test_the_tensor_of_a_pickle_of_one(value: object, wanted: str) -> None:
    assert str(stored_tensor(value)) == wanted


def test_code_in_the_index_is_told_and_not_run(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    canary = tmp_path / "canary"
    state = {short_text("state_dict_metadata"): call(name("os", "mkdir"), short_text(str(canary)))}
    (tmp_path / "step-60" / ".metadata").write_bytes(pickled(mapping(state)))
    assert ("code", ".metadata") in told(tmp_path / "step-60")
    assert not canary.exists()


def test_paths_of_the_index_that_lead_out_are_told(tmp_path: Path) -> None:
    build(tmp_path, WHOLE)
    index = tmp_path / "step-60" / ".metadata"
    index.write_bytes(index.read_bytes().replace(b"__1_0.distcp", b"../0.distcp/"))
    assert ("paths", ".metadata") in told(tmp_path / "step-60")
    assert [path.name for path in tmp_path.iterdir()] == ["step-60"]


def index_of(num: int, more: bytes = b"") -> bytes:
    """An index of one tensor of so many pieces, as PyTorch writes it; each piece holds `more` beside its place."""
    four = b"J%b"
    size = name("torch", "Size")
    chunks, entries = [], []
    for n in range(num):
        begin = four % n.to_bytes(4, "little")
        chunk = mapping({short_text("offsets"): size + begin + b"\x85\x94\x85\x94R\x94"})[:-1]
        chunk += short_text("sizes") + size + b"K\x01\x85\x94\x85\x94R\x94u"
        chunks.append(name(METADATA, "ChunkStorageMetadata") + b")\x81\x94" + chunk + b"b")
        key = mapping(
            {short_text("fqn"): short_text("a"), short_text("offset"): size + begin + b"\x85\x94\x85\x94R\x94"}
        )
        place = {"relative_path": short_text("__0_0.distcp"), "offset": begin, "length": b"K\x01"}
        info = mapping({short_text(field): value for field, value in place.items()})[:-1] + more + b"u"
        entries.append(name(METADATA, "MetadataIndex") + b")\x81\x94" + key + b"b")
        entries.append(name("torch.distributed.checkpoint.filesystem", "_StorageInfo") + b")\x81\x94" + info + b"b")
    whole = size + four % num.to_bytes(4, "little") + b"\x85\x85R"
    held = {"properties": b"N", "size": whole, "chunks": b"](" + b"".join(chunks) + b"e"}
    tensor = name(METADATA, "TensorStorageMetadata") + b")\x81"
    tensor += mapping({short_text(key): value for key, value in held.items()}) + b"b"
    state = {short_text("state_dict_metadata"): mapping({short_text("a"): tensor})}
    state[short_text("storage_data")] = b"}(" + b"".join(entries) + b"u"
    return b"\x80\x04" + name(METADATA, "Metadata") + b")\x81" + mapping(state) + b"b."


@pytest.fixture
def few_bytes() -> Iterator[None]:
    before = PICKLE_VALUE_BYTES.most
    object.__setattr__(PICKLE_VALUE_BYTES, "most", 4_000_000)
    yield
    object.__setattr__(PICKLE_VALUE_BYTES, "most", before)


@pytest.mark.usefixtures("few_bytes")
def test_an_index_of_many_pieces_is_read_in_the_memory_of_its_fields(tmp_path: Path) -> None:
    content = index_of(2_000)
    with pytest.raises(LimitError):
        follow(io.BytesIO(content))
    (tmp_path / ".metadata").write_bytes(content)
    (tmp_path / "__0_0.distcp").write_bytes(bytes(2_000))
    found = {trouble.message for trouble in read_checkpoint(tmp_path).troubles if trouble.path == ".metadata"}
    assert found == set()


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize(
    "more",
    [
        short_text("x") + b"]\x94(" + b"]" * 100 + b"e",
        short_text("x") + b"]q\xff(" + b"]" * 100 + b"e0h\xff0N",
        short_text("x") + b"](" + b"]" * 100 + b"er\xff\xff\xff\x000j\xff\xff\xff\x000N",
    ],
    ids=["held by the object", "a small number", "a large number"],
)
def test_what_an_index_holds_beside_its_pieces_counts(more: bytes) -> None:
    """Nothing is given back for values that an object or the memo still holds."""
    with pytest.raises(LimitError):
        follow(io.BytesIO(index_of(600, more)), ("MetadataIndex", "_StorageInfo", "ChunkStorageMetadata"))


@pytest.mark.parametrize("records", [(), ("MetadataIndex",)])
@pytest.mark.parametrize(
    "puts",
    [b"Nq\x010", b"Nq\x010Nq\x000Nq\x010", b"Nq\x020Nq\x000Nq\x010Nq\x020Nq\x010", b"Nq\x050Nq\x050"],
)
def test_values_are_remembered_under_the_numbers_of_python(puts: bytes, records: tuple[str, ...]) -> None:
    """Else one name would be judged and another one called."""
    for number in range(7):
        fetch = b"\x80\x04" + puts + short_text("os") + b"\x940h" + bytes([number]) + b"."
        try:
            wanted = pickle.loads(fetch)
        except pickle.UnpicklingError:
            with pytest.raises(UnreadableError):
                follow(io.BytesIO(fetch), records)
        else:
            assert follow(io.BytesIO(fetch), records).value == wanted


def test_an_object_that_is_doubled_and_names_of_code_are_not_given_back() -> None:
    """Each index stays on the stack, or names code that is reported in the end."""
    kind = name(METADATA, "MetadataIndex") + b")\x81"
    fields = b"}(" + short_text("a") + b"Nub"
    for part in (lambda n: kind + b"2" + fields, lambda n: kind + name("m", f"{n:0200}") + b"0" + fields + b"0"):
        machines = [Machine(("MetadataIndex",)) for _ in range(2)]
        for machine, num in zip(machines, (10, 510), strict=True):
            machine.run(io.BytesIO(b"\x80\x04" + b"".join(map(part, range(num))) + b"N."))
        assert machines[1].value_bytes.used - machines[0].value_bytes.used > 500 * 500


@pytest.mark.slow
def test_the_limit_says_how_many_pieces_an_index_may_have() -> None:
    held = []
    for num in (1_000, 3_000):
        file = io.BytesIO(index_of(num))
        machine = Machine(("MetadataIndex", "_StorageInfo", "ChunkStorageMetadata"), fetched(file))
        machine.run(file)
        held.append(machine.value_bytes.used)
    most = PICKLE_VALUE_BYTES.most * 2_000 / (held[1] - held[0])
    assert f"about {round(most / 25_000) * 25_000:,} pieces" in PICKLE_VALUE_BYTES.unit
