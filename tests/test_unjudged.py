"""Documents that are named are found, or the report says in every format what was not judged without them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.model.finding import Report, Unjudged, Verdict
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline import named
from trainspec_validate.report import FORMATS, render
from trainspec_validate.system.budget import Limit

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
NOT_GIVEN = "names cluster 'example-cluster', which was not given"


@pytest.fixture(autouse=True)
def _plan_without_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working directory with a plan in a directory of its own; its cluster is in the file cluster outside."""
    work = tmp_path / "work"
    (work / "plans").mkdir(parents=True)
    shutil.copy(BASE / "plan.yaml", work / "plans")
    shutil.copy(BASE / "cluster.yaml", tmp_path)
    monkeypatch.chdir(work)


def put(path: str, old: str = "", new: str = "") -> None:
    """A copy of the cluster, with a change."""
    text = Path("../cluster.yaml").read_text(encoding="utf-8")
    assert old in text
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text.replace(old, new, 1) if old else text, encoding="utf-8")


def only(report: Report) -> Unjudged:
    [entry] = report.unjudged
    return entry


def verdict(report: Report, requirement: str) -> Verdict:
    return next(outcome.verdict for outcome in report.outcomes if outcome.requirement == requirement)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM)


# --- the search ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["plans/machine.yaml", "cluster.yaml", "deep/er/c.yml", "plans/below/c.yaml"])
def test_a_named_document_is_found_in_the_tree(place: str) -> None:
    put(place)
    report = validate(["plans/plan.yaml"])
    assert report.unjudged == ()
    assert {(d.path, d.origin) for d in report.documents} == {("plans/plan.yaml", "given"), (place, "named")}
    assert verdict(report, "TS-PAR-002") is Verdict.PASS
    assert f"{place}: judged too; found by its name\n" in render(report, "concise")


def test_findings_of_a_found_document_and_on_both_count() -> None:
    put("cluster.yaml", "num_nodes: ", "num_nodes: 1 # ")
    result = invoke("plans/plan.yaml")
    assert result.exit_code == 1
    assert "cluster.yaml:7:12: error[TS-CLU-001]" in result.stdout
    plan = Path("plans/plan.yaml")
    text = plan.read_text(encoding="utf-8").replace("num_accelerators: 128", "num_accelerators: 256")
    plan.write_text(text, encoding="utf-8")
    assert "plans/plan.yaml:22:21: error[TS-PAR-002]" in invoke("plans/plan.yaml").stdout


def test_the_directory_of_the_document_comes_first() -> None:
    put("plans/near.yaml")
    put("far/cluster.yaml")
    assert {d.path for d in validate(["plans/plan.yaml"]).documents} == {"plans/plan.yaml", "plans/near.yaml"}


def test_two_files_of_one_name_are_ambiguous() -> None:
    put("a/cluster.yaml")
    put("b/cluster.yaml")
    entry = only(validate(["plans/plan.yaml"]))
    assert entry.reason == "names cluster 'example-cluster', which 2 files declare: a/cluster.yaml, b/cluster.yaml"
    assert entry.help == "write cluster: {file: ...}"


def test_another_name_another_kind_and_hidden_files_do_not_count() -> None:
    put("cluster.yaml", "name: example-cluster", "name: example-cluster-2")
    put("other.yaml", "kind: ClusterProfile", "kind: CheckpointPolicy")
    put(".hidden/cluster.yaml")
    assert only(validate(["plans/plan.yaml"])).reason == NOT_GIVEN


UNRELATED = ("name: example-cluster", "name: other-cluster")
SECOND = ("name: example-plan", "name: second-plan")


@pytest.mark.parametrize("has_unrelated", [False, True])
@pytest.mark.parametrize(
    ("arguments", "is_error"),
    [
        (["plans/plan.yaml"], False),
        (["--quiet", "plans/plan.yaml"], False),
        (["plans/*.yaml"], False),
        (["."], True),
        (["plans"], True),
        (["--dependents", "plans/plan.yaml"], True),
        (["plans/plan.yaml", "second.yaml"], True),
    ],
)
def test_a_name_that_no_document_has_gets_one_verdict_whatever_else_the_tree_holds(
    arguments: list[str], is_error: bool, has_unrelated: bool
) -> None:
    if has_unrelated:
        put("cluster.yaml", *UNRELATED)
    Path("second.yaml").write_text(Path("plans/plan.yaml").read_text("utf-8").replace(*SECOND), "utf-8")
    result = invoke("--format", "concise", *arguments)
    assert result.exit_code == is_error, result.output
    assert ("plans/plan.yaml:6:17: error[TS-DOC-011] no ClusterProfile among" in result.stdout) is is_error
    assert f"plans/plan.yaml:6:1: not judged: {NOT_GIVEN}" in result.stdout
    assert invoke("--fail-on", "unjudged", *arguments).exit_code == 1


@pytest.mark.parametrize("has_unrelated", [False, True])
def test_a_plan_on_standard_input_is_judged_alone(has_unrelated: bool) -> None:
    if has_unrelated:
        put("plans/cluster.yaml", *UNRELATED)
    text = Path("plans/plan.yaml").read_text("utf-8")
    arguments = ["-", "--stdin-filename", "plans/plan.yaml", "--format", "concise"]
    result = CliRunner().invoke(command, arguments, input=text)
    assert (result.exit_code, "TS-DOC-011" in result.stdout, NOT_GIVEN in result.stdout) == (0, False, True)


def test_a_name_that_several_files_of_the_tree_have_is_an_error_in_a_set() -> None:
    put("a/cluster.yaml")
    put("b/cluster.yaml")
    assert "TS-DOC-011" not in invoke("plans/plan.yaml").stdout
    assert "several ClusterProfiles in the tree have the name 'example-cluster'" in invoke("plans").stdout


def test_a_name_that_an_excluded_file_has_leads_somewhere() -> None:
    put("hidden/cluster.yaml")
    result = invoke(".", "--exclude", "hidden")
    assert (result.exit_code, "TS-DOC-011" in result.stdout, NOT_GIVEN in result.stdout) == (0, False, True)
    assert invoke(".", "--exclude", "other").exit_code == 0
    put("hidden/cluster.yaml", *UNRELATED)
    assert invoke(".", "--exclude", "hidden").exit_code == 1


def test_no_link_and_no_path_out_of_the_tree_is_followed() -> None:
    Path("link.yaml").symlink_to(Path("../cluster.yaml").resolve())
    Path("up").symlink_to(Path("..").resolve())
    assert only(validate(["plans/plan.yaml"])).reason == NOT_GIVEN


def test_a_plan_elsewhere_is_searched_below_its_own_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    put("cluster.yaml")
    (elsewhere := Path("../elsewhere")).mkdir()
    monkeypatch.chdir(elsewhere)
    assert only(validate(["../work/plans/plan.yaml"])).reason == NOT_GIVEN
    Path("../work/plans/plan.yaml").rename("../work/plan.yaml")
    assert validate(["../work/plan.yaml"]).unjudged == ()


def test_a_found_document_that_cannot_be_read_is_told() -> None:
    put("cluster.yaml", "num_nodes: ", "num_nodes: [ ")
    report = validate(["plans/plan.yaml"])
    assert [(f.requirement, f.path) for f in report.findings] == [("TS-DOC-001", "cluster.yaml")]
    assert verdict(report, "TS-PAR-002") is Verdict.NOT_RUN


@pytest.mark.parametrize("limit", ["MAX_ENTRIES", "MAX_BYTES"])
def test_a_search_ends_at_its_limits(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        put(f"{number}/cluster.yaml", "name: example-cluster", f"name: c-{number}")
    monkeypatch.setattr(named, limit, Limit("a search", 3, "things"))
    entry = only(validate(["plans/plan.yaml"]))
    assert entry.reason == NOT_GIVEN
    assert entry.help.endswith("the search ended early, since a search may have at most 3 things")


def test_a_policy_finds_its_plan_and_the_plan_its_cluster() -> None:
    shutil.copy(BASE / "checkpoint.yaml", "policy.yaml")
    put("machines/cluster.yaml")
    report = validate(["policy.yaml"])
    assert {d.path for d in report.documents} == {"policy.yaml", "plans/plan.yaml", "machines/cluster.yaml"}
    assert report.unjudged == ()


def test_a_cluster_is_judged_with_what_names_it_on_request() -> None:
    put("cluster.yaml")
    put("cluster-2.yaml", "name: example-cluster", "name: example-cluster-2")
    shutil.copy(BASE / "checkpoint.yaml", "policy.yaml")
    Path("other.yaml").write_text(
        Path("plans/plan.yaml").read_text(encoding="utf-8").replace("example-cluster", "example-cluster-2"),
        encoding="utf-8",
    )
    assert [d.path for d in validate(["cluster.yaml"]).documents] == ["cluster.yaml"]
    result = invoke("cluster.yaml", "--dependents", "--format", "json")
    documents = json.loads(result.stdout)["documents"]
    origins = {document["path"]: document["origin"] for document in documents}
    assert origins == {"cluster.yaml": "given", "plans/plan.yaml": "naming", "policy.yaml": "naming"}
    assert "policy.yaml: judged too; found because it names" in invoke("cluster.yaml", "--dependents").stdout


def test_a_plan_does_not_draw_in_what_else_names_its_cluster() -> None:
    put("cluster.yaml")
    text = Path("plans/plan.yaml").read_text(encoding="utf-8")
    Path("plans/other.yaml").write_text(text.replace("name: example-plan", "name: other"), encoding="utf-8")
    result = invoke("plans/plan.yaml", "--dependents", "--format", "json")
    assert [document["path"] for document in json.loads(result.stdout)["documents"]] == [
        "cluster.yaml",
        "plans/plan.yaml",
    ]


def test_a_reference_by_file_is_found_from_its_target() -> None:
    put("cluster.yaml")
    plan = Path("plans/plan.yaml")
    text = plan.read_text(encoding="utf-8").replace(
        "cluster: {name: example-cluster}", "cluster: {file: ../cluster.yaml}"
    )
    plan.write_text(text, encoding="utf-8")
    assert "plans/plan.yaml" in invoke("cluster.yaml", "--dependents").stdout


@pytest.mark.parametrize("renamed", [False, True])
def test_a_cluster_of_another_name_is_judged_with_what_still_names_the_old_one(renamed: bool) -> None:
    put("cluster.yaml", *(("name: example-cluster", "name: other-cluster") if renamed else ()))
    shutil.copy(BASE / "checkpoint.yaml", "policy.yaml")
    result = invoke("cluster.yaml", "--dependents", "--fail-on", "error,unjudged", "--format", "json")
    report = json.loads(result.stdout)
    origins = {document["path"]: document["origin"] for document in report["documents"]}
    origin = "stranded" if renamed else "naming"
    assert origins == {"cluster.yaml": "given", "plans/plan.yaml": origin, "policy.yaml": origin}
    assert result.exit_code == renamed
    found = [(finding["requirement"], finding["path"]) for finding in report["findings"]]
    assert (("TS-DOC-011", "plans/plan.yaml") in found) is renamed
    listed = invoke("cluster.yaml", "--list-files", "--dependents").stdout.split()
    assert listed == ["cluster.yaml", "plans/plan.yaml", "policy.yaml"]


def test_a_renamed_plan_is_judged_with_the_policy_that_names_the_old_one() -> None:
    put("cluster.yaml")
    shutil.copy(BASE / "checkpoint.yaml", "policy.yaml")
    plan = Path("plans/plan.yaml")
    plan.write_text(plan.read_text(encoding="utf-8").replace("name: example-plan", "name: other"), encoding="utf-8")
    result = invoke("plans/plan.yaml", "--dependents", "--fail-on", "error,unjudged")
    assert result.exit_code == 1
    assert "policy.yaml: judged too; found because it names a document that is not there" in result.stdout


def test_a_moved_cluster_is_judged_with_the_plan_that_names_its_old_file() -> None:
    put("machines.yaml")
    plan = Path("plans/plan.yaml")
    old, new = "cluster: {name: example-cluster}", "cluster: {file: ../cluster.yaml}"
    plan.write_text(plan.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    result = invoke("machines.yaml", "--dependents")
    assert result.exit_code == 1
    assert "error[TS-DOC-011] '../cluster.yaml' does not exist" in result.stdout


def test_a_second_cluster_of_a_name_is_judged_with_the_first() -> None:
    put("cluster.yaml")
    put("more/second.yaml")
    alone = invoke("more/second.yaml", "--format", "json")
    assert json.loads(alone.stdout)["findings"] == []
    report = json.loads(invoke("more/second.yaml", "--dependents", "--format", "json").stdout)
    origins = {document["path"]: document["origin"] for document in report["documents"]}
    assert origins == {"more/second.yaml": "given", "cluster.yaml": "namesake", "plans/plan.yaml": "naming"}
    found = {(finding["requirement"], finding["path"]) for finding in report["findings"]}
    assert found == {("TS-DOC-013", "more/second.yaml"), ("TS-DOC-011", "plans/plan.yaml")}


def test_a_name_that_two_clusters_have_fails_the_plan_that_gives_it() -> None:
    put("a/cluster.yaml")
    put("b/cluster.yaml")
    assert only(validate(["plans/plan.yaml"])).reason.endswith("2 files declare: a/cluster.yaml, b/cluster.yaml")
    result = invoke("plans/plan.yaml", "--dependents")
    assert result.exit_code == 1
    assert "error[TS-DOC-011]" in result.stdout
    assert "error[TS-DOC-013]" in result.stdout


def test_a_second_plan_of_a_name_is_judged_with_the_first() -> None:
    put("cluster.yaml")
    shutil.copy("plans/plan.yaml", "second.yaml")
    result = invoke("second.yaml", "--dependents")
    assert result.exit_code == 1
    assert "error[TS-DOC-013]" in result.stdout


def test_a_document_of_a_name_that_another_run_input_has_is_not_stranded() -> None:
    put("../outside/cluster.yaml")
    put("cluster.yaml", "name: example-cluster", "name: other-cluster")
    result = invoke("cluster.yaml", "../outside/cluster.yaml", "--dependents", "--format", "json")
    paths = {document["path"] for document in json.loads(result.stdout)["documents"]}
    assert paths == {"cluster.yaml", "../outside/cluster.yaml"}


def test_listed_files_are_those_that_would_be_judged() -> None:
    put("cluster.yaml")
    assert invoke("cluster.yaml", "--list-files").stdout == "cluster.yaml\n"
    assert invoke("cluster.yaml", "--list-files", "--dependents").stdout == "cluster.yaml\nplans/plan.yaml\n"


# --- what is said -------------------------------------------------------------------------------------------


def test_what_was_not_judged_is_part_of_every_format() -> None:
    report = validate(["plans/plan.yaml"])
    entry = only(report)
    assert entry.pointer == ("cluster",)
    assert entry.span is not None
    assert "TS-PAR-002" in entry.requirements
    assert verdict(report, "TS-PAR-002") is Verdict.NOT_RUN
    for name in FORMATS:
        text = render(report, name)
        assert "which was not given" in text, name
        assert str(len(entry.requirements)) in text, name
        assert "TS-PAR-002" in text, name
    data = json.loads(render(report, "json"))
    assert data["summary"]["unjudged"] == len(entry.requirements) == len(data["unjudged"][0]["requirements"])


def test_the_summary_line_says_how_many_and_why() -> None:
    number = len(only(validate(["plans/plan.yaml"])).requirements)
    last = invoke("plans/plan.yaml").stdout.splitlines()[-1]
    assert last.endswith(f"; {number} requirements not judged: plans/plan.yaml {NOT_GIVEN}")


def test_requirements_on_a_third_kind_are_not_counted() -> None:
    put("cluster.yaml")
    together = {
        o.requirement for o in validate(["plans/plan.yaml"]).outcomes if o.verdict is not Verdict.NOT_APPLICABLE
    }
    Path("cluster.yaml").unlink()
    entry = only(validate(["plans/plan.yaml"]))
    assert {"TS-PAR-002", "TS-MEM-002"} <= set(entry.requirements) & together
    assert not any(requirement.startswith(("TS-CKP", "TS-REC")) for requirement in entry.requirements)


def test_a_plan_that_names_no_cluster_says_so() -> None:
    plan = Path("plans/plan.yaml")
    lines = plan.read_text(encoding="utf-8").splitlines(keepends=True)
    plan.write_text("".join(line for line in lines if not line.startswith("cluster:")), encoding="utf-8")
    assert only(validate(["plans/plan.yaml"])).reason.startswith("names no cluster")


def test_a_document_with_errors_of_form_says_what_they_hide() -> None:
    plan = Path("plans/plan.yaml")
    plan.write_text(plan.read_text(encoding="utf-8").replace("  tensor: 8", "  tensr: 8"), encoding="utf-8")
    reasons = {entry.reason: entry.requirements for entry in validate(["plans/plan.yaml"]).unjudged}
    assert reasons.keys() == {NOT_GIVEN, "does not give parallelism.tensor"}
    assert "TS-PAR-001" in reasons["does not give parallelism.tensor"]


def test_what_is_not_selected_is_not_counted() -> None:
    assert invoke("plans/plan.yaml", "--select", "TS-DOC", "--fail-on", "unjudged").exit_code == 0
    result = invoke("plans/plan.yaml", "--select", "TS-PAR-002")
    assert "1 requirement not judged: plans/plan.yaml names cluster" in result.stdout


# --- the exit code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ((), 0),
        (("--fail-on", "unjudged"), 1),
        (("--fail-on", "warning,unjudged"), 1),
        (("--fail-on", "never", "--fail-on", "unjudged"), 1),
        (("--fail-on", "note"), 0),
        (("--fail-on", "unjudged", "-q"), 1),
    ],
)
def test_unjudged_is_a_threshold(words: tuple[str, ...], code: int) -> None:
    assert invoke("plans/plan.yaml", *words).exit_code == code
    put("cluster.yaml")
    assert invoke("plans/plan.yaml", *words).exit_code == 0


def test_unjudged_does_not_replace_a_severity() -> None:
    put("cluster.yaml", "num_nodes: ", "num_nodes: 1 # ")
    assert invoke("plans/plan.yaml", "--fail-on", "unjudged").exit_code == 1
    assert invoke("plans/plan.yaml", "--fail-on", "unjudged,never").exit_code == 0
    assert invoke("plans/plan.yaml", "--fail-on", "error", "--fail-on", "never").exit_code == 0


@pytest.mark.parametrize("text", ['"warning,unjudged"', '["never", "unjudged"]', '"unjudged"'])
def test_unjudged_is_a_setting(text: str) -> None:
    Path("trainspec.toml").write_text(f"fail-on = {text}\n", encoding="utf-8")
    assert invoke("plans/plan.yaml").exit_code == 1
    assert invoke("plans/plan.yaml", "--fail-on", "error").exit_code == 0


def test_quiet_is_not_silent_on_what_was_not_judged() -> None:
    assert NOT_GIVEN in invoke("plans/plan.yaml", "-q").stdout
    put("cluster.yaml")
    assert invoke("plans/plan.yaml", "-q").stdout == ""


# --- nothing passes in silence ------------------------------------------------------------------------------


def test_an_argument_that_holds_nothing_of_ours_is_told() -> None:
    put("cluster.yaml")
    Path("charts").mkdir()
    Path("charts/values.yaml").write_text("replicas: 2\n", encoding="utf-8")
    for argument in ("charts", "charts/*.yaml"):
        result = invoke("plans", argument)
        nothing = f"nothing to judge: no TrainSpec document, no stream and no checkpoint in {argument}"
        assert (result.exit_code, nothing in result.stderr) == (2, True)
        assert "no findings: 2 documents" in result.stdout
    assert invoke("plans", ".").exit_code == 0


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("TS-TEL-001", "no stream of a run was given"),
        ("TS-CKP-100", "no checkpoint was given"),
    ],
)
def test_a_selection_that_nothing_given_can_answer_says_so(word: str, reason: str) -> None:
    put("cluster.yaml")
    result = invoke("plans/plan.yaml", "--select", word)
    assert result.exit_code == 0
    summary = result.stdout.splitlines()[-1]
    assert summary.startswith("nothing judged: 2 documents, 1 requirement not run; ")
    assert summary.endswith(f" left out by --select {word}")
    data = json.loads(invoke("plans/plan.yaml", "--select", word, "--format", "json").stdout)
    assert data["outcomes"] == [{"requirement": word, "verdict": "not-run", "num_findings": 0, "reason": reason}]
    assert invoke("plans/plan.yaml", "--select", word, "--fail-on", "unjudged").exit_code == 1


def test_a_selection_that_takes_nothing_fails_on_unjudged() -> None:
    put("cluster.yaml")
    words = ("--select", "TS-PAR-001", "--ignore", "TS-PAR-001")
    summary = invoke("plans/plan.yaml", *words).stdout.splitlines()[-1]
    assert summary.startswith("nothing judged: 2 documents; 1 requirement left out by --ignore TS-PAR-001; ")
    assert invoke("plans/plan.yaml", *words, "--fail-on", "unjudged").exit_code == 1


@pytest.mark.parametrize("words", [["--ignore", "DOC"], ["--select", "PAR"], ["--ignore", "DOC", "--select", "PAR"]])
def test_a_file_that_is_no_document_is_an_error_whatever_is_left_out(words: list[str]) -> None:
    Path("plans/plan.yaml").write_text("apiVersion: trainspec/v9\nkind: TrainingPlan\n", encoding="utf-8")
    result = invoke("plans/plan.yaml", *words)
    assert result.exit_code == 1
    assert "plans/plan.yaml:1:13: error[TS-DOC-004]" in result.stdout


@pytest.mark.parametrize("requirement", ["TS-MEM-002", "TS-PAR-002", "TS-TOP-018", "TS-MEM-010"])
def test_a_node_group_that_is_not_there_leaves_the_requirement_unjudged(requirement: str) -> None:
    put("cluster.yaml")
    plan = Path("plans/plan.yaml")
    text = plan.read_text(encoding="utf-8")
    plan.write_text(text.replace("parallelism:\n", "node_group: zzz\nparallelism:\n", 1), encoding="utf-8")
    report = validate(["plans/plan.yaml"])
    entry = only(report)
    assert entry.reason == "names node_group 'zzz', which cluster example-cluster does not have"
    assert entry.pointer == ("node_group",)
    assert requirement in entry.requirements
    assert verdict(report, requirement) is Verdict.NOT_RUN
    assert invoke("plans/plan.yaml", "--select", requirement, "--fail-on", "unjudged").exit_code == 1


def test_a_fabric_that_is_not_there_leaves_what_is_asked_of_it_unjudged() -> None:
    put("cluster.yaml")
    plan = Path("plans/plan.yaml")
    text = plan.read_text(encoding="utf-8")
    assert "\n  fabric: backend\n" in text
    plan.write_text(text.replace("\n  fabric: backend\n", "\n  fabric: zzz\n", 1), encoding="utf-8")
    entry = only(validate(["plans/plan.yaml"]))
    assert entry.reason == "names communication.fabric 'zzz', which cluster example-cluster does not have"
    for requirement in entry.requirements:
        assert invoke("plans/plan.yaml", "--select", requirement, "--fail-on", "unjudged").exit_code == 1


# --- streams and checkpoints --------------------------------------------------------------------------------


def put_stream() -> None:
    head = {"k": "head", "apiVersion": "trainspec/v1", "kind": "MetricStream", "run": "r", "att": 0, "emitter": "e"}
    records = [
        {**head, "time_us": 1_700_000_000_000_000, "scopes": ["job"]},
        {"k": "m", "time_us": 1_700_000_001_000_000, "seq": 0, "m": {"train.step.count": 1}},
    ]
    Path("run.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")


def without(report: Report) -> dict[str, tuple[str, ...]]:
    """Ids by reason, of the entries on the stream or the checkpoint."""
    return {e.reason: e.requirements for e in report.unjudged if not e.path.endswith(".yaml")}


@pytest.mark.parametrize("judged", ["run.jsonl", "saved"])
def test_what_is_judged_without_its_documents_is_unjudged_in_every_format(judged: str) -> None:
    put_stream()
    build(
        Path(),
        "saved/step-60/model.safetensors  safetensors weight=F32[4]\nsaved/step-60/trainspec-manifest.json  sealed\n",
    )
    report = validate([judged])
    found = without(report)
    wanted = {"is judged without a CheckpointPolicy"}
    assert wanted <= found.keys()
    assert len(found) >= (3 if judged == "run.jsonl" else 1)
    kinds = {"stream", "artifact"}
    for ids in found.values():
        for identifier in ids:
            assert load_index().by_id[identifier].check in kinds
            assert verdict(report, identifier) is Verdict.NOT_RUN
    for name in FORMATS:
        text = render(report, name)
        for reason, ids in found.items():
            assert reason in text, name
            assert ids[0] in text, name
    assert json.loads(render(report, "json"))["summary"]["unjudged"] == len({i for ids in found.values() for i in ids})
    assert invoke(judged, "--fail-on", "never", "--fail-on", "unjudged").exit_code == 1


def test_a_stream_with_its_documents_leaves_nothing_unjudged_for_lack_of_them() -> None:
    put_stream()
    put("cluster.yaml")
    shutil.copy(BASE / "checkpoint.yaml", "policy.yaml")
    assert not [reason for reason in without(validate(["."])) if reason.startswith("is judged without")]
    assert not {"is judged without a TrainingPlan"} & without(validate(["run.jsonl", "plans/plan.yaml"])).keys()
    assert invoke("run.jsonl", "--select", "TS-TEL-001", "--fail-on", "never,unjudged").exit_code == 0


def test_several_plans_leave_a_stream_without_one() -> None:
    put_stream()
    put("cluster.yaml")
    text = Path("plans/plan.yaml").read_text(encoding="utf-8")
    Path("plans/other.yaml").write_text(text.replace("name: example", "name: other", 1), encoding="utf-8")
    entries = [e for e in validate(["."]).unjudged if e.reason == "is judged without a TrainingPlan"]
    assert [e.help.rpartition("; ")[2] for e in entries] == ["which one it is of 2 of kind TrainingPlan is not known"]


# --- values that name nothing -------------------------------------------------------------------------------


def both(old: str, new: str) -> list[str]:
    """The base plan and cluster in one directory, one of them with a change."""
    paths = []
    for name in ("plan.yaml", "cluster.yaml"):
        text = (BASE / name).read_text(encoding="utf-8")
        Path("both").mkdir(exist_ok=True)
        Path("both", name).write_text(text.replace(old, new, 1), encoding="utf-8")
        paths.append(f"both/{name}")
    return paths


@pytest.mark.parametrize(
    ("old", "key", "among", "not_among"),
    [
        ("schedule: 1f1b", "parallelism.schedule", {"TS-PAR-011", "TS-PAR-012"}, {"TS-PAR-019"}),
        ("family: dense-transformer", "model.family", {"TS-PAR-013", "TS-PAR-019"}, {"TS-PAR-001"}),
        ("topology: rail-optimised", "fabrics.topology", {"TS-TOP-010", "TS-TOP-014"}, {"TS-TOP-009"}),
        ("technology: infiniband", "node_groups.nics.technology", {"TS-CLU-024"}, {"TS-CLU-023"}),
    ],
)
def test_other_in_a_key_that_a_rule_needs_is_not_judged(
    old: str, key: str, among: set[str], not_among: set[str]
) -> None:
    report = validate(both(old, f"{old.partition(':')[0]}: other"))
    (entry,) = [entry for entry in report.unjudged if entry.reason == f"gives {key}: other"]
    assert among <= set(entry.requirements)
    assert not not_among & set(entry.requirements)
    assert entry.span is not None
    assert all(verdict(report, requirement) is Verdict.NOT_RUN for requirement in among)


def test_other_fails_where_everything_is_to_be_judged() -> None:
    paths = both("schedule: 1f1b", "schedule: other")
    assert invoke(*paths).exit_code == 0
    result = invoke("--fail-on", "unjudged", *paths)
    assert result.exit_code == 1
    assert "gives parallelism.schedule: other" in result.output


def test_other_that_no_rule_needs_is_no_lack() -> None:
    """What carries routes is looked at by one rule, on networks of another kind; listed values are no lack."""
    for paths in (both("control_plane: subnet-manager", "control_plane: other"), both("", "")):
        assert not [entry for entry in validate(paths).unjudged if "other" in entry.reason]


def test_other_is_found_in_documents_that_lack_something() -> None:
    plan, cluster = both("schedule: 1f1b", "schedule: other")
    text = Path(plan).read_text(encoding="utf-8")
    Path(plan).write_text(text.replace("  hidden_size: 8192\n", "  hidden_size: null\n"), encoding="utf-8")
    report = validate([plan, cluster])
    assert any(entry.reason == "gives parallelism.schedule: other" for entry in report.unjudged)
