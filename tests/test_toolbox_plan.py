"""`trainspec plan`: what it writes is accepted by the validator, what it cannot plan it says."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from tests.planner_makers import make, profile
from trainspec_validate.cli import terminal
from trainspec_validate.cli.commands import plan_report
from trainspec_validate.cli.commands.plan_prediction import too_large
from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import TrainingPlan, read
from trainspec_validate.model.catalog import accelerators
from trainspec_validate.model.finding import Severity
from trainspec_validate.performance.forecast.predict import predict
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.planner.search import search
from trainspec_validate.planner.starter import documents

CLUSTERS = Path(__file__).resolve().parents[1] / "examples" / "clusters"
SVG = "{http://www.w3.org/2000/svg}"
QUICK = ("--model", "llama3-8b", "--num-ranks", "16")


def run(*arguments: str, where: Path) -> Result:
    """The command in a directory that holds the profile of 64 H200 accelerators as cluster.yaml."""
    runner = CliRunner()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(where)
        return runner.invoke(command, ["plan", *arguments], standalone_mode=False)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A directory with a cluster profile."""
    shutil.copy(CLUSTERS / "gcp-a3-ultra-h200.yaml", tmp_path / "cluster.yaml")
    return tmp_path


def failure(result: Result) -> str:
    assert result.exception is not None
    return str(getattr(result.exception, "message", result.exception))


LORA = CLUSTERS.parent / "plans" / "llama2-70b-lora-eos.yaml"


def test_a_plan_that_freezes_layers_is_not_searched_as_one_that_trains_all(here: Path) -> None:
    lora = LORA.read_text(encoding="utf-8")
    frozen = re.sub(r"(?ms)^lora:.*?(?=^num_parameters_trained)", "", lora).replace("44564480", "7e9")
    (here / "frozen.yaml").write_text(frozen.replace("../clusters/nvidia-eos.yaml", "eos.yaml"), encoding="utf-8")
    told = failure(run("cluster.yaml", "--model", "frozen.yaml", "--num-ranks", "16", where=here))
    assert "frozen.yaml: the plan trains 7,000,000,000 parameters next to 61,980,000,000 frozen ones" in told
    eos = str(CLUSTERS / "nvidia-eos.yaml")
    shown = run(eos, "--predict", "frozen.yaml", "--force", where=here)
    assert "memory" in shown.stdout
    assert "step" not in shown.stdout
    assert "step time: not predicted: no key says which layers are frozen" in shown.stderr
    told = json.loads(run(eos, "--predict", "frozen.yaml", "--force", "--format", "json", where=here).stdout)
    assert told["step_seconds"] is None
    assert told["memory_bytes"]["total"] > 17e9


def test_adapters_are_searched_for_as_such(here: Path) -> None:
    asked = (str(CLUSTERS / "nvidia-eos.yaml"), "--model", str(LORA), "--num-ranks", "8", "--precision", "fp8")
    assert "ask for --tokens and --global-sequences" in failure(run(*asked, where=here))
    job = ("--tokens", "58e6", "--global-sequences", "8", "--tensor", "4", "--pipeline", "1", "--framework", "nemo")
    run(*asked, *job, "--output", "run", where=here)
    plan = (here / "run" / "plan.yaml").read_text(encoding="utf-8")
    assert "lora:\n  rank: 16 " in plan
    assert "frozen_parameters: fp8" in plan
    stated = float(re.search(r"step_seconds: ([0-9.]+)", plan)[1])  # type: ignore[index]
    # mlcommons/training_results_v4.0:NVIDIA/results/eos_ngc24.04_nemo/llama2_70b_lora took 3.713 s in this layout.
    assert stated * 0.9 < 3.713 < stated * 1.1
    policy = (here / "run" / "checkpoint.yaml").read_text(encoding="utf-8")
    assert "num_parameters: 44.5645e6" in policy
    report = validate([asked[0], here / "run" / "plan.yaml", here / "run" / "checkpoint.yaml"])
    assert [one for one in report.findings if one.severity.value == "error"] == []


@pytest.mark.slow
def test_plan_and_policy_are_written_and_accepted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("cluster.yaml", *QUICK, "--output", "run", where=here)
    assert result.exit_code == 0, result.output
    monkeypatch.chdir(here)
    report = validate(["cluster.yaml", "run/plan.yaml", "run/checkpoint.yaml"])
    assert [str(found) for found in report.at_or_above(Severity.WARNING) if found.path != "cluster.yaml"] == []
    assert {document.kind for document in report.documents} == {"ClusterProfile", "TrainingPlan", "CheckpointPolicy"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cluster", "model"),
    [
        ("meta-llama3-24k", "llama3-405b"),
        ("mrc-131072", "llama3-70b"),
        ("coreweave-h100", "gpt3-175b"),
        ("zyphra-ibm-mi300x", "llama3-70b"),
        ("intel-gaudi2-1024", "llama3-8b"),
        ("google-tpu-v4-pod", "llama3-70b"),
        ("aws-trn2-ultraserver", "llama3-8b"),
        ("clemson-a100-pcie", "llama3-8b"),
        ("frontier", "llama3-70b"),
    ],
)
def test_plans_of_many_machines_are_accepted(cluster: str, model: str, tmp_path: Path) -> None:
    profile = CLUSTERS / f"{cluster}.yaml"
    result = run(str(profile), "--model", model, "--top", "1", "--output", str(tmp_path / "run"), where=tmp_path)
    assert result.exit_code == 0, result.output
    made = [str(tmp_path / "run" / name) for name in ("plan.yaml", "checkpoint.yaml")]
    report = validate([str(profile), *made])
    assert [str(found) for found in report.at_or_above(Severity.ERROR) if found.path in made] == []


MEMORY = "  - {name: memory, kind: host-memory, scope: node, capacity_bytes: 1e12, failure_domain: node}\n"
RATES = [("10e9", "10e9"), ("10e9", "4e9"), ("1e9", "1e9"), ("1e8", "1e7"), ("1e12", "2e9")]


def declared(num_nodes: int, figures: dict[str, object], memory: str) -> str:
    """A starter profile with other stores and spares."""
    text = documents(["ClusterProfile"], accelerators()["nvidia-h100-sxm-80gb"], num_nodes)["cluster.yaml"]
    for key, value in figures.items():
        text = re.sub(rf"\b{key}: \S+", f"{key}: {value}", text)
    return text.replace("reliability:", f"{memory}reliability:", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", list(itertools.product((2, 4), RATES, (0, 1), ("20e12", "5e11"), ("", MEMORY)))[::13], ids=str
)
def test_only_what_has_no_errors_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Any) -> None:
    """Nodes, rates, spares, sizes and stores: what is written validates, and what is not says by which rule."""
    num_nodes, rates, spares, capacity, memory = case
    keys = ("write_bandwidth_bytes_per_second", "read_bandwidth_bytes_per_second", "num_spare_nodes", "capacity_bytes")
    figures = dict(zip(keys, (*rates, spares, capacity), strict=True))
    (tmp_path / "cluster.yaml").write_text(declared(num_nodes, figures, memory))
    result = run("cluster.yaml", "--model", "llama3-8b", "--top", "1", "--output", "run", where=tmp_path)
    monkeypatch.chdir(tmp_path)
    if result.exception is None:
        assert validate(["cluster.yaml", "run"]).at_or_above(Severity.ERROR) == ()
    else:
        assert "checkpoint.yaml: TS-CKP-0" in failure(result)
        assert not Path("run").exists()


@pytest.mark.slow
def test_a_slow_read_is_planned_without_memory_that_nobody_declared(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(declared(4, {"read_bandwidth_bytes_per_second": "4e9"}, ""))
    result = run("cluster.yaml", "--model", "llama3-8b", "--top", "1", "--output", "run", where=tmp_path)
    assert result.exit_code == 0, result.output
    assert "partner-memory" not in (tmp_path / "run" / "checkpoint.yaml").read_text()
    assert "kind: host-memory" in result.stderr


@pytest.mark.slow
def test_json_has_every_figure_with_its_band(here: Path) -> None:
    told = json.loads(run("cluster.yaml", *QUICK, "--format", "json", "--top", "3", where=here).stdout)
    assert len(told["plans"]) == 3
    for plan in told["plans"]:
        assert plan["low_seconds"] < plan["step_seconds"] < plan["high_seconds"]
        parts = sum(plan[key] for key in ("compute_seconds", "bubble_seconds", "optimizer_seconds"))
        assert parts + sum(plan["exposed_seconds"].values()) == pytest.approx(plan["step_seconds"])
        assert 0 < plan["model_flops_utilisation"] < 1
        assert 0 < plan["effective_training_time"] < 1
        assert all(item["low_seconds"] <= item["seconds"] <= item["high_seconds"] for item in plan["collectives"])
    times = [plan["step_seconds"] for plan in told["plans"]]
    assert times == sorted(times)
    assert any(text.startswith("batch: ") for text in told["assumptions"])


@pytest.mark.slow
def test_the_table_explains_the_best_plan(here: Path) -> None:
    shown = run("cluster.yaml", *QUICK, where=here).stdout
    assert "Why plan 1:" in shown
    for word in ("tensor", "pipeline", "activation_policy", "Collectives of plan 1:", "Memory of its fullest rank:"):
        assert word in shown


@pytest.mark.slow
def test_another_plan_than_the_best_can_be_written(here: Path) -> None:
    assert run("cluster.yaml", *QUICK, "--output", "one", where=here).exit_code == 0
    assert run("cluster.yaml", *QUICK, "--pick", "4", "--output", "four", where=here).exit_code == 0
    assert (here / "one" / "plan.yaml").read_text() != (here / "four" / "plan.yaml").read_text()


@pytest.mark.slow
def test_the_drawing_is_an_image_with_every_plan(here: Path) -> None:
    assert run("cluster.yaml", *QUICK, "--top", "3", "--plot", "plot.svg", where=here).exit_code == 0
    root = ET.fromstring((here / "plot.svg").read_text())
    assert root.tag == f"{SVG}svg"
    assert {text.text for text in root.iter(f"{SVG}text")} >= {"1", "2", "3"}
    assert not any("href" in name for element in root.iter() for name in element.attrib)


@pytest.mark.slow
def test_the_same_question_gives_the_same_files(here: Path) -> None:
    for target in ("first", "second"):
        assert run("cluster.yaml", *QUICK, "--output", target, where=here).exit_code == 0
    for name in ("plan.yaml", "checkpoint.yaml"):
        assert (here / "first" / name).read_bytes() == (here / "second" / name).read_bytes()


@pytest.mark.slow
def test_the_model_of_a_plan_can_be_planned_anew(here: Path) -> None:
    assert run("cluster.yaml", *QUICK, "--output", "run", where=here).exit_code == 0
    result = run("cluster.yaml", "--model", "run/plan.yaml", "--num-ranks", "32", where=here)
    assert result.exit_code == 0, result.output


@pytest.mark.slow
def test_a_path_may_be_written_in_any_way(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    awkward = here / 'a "b'
    awkward.mkdir()
    (here / "cluster.yaml").rename(awkward / "c d.yaml")
    for place, path in enumerate(('./a "b/c d.yaml', 'a "b//c d.yaml', str(awkward / "c d.yaml"))):
        result = run(path, *QUICK, "--output", f"./run{place}", where=here)
        assert result.exit_code == 0, result.output
        advice = result.stderr.splitlines()[-1].removeprefix("next: ")
        monkeypatch.chdir(here)
        report = validate(shlex.split(advice)[1:])
        assert [str(found) for found in report.at_or_above(Severity.WARNING)] == []


@pytest.mark.slow
def test_what_is_there_is_kept_unless_forced(here: Path) -> None:
    assert run("cluster.yaml", *QUICK, "--output", "run", where=here).exit_code == 0
    before = (here / "run" / "plan.yaml").read_text()
    result = run("cluster.yaml", *QUICK, "--pick", "2", "--output", "run", where=here)
    assert "already there" in failure(result)
    assert (here / "run" / "plan.yaml").read_text() == before
    assert run("cluster.yaml", *QUICK, "--pick", "2", "--output", "run", "--force", where=here).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cluster.yaml", "--model", "llama3-80b"), "did you mean 'llama3-8b'"),
        (("nowhere.yaml", "--model", "llama3-8b"), "nowhere.yaml"),
        (("cluster.yaml", "--model", "llama3-8b", "--num-ranks", "65"), "65 ranks are asked for"),
        (("cluster.yaml", "--model", "llama3-8b", "--node-group", "west"), "no node group 'west'"),
        (
            ("cluster.yaml", "--model", "llama3-405b", "--num-ranks", "8"),
            "of its host; use more --num-ranks, or a shorter",
        ),
        (
            ("cluster.yaml", "--model", "deepseek-v3", "--num-ranks", "64", "--framework", "llm-foundry"),
            "all 64 ranks of the node group are in use: use a",
        ),
        (
            ("cluster.yaml", "--model", "llama3-8b", "--num-ranks", "7", "--global-sequences", "1"),
            "no layout divides 1",
        ),
        (("cluster.yaml", *QUICK, "--tensor", "3"), "keeps to --tensor 3; leave one of them out"),
        (("cluster.yaml", *QUICK, "--tensor", "8", "--max-tensor", "4"), "8 tensor ranks are asked for, and at most 4"),
        (("cluster.yaml", "--predict", "plan.yaml", "--max-tensor", "4"), "leave out --max-tensor"),
        (("cluster.yaml", *QUICK, "--tokens", "nan"), "nan is not a finite number"),
        pytest.param(
            ("cluster.yaml", *QUICK, "--tokens", "1e15", "--output", "run"),
            "a plan states 100,000,000 steps",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("cluster.yaml", *QUICK, "--tokens", "2e14", "--output", "run"),
            "use fewer --tokens",
            marks=pytest.mark.slow,
        ),
        (("cluster.yaml", *QUICK, "--reserve-bytes", "1e12"), "a reserve of 1 TB leaves nothing of 150.8 GB"),
        (("cluster.yaml", *QUICK, "--output", ".", "--plot", "plan.yaml"), "--plot would replace plan.yaml"),
        (("cluster.yaml", *QUICK, "--pick", "100", "--top", "1", "--global-sequences", "2"), "plan 100 is asked for"),
    ],
)
def test_what_cannot_be_planned_is_said(here: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in failure(run(*arguments, where=here))


@pytest.mark.slow
def test_a_profile_with_errors_is_refused_unless_forced(here: Path) -> None:
    path = here / "cluster.yaml"
    path.write_text(path.read_text().replace("num_accelerators: 64", "num_accelerators: 63"))
    assert "--force" in failure(run("cluster.yaml", *QUICK, where=here))
    assert run("cluster.yaml", *QUICK, "--force", where=here).exit_code == 0


def test_a_plan_with_errors_gives_no_model_unless_forced(here: Path) -> None:
    text = (CLUSTERS.parent / "plans" / "torchtitan-llama3-8b.yaml").read_text(encoding="utf-8")
    wrong = re.sub(r"(?m)^  num_attention_heads: .*", "  num_attention_heads: 31", text)
    assert wrong != text
    (here / "plan.yaml").write_text(re.sub(r"(?m)^cluster: .*\n", "", wrong), encoding="utf-8")
    asked = ("cluster.yaml", "--model", "plan.yaml", "--num-ranks", "8", "--max-pipeline", "1", "--top", "1")
    *findings, last = failure(run(*asked, where=here)).splitlines()
    assert findings
    assert all(re.match(r"plan\.yaml:\d+:\d+: TS-[A-Z]{3}-\d{3}: ", found) for found in findings)
    assert f"plan.yaml: {len(findings)} error" in last
    assert last.endswith("see: trainspec-validate plan.yaml, or continue with --force")
    assert run(*asked, "--force", where=here).exit_code == 0


def test_many_errors_of_a_document_are_shown_in_part(here: Path) -> None:
    path = here / "cluster.yaml"
    path.write_text(path.read_text() + "".join(f"unknown_{place}: 1\n" for place in range(12)), encoding="utf-8")
    *findings, last = failure(run("cluster.yaml", *QUICK, where=here)).splitlines()
    assert len(findings) == 10
    assert last.startswith("cluster.yaml: 12 errors, and no ClusterProfile can be read; see: ")


def test_a_job_that_fits_with_offload_alone_has_no_time(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("cluster.yaml", "--model", "llama3-70b", "--num-ranks", "8", "--context", "1", "--pipeline", "1")
    result = run(*asked, "--output", "run", where=here)
    assert result.exit_code == 0, result.output
    rows = {" ".join(line.split()) for line in result.stdout.splitlines()}
    assert "step not predicted not predicted" in " ".join(rows)
    assert not any(row.startswith(("MFU", "job", "exposed", "progress")) for row in rows)
    assert "step time: not predicted: no measured run moves model state to the host" in result.stderr
    assert "checkpoint.yaml: not written" in result.stderr
    assert [path.name for path in (here / "run").iterdir()] == ["plan.yaml"]
    monkeypatch.chdir(here)
    report = validate(["cluster.yaml", "run/plan.yaml"])
    assert [str(one) for one in report.at_or_above(Severity.WARNING) if one.path != "cluster.yaml"] == []
    told = json.loads(run(*asked, "--format", "json", "--top", "1", where=here).stdout)["plans"][0]
    assert told["step_seconds"] is None
    assert told["not_predicted"].startswith("no measured run moves model state")
    assert told["offload"] == ["optimizer"]
    assert told["host_memory_bytes"] == pytest.approx(12 * 70.55e9 / 8, rel=0.02)
    assert "model_flops_utilisation" not in told
    assert "--plot draws step times" in failure(run(*asked, "--plot", "plot.svg", where=here))


def test_exit_status_of_wrong_use(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    assert terminal.run(command, "trainspec", ["plan", "cluster.yaml"]) == terminal.WRONG_USE
    assert terminal.run(command, "trainspec", ["plan", "nowhere.yaml", "--model", "llama3-8b"]) == terminal.WRONG_USE


@pytest.mark.slow
def test_what_holds_no_profile_is_told_without_false_advice(here: Path) -> None:
    (here / "torn.yaml").write_text("apiVersion: trainspec/v1\nkind: ClusterProfile\nnum_nodes: 2\n", encoding="utf-8")
    told = failure(run("torn.yaml", *QUICK, where=here))
    finding, last = told.splitlines()
    assert finding.startswith("torn.yaml:1:1: TS-DOC-006: ")
    assert last == "torn.yaml: 1 error, and no ClusterProfile can be read; see: trainspec-validate torn.yaml"
    forced = failure(run("torn.yaml", *QUICK, "--force", where=here))
    assert forced == told
    assert run("cluster.yaml", *QUICK, "--output", "run", where=here).exit_code == 0
    told = failure(run("run/plan.yaml", *QUICK, where=here))
    assert told == "run/plan.yaml: a ClusterProfile is wanted, this is a TrainingPlan"


@pytest.mark.slow
def test_a_plan_that_may_not_fit_is_told() -> None:
    asked = make("gcp-a3-ultra-h200", "llama3-8b", num_ranks=16)
    scored = search(asked.goal, 1).best[0]
    capacity = asked.goal.machine.memory_bytes
    assert plan_report.tight(asked, scored) == []
    more = scored.memory.activations + capacity - scored.memory.total
    fuller = replace(scored, memory=replace(scored.memory, activations=more))
    (words,) = plan_report.tight(asked, fuller)
    assert words.startswith("plan 1 may not fit: eight of ten such runs need ")


@pytest.mark.slow
@pytest.mark.parametrize(("num_tokens", "ends"), [("1e8", True), ("2.76e8", True), ("2.79e8", False), ("1e12", False)])
def test_a_short_job_saves_at_its_end(here: Path, monkeypatch: pytest.MonkeyPatch, num_tokens: str, ends: bool) -> None:
    result = run("cluster.yaml", *QUICK, "--tokens", num_tokens, "--output", "run", where=here)
    assert result.exit_code == 0, result.output
    assert ("final_only: true" in (here / "run" / "checkpoint.yaml").read_text()) == ends
    monkeypatch.chdir(here)
    report = validate(["cluster.yaml", "run/plan.yaml", "run/checkpoint.yaml"])
    assert [str(found) for found in report.at_or_above(Severity.WARNING) if found.path != "cluster.yaml"] == []


@pytest.mark.parametrize("cluster", ["gcp-a3-ultra-h200", "google-tpu-v5p-pod"])
def test_a_plan_that_is_given_is_predicted_as_the_search_predicts_it(cluster: str, tmp_path: Path) -> None:
    shutil.copy(CLUSTERS / f"{cluster}.yaml", tmp_path / "cluster.yaml")
    job = ("--model", "llama3-8b", "--num-ranks", "16", "--global-sequences", "32", "--tokens", "1e12")
    found = run("cluster.yaml", *job, "--output", "run", "--format", "json", "--force", where=tmp_path)
    assert found.exit_code == 0, found.output
    searched = json.JSONDecoder().raw_decode(found.stdout)[0]["plans"][0]  # names of files follow
    told = run("cluster.yaml", "--predict", "run/plan.yaml", "--format", "json", "--force", where=tmp_path)
    assert told.exit_code == 0, told.output
    predicted = json.loads(told.stdout)
    for key in ("step_seconds", "low_seconds", "high_seconds", "family", "tokens_per_second", "memory_bytes"):
        assert predicted[key] == pytest.approx(searched[key]) or predicted[key] == searched[key]
    shown = run("cluster.yaml", "--predict", "run/plan.yaml", "--force", where=tmp_path).stdout
    assert {"step", "memory", "MFU"} <= {line.split()[0] for line in shown.splitlines() if line.strip()}


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ({"name": "another"}, "the plan is for cluster 'another', and cluster.yaml is 'gcp-a3-ultra-h200'"),
        ({"file": "other.yaml"}, "the plan is for the cluster in run/other.yaml, not for cluster.yaml"),
        ({"name": "gcp-a3-ultra-h200"}, ""),
        ({"file": "../cluster.yaml"}, ""),
        (None, ""),
    ],
)
def test_a_plan_for_another_cluster_is_predicted_by_force_only(
    reference: dict[str, str] | None, told: str, here: Path
) -> None:
    assert run("cluster.yaml", *QUICK, "--output", "run", "--force", where=here).exit_code == 0
    shutil.copy(here / "cluster.yaml", here / "run" / "other.yaml")
    plan = here / "run" / "plan.yaml"
    data = load_file(plan).data
    del data["cluster"]
    plan.write_text(json.dumps(data | ({"cluster": reference} if reference else {})))
    refused = run("cluster.yaml", "--predict", "run/plan.yaml", where=here)
    assert (
        (f"run/plan.yaml: {told}; change that, or continue with --force" in failure(refused))
        if told
        else (refused.exit_code == 0)
    )
    forced = run("cluster.yaml", "--predict", "run/plan.yaml", "--force", "--format", "json", where=here)
    assert [one["message"] for one in json.loads(forced.stdout)["findings"]] == ([told] if told else [])
    assert (f"warning: {told}" in forced.stderr) == bool(told)


def test_a_prediction_takes_no_wishes(here: Path) -> None:
    assert "leave out --model, --num-ranks" in failure(run("cluster.yaml", *QUICK, "--predict", "x.yaml", where=here))
    assert "Missing option '--model'" in failure(run("cluster.yaml", where=here))


@pytest.mark.parametrize(
    ("share", "weight"), [(1.2, None), (1.01, Severity.WARNING), (0.99, Severity.ERROR), (0.5, Severity.ERROR)]
)
def test_a_prediction_says_that_a_plan_is_too_large(share: float, weight: Severity | None) -> None:
    plan = read("TrainingPlan", load_file(CLUSTERS.parent / "plans" / "gpt3-175b-selective.yaml").data)
    assert isinstance(plan, TrainingPlan)
    found = predict(plan, profile("nvidia-eos"))
    assert found.memory
    machine = replace(found.machine, memory_bytes=found.memory[1].total * share)
    note = too_large(replace(found, machine=machine))
    assert (note.severity if note else None) is weight


@pytest.mark.parametrize("style", ["table", "json"])
@pytest.mark.parametrize(("micro", "code"), [(1, 0), (64, 1)])
def test_the_exit_code_of_a_prediction_says_whether_the_plan_fits(
    style: str, micro: int, code: int, here: Path
) -> None:
    found = run("cluster.yaml", *QUICK, "--global-sequences", "1024", "--output", "run", "--force", where=here)
    assert found.exit_code == 0, found.output
    plan = here / "run" / "plan.yaml"
    data = load_file(plan).data
    batch = data["batch"]
    batch["micro_sequences"], batch["accumulation_steps"] = micro, 64 // micro
    data["parallelism"] |= {"data": 16, "tensor": 1, "pipeline": 1, "sequence": False}
    data["memory"] = {"activation_policy": "selective"}
    plan.write_text(json.dumps(data))
    predicted = run("cluster.yaml", "--predict", "run/plan.yaml", "--format", style, "--force", where=here)
    assert (predicted.return_value, predicted.exit_code) == (code, 0), predicted.output
    assert ("does not fit" in predicted.stderr) == bool(code)
    if style == "json":
        findings = json.loads(predicted.stdout)["findings"]
        assert [one["severity"] for one in findings] == (["error"] if code else [])
