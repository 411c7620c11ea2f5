"""Compressed files and archives are known by their content; one that holds a document is named, by any name."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from trainspec_validate import validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline.archives import packed_documents

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_text(encoding="utf-8") for name in ("cluster.yaml", "plan.yaml"))
PADDING = b"".join(b"# line %d of many that come first\n" % number for number in range(20_000))


def zipped(content: bytes, name: str = "word/plan.yaml", more: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
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
    assert packed_documents(Path("bundle")) == []
