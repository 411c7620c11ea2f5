"""Checkpoints of TensorFlow are read without it: every flipped byte, lost file and wrong pointer is told."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bundles_made import (
    INTEGER_64,
    TEXT,
    VALUE,
    VARIANT,
    Held,
    bundle,
    entry,
    floats,
    header,
    message,
    number,
    pointer,
    shape,
    table,
    table_of,
    training,
    varint,
)
from tests.examples import examples
from trainspec_validate.checkpoints.formats._bundle import read_index
from trainspec_validate.checkpoints.inventory import find
from trainspec_validate.checkpoints.newest import judged_newest_first
from trainspec_validate.checkpoints.opening import UnreadableError
from trainspec_validate.checkpoints.pieces import damaged
from trainspec_validate.checkpoints.read import read_checkpoint, read_group
from trainspec_validate.checkpoints.view import Checkpoint
from trainspec_validate.model.finding import Severity
from trainspec_validate.pipeline.validation import validate

DATA = "ckpt-20.data-00000-of-00001"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two checkpoints and the file that names the newer one."""
    for step in (10, 20):
        bundle(tmp_path, f"ckpt-{step}", training(step))
    pointer(tmp_path, "ckpt-10", "ckpt-20")
    return tmp_path


def test_links_to_the_files_of_a_bundle_make_no_bundle(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    linked = tmp_path_factory.mktemp("linked")
    for path in run.glob("ckpt-20.*"):
        (linked / path.name).symlink_to(path)
    assert [group.members for group in find(run)] == [[run / "ckpt-10", run / "ckpt-20"]]
    assert [group.members for group in find(linked)] == [[linked]]


def errors(path: Path) -> set[tuple[str, str]]:
    found = validate([path]).at_or_above(Severity.ERROR)
    return {(finding.requirement, Path(finding.path).name) for finding in found}


def newest(path: Path) -> Checkpoint:
    (group,) = find(path)
    return read_group(group).checkpoints[-1]


def matters(checkpoint: Checkpoint) -> set[str]:
    return {trouble.aspect for trouble in checkpoint.troubles}


def test_whole_checkpoints_are_a_series_with_a_pointer(run: Path) -> None:
    (group,) = find(run)
    series = read_group(group)
    assert [(one.label, one.step, one.formats) for one in series.checkpoints] == [
        ("ckpt-10", 10, ["TensorFlow"]),
        ("ckpt-20", 20, ["TensorFlow"]),
    ]
    (told,) = series.pointers
    assert (told.target, told.problem) == (series.checkpoints[-1], "")
    assert errors(run) == set()


def test_every_flipped_byte_is_told(tmp_path: Path) -> None:
    bundle(tmp_path, "ckpt-20", training(20))
    for name in ("ckpt-20.index", DATA):
        path = tmp_path / name
        content = path.read_bytes()
        for place in range(len(content)):
            flipped = bytearray(content)
            flipped[place] ^= 1 << place % 8
            path.write_bytes(bytes(flipped))
            one = read_checkpoint(tmp_path / "ckpt-20")
            assert one.troubles or list(damaged(one.root, one.pieces)), (name, place)
        path.write_bytes(content)


def test_a_flipped_value_names_its_tensor(run: Path) -> None:
    content = bytearray((run / DATA).read_bytes())
    content[-1] ^= 1
    content[content.index(floats(20.5, 21.0))] ^= 1
    (run / DATA).write_bytes(bytes(content))
    found = [finding for finding in validate([run]).findings if finding.requirement == "TS-CKP-084"]
    assert {Path(finding.path).name for finding in found} == {DATA}
    assert [finding.message for finding in found] == [
        "tensor 'model/dense/kernel' contradicts its checksum",
        "tensor 'save_counter' contradicts its checksum",
    ]


@pytest.mark.parametrize(
    ("name", "cut", "wanted"),
    [
        (DATA, None, {("TS-CKP-086", "ckpt-20.index"), ("TS-CKP-092", "checkpoint")}),
        (DATA, 1, {("TS-CKP-082", DATA), ("TS-CKP-092", "checkpoint")}),
        (DATA, 10_000, {("TS-CKP-082", DATA), ("TS-CKP-092", "checkpoint")}),
        ("ckpt-20.index", None, {("TS-CKP-080", "ckpt-20"), ("TS-CKP-092", "checkpoint")}),
    ],
)
def test_lost_and_cut_files_are_told(run: Path, name: str, cut: int | None, wanted: set[tuple[str, str]]) -> None:
    path = run / name
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: -min(cut, path.stat().st_size)])
    assert errors(run) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ('all_model_checkpoint_paths: "ckpt-10"\n', "has no model_checkpoint_path"),
        ("\0\xff garbage", "no field with a value"),
        ('model_checkpoint_path: "ckpt-30"\n', "names 'ckpt-30', and there is no such checkpoint"),
        ('model_checkpoint_path: "/elsewhere/ckpt-20"\n', "there is no such checkpoint"),
        ('model_checkpoint_path: "ckpt-20', "no field with a value"),
    ],
)
def test_a_pointer_that_leads_nowhere_is_told(run: Path, text: str, words: str) -> None:
    (run / "checkpoint").write_text(text, encoding="latin-1")
    (found,) = [finding for finding in validate([run]).findings if finding.requirement == "TS-CKP-091"]
    assert words in found.message


@pytest.mark.parametrize("text", ["model_checkpoint_path: '{name}'", '\n  model_checkpoint_path : "{place}"  \n# no\n'])
def test_a_pointer_may_be_written_in_other_ways(run: Path, text: str) -> None:
    (run / "checkpoint").write_text(text.format(name="ckpt-20", place=run / "ckpt-20"), encoding="utf-8")
    assert errors(run) == set()


def test_a_name_that_counts_saves_is_no_step(tmp_path: Path) -> None:
    for count in (1, 2):
        bundle(tmp_path, f"ckpt-{count}", training(count * 500))
    (group,) = find(tmp_path)
    assert [one.step for one in read_group(group).checkpoints] == [500, 1000]


def test_shards_are_counted(tmp_path: Path) -> None:
    spread = {f"w{n}": Held(floats(n, n), (2,), shard=n) for n in range(3)}
    bundle(tmp_path, "ckpt-20", spread, num_shards=3)
    assert errors(tmp_path) == set()
    (tmp_path / "ckpt-20.data-00001-of-00003").rename(tmp_path / "ckpt-20.data-00000-of-00001")
    one = newest(tmp_path)
    assert {(t.aspect, t.path) for t in one.troubles} == {("shards", "ckpt-20.index"), ("residue", DATA)}


def test_what_an_unfinished_save_leaves_is_told(run: Path) -> None:
    bundle(run / "ckpt-20_temp", "part-00000-of-00001", {"w": Held(floats(1), (1,))})
    assert errors(run) == {("TS-CKP-081", "ckpt-20_temp")}


def test_a_saved_model_is_one_checkpoint(tmp_path: Path) -> None:
    bundle(tmp_path / "model" / "variables", "variables", training(1))
    (group,) = find(tmp_path)
    assert group.members == [tmp_path / "model" / "variables"]
    assert errors(tmp_path) == set()


def test_a_sealed_directory_is_one_checkpoint(run: Path) -> None:
    from tests.trees import sealed

    sealed(run / "trainspec-manifest.json")
    (group,) = find(run)
    assert group.members == [run]
    assert read_checkpoint(run).manifest is not None
    assert validate([run]).findings == ()


def test_old_files_are_named(tmp_path: Path) -> None:
    bundle(tmp_path / "new", "model.ckpt-100", {"a": Held(floats(1), (1,))})
    bundle(tmp_path / "old", "model.ckpt-100", {"a": Held(floats(1), (1,))})
    for place in ("new", "old"):
        (tmp_path / place / "model.ckpt-100.meta").write_bytes(b"graph")
    (tmp_path / "old" / "model.ckpt-100.index").rename(tmp_path / "old" / "model.ckpt-100")
    (tmp_path / "old" / "model.ckpt-100.data-00000-of-00001").unlink()
    assert newest(tmp_path / "new").formats == ["TensorFlow", "TensorFlow 1 (with a graph)"]
    assert newest(tmp_path / "old").formats == ["TensorFlow 1 (of one file, which is not read)"]
    assert errors(tmp_path) == set()


def test_files_that_only_look_like_it_are_none(tmp_path: Path) -> None:
    (tmp_path / "pack-1.index").write_bytes(bytes(100))
    (tmp_path / "checkpoint").write_text("notes")
    assert find(tmp_path) == []


def sliced(*extents: tuple[int, int]) -> dict[bytes, bytes]:
    """The entry of a tensor of ten elements with these slices."""
    slices = b"".join(message(7, message(1, number(1, begin) + number(2, size))) for begin, size in extents)
    return {b"w": number(1, 1) + message(2, shape([10])) + slices}


BROKEN: dict[str, tuple[list[tuple[bytes, bytes]], str]] = {
    "no-header": ([(b"a", header())], "container"),
    "no-shards": ([(b"", header(0))], "container"),
    "too-new": ([(b"", header(1, 0, 2))], "container"),
    "shard-beyond": ([(b"", header()), (b"w", entry(Held(b"", (0,), shard=4), 0, 0))], "container"),
    "negative-offset": ([(b"", header()), (b"w", entry(Held(b"", (0,)), -5, 0))], "container"),
    "negative-shape": ([(b"", header()), (b"w", entry(Held(b"", (-1,)), 0, 0))], "container"),
    "size": ([(b"", header()), (b"w", entry(Held(bytes(4), (2,)), 0, 0))], "tiling"),
    "endless": ([(b"", header()), (b"w", entry(Held(bytes(4), (1 << 62,) * 250), 0, 0))], "tiling"),
    "overlap": ([(b"", header()), *((k, entry(Held(bytes(4), (1,)), 0, 0)) for k in (b"v", b"w"))], "tiling"),
    "beyond": ([(b"", header()), (b"w", entry(Held(bytes(400), (100,)), 0, 0))], "files"),
    "twice": ([(b"", header()), *((b"w", entry(Held(bytes(4), (1,)), 4 * n, 0)) for n in range(2))], "container"),
    "hole": ([(b"", header()), *sliced((0, 4), (6, 4)).items()], "tiling"),
    "slices-not-there": ([(b"", header()), *sliced((0, 5), (5, 5)).items()], "tiling"),
    "message": ([(b"", header()), (b"w", b"\x12\x7f")], "container"),
    "field-type": ([(b"", header()), (b"w", b"\x0b")], "container"),
    "endless-number": ([(b"", header()), (b"w", b"\x08" + b"\xff" * 12)], "container"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_an_index_that_makes_no_sense_is_told(tmp_path: Path, way: str) -> None:
    pairs, wanted = BROKEN[way]
    (tmp_path / "ckpt-20.index").write_bytes(table(pairs))
    (tmp_path / DATA).write_bytes(bytes(16))
    assert matters(newest(tmp_path)) == {wanted}


@pytest.mark.parametrize(("kind", "name"), [(1, "Snappy"), (7, "type 7")])
def test_compressed_blocks_are_refused_in_words(tmp_path: Path, kind: int, name: str) -> None:
    (tmp_path / "ckpt-20.index").write_bytes(table([(b"", header())], kind=kind))
    (tmp_path / DATA).write_bytes(b"")
    (trouble,) = newest(tmp_path).troubles
    words = f"the index has a compressed block ({name}), which is not read: TensorFlow writes none"
    assert (trouble.aspect, trouble.message) == ("limits", words)


@pytest.mark.parametrize(
    ("num_bytes", "aspect", "words"),
    [
        (16_777_216, "container", "names a block beyond its end"),
        (16_777_217, "limits", "at most 16,777,216 bytes of one block"),
    ],
)
def test_blocks_have_16_mib_at_most(tmp_path: Path, num_bytes: int, aspect: str, words: str) -> None:
    (tmp_path / "ckpt-20.index").write_bytes(table_of(b"", [(b"w", varint(0) + varint(num_bytes))]))
    (tmp_path / DATA).write_bytes(b"")
    (trouble,) = newest(tmp_path).troubles
    assert (trouble.aspect, words in trouble.message) == (aspect, True), trouble.message


def test_slices_that_are_all_there_are_whole(tmp_path: Path) -> None:
    keys = {b"\0w\0\1" + bytes([n]): entry(Held(bytes(20), (5,)), 20 * n, 0) for n in range(2)}
    pairs = [(b"", header()), *keys.items(), *sliced((0, 5), (5, 5)).items()]
    (tmp_path / "ckpt-20.index").write_bytes(table(pairs))
    (tmp_path / DATA).write_bytes(bytes(40))
    assert matters(newest(tmp_path)) == set()


def test_values_without_a_known_form_are_not_compared(tmp_path: Path) -> None:
    bundle(tmp_path, "ckpt-20", {"table": Held(b"objects", (), VARIANT), "w": Held(floats(1), (1,))})
    assert [piece.name for piece in newest(tmp_path).pieces] == ["w"]


def test_texts_whose_lengths_lie_are_told(tmp_path: Path) -> None:
    bundle(tmp_path, "ckpt-20", {f"words{VALUE}": Held(b"some words", (), TEXT), "n": Held(bytes(8), (), INTEGER_64)})
    (tmp_path / "ckpt-20.index").write_bytes(
        table([(b"", header()), (b"words", entry(Held(bytes(15), (1 << 40,), TEXT), 8, 0))])
    )
    one = newest(tmp_path)
    assert [words for _, words in damaged(one.root, one.pieces)] == ["claims 1,099,511,627,776 texts in 15 bytes"]


@examples(70)
@given(st.data())
def test_damaged_and_random_tables_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("fuzzed") / "ckpt.index"
    whole = table([(b"", header(2)), *((b"w%d" % n, entry(Held(bytes(8), (2,)), 8 * n, n)) for n in range(9))])
    content = bytearray(whole if data.draw(st.booleans()) else data.draw(st.binary(max_size=300)) + whole[-48:])
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=9))))
    try:
        num_shards = read_index(path).num_shards
    except UnreadableError:
        num_shards = 2
    assert num_shards == 2


@examples(70)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=60)), max_size=12))
def test_random_messages_in_a_sound_table_are_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[bytes, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("fuzzed")
    (root / "ckpt-20.index").write_bytes(table([(b"", header()), *sorted(dict(pairs).items())]))
    (root / DATA).write_bytes(struct.pack("<20q", *range(20)))
    one = newest(root)
    for _, words in damaged(one.root, one.pieces):
        assert words
    for trouble in one.troubles:
        assert trouble.message


@pytest.mark.parametrize("kept", [("step", "save_counter"), ("save_counter",), ("step",)])
@pytest.mark.parametrize("kind", [3, INTEGER_64])
def test_a_copy_of_an_older_save_is_not_the_newest(kept: tuple[str, ...], kind: int, tmp_path: Path) -> None:
    form = "<i" if kind == 3 else "<q"
    for save in (1, 2, 3):
        count = 1 if save == 3 else save
        counts = {"step": 10 * count, "save_counter": count}
        held = {f"{name}{VALUE}": Held(struct.pack(form, counts[name]), (), kind) for name in kept}
        bundle(tmp_path, f"ckpt-{save}", {f"v{VALUE}": Held(floats(count), (1,)), **held})
    whole = [Path(one.path).name for one in judged_newest_first(tmp_path) if not one.faults]
    assert whole[0] == "ckpt-2"


def test_names_that_count_something_else_than_saves_choose(tmp_path: Path) -> None:
    for save in (1, 2, 3):
        held = {f"save_counter{VALUE}": Held(struct.pack("<q", save), (), INTEGER_64)}
        bundle(tmp_path, f"ckpt-{save * 100}", {f"v{VALUE}": Held(floats(save), (1,)), **held})
    assert next(one.path for one in judged_newest_first(tmp_path) if not one.faults).endswith("ckpt-300")


def test_an_index_without_tensors_is_damaged(run: Path) -> None:
    (run / "ckpt-20.index").write_bytes(table([(b"", header(1))]))
    assert ("TS-CKP-083", "ckpt-20.index") in errors(run)
    assert [Path(one.path).name for one in judged_newest_first(run) if not one.faults] == ["ckpt-10"]


def test_an_entry_without_a_type_is_damaged(run: Path) -> None:
    """Zero is DT_INVALID, and what an empty entry has."""
    bundle(run, "ckpt-20", {**training(20), "model/x" + VALUE: Held(b"", (0,), 0)})
    assert errors(run) == {("TS-CKP-085", "ckpt-20.index")}
