"""Documents are judged with those that they belong to, and a broken one is never passed over in silence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainspec_validate import validate
from trainspec_validate.model.finding import Report, Verdict
from trainspec_validate.report import FORMATS, render

BASE = Path(__file__).resolve().parent.parent / "spec" / "v1" / "base"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in BASE.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def change(file: str, old: str, new: str) -> None:
    text = Path(file).read_text(encoding="utf-8")
    assert text.count(old) == 1
    Path(file).write_text(text.replace(old, new), encoding="utf-8")


def told(report: Report) -> list[tuple[str, str, int]]:
    return [(f.requirement, f.path, f.span.line if f.span else 0) for f in report.findings]


def verdict(report: Report, requirement: str) -> Verdict:
    return next(outcome.verdict for outcome in report.outcomes if outcome.requirement == requirement)


def test_documents_of_a_set_are_judged_together(directory: Path) -> None:
    report = validate(["."])
    assert report.findings == ()
    assert verdict(report, "TS-PAR-002") is Verdict.PASS


def test_a_plan_alone_leaves_the_rules_on_both_unjudged(directory: Path) -> None:
    Path("cluster.yaml").unlink()
    assert verdict(validate(["plan.yaml"]), "TS-PAR-002") is Verdict.NOT_RUN


def test_a_reference_by_file_is_followed(directory: Path) -> None:
    change("plan.yaml", "cluster: {name: example-cluster}", "cluster: {file: machines/c.yaml}")
    Path("machines").mkdir()
    Path("cluster.yaml").rename("machines/c.yaml")
    report = validate(["plan.yaml"])
    assert verdict(report, "TS-PAR-002") is Verdict.PASS
    assert [document.path for document in report.documents] == ["plan.yaml", "machines/c.yaml"]


@pytest.mark.parametrize(
    ("reference", "requirement"),
    [
        ("{}", "TS-DOC-011"),
        ("{name: exemple-cluster}", "TS-DOC-011"),
        ("{file: gone.yaml}", "TS-DOC-011"),
        ("{file: checkpoint.yaml}", "TS-DOC-011"),
        ("{file: cluster.yaml, name: another}", "TS-DOC-011"),
        ("{file: /etc/hostname}", "TS-DOC-012"),
        ("{file: ../cluster.yaml}", "TS-DOC-012"),
        ('{file: "machines\\\\c.yaml"}', "TS-DOC-012"),
    ],
)
def test_a_reference_that_leads_nowhere_is_told(directory: Path, reference: str, requirement: str) -> None:
    change("plan.yaml", "cluster: {name: example-cluster}", f"cluster: {reference}")
    assert told(validate(["."])) == [(requirement, "plan.yaml", 6)]


@pytest.mark.parametrize(("mark", "requirement"), [(".git", "TS-DOC-011"), ("", "TS-DOC-012")])
def test_a_file_that_is_missing_in_the_repository_does_not_exist(
    directory: Path, monkeypatch: pytest.MonkeyPatch, mark: str, requirement: str
) -> None:
    """Outside of it, nothing is said on what there is."""
    if mark:
        (directory / mark).mkdir()
    (directory / "jobs").mkdir()
    shutil.move("plan.yaml", "jobs/plan.yaml")
    monkeypatch.chdir("jobs")
    change("plan.yaml", "cluster: {name: example-cluster}", "cluster: {file: ../clusters/old.yaml}")
    (found,) = [finding for finding in validate(["plan.yaml"]).findings if finding.requirement.startswith("TS-DOC")]
    assert found.requirement == requirement
    assert ("does not exist" in found.message) is bool(mark)


def test_a_file_that_is_judged_anyway_may_be_anywhere(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = directory / "clusters"
    clusters.mkdir()
    (directory / "cluster.yaml").rename(clusters / "cluster.yaml")
    plans = directory / "plans"
    plans.mkdir()
    (directory / "plan.yaml").rename(plans / "plan.yaml")
    change(str(plans / "plan.yaml"), "cluster: {name: example-cluster}", "cluster: {file: ../clusters/cluster.yaml}")
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert told(validate([plans, clusters])) == []
    assert [found.requirement for found in validate([plans]).findings] == ["TS-DOC-012"]


def test_a_link_out_of_the_tree_is_not_followed(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "cluster.yaml"
    Path("cluster.yaml").rename(outside)
    Path("link.yaml").symlink_to(outside)
    change("plan.yaml", "cluster: {name: example-cluster}", "cluster: {file: link.yaml}")
    assert told(validate(["plan.yaml"])) == [("TS-DOC-012", "plan.yaml", 6)]


def test_rules_on_a_document_with_errors_of_form_are_not_run(directory: Path) -> None:
    change("plan.yaml", "  tensor: 8\n", "  tensr: 8\n")
    report = validate(["."])
    assert told(report) == [("TS-DOC-005", "plan.yaml", 24)]
    assert verdict(report, "TS-PAR-001") is Verdict.NOT_RUN
    assert verdict(report, "TS-CLU-001") is Verdict.PASS


@pytest.mark.parametrize(("bad", "good"), [("cluster", "plan"), ("plan", "cluster")])
def test_a_reference_that_is_not_followed_hides_no_other(directory: Path, bad: str, good: str) -> None:
    lines = Path("checkpoint.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("cluster:", "plan:"))]
    named = [f"{bad}: {{file: /nowhere/{bad}.yaml}}\n", f"{good}: {{file: {good}.yaml}}\n"]
    Path("checkpoint.yaml").write_text("".join([*kept, *named]), encoding="utf-8")
    report = validate(["checkpoint.yaml"])
    refused = [(found.requirement, found.pointer) for found in report.findings if found.path == "checkpoint.yaml"]
    assert refused == [("TS-DOC-012", (bad, "file"))]
    assert f"{good}.yaml" in [document.path for document in report.documents]


OTHER = BASE.joinpath("cluster.yaml").read_text(encoding="utf-8").replace("example-cluster", "other-cluster")


@pytest.mark.parametrize("reference", ["", "cluster: {name: example-cluster}"])
def test_a_plan_has_its_own_cluster_before_that_of_a_policy(directory: Path, reference: str) -> None:
    """The other cluster is too small for the plan; the policy names it."""
    Path("elsewhere").mkdir()
    small = OTHER.replace("num_nodes: 16", "num_nodes: 1")
    assert small != OTHER
    Path("elsewhere/cluster.yaml").write_text(small, encoding="utf-8")
    change("plan.yaml", "cluster: {name: example-cluster}", reference)
    change("checkpoint.yaml", "cluster: {name: example-cluster}", "cluster: {name: other-cluster}")
    report = validate(["."])
    assert "TS-PAR-002" not in {finding.requirement for finding in report.findings}
    assert verdict(report, "TS-PAR-002") is Verdict.PASS
    named = [f.message for f in report.findings if f.requirement == "TS-DOC-011"]
    words = "the policy names cluster 'other-cluster', but its plan plan.yaml names 'example-cluster'"
    assert named == ([words] if reference else [])


def test_a_plan_without_a_cluster_has_that_of_its_policy(directory: Path) -> None:
    Path("a").mkdir()
    Path("b").mkdir()
    Path("cluster.yaml").rename("a/cluster.yaml")
    Path("b/cluster.yaml").write_text(OTHER, encoding="utf-8")
    change("plan.yaml", "cluster: {name: example-cluster}", "")
    assert verdict(validate(["."]), "TS-PAR-002") is Verdict.PASS


@pytest.mark.parametrize("format_", [name for name in FORMATS if name != "statistics"])
@pytest.mark.parametrize(
    "text",
    [
        "SECRET: hunter2\n",
        'SECRET=hunter2\npassword: "hunter2\n',
        "hunter2: 1\nhunter2: 2\n",
        "a: !hunter2 1\n",
        "kin: hunter2\n",
        "apiVersion: hunter2\nkind: hunter2\n",
    ],
)
def test_nothing_of_a_referenced_file_of_another_program_is_shown(
    text: str, format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = (Path(__file__).parents[1] / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
    assert "cluster: {name: example-cluster}" in plan
    Path("plan.yaml").write_text(plan.replace("{name: example-cluster}", "{file: .env}"), encoding="utf-8")
    Path(".env").write_text(text, encoding="utf-8")
    report = validate(["plan.yaml"])
    assert [finding.path for finding in report.findings if finding.severity.value == "error"] == [".env"]
    assert "hunter2" not in render(report, format_)


@pytest.mark.parametrize("is_json", [False, True])
def test_a_referenced_document_without_a_version_is_shown(
    is_json: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = (Path(__file__).parents[1] / "spec" / "v1" / "base" / "plan.yaml").read_text(encoding="utf-8")
    Path("plan.yaml").write_text(plan.replace("{name: example-cluster}", "{file: c.yaml}"), encoding="utf-8")
    text = '{"metadata": {"name": "a"}, "kind": "ClusterProfile"}\n' if is_json else "kind: ClusterProfile\n"
    Path("c.yaml").write_text(text, encoding="utf-8")
    assert "ClusterProfile" in render(validate(["plan.yaml"]), "full")
