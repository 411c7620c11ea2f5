"""`plan`, `export` and `judge_run`, as programs call them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trainspec_validate import (
    CheckpointPolicy,
    InputError,
    InvalidDocumentError,
    NamedText,
    NoPlanError,
    NotExpressible,
    TrainingPlan,
    export,
    export_formats,
    judge_run,
    plan,
    render,
    validate,
)
from trainspec_validate.documents.load import load_file

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "spec" / "v1" / "base"
CLUSTER = ROOT / "examples" / "clusters" / "meta-llama3-24k.yaml"
STREAM = ROOT / "examples" / "broken" / "job.jsonl"
H100_BYTES = 81559 * 2**20  # as nvidia-smi reports (mlcommons/training_results_v4.0:NVIDIA/systems)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents that are named are looked for below the working directory."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_plans_are_typed_and_without_findings() -> None:
    calls: list[tuple[int, int]] = []
    found = plan(
        CLUSTER,
        "Llama3-70B",
        num_ranks=512,
        global_sequences=512,
        num_jobs=2,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert len(found.jobs) == 2
    assert len(calls) == found.num_layouts > found.num_too_large
    for job in found.jobs:
        assert isinstance(job.plan, TrainingPlan)
        assert isinstance(job.policy, CheckpointPolicy)
        assert job.plan.parallelism.num_accelerators == 512
        assert 0 < job.low_step_seconds < job.step_seconds < job.high_step_seconds
        assert 0 < job.model_flops_utilization < 1
        assert job.memory_bytes < H100_BYTES
        assert validate([CLUSTER, job.plan, job.policy]).findings == ()
        assert "# chosen: " in job.plan_text
        texts = [NamedText("plan.yaml", job.plan_text), NamedText("checkpoint.yaml", job.policy_text)]
        assert validate([CLUSTER, *texts]).findings == ()
    assert [text for text in found.assumptions if "set num_tokens" in text]
    assert not [text for text in found.assumptions if "--" in text]


@pytest.mark.slow
def test_the_model_of_a_plan_is_planned_for() -> None:
    [job] = plan(load_file(CLUSTER).data, load_file(BASE / "plan.yaml").data, num_ranks=256, global_sequences=512).jobs
    assert job.plan.model.name == "example-70b"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_ranks": 8}, "<ClusterProfile>: none of .* use more num_ranks, or a shorter sequence_length$"),
        ({"num_ranks": 10**7}, "<ClusterProfile>: 10,000,000 ranks are asked for, h100 has 24,576"),
        ({"node_group": "none"}, "<ClusterProfile>: "),
    ],
)
def test_a_job_that_cannot_be_planned(options: dict[str, object], words: str) -> None:
    with pytest.raises(NoPlanError, match=words):
        plan(load_file(CLUSTER).data, "llama3-405b", **options)  # type: ignore[arg-type]


def test_wrong_words_and_documents_of_a_plan() -> None:
    with pytest.raises(InputError, match="no model is called 'llama3-70bb'; did you mean 'llama3-70b'"):
        plan(CLUSTER, "llama3-70bb")
    with pytest.raises(InputError, match=r"plan\.yaml: a ClusterProfile is wanted, this is a TrainingPlan"):
        plan(BASE / "plan.yaml", "llama3-70b")
    broken = {**load_file(CLUSTER).data, "nodegroups": []}
    with pytest.raises(InvalidDocumentError, match="unknown key 'nodegroups'") as caught:
        plan(broken, "llama3-70b")
    assert [each.requirement for each in caught.value.findings] == ["TS-DOC-005"]
    with pytest.raises(ValueError, match="0 choices"):
        plan(CLUSTER, "llama3-70b", num_jobs=0)


@pytest.mark.slow
def test_a_planned_job_is_exported() -> None:
    # MaxText shards no gradients alone, as the fastest plan for any framework does.
    any_job, maxtext = (
        plan(CLUSTER, "llama3-8b", num_ranks=64, global_sequences=512, num_jobs=1, framework=framework).jobs[0]
        for framework in (None, "maxtext")
    )
    for name in export_formats():
        job = maxtext if name == "maxtext" else any_job
        written = export(job.plan, name, cluster=CLUSTER, policy=job.policy)
        assert written.name
        assert written.text.strip()


def test_a_job_that_a_launcher_cannot_start() -> None:
    job = plan(CLUSTER, "llama3-8b", num_ranks=12, global_sequences=48).jobs[0]
    with pytest.raises(NotExpressible, match="12 ranks do not fill nodes of 8") as caught:
        export(job.plan, "slurm", cluster=CLUSTER)
    assert caught.value.help == "plan for a multiple of 8 ranks (TS-TOP-018)"


def test_wrong_words_and_documents_of_an_export() -> None:
    mapping = load_file(BASE / "plan.yaml").data
    with pytest.raises(InputError, match="no format is called 'slrm'; did you mean 'slurm'"):
        export(mapping, "slrm")
    with pytest.raises(InputError, match=r"<TrainingPlan>: the plan's cluster is not known.*give it as cluster"):
        export({key: value for key, value in mapping.items() if key != "cluster"}, "slurm")
    with pytest.raises(InputError, match=r"cluster\.yaml: a TrainingPlan is wanted, this is a ClusterProfile"):
        export(BASE / "cluster.yaml", "slurm")
    wrong = {**mapping, "parallelism": {**mapping["parallelism"], "data": 7}}
    with pytest.raises(InvalidDocumentError, match="the job is not exported; 2 errors") as caught:
        export(wrong, "slurm", cluster=BASE / "cluster.yaml")
    assert "TS-PAR-001" in {each.requirement for each in caught.value.findings}


def test_a_run_is_judged_with_its_documents(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(STREAM, run)
    report = judge_run(run)
    assert len(report.coverage) == 1
    assert {each.path for each in report.findings} == {(run / "job.jsonl").as_posix()}
    judged = {each.requirement for each in report.outcomes if each.verdict in {"pass", "fail", "warn"}}
    more = judge_run(run, *(load_file(BASE / f"{name}.yaml").data for name in ("cluster", "plan", "checkpoint")))
    assert judged < {each.requirement for each in more.outcomes if each.verdict in {"pass", "fail", "warn"}}
    assert "job.jsonl" in render(more, "concise")


def test_a_directory_without_records_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="run"):
        judge_run(tmp_path / "run")
    with pytest.raises(InputError, match="nothing to judge: no stream and no checkpoint"):
        judge_run(BASE)
