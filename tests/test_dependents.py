"""`--dependents` judges all that depends on a changed document, and names what it could not reach."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jsonschema_rs
import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline import named, passed_over
from trainspec_validate.system.budget import Limit

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "spec" / "v1" / "base"
SCHEMA = json.loads((ROOT / "schemas" / "v1" / "report.schema.json").read_text(encoding="utf-8"))
CLUSTER = (BASE / "cluster.yaml").read_text(encoding="utf-8")
PLAN = (BASE / "plan.yaml").read_text(encoding="utf-8")
POLICY = (BASE / "checkpoint.yaml").read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def _repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository with the cluster alone."""
    top = tmp_path / "repository"
    (top / ".git").mkdir(parents=True)
    (top / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    monkeypatch.chdir(top)
    put("clusters/cluster.yaml", CLUSTER)


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def without(text: str, *keys: str) -> str:
    """A document without some of its keys, each of one line."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(tuple(f"{key}:" for key in keys)))


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments, "--dependents"], prog_name=PROGRAM)


def judged(*arguments: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(invoke(*arguments, "--format", "json").stdout)
    assert jsonschema_rs.is_valid(SCHEMA, data)
    return data


def origins(*arguments: str) -> dict[str, str]:
    return {document["path"]: document["origin"] for document in judged(*arguments)["documents"]}


# --- documents without a reference --------------------------------------------------------------------------


def test_a_cluster_is_judged_with_the_plan_that_names_none_and_can_only_be_for_it() -> None:
    put("plans/plan.yaml", without(PLAN, "cluster"))
    put("policy.yaml", without(POLICY, "cluster"))
    expected = {"clusters/cluster.yaml": "given", "plans/plan.yaml": "unnamed", "policy.yaml": "naming"}
    assert origins("clusters/cluster.yaml") == expected
    put("clusters/cluster.yaml", CLUSTER.replace("num_nodes: 16", "num_nodes: 8"))
    result = invoke("clusters/cluster.yaml")
    assert "plans/plan.yaml: judged too; found because it does not name what it is for" in result.stdout
    assert "plans/plan.yaml:" in "".join(line for line in result.stdout.splitlines() if "error[TS-PAR" in line)


def test_a_plan_that_names_none_is_judged_with_the_only_cluster() -> None:
    put("plans/plan.yaml", without(PLAN, "cluster"))
    assert origins("plans/plan.yaml") == {"plans/plan.yaml": "given", "clusters/cluster.yaml": "only"}
    assert judged("plans/plan.yaml")["unjudged"] == []


def test_a_plan_is_judged_with_the_policy_that_names_none() -> None:
    put("plans/plan.yaml", PLAN)
    put("policies/policy.yaml", without(POLICY, "plan", "cluster"))
    assert origins("plans/plan.yaml")["policies/policy.yaml"] == "unnamed"
    assert origins("policies/policy.yaml")["plans/plan.yaml"] == "only"


def test_the_cluster_of_the_same_directory_comes_first() -> None:
    put("other/cluster.yaml", CLUSTER.replace("name: example-cluster", "name: other-cluster"))
    put("other/plan.yaml", without(PLAN, "cluster"))
    assert origins("other/cluster.yaml") == {"other/cluster.yaml": "given", "other/plan.yaml": "unnamed"}
    assert judged("clusters/cluster.yaml")["unjudged"] == []
    assert origins("clusters/cluster.yaml") == {"clusters/cluster.yaml": "given"}


def test_a_plan_that_may_be_for_several_clusters_is_not_judged_and_said() -> None:
    put("clusters/second.yaml", CLUSTER.replace("name: example-cluster", "name: other-cluster"))
    put("plans/plan.yaml", without(PLAN, "cluster"))
    data = judged("clusters/cluster.yaml")
    assert [document["path"] for document in data["documents"]] == ["clusters/cluster.yaml"]
    [entry] = data["unjudged"]
    reason = "names no cluster, and 2 clusters could be meant, of which clusters/cluster.yaml is one"
    assert (entry["path"], entry["reason"]) == ("plans/plan.yaml", reason)
    assert invoke("clusters/cluster.yaml", "--fail-on", "error").exit_code == 0
    assert invoke("clusters/cluster.yaml", "--fail-on", "unjudged").exit_code == 1


def test_a_policy_has_the_cluster_of_its_plan() -> None:
    put("second/cluster.yaml", CLUSTER.replace("name: example-cluster", "name: other-cluster"))
    put("plans/plan.yaml", PLAN)
    put("policies/policy.yaml", without(POLICY, "cluster"))
    assert origins("second/cluster.yaml") == {"second/cluster.yaml": "given"}
    assert judged("second/cluster.yaml")["unjudged"] == []


# --- where the search begins --------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", ["{name: example-cluster}", "{file: ../clusters/cluster.yaml}"])
def test_a_run_from_a_subdirectory_searches_the_repository(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put("plans/plan.yaml", PLAN.replace("cluster: {name: example-cluster}", f"cluster: {reference}"))
    put("policies/policy.yaml", POLICY.replace("plan: {name: example-plan}", "plan: {file: ../plans/plan.yaml}"))
    monkeypatch.chdir("clusters")
    expected = {"cluster.yaml": "given", "../plans/plan.yaml": "naming", "../policies/policy.yaml": "naming"}
    assert origins("cluster.yaml") == expected
    assert judged("cluster.yaml")["findings"] == []
    assert set(origins(str(Path("cluster.yaml").absolute()))) == {
        str(Path(path).resolve()) for path in ("cluster.yaml", "../plans/plan.yaml", "../policies/policy.yaml")
    }


def test_a_file_in_the_working_directory_keeps_its_short_name(monkeypatch: pytest.MonkeyPatch) -> None:
    put("clusters/plan.yaml", PLAN)
    monkeypatch.chdir("clusters")
    assert origins("cluster.yaml") == {"cluster.yaml": "given", "plan.yaml": "naming"}


def test_the_search_ends_at_the_nearest_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    put("../plan.yaml", PLAN)
    put("vendored/sub/cluster.yaml", CLUSTER)
    put("plan.yaml", PLAN)
    Path("vendored/.git").write_text("gitdir: elsewhere\n", encoding="utf-8")
    monkeypatch.chdir("vendored/sub")
    assert origins("cluster.yaml") == {"cluster.yaml": "given"}


def test_settings_do_not_narrow_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    put("clusters/trainspec.toml", "")
    put("plan.yaml", PLAN)
    monkeypatch.chdir("clusters")
    assert set(origins("cluster.yaml")) == {"cluster.yaml", "../plan.yaml"}
    shutil.rmtree("../.git")
    assert set(origins("cluster.yaml")) == {"cluster.yaml"}


def test_a_reference_out_of_the_repository_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    put("../outside.yaml", CLUSTER)
    put("plans/plan.yaml", PLAN.replace("cluster: {name: example-cluster}", "cluster: {file: ../../outside.yaml}"))
    monkeypatch.chdir("plans")
    assert [finding["requirement"] for finding in judged("plan.yaml")["findings"]] == ["TS-DOC-012"]


# --- what cannot be reached ---------------------------------------------------------------------------------


def _utf_16(path: Path) -> None:
    path.write_text(PLAN, encoding="utf-16")


def _big_endian(path: Path) -> None:
    path.write_text(PLAN, encoding="utf-16-be")


def _broken(path: Path) -> None:
    path.write_text(PLAN + "a: [\n", encoding="utf-8")


def _two(path: Path) -> None:
    path.write_text(f"{PLAN}---\n{PLAN}", encoding="utf-8")


def _latin(path: Path) -> None:
    path.write_bytes(PLAN.encode() + b"# \xe9\n")


def _plain(path: Path) -> None:
    path.write_text(PLAN, encoding="utf-8")


def _packed(path: Path) -> None:
    path.write_bytes(gzip.compress(PLAN.encode()))


def _bzipped(path: Path) -> None:
    path.write_bytes(bz2.compress(PLAN.encode()))


def _xzipped(path: Path) -> None:
    path.write_bytes(lzma.compress(PLAN.encode()))


def _tarred(mode: Literal["w:bz2", "w:xz", "w:gz"]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with tarfile.open(path, mode) as archive:
            content = PLAN.encode()
            (entry := tarfile.TarInfo("plan.yaml")).size = len(content)
            archive.addfile(entry, io.BytesIO(content))

    return make


def _linked(path: Path) -> None:
    (target := Path("../outside")).mkdir(exist_ok=True)
    (target / "plan.yaml").write_text(PLAN, encoding="utf-8")
    path.symlink_to(os.path.relpath(target if not path.suffix else target / "plan.yaml", path.parent))


def _dangling(path: Path) -> None:
    path.symlink_to("nothing.yaml")


def _template(path: Path) -> None:
    path.write_text("{{ header }}\n" + PLAN, encoding="utf-8")


UNREACHED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "utf-16": ("plans/plan.yaml", _utf_16, "cannot be read: the file is encoded in UTF-16 or UTF-32"),
    "utf-16-be": ("plans/plan.yaml", _big_endian, "cannot be read: the file is encoded in UTF-16 or UTF-32"),
    "broken": ("plans/plan.yaml", _broken, "cannot be read: "),
    "two-documents": ("plans/plan.yaml", _two, "cannot be read: "),
    "latin": ("plans/plan.yaml", _latin, "cannot be read: byte 0xe9 is not UTF-8"),
    "hidden-file": (".plan.yaml", _plain, "is hidden by a name that begins with a dot"),
    "hidden-directory": (".plans/a/plan.yaml", _plain, "is hidden by a name that begins with a dot"),
    "hidden-broken": (".plan.yaml", _broken, "is hidden by a name that begins with a dot"),
    "package": ("node_modules/x/plan.yml", _plain, "is below node_modules"),
    "text": ("plans/plan.txt", _plain, "has a name that is not searched"),
    "no-suffix": ("plans/plan", _plain, "has a name that is not searched"),
    "odd-suffix": ("plans/plan.trainspec", _plain, "has a name that is not searched"),
    "template": ("plans/plan.yaml.j2", _template, "has a name that is not searched"),
    "packed": ("plans/plan.yaml.gz", _packed, "is a compressed document"),
    "bz2": ("plans/plan.yaml.bz2", _bzipped, "is a compressed document"),
    "xz": ("plans/plan.yaml.xz", _xzipped, "is a compressed document"),
    "tar.gz": ("plans.tar.gz", _tarred("w:gz"), "is 'plan.yaml' in an archive"),
    "tar.bz2": ("plans.tar.bz2", _tarred("w:bz2"), "is 'plan.yaml' in an archive"),
    "txz": ("plans.txz", _tarred("w:xz"), "is 'plan.yaml' in an archive"),
    "link": ("plans/plan.yaml", _linked, "is a link, which is not followed"),
    "linked-directory": ("plans/more", _linked, "is a link to a directory elsewhere, which is not followed"),
    "dangling": ("plans/plan.yaml", _dangling, "is a link that leads nowhere"),
}


@pytest.mark.parametrize("case", UNREACHED)
def test_a_dependent_that_is_not_reached_is_named(case: str) -> None:
    path, make, reason = UNREACHED[case]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    make(Path(path))
    data = judged("clusters/cluster.yaml")
    [entry] = data["unjudged"]
    assert (entry["path"], reason in entry["reason"]) == (path, True), entry
    result = invoke("clusters/cluster.yaml", "--fail-on", "error,unjudged")
    assert (result.exit_code, path in result.stdout) == (1, True)
    assert f"left out: {path}: it " in invoke("clusters/cluster.yaml", "--list-files").stderr


@pytest.mark.parametrize("case", UNREACHED)
def test_what_names_another_cluster_is_no_dependent(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, make, _ = UNREACHED[case]
    if "link" in case or case == "dangling":
        pytest.skip("a link is not followed, whatever it leads to")
    monkeypatch.setitem(globals(), "PLAN", PLAN.replace("example-cluster", "example-cluster-2"))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    make(Path(path))
    assert judged("clusters/cluster.yaml")["unjudged"] == []


@pytest.mark.parametrize("case", UNREACHED)
def test_what_is_not_reached_and_names_no_cluster_may_be_for_any(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, make, reason = UNREACHED[case]
    if "link" in case or case == "dangling":
        pytest.skip("a link is not followed, whatever it leads to")
    monkeypatch.setitem(globals(), "PLAN", without(PLAN, "cluster"))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    make(Path(path))
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert entry["path"] == path
    assert entry["reason"].startswith("names no cluster, may be for 'example-cluster' and ")
    assert reason in entry["reason"]


UNREADABLE: dict[str, tuple[str, bytes, str]] = {
    "pointer": ("plan.yaml", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
    "gzip": ("plan.yaml", gzip.compress(PLAN.encode()), "is no text in UTF-8"),
    "ebcdic": ("plan.yaml", PLAN.encode("cp037"), "is no text in UTF-8"),
    "zero-bytes": ("plan.json", b"kind: \0 x\n", "holds zero bytes"),
    "lz4": ("plan.yaml.lz4", b"\x04\x22\x4d\x18\0\xff", "is compressed in a way that is not read here"),
    "compress": ("plan.yml.Z", b"\x1f\x9d\x90\xff", "is compressed in a way that is not read here"),
    "brotli": ("plan.json.br", b"\x0b\xff\0", "is compressed in a way that is not read here"),
    "damaged": ("plan.yaml.xz", b"\xfd7zXZ\0\0\0", "is compressed in a way that is not read here"),
    "7z": ("plans.7z", b"7z\xbc\xaf\x27\x1c\0", "is an archive"),
    "tar.lz4": ("plans.tar.lz4", b"\x04\x22\x4d\x18\0", "is an archive"),
}
"""Contents that nothing can be said of."""


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_cannot_be_read_is_named_as_in_a_directory(case: str) -> None:
    path, content, reason = UNREADABLE[case]
    Path("plans").mkdir()
    Path("plans", path).write_bytes(content)
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert (entry["path"], reason in entry["reason"]) == (f"plans/{path}", True), entry
    assert invoke("clusters/cluster.yaml", "--fail-on", "error,unjudged").exit_code == 1
    if path not in {"plan.yaml", "plan.json"}:  # in a directory such a name is a document, whatever it holds
        assert reason in {entry["path"]: entry["reason"] for entry in judged(".")["unjudged"]}[f"plans/{path}"]


def test_a_plan_at_the_end_of_a_long_file_is_named() -> None:
    Path("plans").mkdir()
    Path("plans/plan.yaml").write_text("# x\n" * 9_000_000 + PLAN)
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert (entry["path"], "larger than 32 MiB" in entry["reason"]) == ("plans/plan.yaml", True), entry


def test_an_archive_that_is_too_large_to_look_at_is_named() -> None:
    with zipfile.ZipFile("plans.zip", "w") as archive:
        archive.writestr("a.bin", os.urandom(5 * 1024**2))
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert (entry["path"], entry["reason"]) == ("plans.zip", "is an archive, and its files are not looked at")


def test_compressed_files_of_other_programs_are_not_named() -> None:
    Path("index.json.br").write_bytes(b"\x0b\xff\0")
    Path("values.yaml.xz").write_bytes(lzma.compress(b"a: 1\n"))
    Path("values.yaml.bz2").write_bytes(bz2.compress(b"a: 1\n"))
    put("empty.yaml", "")
    assert judged("clusters/cluster.yaml")["unjudged"] == []


@pytest.mark.parametrize("text", [without(PLAN, "apiVersion"), without(PLAN, "apiVersion", "cluster")])
def test_a_dependent_without_a_version_is_judged(text: str) -> None:
    put("plans/plan.yaml", text)
    assert "plans/plan.yaml" in origins("clusters/cluster.yaml")
    result = invoke("clusters/cluster.yaml")
    assert (result.exit_code, "plans/plan.yaml" in result.stdout) == (1, True)


def test_a_broken_dependent_without_a_version_is_named() -> None:
    put("plans/plan.yaml", without(PLAN, "apiVersion") + "a: [\n")
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert (entry["path"], "cannot be read: " in entry["reason"]) == ("plans/plan.yaml", True)


def test_texts_about_documents_without_a_reference_are_no_dependents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PLAN", without(PLAN, "cluster"))
    test_texts_about_documents_are_no_dependents()


def test_texts_about_documents_are_no_dependents() -> None:
    put("README.md", f"# Plans\n\n```yaml\n{PLAN}```\n")
    put("notes.md", f"A plan.\n\n{PLAN}")
    put("make.py", f"PLAN = '''\n{PLAN}'''\n")
    put(".github/workflows/a.yml", "on: push\nname: example-cluster\n")
    put("values.json", '{"x": "example-cluster"}')
    Path("link.yaml").symlink_to("clusters/cluster.yaml")
    Path("linked").symlink_to("clusters")
    assert judged("clusters/cluster.yaml")["unjudged"] == []


def test_a_plan_that_refers_through_a_link_is_found() -> None:
    Path("current.yaml").symlink_to("clusters/cluster.yaml")
    put("plan.yaml", PLAN.replace("cluster: {name: example-cluster}", "cluster: {file: current.yaml}"))
    assert set(origins("clusters/cluster.yaml")) == {"clusters/cluster.yaml", "plan.yaml"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{name: example-cluster}", r'{name: "example\u002dcluster"}'),
        ("{name: example-cluster}", "example-cluster"),
        ("kind: TrainingPlan", "kind: TrainingPlann"),
    ],
)
def test_a_reference_is_found_however_it_is_written(old: str, new: str) -> None:
    assert old in PLAN
    put("plan.yaml", PLAN.replace(old, new))
    assert origins("clusters/cluster.yaml")["plan.yaml"] == "naming"


@pytest.mark.parametrize(
    ("module", "limit"), [(named, "MAX_ENTRIES"), (named, "MAX_BYTES"), (passed_over, "MAX_ENTRIES")]
)
def test_a_search_that_ends_early_is_named(module: Any, limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        put(f"{number}.yaml", CLUSTER.replace("name: example-cluster", f"name: c-{number}"))
    monkeypatch.setattr(module, limit, Limit("a search", 3, "things"))
    [entry] = judged("clusters/cluster.yaml")["unjudged"]
    assert "was not searched to its end for documents that name cluster 'example-cluster'" in entry["reason"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_directory_that_cannot_be_searched_is_named() -> None:
    put("plans/plan.yaml", PLAN)
    Path("plans").chmod(0)
    try:
        [entry] = judged("clusters/cluster.yaml")["unjudged"]
    finally:
        Path("plans").chmod(0o755)
    assert entry["path"] == "plans"


@pytest.mark.parametrize("kind", [["ClusterProfile"], {"const": "ClusterProfile"}, 7, None])
def test_a_schema_beside_documents_is_no_document(kind: Any) -> None:
    properties = {"apiVersion": {"const": "trainspec/v1"}, "kind": kind}
    put("cluster-profile.schema.json", json.dumps({"$id": "ClusterProfile", "properties": properties}))
    put("plans/plan.yaml", PLAN)
    result = invoke("plans/plan.yaml")
    assert (result.exit_code, "a mistake of ours" in result.stderr) == (0, False), result.output


@pytest.mark.parametrize("more", [(), ("--quiet",)])
def test_documents_that_name_a_file_of_the_run_are_not_judged_without_the_option(more: tuple[str, ...]) -> None:
    put("plans/plan.yaml", PLAN)
    put("plans/other.yaml", without(PLAN, "cluster") + "cluster: {name: another}\n")
    arguments = ["clusters/cluster.yaml", *more]
    done = CliRunner().invoke(command, [*arguments, "--fail-on", "error,unjudged"], prog_name=PROGRAM)
    assert "plans/plan.yaml: not judged: names cluster 'example-cluster', which is judged without it" in done.stdout
    assert "plans/other.yaml" not in done.stdout
    assert done.exit_code == 1
    assert CliRunner().invoke(command, arguments, prog_name=PROGRAM).exit_code == 0
    excluded = ["--exclude", "plans", "--fail-on", "error,unjudged", *arguments]
    assert CliRunner().invoke(command, excluded, prog_name=PROGRAM).exit_code == 0
    for arguments in (["."], ["clusters/cluster.yaml", "plans/plan.yaml"], ["clusters"]):
        assert "judged without it" not in CliRunner().invoke(command, arguments, prog_name=PROGRAM).stdout


def test_a_policy_whose_plan_was_emptied_is_judged_with_it() -> None:
    put("plans/plan.yaml", "")
    put("plans/checkpoint.yaml", (BASE / "checkpoint.yaml").read_text(encoding="utf-8"))
    result = invoke("plans/plan.yaml")
    assert result.exit_code == 1
    assert "plans/checkpoint.yaml: judged too; found because it names a document that is not there" in result.stdout
    assert "names plan" in result.stdout
