"""What keeps a gate from judging a change is refused or named: submodules, links, archives, other directories."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command

ROOT = Path(__file__).resolve().parents[1]
CLUSTER = (ROOT / "spec" / "v1" / "base" / "cluster.yaml").read_text(encoding="utf-8")
PLAN = (ROOT / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
BAD = (ROOT / "examples" / "broken" / "duplex.yaml").read_text(encoding="utf-8")
NEVER = 'fail-on = "never"\n'
SUBMODULES = '[submodule "jobs"]\n\tpath = {}\n\turl = ../jobs\n'
WAIVERS = """apiVersion: trainspec/v1
kind: Waivers
waivers:
  - {requirement: TS-CLU-010, file: FILE, reason: accepted for now, owner: me, expires: 2099-01-01}
"""


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository in the working directory."""
    (tmp_path / "request" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "request")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


def judged(*arguments: str) -> dict[str, Any]:
    result = invoke(*arguments, "--format", "json")
    data: dict[str, Any] = json.loads(result.stdout)
    return data


def reasons(*arguments: str) -> dict[str, str]:
    return {entry["path"]: entry["reason"] for entry in judged(*arguments)["unjudged"] if not entry["requirements"]}


# --- submodules ---------------------------------------------------------------------------------------------

ABSENT = "is a submodule that is not checked out"


@pytest.mark.parametrize(
    ("arguments", "path"),
    [(["."], "a/jobs"), (["a"], "a/jobs"), (["clusters/cluster.yaml", "--dependents"], "a/jobs")],
)
def test_a_submodule_that_is_not_checked_out_is_named(arguments: list[str], path: str) -> None:
    put("clusters/cluster.yaml", CLUSTER)
    put("a/cluster.yaml", CLUSTER.replace("example-cluster", "other"))
    put(".gitmodules", SUBMODULES.format("a/jobs"))
    Path("a/jobs").mkdir()
    assert reasons(*arguments) == {path: ABSENT}
    assert invoke(*arguments, "--fail-on", "unjudged").exit_code == 1
    put("a/jobs/README", "checked out")
    assert reasons(*arguments) == {}


def test_a_submodule_of_a_submodule_is_named() -> None:
    put("cluster.yaml", CLUSTER)
    put("a/.gitmodules", SUBMODULES.format("jobs"))
    Path("a/jobs").mkdir()
    assert reasons(".") == {"a/jobs": ABSENT}
    assert reasons("cluster.yaml", "--dependents") == {"a/jobs": ABSENT}


@pytest.mark.parametrize("path", ["gone", "../elsewhere", "/", "link", "a"])
def test_no_other_directory_is_taken_for_a_submodule(path: str) -> None:
    put("a/cluster.yaml", CLUSTER)
    Path("../elsewhere").mkdir()
    Path("link").symlink_to("../elsewhere")
    put(".gitmodules", SUBMODULES.format(path))
    assert ABSENT not in reasons(".").values()


def test_a_run_in_a_submodule_says_that_its_superproject_was_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    put("plans/plan.yaml", PLAN)
    put(".gitmodules", SUBMODULES.format("shared/jobs"))
    put("shared/jobs/.git", "gitdir: ../../.git/modules/jobs\n")
    put("shared/jobs/cluster.yaml", CLUSTER)
    assert {document["path"] for document in judged("shared/jobs/cluster.yaml", "--dependents")["documents"]} == {
        "shared/jobs/cluster.yaml",
        "plans/plan.yaml",
    }
    monkeypatch.chdir("shared/jobs")
    assert (
        "has this repository as a submodule, and was not searched" in reasons("cluster.yaml", "--dependents")["../.."]
    )
    put("../../.gitmodules", SUBMODULES.format("another"))
    assert reasons("cluster.yaml", "--dependents") == {}


# --- a directory below the top of the repository ------------------------------------------------------------


def target(path: str, text: str) -> None:
    put(f"../main/{path}", text)


def in_configs(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    put("configs/cluster.yaml", BAD)
    monkeypatch.chdir("configs")
    return invoke("cluster.yaml", "--settings-from", "../../main", *arguments)


def test_the_settings_are_those_of_the_directory_that_corresponds(monkeypatch: pytest.MonkeyPatch) -> None:
    target("trainspec.toml", NEVER)
    target("configs/trainspec.toml", 'fail-on = "error"\n')
    assert in_configs(monkeypatch).exit_code == 1


def test_settings_further_up_in_the_copy_count(monkeypatch: pytest.MonkeyPatch) -> None:
    target("configs/cluster.yaml", BAD)
    target("trainspec.toml", NEVER)
    assert in_configs(monkeypatch).exit_code == 0


@pytest.mark.parametrize(("place", "file"), [("", "configs/cluster.yaml"), ("configs/", "cluster.yaml")])
@pytest.mark.parametrize("named", [False, True])
def test_waivers_of_a_whole_copy_fit_the_files_of_a_directory(
    place: str, file: str, named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target("configs/cluster.yaml", BAD)
    target(f"{place}accepted.yaml", WAIVERS.replace("FILE", file))
    if not named:
        target(f"{place}trainspec.toml", 'waivers = "accepted.yaml"\n')
    option = ["--waivers", "accepted.yaml" if place else "../accepted.yaml"] if named else []
    result = in_configs(monkeypatch, *option)
    assert result.exit_code == 0, result.output


def test_a_waiver_of_the_top_fits_no_file_of_the_same_name_in_a_new_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("accepted.yaml", "cluster.yaml"):
        put(name, "")
    target("accepted.yaml", WAIVERS.replace("FILE", "cluster.yaml"))
    target("cluster.yaml", BAD)
    assert in_configs(monkeypatch, "--waivers", "../accepted.yaml").exit_code == 1


def test_a_comment_of_a_whole_copy_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    line = next(line for line in BAD.splitlines() if "900e9" in line)
    text = BAD.replace(line, f"{line}  # trainspec: ignore TS-CLU-010 reason=known")
    target("configs/cluster.yaml", text)
    put("configs/cluster.yaml", text)
    monkeypatch.chdir("configs")
    result = invoke("cluster.yaml", "--settings-from", "../../main")
    assert "is new against" not in result.output


def test_a_copy_of_the_directory_alone_works_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    target("cluster.yaml", BAD)
    target("trainspec.toml", 'waivers = "accepted.yaml"\n')
    target("accepted.yaml", WAIVERS.replace("FILE", "cluster.yaml"))
    assert in_configs(monkeypatch).exit_code == 0


def test_a_copy_that_may_be_of_either_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    target("configs/trainspec.toml", NEVER)
    put("configs/configs/plan.yaml", PLAN)
    result = in_configs(monkeypatch)
    assert (result.exit_code, "run from the top of the repository" in result.stderr) == (2, True)


# --- links --------------------------------------------------------------------------------------------------

CHANGE = (["--dependents"], ["--settings-from", "../main"])


@pytest.mark.parametrize("options", CHANGE)
@pytest.mark.parametrize("named", ["cluster.yaml", "linked/cluster.yaml", "linked", "linked/*.yaml", "./cluster.yaml"])
def test_a_link_out_of_the_tree_is_refused_where_a_change_is_judged(options: list[str], named: str) -> None:
    put("../main/cluster.yaml", CLUSTER)
    put("good.yaml", CLUSTER.replace("example-cluster", "good"))
    Path("cluster.yaml").symlink_to("../main/cluster.yaml")
    Path("linked").symlink_to("../main")
    for arguments in ([named], [str(Path(named).absolute())], [named, "good.yaml"], [named, "--list-files"]):
        result = invoke(*arguments, *options)
        assert (result.exit_code, "is a link out of" in result.stderr) == (2, True), result.output
    assert "good.yaml" in invoke(named, "good.yaml", *options, "--list-files").stdout


def test_a_link_that_stays_in_the_tree_is_followed() -> None:
    put("clusters/cluster.yaml", CLUSTER)
    Path("cluster.yaml").symlink_to("clusters/cluster.yaml")
    Path("linked").symlink_to("clusters")
    for named in ("cluster.yaml", "linked/cluster.yaml"):
        assert invoke(named, "--dependents").exit_code == 0


def test_a_link_that_a_person_names_is_followed() -> None:
    put("../main/cluster.yaml", CLUSTER)
    Path("cluster.yaml").symlink_to("../main/cluster.yaml")
    assert invoke("cluster.yaml").exit_code == 0


def test_a_link_is_refused_from_a_directory_above_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    put("../main/cluster.yaml", CLUSTER)
    Path("cluster.yaml").symlink_to("../main/cluster.yaml")
    monkeypatch.chdir("..")
    assert invoke("request/cluster.yaml", "--dependents").exit_code == 2


# --- what a search does not read ----------------------------------------------------------------------------


def test_the_search_stays_in_the_repository_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    put("cluster.yaml", CLUSTER)
    put("../elsewhere/plan.yaml", PLAN)
    monkeypatch.chdir("..")
    found = judged("request/cluster.yaml", "--dependents")["documents"]
    assert [document["path"] for document in found] == ["request/cluster.yaml"]


def zipped(path: str, name: str, text: str) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)


def tarred(path: str, name: str, text: str) -> None:
    with tarfile.open(path, "w:gz" if path.endswith("gz") else "w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(text.encode())
        archive.addfile(entry, io.BytesIO(text.encode()))


@pytest.mark.parametrize("path", ["jobs.zip", "jobs.tar", "jobs.tgz", "jobs.tar.gz"])
def test_an_archive_that_holds_a_dependent_is_named(path: str) -> None:
    put("cluster.yaml", CLUSTER)
    pack = zipped if path.endswith("zip") else tarred
    pack(path, "a/plan.yaml", PLAN)
    assert "is 'a/plan.yaml' in an archive" in reasons("cluster.yaml", "--dependents")[path]
    pack(path, "a/plan.yaml", PLAN.replace("example-cluster", "another"))
    assert reasons("cluster.yaml", "--dependents") == {}
    Path(path).write_bytes(Path(path).read_bytes()[:60])
    assert reasons("cluster.yaml", "--dependents") == {path: "is an archive, and its files are not looked at"}


@pytest.mark.parametrize("form", ["text", "list"])
def test_a_file_of_another_kind_that_holds_a_dependent_is_named(form: str) -> None:
    put("cluster.yaml", CLUSTER)
    indented = "".join(f"    {line}\n" for line in PLAN.splitlines())
    head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: jobs}\n"
    text = f"{head}data:\n  plan.yaml: |\n{indented}" if form == "text" else f"{head}items:\n  -\n{indented}"
    put("jobs.yaml", text)
    assert reasons("cluster.yaml", "--dependents") == {
        "jobs.yaml": "holds a document for cluster 'example-cluster' in a file of kind ConfigMap"
    }
    put("jobs.yaml", text.replace("example-cluster", "another"))
    assert reasons("cluster.yaml", "--dependents") == {}


@pytest.mark.parametrize(
    "name", ["plan.md", "plan.yaml.orig", "plan.yaml.rej", "plan.yaml_old", "plan.tmp", "plan.yaml2"]
)
def test_a_renamed_document_is_named_in_a_directory(name: str) -> None:
    put("cluster.yaml", CLUSTER)
    put(name, PLAN)
    assert reasons(".") == {name: "claims to be ours under a name that is not searched"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("plan.md", f"A plan.\n\n{PLAN}"),
        ("plan.md", f"# Plan\n\n```yaml\n{PLAN}```\n"),
        ("plan.py", f'P = """\n{PLAN}"""\n'),
    ],
)
def test_a_text_about_documents_is_none(name: str, text: str) -> None:
    put("cluster.yaml", CLUSTER)
    put(name, text)
    assert reasons(".") == {}


@pytest.mark.parametrize("packer", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_dependent_in_an_archive_is_named(packer: Callable[[bytes], bytes]) -> None:
    put("cluster.yaml", CLUSTER)
    with zipfile.ZipFile("jobs.zip", "w") as archive:
        archive.writestr("plan.yaml.gz", packer(PLAN.encode()))
    assert reasons("cluster.yaml", "--dependents") == {
        "jobs.zip": "mentions cluster 'example-cluster' and is 'plan.yaml.gz' in an archive"
    }


def test_the_help_on_what_was_not_read_leads_to_an_answer() -> None:
    put("cluster.yaml", CLUSTER)
    zipped("jobs.zip", "plan.yaml", PLAN)
    Path("out.yaml").symlink_to(os.path.relpath("../nothing.yaml"))
    helps = {entry["path"]: entry["help"] for entry in judged("cluster.yaml", "--dependents")["unjudged"]}
    assert helps["jobs.zip"] == "unpack it to have it judged"
    assert helps["out.yaml"] == "put the files themselves there to have it judged"


# --- files of other programs --------------------------------------------------------------------------------


def test_a_hook_passes_over_changed_files_of_other_programs() -> None:
    put("values.yaml", "replicas: 3\n")
    put("package.json", "{}")
    result = invoke("values.yaml", "package.json", "--dependents", "--fail-on", "error,unjudged")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "passed over: values.yaml: no TrainSpec document\n" in result.stderr
    put("good.yaml", CLUSTER)
    result = invoke("values.yaml", "good.yaml", "--dependents")
    assert (result.exit_code, "1 document" in result.stdout) == (0, True), result.output


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("README.md", b"Run `trainspec-validate cluster.yaml`.\n"),
        ("notes.txt", b"replicas: 3\n"),
        ("train.py", b"import os\n"),
        ("run.sh", b""),
        ("Makefile", b"all:\n"),
        ("logo.png", b"\x89PNG\r\n\x1a\n\0\0"),
        ("table.csv", b"a,b\n1,2\n"),
        ("notes.gz", gzip.compress(b"replicas: 3\n")),
    ],
)
def test_a_hook_passes_over_changed_files_that_are_neither_yaml_nor_json(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    put("good.yaml", CLUSTER)
    result = invoke(name, "good.yaml", "--dependents", "--fail-on", "error,unjudged")
    assert (result.exit_code, "1 document" in result.stdout) == (0, True), result.output
    assert result.stderr == f"passed over: {name}: no TrainSpec document\n"


def test_a_compressed_document_that_is_named_is_refused_as_one() -> None:
    Path("plan.yaml.gz").write_bytes(gzip.compress(PLAN.encode()))
    result = invoke("plan.yaml.gz")
    assert result.exit_code == 2
    assert "plan.yaml.gz: is compressed, and a document is read as plain text; unpack it" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cluster.yaml", b"replicas: 3\n"),
        ("x.trainspec.yaml", b"replicas: 3\n"),
        ("x.yaml", CLUSTER.replace("apiVersion: trainspec/v1", "").encode()),
        ("x.yaml", CLUSTER.replace("trainspec/v1", "trainspc/v1").encode()),
        ("x.yaml", CLUSTER.encode("utf-16")),
        ("x.yaml", b""),
        ("x.yaml", b"a: \xff\n"),
        ("x.txt", BAD.encode()),
        ("x.md", BAD.encode()),
        ("x.yaml.j2", BAD.encode()),
        ("plan.tgz", b"\x1f\x8b"),
        ("plan.yaml.gz", gzip.compress(PLAN.encode())),
        ("x.yaml.gz", gzip.compress(PLAN.encode())),
        ("bundle", gzip.compress(PLAN.encode())),
        ("x.safetensors", b"\x03\0\0\0\0\0\0\0{}"),
    ],
)
def test_a_hook_passes_over_no_other_file(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    result = invoke(name, "--dependents")
    assert result.exit_code in {1, 2}, result.output


@pytest.mark.parametrize(("name", "content"), [("x.jsonl", b"{}\n"), ("x.log", b"step 1 loss 2.0\nstep 2 loss 1.9\n")])
def test_a_hook_names_a_log_that_no_reader_takes(name: str, content: bytes) -> None:
    Path(name).write_bytes(content)
    result = invoke(name, "--dependents")
    assert (result.exit_code, f"{name}: not judged: " in result.output) == (0, True), result.output
    assert invoke(name, "--dependents", "--fail-on", "unjudged").exit_code == 1


def test_a_file_that_a_person_names_is_judged() -> None:
    put("values.yaml", "replicas: 3\n")
    assert invoke("values.yaml").exit_code == 1


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_document_in_a_directory_that_cannot_be_read_fails_the_gate(encoding: str) -> None:
    put("a/good.yaml", CLUSTER)
    Path("a/main.yaml").write_bytes(PLAN.encode(encoding))
    assert invoke("a").exit_code == invoke("a/main.yaml").exit_code == 1
    Path("a/main.yaml").write_bytes("replicas: 3\n".encode(encoding))
    assert invoke("a").exit_code == 0, "a file of another program"


# --- documents under names that are not searched --------------------------------------------------------------

PADDING = "#" * 1_100_000 + "\n"


@pytest.mark.parametrize(
    "name", ["layout.conf", "plan.yaml.bak", "plan.md", "plan.yaml.rej", ".plan.yaml", "notes.txt"]
)
@pytest.mark.parametrize("form", ["padded", "utf-16", "utf-32"])
def test_a_document_under_another_name_is_named_however_it_is_written(name: str, form: str) -> None:
    put("cluster.yaml", CLUSTER)
    text = PADDING + PLAN if form == "padded" else PLAN
    Path(name).write_bytes(text.encode("utf-8" if form == "padded" else form))
    assert name in reasons(".")
    assert name in reasons("cluster.yaml", "--dependents")


def test_a_long_text_of_another_program_is_not_named() -> None:
    put("cluster.yaml", CLUSTER)
    put("notes.txt", "a note\n" * 200_000)
    Path("data.raw").write_bytes(bytes(range(256)) * 2_000)
    Path("wide.txt").write_bytes(("a note\n" * 1_000).encode("utf-16"))
    assert reasons(".") == reasons("cluster.yaml", "--dependents") == {}
