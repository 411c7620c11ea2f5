"""Compressed files and archives are known by their content; one that holds a document is named, by any name."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate import validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline import archives, layers, unpacked
from trainspec_validate.pipeline.archives import packed_documents
from trainspec_validate.pipeline.overlooked import PACKED_DOCUMENT
from trainspec_validate.pipeline.unpacked import NOT_LOOKED_INTO
from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.budget import Limit

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_text(encoding="utf-8") for name in ("cluster.yaml", "plan.yaml"))
PADDING = b"".join(b"# line %d of many that come first\n" % number for number in range(20_000))


def zipped(content: bytes, name: str = "word/plan.yaml", more: int = 0, *, is_small: bool = False) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED if is_small else zipfile.ZIP_STORED) as archive:
        archive.writestr("large.bin", bytes(more))
        archive.writestr(name, content)
    return buffer.getvalue()


def zstd(content: bytes) -> bytes:
    """One frame with one raw block; RFC 8878, section 3.1.1."""
    size = len(content).to_bytes(4, "little")
    return b"\x28\xb5\x2f\xfd\xa0" + size + ((len(content) << 3) | 1).to_bytes(3, "little") + content


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip with zeros behind it": lambda content: gzip.compress(content) + bytes(512),
    "gzip of a long text": lambda content: gzip.compress(PADDING + content),
    "xz of a long text": lambda content: lzma.compress(PADDING + content),
    "zstd": zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    "zip": zipped,
    "large zip": lambda content: zipped(content, more=5 * 1024**2),
}
SKIPPED = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
"""A frame of zstd without content; RFC 8878, section 3.1.2."""


def stored(content: bytes) -> bytes:
    """An archive of ar with one file."""
    return (
        b"!<arch>\n" + b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (b"plan.yaml/", 0, 0, 0, b"100644", len(content)) + content
    )


ROUNDABOUT: dict[str, Callable[[bytes], bytes]] = {
    "gzip of gzip": lambda content: gzip.compress(gzip.compress(content)),
    "gzip of xz": lambda content: gzip.compress(lzma.compress(content)),
    "zstd of xz": lambda content: zstd(lzma.compress(content)),
    "gzip of bzip2 of gzip": lambda content: gzip.compress(bz2.compress(gzip.compress(content))),
    "gzip of zip": lambda content: gzip.compress(zipped(content)),
    "zip of gzip": lambda content: zipped(gzip.compress(content), "c.yaml.gz"),
    "zip of zip": lambda content: zipped(zipped(content), "more.zip"),
    "gzip members": lambda content: gzip.compress(b"hello") + gzip.compress(content),
    "zstd frames": lambda content: zstd(b"hello") + zstd(content),
    "bzip2 streams": lambda content: bz2.compress(b"hello\n") + bz2.compress(content),
    "xz streams": lambda content: lzma.compress(b"hello\n") + lzma.compress(content),
    "xz streams with padding": lambda content: lzma.compress(b"hello\n") + bytes(4096) + lzma.compress(content),
    "zstd behind a skippable frame": lambda content: SKIPPED + zstd(content),
    "behind prose": lambda content: gzip.compress(b"A line of prose.\n" * 1_000 + content),
    "behind binary": lambda content: gzip.compress(bytes(range(256)) * 2 + content),
    "in UTF-16": lambda content: gzip.compress(content.decode().encode("utf-16")),
    "in UTF-16 without a mark": lambda content: gzip.compress(content.decode().encode("utf-16-le")),
    "zip behind a program": lambda content: b"#!/bin/sh\nexit\n" + bytes(100) + zipped(content, is_small=True),
    "ar": stored,
    "zlib": zlib.compress,
}
NAMES = ["bundle", "b.docx", "plan", "notes.txt", "data.out", "archive.gz", "old.txt.gz"]


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "tree")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


def left_out() -> list[str]:
    return [entry.path for entry in validate(["."]).unjudged]


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_a_document_is_named_in_a_directory_and_for_what_it_depends_on(pack: Callable[[bytes], bytes]) -> None:
    Path("bundle").write_bytes(pack(PLAN.encode()))
    assert left_out() == ["bundle"]
    assert invoke(".", "--fail-on", "error,unjudged").exit_code == 1
    assert "bundle: not judged" in invoke("--dependents", "cluster.yaml").output


@pytest.mark.parametrize("name", NAMES)
def test_the_name_does_not_count(name: str) -> None:
    Path(name).write_bytes(gzip.compress(PLAN.encode()))
    assert left_out() == [name]


def test_a_document_that_cannot_be_read_is_named_too() -> None:
    Path("bundle").write_bytes(gzip.compress(PLAN.encode() + b"\n: [\n"))
    assert left_out() == ["bundle"]


@pytest.mark.parametrize("pack", ROUNDABOUT.values(), ids=ROUNDABOUT)
@pytest.mark.parametrize("name", ["bundle", "a.dat"])
def test_a_document_is_found_below_layers_members_and_padding(pack: Callable[[bytes], bytes], name: str) -> None:
    Path(name).write_bytes(pack(PLAN.encode()))
    assert left_out() == [name]


@pytest.mark.slow
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_document_is_found_behind_more_than_a_document_may_have(pack: Callable[[bytes], bytes]) -> None:
    Path("bundle").write_bytes(pack(b"\n" * 50_000_000 + PLAN.encode()))
    assert left_out() == ["bundle"]


def four_layers(content: bytes) -> bytes:
    for _ in range(4):
        content = gzip.compress(content)
    return content


UNREAD: dict[str, Callable[[], bytes]] = {
    "four layers": lambda: four_layers(PLAN.encode()),
    "a window of 2 GiB": lambda: b"\x28\xb5\x2f\xfd\0\xa8" + zstd(PLAN.encode())[9:],
    "an end that is not reached": lambda: gzip.compress(b"\n" * 40_000_000 + PLAN.encode(), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("content", UNREAD.values(), ids=UNREAD)
def test_what_is_not_read_to_its_end_is_named_by_the_name_of_a_document(
    content: Callable[[], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "MOST_OF_ONE", Limit("a search", 36e6, "bytes"))
    for name in ("plan.yaml.gz", "x.yaml.zst"):
        Path(name).write_bytes(content())
    assert left_out() == ["plan.yaml.gz", "x.yaml.zst"]


@pytest.mark.parametrize("name", ["plan.yaml.gz", "plan.gz", "a.dat"])
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zlib.compress])
def test_a_document_is_found_behind_binary(pack: Callable[[bytes], bytes], name: str) -> None:
    for filler in (bytes(10_000_000), bytes(range(256)) * 20_000):
        Path(name).write_bytes(pack(filler + b"\n" + PLAN.encode()))
        assert left_out() == [name]


LARGE: dict[str, Callable[[], bytes]] = {
    "a text": lambda: gzip.compress(b"lorem ipsum\n" * 4_000_000 + PLAN.encode(), 1),
    "binary": lambda: gzip.compress(bytes(40_000_000) + PLAN.encode(), 1),
    "an entry": lambda: zipped(b"\n" * 40_000_000 + PLAN.encode(), is_small=True),
    "frames without content": lambda: SKIPPED * 1_001 + zstd(PLAN.encode()),
    "a window of 2 GiB": lambda: b"\x28\xb5\x2f\xfd\0\xa8" + zstd(PLAN.encode())[9:],
    "a container in a container": lambda: zipped(zipped(PLAN.encode(), more=34_000_000), "more.zip"),
}


@pytest.mark.slow
@pytest.mark.parametrize("content", LARGE.values(), ids=LARGE)
@pytest.mark.parametrize("name", ["a.dat", "a.docx"])
def test_a_search_that_ends_at_a_limit_says_so(
    content: Callable[[], bytes], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacked, "MOST_OF_ONE", Limit("a search", 36e6, "bytes"))
    Path(name).write_bytes(content())
    [entry] = validate(["."]).unjudged
    assert entry.path == name
    assert entry.reason.startswith("is compressed, and was not searched to its end: ")
    assert "not searched to its end" in invoke("--dependents", "cluster.yaml").output


def test_zstd_without_its_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    Path("bundle").write_bytes(zstd(PLAN.encode()))
    [entry] = validate(["."]).unjudged
    assert (entry.path, entry.reason) == ("bundle", "is compressed with zstd, which cannot be read here")


def test_files_share_what_is_read_behind_the_size_of_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(unpacked, "MOST_FAR", Limit("a search", 5e6, "bytes"))
    for number in range(3):
        Path(f"{number}.dat").write_bytes(gzip.compress(PADDING * 7))
    assert left_out() == ["1.dat", "2.dat"]


@pytest.mark.parametrize("pack", ROUNDABOUT.values(), ids=ROUNDABOUT)
@pytest.mark.parametrize("text", ["x: 1\n", "```yaml\napiVersion: trainspec/v1\nkind: TrainingPlan\n```\n"])
def test_other_content_below_layers_is_no_word_worth(pack: Callable[[bytes], bytes], text: str) -> None:
    Path("b.docx").write_bytes(pack(text.encode()))
    assert left_out() == []


def test_random_bytes_after_a_mark_are_no_failure() -> None:
    for number, mark in enumerate(
        # A frame of zstd in one segment states no window, which at random may be one that is too large to search.
        (b"\x1f\x8b", b"\x28\xb5\x2f\xfd\x20", SKIPPED, b"BZh9", b"\xfd7zXZ\0", b"x\x9c", b"PK\3\4")
    ):
        Path(f"b{number}.docx").write_bytes(mark + os.urandom(4_000))
    assert left_out() == []


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize(
    "content",
    [
        b"image: registry/trainspec/v1\napiVersion: apps/v1\n",
        b"# Guide\n\nWrite `apiVersion: trainspec/v1`:\n\n```yaml\nkind: TrainingPlan\n```\nand: [more\n",
        b"{}\n",
        bytes(1000),
    ],
)
def test_what_holds_no_document_is_no_word_worth(pack: Callable[[bytes], bytes], content: bytes) -> None:
    Path("b.docx").write_bytes(pack(content))
    assert left_out() == []
    assert "b.docx" not in invoke("--dependents", "cluster.yaml").output


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_damaged_content_is_no_failure(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    whole = pack(PLAN.encode())
    for end in (6, len(whole) // 2, len(whole) - 9):
        Path("bundle").write_bytes(whole[:end])
        packed_documents(tmp_path / "tree" / "bundle")
    assert invoke(".").exit_code in {0, 1}


def test_a_document_is_not_looked_for_in_a_zip_with_a_huge_directory() -> None:
    whole = bytearray(zipped(PLAN.encode()))
    place = whole.rfind(b"PK\x05\x06") + 12
    whole[place : place + 4] = (2**31).to_bytes(4, "little")
    Path("bundle").write_bytes(whole)
    [entry] = validate(["."]).unjudged
    assert entry.reason.endswith("may have at most 4,194,304 bytes of the directory of a zip container")


@pytest.fixture
def _few_bytes() -> Iterator[None]:
    most = unpacked.MOST.most
    object.__setattr__(unpacked.MOST, "most", 16e6)
    yield
    object.__setattr__(unpacked.MOST, "most", most)


@pytest.mark.usefixtures("_few_bytes")
@pytest.mark.parametrize("name", ["{}.dat", "{}.yaml.gz", "{}.log.gz"])
def test_many_bombs_share_one_budget_and_hide_no_other_file(name: str) -> None:
    bomb = gzip.compress(gzip.compress(b"a: b\n" * 2_000_000))
    for number in range(6):
        Path(name.format(number)).write_bytes(bomb)
    Path(name.format("last")).write_bytes(gzip.compress(PLAN.encode()))
    found = {entry.path: entry.reason for entry in validate(["."]).unjudged}
    bombs = {name.format(number) for number in range(6)}
    assert {path for path, reason in found.items() if reason == NOT_LOOKED_INTO} >= bombs - set(sorted(bombs)[:2])
    assert found[name.format("last")] == PACKED_DOCUMENT
    assert "was not looked into" in invoke("--dependents", "cluster.yaml").output
    assert [path for path in (entry.path for entry in validate(["cluster.yaml"]).unjudged) if path in bombs] == []


@pytest.mark.usefixtures("_few_bytes")
def test_archives_share_the_budget_too() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"{number}.yaml", b"a: b\n" * 200_000)
    for number in range(3):
        Path(f"{number}.dat").write_bytes(buffer.getvalue())
    assert {entry.reason for entry in validate(["."]).unjudged} == {NOT_LOOKED_INTO}


@pytest.mark.usefixtures("_few_bytes")
def test_texts_that_shrink_as_texts_do_are_all_looked_into() -> None:
    text = b"".join(b"step %d loss %f\n" % (number, number / 7) for number in range(200_000))
    for number in range(8):
        Path(f"{number}.dat").write_bytes(gzip.compress(text))
    assert left_out() == []


@pytest.mark.parametrize("name", ["README.md.gz", "test_plans.py.gz", "notes.html.gz", "change.patch.xz"])
def test_a_compressed_text_that_quotes_a_document_is_none(name: str) -> None:
    text = f"A page or a program.\n\n{PLAN}\nMore of it.\n".encode()
    for content, expected in ((text, []), (PLAN.encode(), [name])):
        Path(name).write_bytes(lzma.compress(content) if name.endswith("xz") else gzip.compress(content))
        assert left_out() == expected
        Path(name).unlink()
        plain = Path(name.rpartition(".")[0])
        plain.write_bytes(content)
        assert left_out() == [plain.as_posix()] * len(expected)
        plain.unlink()


def test_a_file_without_documents_is_looked_into_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.dat", "b.yaml.gz", "c.bin"):
        Path(name).write_bytes(gzip.compress(b"steps: 10\n" * 1_000))
    Path("d.zip").write_bytes(zipped(b"steps: 10\n", "d.yaml.gz"))
    looked: list[str] = []
    monkeypatch.setattr(archives, "open_regular", lambda path: looked.append(Path(path).name) or open_regular(path))
    invoke("--dependents", ".", "cluster.yaml")
    assert sorted(looked) == sorted(set(looked))
    assert {"a.dat", "b.yaml.gz", "c.bin"} <= set(looked)


def test_more_layers_than_are_followed_are_named_under_any_name() -> None:
    Path("a.dat").write_bytes(four_layers(b"any text"))
    assert left_out() == ["a.dat"]
    assert "a.dat: not judged" in invoke("--dependents", "cluster.yaml").output


def tarred(content: bytes, name: str = "plan.yaml") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["plan", "plan.txt", "plan.yaml.bak", "plan.yaml ", "plan.json5", "dir\\plan.yaml"])
def test_an_entry_of_an_archive_is_looked_at_under_the_names_of_files(name: str, tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(zipped(PLAN.encode(), name))
    assert [found for _, found in packed_documents(file) or ()] == [PLAN.encode()]


@pytest.mark.parametrize("name", ["more.tar", "more.tar.gz", "more.tgz"])
def test_an_archive_in_an_archive_is_looked_at(name: str, tmp_path: Path) -> None:
    file, inner = tmp_path / "data.bin", tarred(PLAN.encode())
    file.write_bytes(zipped(inner if name.endswith(".tar") else gzip.compress(inner), name))
    assert [name for name, _ in packed_documents(file) or ()] == [name]


def test_archives_deeper_than_what_is_followed_are_named(tmp_path: Path) -> None:
    content, name = PLAN.encode(), "plan.yaml"
    for _ in range(6):
        content, name = zipped(content, name), "more.zip"
    (tmp_path / "data.bin").write_bytes(content)
    with pytest.raises(layers.TooDeepError):
        packed_documents(tmp_path / "data.bin")
