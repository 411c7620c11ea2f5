"""What is wrong with a manifest or a signature is said in words of the specification, with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainspec_validate import validate
from trainspec_validate.checkpoints.envelope import SignatureError, envelope_of
from trainspec_validate.checkpoints.opening import UnreadableError, read_json
from trainspec_validate.checkpoints.view import MANIFEST_NAME
from trainspec_validate.cli.commands.checkpoint import command

DECODER = re.compile(
    r"Expect(?:ed|ing) |Object (?:missing|contains)|Invalid (?:enum|base64)|\$\.|codec|\(char |`str`|regex"
)
"""Words of the decoders that read manifests and signatures."""


def verified(root: Path) -> tuple[int, str]:
    result = CliRunner().invoke(command, ["verify", str(root), "--no-progress"])
    return result.exit_code, result.output


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    root = tmp_path / "step-5"
    root.mkdir()
    (root / "notes.txt").write_text("three", encoding="utf-8")
    result = CliRunner().invoke(command, ["seal", str(root), "--step", "5", "--no-progress"])
    assert result.exit_code == 0, result.output
    return root


def rewritten(root: Path, **changes: Any) -> None:
    """Change keys of a manifest, each on its own line; None takes one away."""
    path = root / MANIFEST_NAME
    data = json.loads(path.read_text(encoding="utf-8"))
    data.update(changes)
    kept = {key: value for key, value in data.items() if value is not None}
    path.write_text(json.dumps(kept, indent=1), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": None}, "line 2: the document lacks the key 'kind' (add it"),
        ({"kind": "Other"}, "line 3: 'Other' is not a value of 'kind' (one of: CheckpointManifest)"),
        (
            {"apiVersion": "trainspec/v9"},
            "line 2: 'trainspec/v9' is not a value of 'apiVersion' (did you mean 'trainspec/v1'?)",
        ),
        ({"step": "5"}, "line 5: the text '5' is not a whole number (write 5, without quotes)"),
        ({"step": -1}, "line 5: -1 is too small; the least is 0"),
        ({"step": 5.5}, "line 5: 5.5 is not a whole number (write 5 or 6)"),
        ({"strp": 5}, "unknown key 'strp' (did you mean 'step'"),
        ({"files": None}, "the document lacks the key 'files' (add it"),
        ({"files": []}, "the list has 0 items (list at least 1)"),
        (
            {"files": [{"path": "notes.txt", "size_bytes": 5, "sha256": "zz"}]},
            "'zz' is not of the form that 'sha256' has (write 64 hexadecimal digits in lower case)",
        ),
        ({"state": ["modle"]}, "'modle' is not a value of 'state' (did you mean 'model'?)"),
        ({"created": "yesterday"}, "(write a time of the calendar in UTC, such as 2026-01-31T13:45:00Z)"),
    ],
)
def test_a_value_that_no_manifest_has(sealed: Path, changes: dict[str, Any], words: str) -> None:
    rewritten(sealed, **changes)
    code, output = verified(sealed)
    assert code == 2
    assert f"{MANIFEST_NAME}: is not valid: line " in output
    assert words in output
    assert not DECODER.search(output)
    (found,) = [one for one in validate([sealed]).findings if "manifest" in one.message]
    assert found.requirement == "TS-CKP-083"
    assert found.message.startswith("the manifest is not valid: line ")
    assert words in found.message


def test_a_whole_number_with_a_point_is_one(sealed: Path) -> None:
    rewritten(sealed, step=5.0)
    assert verified(sealed)[0] == 0


def test_many_mistakes_are_the_first_three(sealed: Path) -> None:
    rewritten(sealed, step="x", run=1, created=2, tool=3)
    output = verified(sealed)[1]
    assert output.count("line ") == 3
    assert "; and more" in output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"a": 1,\n}', "is no JSON: line 1, column 8: a comma follows the last entry (remove the comma)"),
        (b'{"a":\n[1', "is no JSON: line 2, column 1: this bracket is never closed (close it with ']')"),
        (b'{"a": 1,\n"a": 2}', "is no JSON: line 2, column 1: key 'a' appears twice; the first is at line 1"),
        (b'{"a":\n"\xff"}', "is no JSON: line 2, column 2: byte 0xff is not UTF-8 (save the file as UTF-8)"),
        ("{}".encode("utf-16"), "is no JSON: the file is encoded in UTF-16 or UTF-32 (save it as UTF-8)"),
        (b"\xef\xbb\xbf\xef\xbb\xbf{}", "is no JSON: line 1, column 1: the file starts with two byte order marks"),
        (b'{\n"num_tokens": NaN}', "is no JSON: line 2, column 15: NaN is not a finite number"),
        (b'{\n"num_tokens": 1e999}', "is no JSON: line 2, column 15: 1e999 is not a finite number"),
    ],
)
def test_a_text_that_is_no_json(sealed: Path, content: bytes, words: str) -> None:
    (sealed / MANIFEST_NAME).write_bytes(content)
    code, output = verified(sealed)
    assert code == 2
    assert words in output
    assert not DECODER.search(output)
    assert any(one.message.startswith(f"the manifest {words[:9]}") for one in validate([sealed]).findings)


@pytest.mark.parametrize("content", [b'{"a": NaN, "b": [1e999]}', b'{"a": -Infinity}'])
def test_numbers_that_python_writes_are_read_elsewhere(content: bytes) -> None:
    assert isinstance(read_json(content), dict)
    with pytest.raises(UnreadableError, match="not a finite number"):
        read_json(content, is_strict=True)


def test_one_byte_order_mark_is_ignored_by_every_reader(sealed: Path) -> None:
    (sealed / "config.json").write_bytes(b"\xef\xbb\xbf{}")
    assert CliRunner().invoke(command, ["seal", str(sealed), "--force", "--step", "5"]).exit_code == 0
    path = sealed / MANIFEST_NAME
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert verified(sealed)[0] == 0
    assert validate([sealed]).findings == ()
    judged = CliRunner().invoke(command, ["newest-good", str(sealed.parent), "--code", "any"])
    assert "no JSON" not in judged.output
    assert "manifest" not in judged.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"payload": 1}, "payload is a whole number, where text in base64 belongs"),
        ({"payload": "!!"}, "payload is no base64"),
        ({"payload": None}, "it lacks the key 'payload'"),
        ({"signatures": {}}, "signatures is a mapping, where a list belongs"),
        ({"signatures": [{}]}, "signatures[0] lacks the key 'sig'"),
        ({"payloadType": 2.5}, "payloadType is a number, where text belongs"),
    ],
)
def test_an_envelope_that_is_none(changes: dict[str, Any], words: str) -> None:
    whole: dict[str, Any] = {"payload": "", "payloadType": "application/vnd.in-toto+json", "signatures": []}
    data = {key: value for key, value in {**whole, **changes}.items() if value is not None}
    with pytest.raises(SignatureError) as raised:
        envelope_of(data)
    assert str(raised.value) == f"the signature is no DSSE envelope: {words}"
