"""A document that lacks something is judged by every rule that does not need it, and by no other."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from click.testing import CliRunner

from trainspec_validate import Selection, validate
from trainspec_validate.cli.toolbox import command
from trainspec_validate.cli.validate import command as gate
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.schema import MAX_ALIKE, failures
from trainspec_validate.documents.types import KINDS, UnknownValueError, read, read_partial
from trainspec_validate.documents.types.partial import Unknown
from trainspec_validate.model.finding import Report, Verdict
from trainspec_validate.model.requirements import load_index

_PAIR = re.compile(r"([A-Za-z_]+): ?([^,{}\[\]#\n]*)")
_NUMBER = re.compile(r"[0-9.e+-]+")
_HEAD = ("apiVersion", "kind", "name")
_FORM = {r.id for r in load_index().by_id.values() if r.check == "schema"} | {"TS-DOC-011"}
BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
TEXTS = {name: (BASE / f"{name}.yaml").read_text(encoding="utf-8") for name in ("cluster", "plan", "checkpoint")}
KIND = {"cluster": "ClusterProfile", "plan": "TrainingPlan", "checkpoint": "CheckpointPolicy"}


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in TEXTS.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")


def change(name: str, old: str, new: str) -> None:
    text = Path(name).read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    Path(name).write_text(text.replace(old, new), encoding="utf-8")


def verdicts(report: Report) -> dict[str, Verdict]:
    return {outcome.requirement: outcome.verdict for outcome in report.outcomes}


@pytest.mark.parametrize("new", ["", "num_nodes:\n", "num_nodes: null\n"])
def test_an_unknown_switches_off_the_rules_that_need_it_and_no_others(new: str) -> None:
    whole = verdicts(validate(["."]))
    change("cluster.yaml", "num_nodes: 16\nnum", f"{new}num")
    report = validate(["."])
    assert [finding.path for finding in report.findings] == ["cluster.yaml"]
    [entry] = report.unjudged
    assert entry.reason == "does not give num_nodes"
    assert "TS-CLU-001" in entry.requirements
    changed = {name for name, verdict in verdicts(report).items() if verdict is not whole[name]}
    assert changed - {report.findings[0].requirement} == set(entry.requirements)


def test_findings_on_what_is_there_are_told() -> None:
    change("cluster.yaml", "num_nodes: 16\nnum", "num")
    change("plan.yaml", "num_accelerators: 128", "num_accelerators: 256")
    assert {"TS-DOC-006", "TS-PAR-001", "TS-PAR-002"} <= {finding.requirement for finding in validate(["."]).findings}


def test_a_document_without_a_name_is_judged() -> None:
    change("cluster.yaml", "  name: example-cluster\n", "  labels: {}\n")
    change("plan.yaml", "cluster: {name: example-cluster}\n", "")
    change("checkpoint.yaml", "cluster: {name: example-cluster}\n", "")
    report = validate(["."])
    assert [finding.requirement for finding in report.findings] == ["TS-DOC-006"]
    assert verdicts(report)["TS-PAR-002"] is Verdict.PASS


MISTAKES = {
    "misspelt": ("plan.yaml", "  tensor: 8\n", "  tensr: 8\n", "parallelism.tensor"),
    "wrong value": ("plan.yaml", "  tensor: 8\n", "  tensor: many\n", "parallelism.tensor"),
    "out of bounds": ("plan.yaml", "  tensor: 8\n", "  tensor: -8\n", "parallelism.tensor"),
    "null": ("plan.yaml", "  tensor: 8\n", "  tensor:\n", "parallelism.tensor"),
    "misspelt, may be absent": ("plan.yaml", "  context: 1\n", "  contxt: 1\n", "parallelism.context"),
    "elsewhere": ("plan.yaml", "job:\n", "micro_sequences: 7\njob:\n", "batch.elastic"),
    "of no kind": ("plan.yaml", "job:\n", "owner: us\njob:\n", ""),
    "in a list": ("cluster.yaml", "    num_accelerators_per_node: 8", "    num_acc_per_node: 8", "node_groups[]"),
    "wrong in a list": (
        "cluster.yaml",
        "    num_accelerators_per_node: 8",
        "    num_accelerators_per_node: 8x",
        "node",
    ),
    "text": ("cluster.yaml", "driver: {name: nvidia-driver, version:", "driver: {name: nvidia-driver, vers:", "driver"),
    "whole section": ("cluster.yaml", "\nreliability:\n", "\nfailing:\n", "reliability"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_switches_off_the_rules_that_need_its_value_and_no_others(case: str) -> None:
    whole = verdicts(validate(["."]))
    name, old, new, lack = MISTAKES[case]
    change(name, old, new)
    report = validate(["."])
    assert all(finding.path == name for finding in report.findings)
    assert all(finding.requirement.startswith("TS-DOC-") for finding in report.findings)
    unjudged = {requirement for entry in report.unjudged for requirement in entry.requirements}
    assert [lack in entry.reason for entry in report.unjudged] == ([True] if lack else [])
    changed = {name for name, verdict in verdicts(report).items() if verdict is not whole[name]}
    assert changed - {finding.requirement for finding in report.findings} <= unjudged
    passed = [name for name, verdict in verdicts(report).items() if verdict is Verdict.PASS]
    assert len(passed) > len(whole) // 3


def test_the_rest_of_a_document_with_a_mistake_is_judged() -> None:
    change("plan.yaml", "job:\n", "owner: us\njob:\n")
    change("plan.yaml", "num_accelerators: 128", "num_accelerators: 256")
    assert {"TS-DOC-005", "TS-PAR-001", "TS-PAR-002"} <= {finding.requirement for finding in validate(["."]).findings}


def test_a_reference_with_a_mistake_leads_to_the_only_document() -> None:
    change("plan.yaml", "cluster: {name: example-cluster}\n", "cluster: {nam: example-cluster}\n")
    report = validate(["."])
    assert [finding.requirement for finding in report.findings] == ["TS-DOC-005"]
    assert verdicts(report)["TS-PAR-002"] is Verdict.PASS


def test_a_whole_number_with_a_point_hinders_nothing() -> None:
    change("plan.yaml", "  tensor: 8\n", "  tensor: 8.0\n")
    change("plan.yaml", "job:\n", "owner: us\njob:\n")
    report = validate(["."])
    assert report.unjudged == ()
    assert verdicts(report)["TS-PAR-001"] is Verdict.PASS


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 7])
@pytest.mark.parametrize("name", TEXTS)
def test_no_mistake_in_a_key_or_a_value_makes_another_finding(name: str, every: int) -> None:
    """A misspelt key and a wrong value are told as such; nothing else is found because of them."""
    lines = TEXTS[name].splitlines(keepends=True)
    places = [
        (i, found)
        for i, line in enumerate(lines)
        for found in _PAIR.finditer(line.split("#")[0])
        if found[1] not in _HEAD
    ]
    for number, found in places[::every]:
        line = lines[number]
        changes = [line[: found.end(1)] + "x" + line[found.end(1) :]]
        if found[1] != "version" and _NUMBER.fullmatch(found[2].strip()):  # any word is a version
            changes.append(line[: found.start(2)] + "wrong" + line[found.end(2) :])
        for changed in changes:
            Path(f"{name}.yaml").write_text("".join([*lines[:number], changed, *lines[number + 1 :]]), encoding="utf-8")
            report = validate(["."])
            assert report.findings, changed
            assert {finding.requirement for finding in report.findings} <= _FORM, changed
            assert not any("come first" in entry.reason for entry in report.unjudged), changed
    Path(f"{name}.yaml").write_text(TEXTS[name], encoding="utf-8")


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 4])
@pytest.mark.parametrize("name", TEXTS)
def test_every_key_of_a_document_can_be_unknown(name: str, every: int) -> None:
    """No rule and no step of the pipeline fails on a document without any one of its keys."""
    lines = TEXTS[name].splitlines(keepends=True)
    for number, line in list(enumerate(lines))[::every]:
        if not line.strip() or line.lstrip().startswith(("#", "-")) or line.rstrip().endswith(":"):
            continue
        Path(f"{name}.yaml").write_text("".join(lines[:number] + lines[number + 1 :]), encoding="utf-8")
        report = validate([f"{name}.yaml", *(f"{other}.yaml" for other in TEXTS if other != name)])
        given = verdicts(report)
        for entry in report.unjudged:
            assert all(given[requirement] is not Verdict.NOT_APPLICABLE for requirement in entry.requirements)


@pytest.mark.parametrize(
    "use",
    [
        bool, hash, str, len, iter, int, float, math.floor, lambda x: x == 1, lambda x: x > 1, lambda x: 1 + x,
        lambda x: x * 2, lambda x: f"{x:.1f}", lambda x: x in {1, 2}, lambda x: isinstance(x, int),
        lambda x: x.name, lambda x: [1][x], {1: 1}.get, lambda x: max(1, x), operator.not_,
    ],
)  # fmt: skip
def test_nothing_can_be_done_with_an_unknown(use: Any) -> None:
    with pytest.raises(UnknownValueError, match=r"a\.yaml does not give b\.0"):
        use(Unknown("a.yaml", ("b", 0)))


def test_a_whole_document_is_read_alike() -> None:
    for name, text in TEXTS.items():
        data = load_text(text, name).data
        assert read_partial(KINDS[KIND[name]], data, name) == read(KIND[name], data)


def test_the_same_lack_of_many_entries_is_one_finding() -> None:
    data = load_text(TEXTS["cluster"], "cluster.yaml").data
    [group] = data["node_groups"]
    del group["num_nodes"]
    for number, expected in ((MAX_ALIKE, MAX_ALIKE), (MAX_ALIKE + 1, 1), (206, 1)):
        found = list(failures("ClusterProfile", {**data, "node_groups": [dict(group) for _ in range(number)]}))
        assert len(found) == expected
    assert "lacks the key 'num_nodes'; 205 more entries lack the same" in found[0].message


# --- import --check -----------------------------------------------------------------------------------------


def checked(text: str, name: str) -> tuple[int, str]:
    Path(name).write_text(text, encoding="utf-8")
    result = CliRunner().invoke(command, ["import", name, "--output", "made.yaml", "--force", "--check"])
    return result.exit_code, result.stderr


def test_unknowns_are_no_findings_of_an_import() -> None:
    code, told = checked("NodeName=n[1-4] Gres=gpu:h100:8 CPUs=64\n", "slurm.conf")
    if "made.yaml" in told:
        assert "TS-DOC-006" not in told
        assert "unknown, and needed by the document" in told or code == 0


def test_a_key_that_is_known_to_be_unknown_has_no_default() -> None:
    data = load_text(TEXTS["plan"], "plan.yaml").data
    places = [("parallelism", "context"), ("precision", "loss_scaling", "mode"), ("precision", "accumulation")]
    plan = read_partial(KINDS["TrainingPlan"], data, "plan.yaml", [*places, ("cluster",)])
    whole = read("TrainingPlan", data)
    assert plan.parallelism == whole.parallelism
    assert plan.cluster == whole.cluster
    assert plan.precision.accumulation == whole.precision.accumulation
    with pytest.raises(UnknownValueError, match=r"does not give precision\.loss_scaling"):
        bool(plan.precision.loss_scaling)


# --- unknowns -----------------------------------------------------------------------------------------------


def test_a_listed_key_has_no_default_in_a_later_check() -> None:
    change("plan.yaml", "  context: 1\n", "")
    before = validate(["."])
    assert verdicts(before)["TS-PAR-001"] is Verdict.PASS
    change("plan.yaml", "batch:\n", "unknowns: [parallelism.context]\nbatch:\n")
    report = validate(["."])
    assert report.findings == ()
    [entry] = report.unjudged
    assert entry.reason == "lists parallelism.context as unknown"
    assert "TS-PAR-001" in entry.requirements
    changed = {name for name, verdict in verdicts(report).items() if verdict is not verdicts(before)[name]}
    assert changed == set(entry.requirements)
    assert {d.path: d.kind for d in report.documents}["plan.yaml"] == "TrainingPlan"


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("parallelism.context", "is listed as unknown, and the document gives it"),
        ("parallelism.contxt", "is no key of a TrainingPlan"),
        ("kernels.0.operation", "is listed as unknown, and the document gives it"),
        ("kernels.operation", "is no key of a TrainingPlan"),
    ],
)
def test_a_listed_key_is_one_that_is_absent(entry: str, told: str) -> None:
    change("plan.yaml", "batch:\n", f"unknowns: [{entry}]\nbatch:\n")
    report = validate(["."])
    assert [(f.requirement, f.message) for f in report.findings] == [("TS-DOC-021", f"{entry!r} {told}")]
    assert report.unjudged == ()
    assert validate(["."], Selection(select=("TS-PAR",))).findings == ()


def test_a_refused_value_is_not_called_absent() -> None:
    change("plan.yaml", "  attention: grouped-query", "  attention: multi-head")
    report = validate(["."])
    assert [finding.requirement for finding in report.findings] == ["TS-DOC-008"]
    [entry] = report.unjudged
    assert entry.reason == "gives model.attention a value that is not known"
    assert "TS-PAR-015" in entry.requirements


def test_a_list_of_unknowns_with_mistakes_is_told() -> None:
    change("plan.yaml", "batch:\n", "unknowns: [Parallelism!, 3, batch.ramp]\nbatch:\n")
    report = validate(["."])
    assert [f.pointer for f in report.findings] == [("unknowns", 0), ("unknowns", 1)]
    assert [entry.reason for entry in report.unjudged] == ["lists batch.ramp as unknown"]


SCRIPT = """\
#!/bin/bash
if [ "$LONG" = 1 ]; then CP=4; else CP=2; fi
torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\
  --context-parallel-size $CP --micro-batch-size 1 --global-batch-size 64 --bf16 --train-iters 100
"""


def test_an_imported_document_that_is_validated_later_takes_no_default_for_what_is_unknown() -> None:
    code, told = checked(SCRIPT, "train.sh")
    assert (code, "no findings" in told) == (0, True)
    report = validate(["made.yaml"])
    assert {finding.requirement for finding in report.findings} == {"TS-DOC-006"}
    reasons = {entry.reason: entry.requirements for entry in report.unjudged}
    [lacks] = [reason for reason in reasons if "parallelism.context" in reason]
    assert "TS-PAR-001" in reasons[lacks]
    listed = load_text(Path("made.yaml").read_text(encoding="utf-8"), "made.yaml").data["unknowns"]
    assert {"parallelism.context", "model.sequence_length"} <= set(listed)


def test_a_shape_that_no_file_tells_is_no_finding_of_an_import() -> None:
    code, told = checked(SCRIPT.replace("--num-attention-heads 32 ", ""), "train.sh")
    assert (code, "TS-PAR-013" in told) == (0, False)


TABLES = {
    "history.csv": ("_step,_timestamp,train/global_step,train/loss", "{0},17000000{0:02d},{0},2.{1}"),
    "metrics.csv": ("epoch,step,trainer/global_step,train_loss", "0,{0},{0},2.{1}"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_converted_table_requires_no_metric_that_the_table_does_not(name: str) -> None:
    header, row = TABLES[name]
    Path(name).write_text(
        "\n".join([header, *(row.format(step, 99 - step) for step in range(50)), ""]), encoding="utf-8"
    )
    result = CliRunner().invoke(command, ["import", name, "--output", "made.jsonl", "--check"])
    assert (result.exit_code, "error[" in result.stderr, "warning[" in result.stderr) == (0, False, False)


@pytest.mark.parametrize("name", ["made.yaml", "made.yml", "made.json", "made.jsonl"])
def test_the_stream_of_a_log_is_judged_as_one_under_every_name(name: str) -> None:
    line = ':::MLLOG {"key": "tracked_stats", "time_ms": 5, "value": {"train_loss": 1}, "metadata": {"step": 5}}\n'
    Path("run.log").write_text(line, encoding="utf-8")
    result = CliRunner().invoke(command, ["import", "run.log", "--output", name, "--check"])
    assert "TS-DOC" not in result.stderr
    assert "TS-TEL-" in result.stderr
    assert [d.kind for d in validate([name]).documents] == ["MetricStream"]


def test_a_name_that_a_finding_would_hand_on_untouched_is_not_judged(tmp_path: Path) -> None:
    broken = (Path(__file__).parents[1] / "examples" / "broken" / "cluster.yaml").read_text(encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(
        broken.replace("- name: second-delivery", "- nmae: second-delivery"), "utf-8"
    )
    for style in ("sarif", "json", "full"):
        result = CliRunner().invoke(gate, [str(tmp_path), "--format", style])
        assert result.exit_code == 1, result.output
        assert "TS-CLU-001" in result.stdout


def _absent(model: type[Any], value: dict[str, Any], place: tuple[str, ...] = ()) -> Iterator[str]:
    """The optional keys of a document that it does not give."""
    hints = get_type_hints(model)
    for name in model.__struct_fields__:
        parts = [part for part in get_args(hints[name]) or (hints[name],) if hasattr(part, "__struct_fields__")]
        given = value.get(name)
        if given is None and name not in {"unknowns", "metadata", "extensions"}:
            yield ".".join((*place, name))
        elif isinstance(given, dict) and len(parts) == 1:
            yield from _absent(parts[0], given, (*place, name))


HOLDS = {
    "scaling": ("  reduction: fp32\n", "  reduction: fp32\n  loss_scaling: {mode: static, initial_scale: 1024}\n"),
    "rate": ("memory:\n", "optimizer: {name: adamw, learning_rate: {kind: constant, peak: 1.0e-4}}\nmemory:\n"),
}
"""Groups of a plan that the base has not, with a setting beside which other keys would be wrong."""


@pytest.mark.parametrize("name", [*TEXTS, *HOLDS])
def test_a_key_that_is_listed_as_unknown_never_counts_as_given(name: str) -> None:
    path = f"{name if name in TEXTS else 'plan'}.yaml"
    text = Path(path).read_text(encoding="utf-8")
    if name in HOLDS:
        text = text.replace(*HOLDS[name])
        assert HOLDS[name][1] in text
    Path(path).write_text(text, encoding="utf-8")
    before = {(f.requirement, f.pointer) for f in validate(["."]).findings}
    data = load_text(text, path).data
    wrong = []
    part = {"scaling": "precision.loss_scaling", "rate": "optimizer"}.get(name, "")
    for key in (key for key in _absent(KINDS[data["kind"]], data) if key.startswith(part)):
        Path(path).write_text(f"{text}unknowns: [{key}]\n", encoding="utf-8")
        found = {(f.requirement, f.pointer) for f in validate(["."]).findings}
        wrong += [(key, *each) for each in found - before]
    assert wrong == []
