"""Files of Keras are read as far as it goes without its libraries: archives, settings, and the begin of HDF5."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.hdf5_made import SIGNATURE, container
from trainspec_validate.checkpoints.read import read_checkpoint
from trainspec_validate.pipeline.validation import validate

PLAIN = {"class_name": "Sequential", "config": {"layers": [{"class_name": "Dense", "config": {"units": 3}}]}}
LAMBDA = {"class_name": "Lambda", "config": {"function": {"class_name": "__lambda__", "config": {"code": "4wEA"}}}}


def archive(path: Path, settings: Any = None, values: bytes = container(900), **left_out: bool) -> None:
    """A model as Keras saves it."""
    with zipfile.ZipFile(path, "w") as model:
        for name, text in (("metadata", '{"keras_version": "3.15.0"}'), ("config", json.dumps(settings or PLAIN))):
            if not left_out.get(name):
                model.writestr(f"{name}.json", text)
        if not left_out.get("weights"):
            model.writestr("model.weights.h5", values)


def told(root: Path) -> set[tuple[str, str]]:
    return {(trouble.aspect, trouble.path) for trouble in read_checkpoint(root).troubles}


def test_whole_files_are_named(tmp_path: Path) -> None:
    archive(tmp_path / "model.keras")
    (tmp_path / "model.weights.h5").write_bytes(container(900))
    (tmp_path / "old.h5").write_bytes(container(900, new=True))
    assert read_checkpoint(tmp_path).formats == ["Keras archive", "Keras weights in HDF5", "HDF5"]
    assert {finding.requirement for finding in validate([tmp_path]).findings} == {"TS-CKP-070"}


def test_the_code_of_a_lambda_is_told(tmp_path: Path) -> None:
    archive(tmp_path / "model.keras", {"class_name": "Functional", "config": {"layers": [PLAIN, LAMBDA]}})
    assert told(tmp_path) == {("code", "model.keras")}


@pytest.mark.parametrize("name", ["metadata", "config", "weights"])
def test_an_archive_without_a_part_is_told(tmp_path: Path, name: str) -> None:
    archive(tmp_path / "model.keras", **{name: True})
    assert told(tmp_path) == {("container", "model.keras")}


@pytest.mark.parametrize(
    ("values", "wanted"),
    [(b"not at all", "container"), (container(900)[:400], "container"), (SIGNATURE, "container")],
)
def test_damaged_weights_in_an_archive_are_told(tmp_path: Path, values: bytes, wanted: str) -> None:
    archive(tmp_path / "model.keras", values=values)
    assert told(tmp_path) == {(wanted, "model.keras")}


@pytest.mark.parametrize("new", [True, False], ids=["new", "old"])
def test_cut_weights_are_told(tmp_path: Path, new: bool) -> None:
    path = tmp_path / "model.weights.h5"
    path.write_bytes(container(900, new=new)[:-1])
    assert told(tmp_path) == {("files", path.name)}
    for content in (b"", container(900, new=new)[:20], container(900, new=new).replace(SIGNATURE, bytes(8))):
        path.write_bytes(content)
        assert told(tmp_path) == {("container", path.name)}
    path.write_bytes(SIGNATURE + b"\x07" * 90)
    assert told(tmp_path) == {("container", path.name)}


@pytest.mark.parametrize("new", [True, False], ids=["new", "old"])
def test_weights_that_end_in_zeros_are_told(tmp_path: Path, new: bool) -> None:
    """A crash of a file system leaves the size of a file, and zeros from some place on."""
    path = tmp_path / "model.weights.h5"
    content = container(900, new=new, fill=b"\0")
    path.write_bytes(content)
    assert told(tmp_path) == set()
    num_bytes = len(content.rstrip(b"\0"))
    for place in range(48 if new else 96, num_bytes - 8, 8):
        path.write_bytes(content[:place].ljust(len(content), b"\0"))
        if path.read_bytes() != content:
            assert told(tmp_path) == {("container", path.name)}, place


@pytest.mark.parametrize("new", [True, False], ids=["new", "old"])
def test_an_array_behind_the_end_is_told(tmp_path: Path, new: bool) -> None:
    path = tmp_path / "model.weights.h5"
    content = container(900, new=new)
    place = content.rindex((900 - (120 if new else 328)).to_bytes(8, "little"))
    path.write_bytes(content[:place] + (5_000).to_bytes(8, "little") + content[place + 8 :])
    assert told(tmp_path) == {("container", path.name)}


def test_groups_that_hold_each_other_are_followed_once(tmp_path: Path) -> None:
    path = tmp_path / "model.weights.h5"
    content = bytearray(container(900))
    content[136 + 5] = 1  # the tree has a tree below it, which is itself
    content[136 + 32 : 136 + 40] = (136).to_bytes(8, "little")
    path.write_bytes(content)
    assert told(tmp_path) == {("limits", path.name)}
    content = bytearray(container(900))
    content[232 + 16 : 232 + 24] = (96).to_bytes(8, "little")  # the array is the group that holds it
    path.write_bytes(content)
    assert told(tmp_path) == set()


def test_a_flipped_value_in_an_archive_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    archive(path, values=container(10_000))  # of smaller entries the first bytes are all, and are compared at once
    content = bytearray(path.read_bytes())
    content[content.index(b"\1" * 100) + 9000] ^= 1
    path.write_bytes(bytes(content))
    assert "TS-CKP-084" in {finding.requirement for finding in validate([tmp_path]).findings}


@pytest.mark.parametrize("text", ['{"a":' * 70 + "1" + "}" * 70, '{"a": 1, "a": 2}', "{"])
def test_settings_that_cannot_be_read_are_told(tmp_path: Path, text: str) -> None:
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as model:
        model.writestr("metadata.json", "{}")
        model.writestr("config.json", text)
        model.writestr("model.weights.h5", container(900))
    assert told(tmp_path) in ({("limits", "model.keras")}, {("container", "model.keras")})


def test_an_entry_that_leads_out_is_told(tmp_path: Path) -> None:
    archive(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras", "a") as model:
        model.writestr("../evil", "x")
    assert told(tmp_path) == {("paths", "model.keras")}


@examples(40)
@given(st.binary(max_size=200))
def test_any_bytes_after_the_signature_are_answered(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    root = tmp_path_factory.mktemp("fuzzed")
    (root / "model.weights.h5").write_bytes(SIGNATURE + content)
    assert told(root) <= {("container", "model.weights.h5"), ("files", "model.weights.h5")}
