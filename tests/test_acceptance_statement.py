"""Statements on an acceptance: signed by each party, verified with its key, and refused when anything has changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from tests.checkpoints.test_signature import write_keys
from tests.node_reports import benchmark, diagnostic, links, of_node, ports, profile, smi
from trainspec_validate.cli.toolbox import command

FILES = {
    "smi.txt": smi(),
    "ibstat.txt": ports(),
    "diag.txt": diagnostic(),
    "nccl.txt": benchmark(365.0),
    "dmesg.txt": "[  1.0] Linux\n",
    "nvlink.txt": links(),
}


class Party:
    """One who has the profile and the files of two nodes, in a directory of its own, and a key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "cluster.yaml").parent.mkdir()
        (root / "cluster.yaml").write_text(profile(2), encoding="utf-8")
        for number in range(2):
            (root / "nodes" / f"node-{number}").mkdir(parents=True)
            for name, text in FILES.items():
                (root / "nodes" / f"node-{number}" / name).write_text(of_node(number, text), encoding="utf-8")
        self.private, self.public = write_keys(root, ec.generate_private_key(ec.SECP256R1()))

    def accept(self, *options: object) -> Result:
        arguments = ["accept", f"{self.root}/cluster.yaml", "--from", f"{self.root}/nodes", *map(str, options)]
        return CliRunner().invoke(command, arguments, prog_name="trainspec")


@pytest.fixture
def seller(tmp_path: Path) -> Party:
    return Party(tmp_path / "seller")


@pytest.fixture
def buyer(tmp_path: Path) -> Party:
    return Party(tmp_path / "buyer")


@pytest.fixture
def statement(seller: Party, tmp_path: Path) -> Path:
    path = tmp_path / "statement.json"
    found = seller.accept("--statement", path, "--signing-key", seller.private)
    assert found.exit_code == 0, found.output
    return path


def test_the_key_that_signed_is_the_only_one_that_verifies(statement: Path, seller: Party, buyer: Party) -> None:
    """From another directory with the same files, and with the fingerprint of the key."""
    found = buyer.accept("--verify", statement, "--public-key", seller.public)
    assert (found.exit_code, f"signed by the key of {seller.public}, fingerprint sha256:" in found.stderr) == (0, True)
    found = buyer.accept("--verify", statement, "--public-key", buyer.public)
    assert (found.exit_code, f"not signed by the key of {buyer.public}" in found.stderr) == (1, True), found.output
    assert "1 of 1 signature made by none of these keys" in found.stderr
    found = buyer.accept("--verify", statement)
    assert (found.exit_code, "1 signature; whose was not checked" in found.stderr) == (0, True), found.output


def test_both_parties_sign_one_statement(statement: Path, seller: Party, buyer: Party) -> None:
    payload = json.loads(statement.read_text())["payload"]
    both = ("--verify", statement, "--public-key", seller.public, "--public-key", buyer.public)
    assert seller.accept(*both).exit_code == 1
    for _ in range(2):  # a second signature of one key takes the place of the first
        found = buyer.accept("--countersign", statement, "--signing-key", buyer.private)
        assert found.exit_code == 0, found.output
        data = json.loads(statement.read_text())
        assert (len(data["signatures"]), data["payload"]) == (2, payload)
    for party in (seller, buyer):
        assert party.accept(*both).exit_code == 0


def test_an_unsigned_statement_can_be_verified_and_signed(tmp_path: Path, seller: Party) -> None:
    path, document = tmp_path / "statement.json", tmp_path / "hall-a.yaml"
    assert seller.accept("--statement", path, "--output", document).exit_code == 0
    found = seller.accept("--verify", path, "--verify", document)
    assert (found.exit_code, "unsigned: it shows what the files give" in found.stderr) == (0, True), found.output
    assert found.stderr.count(": verified, sha256 ") == 2
    found = seller.accept("--verify", path, "--public-key", seller.public)
    assert (found.exit_code, "unsigned" in found.stderr) == (1, True), found.output
    found = seller.accept("--verify", document, "--public-key", seller.public)
    assert (found.exit_code, "no statement, so --public-key finds no signature" in found.stderr) == (1, True)
    plain = path.read_text()
    assert seller.accept("--countersign", path, "--signing-key", seller.private).exit_code == 0
    assert base64.b64decode(json.loads(path.read_text())["payload"]).decode() == plain
    assert seller.accept("--verify", path, "--public-key", seller.public).exit_code == 0


def test_a_changed_file_of_a_node_fails(statement: Path, seller: Party, buyer: Party) -> None:
    log = buyer.root / "nodes" / "node-1" / "dmesg.txt"
    log.write_text(log.read_text().replace("Linux", "linux"))
    before = statement.read_bytes()
    found = buyer.accept("--verify", statement, "--public-key", seller.public)
    assert (found.exit_code, "the statement:7: differs from what" in found.stderr) == (1, True), found.output
    found = buyer.accept("--countersign", statement, "--signing-key", buyer.private)
    assert (found.exit_code, "not signed" in found.stderr, statement.read_bytes()) == (1, True, before)


def restated(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def run(data: dict[str, Any]) -> None:
        inner = json.loads(base64.b64decode(data["payload"]))
        change(inner)
        data["payload"] = base64.b64encode((json.dumps(inner, indent=2) + "\n").encode()).decode()

    return run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (restated(lambda data: data["predicate"].update(result="PASSED")), "differs from what"),
        (restated(lambda data: data["subject"][0].update(name="other.yaml")), "not signed by the key"),
        (restated(lambda data: data.update(subject=[])), "differs from what"),
        (lambda data: data.update(payloadType="text/plain"), "the signature says 'text/plain'"),
        (lambda data: data.update(payload="!"), "no DSSE envelope"),
        (lambda data: data.update(signatures=[]), "unsigned"),
        (lambda data: data.update(signatures=data["signatures"] * 65), "65 signatures, more than 64"),
        (lambda data: data["signatures"][0].update(sig="AAAA"), "not signed by the key"),
        (lambda data: data.pop("payload"), "differs from what"),
        (lambda data: data.update(payload="\ud800"), "one half of a surrogate pair"),
        (lambda data: data["signatures"][0].update(sig="\ud800"), "one half of a surrogate pair"),
        (lambda data: data.update(other="\ud800"), "one half of a surrogate pair"),
        (restated(lambda data: data["subject"][0].update(name="\ud800")), "differs from what"),
    ],
)
def test_a_changed_statement_fails(
    change: Callable[[dict[str, Any]], None], words: str, statement: Path, seller: Party
) -> None:
    data = json.loads(statement.read_text())
    change(data)
    statement.write_text(json.dumps(data))
    found = seller.accept("--verify", statement, "--public-key", seller.public)
    assert (found.exit_code, words in found.stderr) == (1, True), found.output


def test_every_changed_byte_of_the_payload_or_signature_fails(statement: Path, seller: Party) -> None:
    content = statement.read_bytes()
    for at in range(0, content.index(b'"keyid"'), 151):
        changed = bytes([content[at] ^ 1])
        if changed.isspace() or content[at : at + 1].isspace():
            continue
        statement.write_bytes(content[:at] + changed + content[at + 1 :])
        found = seller.accept("--verify", statement, "--public-key", seller.public)
        assert (found.exit_code, found.exception is None or found.exit_code == 1) == (1, True), (at, found.output)


def test_what_does_not_hold_is_not_signed(statement: Path, seller: Party, buyer: Party, tmp_path: Path) -> None:
    (tmp_path / "third").mkdir()
    _, other = write_keys(tmp_path / "third", ec.generate_private_key(ec.SECP256R1()))
    before = statement.read_bytes()
    sign = ("--countersign", statement, "--signing-key", buyer.private)
    found = buyer.accept("--verify", statement, "--public-key", other, *sign)
    assert (found.exit_code, statement.read_bytes()) == (1, before), found.output
    assert buyer.accept("--verify", statement, "--public-key", seller.public, *sign).exit_code == 0


def test_wrong_use_and_keys_that_cannot_be_used(statement: Path, seller: Party, tmp_path: Path) -> None:
    (tmp_path / "ed").mkdir()
    private, public = write_keys(tmp_path / "ed", ed25519.Ed25519PrivateKey.generate())
    new, absent = tmp_path / "new.json", tmp_path / "absent.pem"
    for options, words in (
        (("--signing-key", seller.private), "--signing-key wants --statement"),
        (("--countersign", statement), "--countersign wants --signing-key"),
        (("--public-key", seller.public), "--public-key wants --verify"),
        (("--countersign", statement, "--statement", new, "--signing-key", seller.private), "give either"),
        (("--statement", new, "--signing-key", absent), "does not exist"),
        (("--verify", statement, "--public-key", absent), "does not exist"),
        (("--verify", absent), "absent.pem"),
        (("--statement", new, "--signing-key", private), "keys on elliptic curves"),
        (("--verify", statement, "--public-key", public), "keys on elliptic curves"),
        (("--verify", statement, "--public-key", seller.private), "no public key in PEM"),
    ):
        found = seller.accept(*options)
        assert (found.exit_code, words in found.stderr, new.exists()) == (2, True, False), found.output


def test_a_statement_is_equal_wherever_its_files_are(seller: Party, buyer: Party, tmp_path: Path) -> None:
    """What is left out of a directory is stated without the place of the directory."""
    for party in (seller, buyer):
        (party.root / "nodes" / "stray.txt").write_text("a")
    path = tmp_path / "statement.json"
    assert seller.accept("--statement", path, "--signing-key", seller.private).exit_code == 0
    assert (
        "the directory holds a file of no node: stray.txt"
        in base64.b64decode(json.loads(path.read_text())["payload"]).decode()
    )
    assert buyer.accept("--verify", path, "--public-key", seller.public).exit_code == 0
