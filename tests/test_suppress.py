"""Comments, waivers and baselines: what they silence, and what is said about those that are wrong or idle."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from tests.torch_saves import saved
from trainspec_validate.checking.selection import NOT_READ
from trainspec_validate.checking.suppress import NEVER_SILENCED
from trainspec_validate.checking.suppress.baseline import Baseline
from trainspec_validate.model.finding import Report, SuppressionKind
from trainspec_validate.pipeline.reading import KIND_UNKNOWN, LOAD_REQUIREMENTS, SYNTAX
from trainspec_validate.pipeline.validation import Selection, validate
from trainspec_validate.system.boundary import InputError

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
GOOD = (BASE / "plan.yaml").read_text(encoding="utf-8")
BAD_NAME = "example plan"
BAD = GOOD.replace("name: example-plan", f"name: {BAD_NAME}")
FORM = Selection(select=("TS-DOC",), ignore=("TS-DOC-011",))
"""Requirements on a document by itself; the cluster of these plans is nowhere."""
TODAY = date(2026, 3, 1)


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(name: str, content: Any) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def judge(*paths: str, selection: Selection = FORM, **options: Any) -> Report:
    return validate(paths, selection, today=TODAY, **options)


def told(report: Report) -> list[tuple[str, int]]:
    return [(finding.requirement, finding.span.line if finding.span else 0) for finding in report.findings]


def named(comment: str, above: str = "", before: str = "") -> str:
    """The plan with a bad name on line 5, a comment behind it, and lines above it."""
    lines = BAD.splitlines()
    at = next(number for number, line in enumerate(lines) if BAD_NAME in line)
    lines[at] = f"{lines[at]}{comment}"
    return "\n".join([*([before] if before else []), *lines[:at], *([above] if above else []), *lines[at:]]) + "\n"


# --- comments -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        named("  # trainspec: ignore[TS-DOC-010] the scheduler needs it"),
        named("  # trainspec: ignore[text-form] the scheduler needs it"),
        named("  # trainspec:ignore[TS-DOC-010]: the scheduler needs it"),
        named("  # trainspec: ignore[ts-doc-010 ,TS-DOC-005 , ] both of them"),
        named("  # the old name  # trainspec: ignore[TS-DOC-010] the scheduler needs it"),
        named("", above="  # trainspec: ignore[TS-DOC-010] the scheduler needs it"),
        named("", above="# trainspec: ignore[TS-DOC-010] one\n  # a remark in between\n"),
        named("", before="# trainspec: ignore-file[TS-DOC-010] the scheduler needs it"),
        named("", before="---\n# trainspec: ignore-file[TS-DOC-010] the scheduler needs it"),
    ],
)
def test_a_comment_silences(text: str) -> None:
    write("plan.yaml", text)
    report = judge("plan.yaml", selection=Selection(select=("TS-DOC",), ignore=("TS-DOC-016",)))
    assert told(report) == []
    assert [entry.kind for entry in report.suppressed] == [SuppressionKind.INLINE]
    assert report.suppressed[0].reason


@pytest.mark.parametrize("name", ["TS-PAR-006", "dimension-order", "axis-order"])
def test_a_comment_with_a_former_name_silences(name: str) -> None:
    order = next(line for line in GOOD.splitlines() if line.strip().startswith("order:"))
    wrong = f"{order[: order.index(':')]}: [data, data]  # trainspec: ignore[{name}] the launcher writes it so"
    write("plan.yaml", GOOD.replace(order, wrong))
    report = judge("plan.yaml", selection=Selection(select=("TS-PAR-006",)))
    assert told(report) == []
    assert {entry.finding.requirement for entry in report.suppressed} == {"TS-PAR-006"}


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        (named("  # trainspec: ignore[TS-DOC-010]"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore[TS-DOC-010] -- "), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore[TS-DOC-010]  # noqa"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore[] because"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore because"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ingore[TS-DOC-010] because"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore-file[TS-DOC-010] because"), ["TS-DOC-010", "TS-DOC-014"]),
        (named("  # trainspec: ignore[TS-DOC-999] because"), ["TS-DOC-010", "TS-DOC-015"]),
        (named("  # trainspec: ignore[TS-DOC] because"), ["TS-DOC-010", "TS-DOC-015"]),
        (named("  # trainspec: ignore[TS-DOC-016] because"), ["TS-DOC-010", "TS-DOC-015"]),
        (named("  # trainspec: ignore[TS-DOC-001] because"), ["TS-DOC-010", "TS-DOC-015"]),
        (named("  # trainspec: ignore[TS-DOC-009] because"), ["TS-DOC-010", "TS-DOC-016"]),
        (named("  # trainspec: ignore[TS-DOC-010,TS-DOC-999] because"), ["TS-DOC-015"]),
    ],
)
def test_a_wrong_comment_is_told_on_its_line(text: str, requirements: list[str]) -> None:
    write("plan.yaml", text)
    assert told(judge("plan.yaml")) == [(requirement, 5) for requirement in requirements]


def test_a_comment_reaches_one_line_only() -> None:
    write("plan.yaml", named("", before="# trainspec: ignore[TS-DOC-010] the wrong place"))
    assert [requirement for requirement, _ in told(judge("plan.yaml"))] == ["TS-DOC-016", "TS-DOC-010"]


def test_a_comment_inside_a_text_is_text() -> None:
    text = GOOD.replace("name: example-plan", 'name: example-plan\n  description: "# trainspec: ignore[X] y"')
    write("plan.yaml", text)
    assert told(judge("plan.yaml")) == []


def test_idle_is_said_only_of_what_was_judged() -> None:
    write(
        "plan.yaml",
        GOOD.replace("name: example-plan", "name: example-plan  # trainspec: ignore[text-form] old"),
    )
    assert told(judge("plan.yaml")) == [("TS-DOC-016", 5)]
    assert told(judge("plan.yaml", selection=Selection(select=("TS-DOC-016", "TS-DOC-009")))) == []
    alone = GOOD.replace("name: example-plan", "name: example-plan  # trainspec: ignore[references-resolve] later")
    write("plan.yaml", alone)
    assert told(judge("plan.yaml")) == [], "references are judged beside other documents only"


def test_a_second_comment_for_one_finding_is_idle() -> None:
    write("plan.yaml", named("  # trainspec: ignore[text-form] a", above="  # trainspec: ignore[text-form] b"))
    assert told(judge("plan.yaml")) == [("TS-DOC-016", 6)]


def test_help_of_an_unknown_name() -> None:
    write("plan.yaml", named("  # trainspec: ignore[text-from] because"))
    helps = {finding.requirement: finding.help for finding in judge("plan.yaml").findings}
    assert helps["TS-DOC-015"] == "did you mean 'text-form'?"


def test_silencers_are_never_silenced(tmp_path: Path) -> None:
    assert {f"TS-DOC-{number:03}" for number in (14, 15, 16, 17)} == NEVER_SILENCED
    waivers(*({"requirement": identifier} for identifier in sorted(NEVER_SILENCED)))
    write("plan.yaml", named("  # trainspec: ignore[TS-DOC-010]"))
    report = judge("plan.yaml", waivers="waivers.yaml")
    assert {requirement for requirement, _ in told(report)} == {"TS-DOC-010", "TS-DOC-014", "TS-DOC-015"}


# --- waivers ------------------------------------------------------------------------------------------------


def waivers(*entries: dict[str, Any], name: str = "waivers.yaml") -> Path:
    default = {
        "requirement": "TS-DOC-010",
        "file": "plan.yaml",
        "reason": "the scheduler needs it",
        "owner": "platform-team",
        "expires": "2026-03-31",
    }
    merged = [{k: v for k, v in {**default, **entry}.items() if v is not None} for entry in entries]
    return write(name, {"apiVersion": "trainspec/v1", "kind": "Waivers", "waivers": merged})


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"requirement": "text-form"},
        {"file": "*.yaml"},
        {"file": "./plan.yaml"},
        {"file": "**/plan.yaml"},
        {"file": "pl[a-c]n.y?ml"},
        {"pointer": "/metadata/name"},
        {"pointer": "metadata.name"},
        {"pointer": "metadata"},
        {"expires": "2026-03-01"},
        {"link": "https://example.org/ticket/7"},
    ],
)
def test_a_waiver_silences(entry: dict[str, Any]) -> None:
    write("plan.yaml", BAD)
    waivers(entry)
    report = judge("plan.yaml", waivers="waivers.yaml")
    assert told(report) == []
    assert [item.kind for item in report.suppressed] == [SuppressionKind.WAIVER]
    assert "platform-team" in report.suppressed[0].reason


@pytest.mark.parametrize(
    ("entry", "requirement", "pointer"),
    [
        ({"expires": "2026-02-28"}, "TS-DOC-017", ("waivers", 0, "expires")),
        ({"expires": "2026-02-30"}, "TS-DOC-017", ("waivers", 0, "expires")),
        ({"expires": "soon"}, "TS-DOC-017", ("waivers", 0, "expires")),
        ({"expires": None}, "TS-DOC-017", ("waivers", 0)),
        ({"owner": None}, "TS-DOC-017", ("waivers", 0)),
        ({"owner": ""}, "TS-DOC-017", ("waivers", 0, "owner")),
        ({"reason": None}, "TS-DOC-017", ("waivers", 0)),
        ({"requirement": "TS-DOC-999"}, "TS-DOC-015", ("waivers", 0, "requirement")),
        ({"requirement": "TS-DOC-009"}, "TS-DOC-016", ("waivers", 0, "requirement")),
        ({"file": "gone.yaml"}, "TS-DOC-016", ("waivers", 0, "file")),
        ({"file": "sub/*.yaml"}, "TS-DOC-016", ("waivers", 0, "file")),
        ({"pointer": "/model"}, "TS-DOC-016", ("waivers", 0, "requirement")),
        ({"pointer": "meta"}, "TS-DOC-016", ("waivers", 0, "requirement")),
        ({"ownr": "x"}, "TS-DOC-005", ("waivers", 0, "ownr")),
        ({"file": None}, "TS-DOC-006", ("waivers", 0)),
    ],
)
def test_a_wrong_waiver_is_told_and_silences_nothing(
    entry: dict[str, Any], requirement: str, pointer: tuple[str | int, ...]
) -> None:
    write("plan.yaml", BAD)
    waivers(entry)
    report = judge("plan.yaml", waivers="waivers.yaml")
    about = [finding for finding in report.findings if finding.path == "waivers.yaml"]
    assert [(finding.requirement, finding.pointer) for finding in about] == [(requirement, pointer)]
    assert about[0].help
    assert about[0].span is not None
    assert [finding.requirement for finding in report.findings if finding.path == "plan.yaml"] == ["TS-DOC-010"]


def test_one_broken_waiver_spoils_no_other() -> None:
    write("plan.yaml", BAD)
    waivers({"owner": None}, {})
    report = judge("plan.yaml", waivers="waivers.yaml")
    assert [finding.requirement for finding in report.findings] == ["TS-DOC-017"]
    assert len(report.suppressed) == 1


def test_patterns_are_relative_to_the_waiver_file() -> None:
    write("runs/a/plan.yaml", BAD)
    waivers({"file": "a/*.yaml"}, name="runs/waivers.yaml")
    assert told(judge("runs/a/plan.yaml", waivers="runs/waivers.yaml")) == []
    waivers({"file": "../runs/a/plan.yaml"}, name="other/waivers.yaml")
    assert told(judge("runs/a/plan.yaml", waivers="other/waivers.yaml")) == []
    waivers({"file": "runs/*.yaml"}, name="waivers.yaml")
    assert ("TS-DOC-010", 5) in told(judge("runs/a/plan.yaml", waivers="waivers.yaml"))


def test_a_waiver_of_a_file_out_of_sight_is_not_idle() -> None:
    write("plan.yaml", BAD)
    write("other.yaml", GOOD)
    waivers({})
    assert told(judge("other.yaml", waivers="waivers.yaml")) == []


def test_a_waiver_file_in_a_directory_is_judged_but_acts_only_when_named() -> None:
    write("plan.yaml", BAD)
    waivers({})
    assert told(judge(".")) == [("TS-DOC-010", 5)]
    assert told(judge(".", waivers="waivers.yaml")) == []
    write("waivers.yaml", "apiVersion: trainspec/v1\nkind: Waivers\nwaiver: []\n")
    assert {requirement for requirement, _ in told(judge("."))} == {"TS-DOC-005", "TS-DOC-010"}


def test_a_waiver_file_in_yaml_says_where() -> None:
    write("plan.yaml", BAD)
    text = (
        "apiVersion: trainspec/v1\nkind: Waivers\nwaivers:\n  - requirement: text-form\n    file: plan.yaml\n"
        "    reason: old\n    owner: me\n    expires: 2020-01-31\n"
    )
    write("waivers.yaml", text)
    assert ("TS-DOC-017", 8) in told(judge("plan.yaml", waivers="waivers.yaml"))


@pytest.mark.parametrize("text", ["a: [", "apiVersion: trainspec/v1\nkind: Waivrs\n"])
def test_a_waiver_file_that_cannot_be_read_is_a_finding(text: str) -> None:
    write("plan.yaml", BAD)
    write("waivers.yaml", text)
    report = judge("plan.yaml", waivers="waivers.yaml")
    assert {"plan.yaml", "waivers.yaml"} == {finding.path for finding in report.findings}


# --- baseline -----------------------------------------------------------------------------------------------


def record(*paths: str, name: str = "baseline.json") -> Report:
    baseline = Baseline(name, "write")
    report = judge(*paths, baseline=baseline)
    baseline.write()
    return report


def test_a_baseline_silences_what_it_recorded_wherever_lines_move() -> None:
    write("plan.yaml", BAD)
    assert told(record("plan.yaml")) == []
    data = json.loads(Path("baseline.json").read_text())
    assert data == {
        "format_version": "1",
        "findings": [{"file": "plan.yaml", "requirement": "TS-DOC-010", "pointer": "/metadata/name", "count": 1}],
    }
    write("plan.yaml", f"# one more line\n{BAD}")
    report = judge("plan.yaml", baseline="baseline.json")
    assert told(report) == []
    assert [entry.kind for entry in report.suppressed] == [SuppressionKind.BASELINE]


def test_new_findings_are_told() -> None:
    write("plan.yaml", BAD)
    record("plan.yaml")
    write("plan.yaml", BAD.replace("  data: 4", "  dtaa: 4"))
    assert [requirement for requirement, _ in told(judge("plan.yaml", baseline="baseline.json"))] == ["TS-DOC-005"]


def test_what_no_longer_occurs_is_told_then_pruned() -> None:
    write("plan.yaml", BAD)
    record("plan.yaml")
    write("plan.yaml", GOOD)
    report = judge("plan.yaml", baseline="baseline.json")
    assert [(f.requirement, f.path, f.severity) for f in report.findings] == [
        ("TS-DOC-016", "baseline.json", "warning")
    ]
    assert report.findings[0].span is not None
    assert "--prune-baseline" in report.findings[0].help
    baseline = Baseline("baseline.json", "prune")
    assert told(judge("plan.yaml", baseline=baseline)) == []
    assert baseline.write() == 0
    assert told(judge("plan.yaml", baseline="baseline.json")) == []


def test_pruning_records_nothing_new() -> None:
    write("plan.yaml", BAD)
    record("plan.yaml")
    write("plan.yaml", BAD.replace("  data: 4", "  dtaa: 4"))
    baseline = Baseline("baseline.json", "prune")
    assert [requirement for requirement, _ in told(judge("plan.yaml", baseline=baseline))] == ["TS-DOC-005"]
    assert baseline.write() == 1


def test_a_partial_run_keeps_what_it_did_not_see() -> None:
    write("a/plan.yaml", BAD)
    write("b/plan.yaml", BAD)
    record("a", "b")
    write("a/plan.yaml", GOOD)
    assert [f.path for f in judge("a", baseline="baseline.json").findings] == ["baseline.json"]
    record("a")
    files = [entry["file"] for entry in json.loads(Path("baseline.json").read_text())["findings"]]
    assert files == ["b/plan.yaml"]
    Path("b/plan.yaml").unlink()
    assert [f.requirement for f in judge("a", baseline="baseline.json").findings] == ["TS-DOC-016"]


def test_counts_are_kept() -> None:
    nested = GOOD.replace("  data: 4", "  data: 0").replace("  tensor: 8", "  tensor: 0")
    write("plan.yaml", nested)
    record("plan.yaml")
    entries = json.loads(Path("baseline.json").read_text())["findings"]
    assert [(entry["pointer"], entry["count"]) for entry in entries] == [
        ("/parallelism/data", 1),
        ("/parallelism/tensor", 1),
    ]


def test_silencers_findings_are_never_recorded() -> None:
    write("plan.yaml", named("  # trainspec: ignore[TS-DOC-010]"))
    report = record("plan.yaml")
    assert [requirement for requirement, _ in told(report)] == ["TS-DOC-014"]
    assert "TS-DOC-014" not in Path("baseline.json").read_text()


def test_an_unknown_requirement_in_a_baseline_is_told() -> None:
    write("plan.yaml", GOOD)
    entry = {"file": "plan.yaml", "requirement": "TS-DOC-999", "pointer": "", "count": 1}
    write("baseline.json", {"format_version": "1", "findings": [entry]})
    assert [requirement for requirement, _ in told(judge("plan.yaml", baseline="baseline.json"))] == ["TS-DOC-015"]


@pytest.mark.parametrize("spelling", ["tS-DOC-010", "ts-doc-010", "text-form"])
def test_a_baseline_takes_each_spelling_that_names_a_requirement(spelling: str) -> None:
    """As waivers and comments do, where it silences and where it is idle."""
    write("plan.yaml", BAD)
    entry = {"file": "plan.yaml", "requirement": spelling, "pointer": "/metadata/name", "count": 1}
    write("baseline.json", {"format_version": "1", "findings": [entry]})
    assert told(judge("plan.yaml", baseline="baseline.json")) == []
    write("plan.yaml", GOOD)
    assert [f.requirement for f in judge("plan.yaml", baseline="baseline.json").findings] == ["TS-DOC-016"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        {"format_version": "2", "findings": []},
        {"format_version": "1"},
        {"format_version": "1", "findings": [{"file": "a"}]},
        {"format_version": "1", "findings": [{"file": "a", "requirement": "b", "pointer": "c", "count": 0}]},
        {"format_version": "1", "findings": [{"file": "a", "requirement": "b", "pointer": 3, "count": 1}]},
        {"format_version": "1", "findings": ["a"]},
    ],
)
def test_what_is_no_baseline_is_refused(content: Any) -> None:
    write("plan.yaml", GOOD)
    write("baseline.json", content)
    with pytest.raises(InputError, match=r"baseline\.json: .*--write-baseline"):
        judge("plan.yaml", baseline="baseline.json")


def test_order_comment_waiver_baseline() -> None:
    write("plan.yaml", BAD)
    record("plan.yaml")
    waivers({})
    report = judge("plan.yaml", baseline="baseline.json", waivers="waivers.yaml")
    assert [entry.kind for entry in report.suppressed] == [SuppressionKind.WAIVER]
    assert [finding.requirement for finding in report.findings] == ["TS-DOC-016"], "the baseline is idle now"


@pytest.mark.parametrize("file", ["[z-a].yaml", "[!].yaml", "[a--b]", "[c^]*", "*-*-*-*-*-x.yaml", "**/a/" * 6 + "b"])
def test_a_strange_pattern_of_a_waiver_is_idle(file: str) -> None:
    name = "a" + "-" * 239 + ".yaml"
    write(name, BAD)
    waivers({"file": file})
    assert told(judge(name, waivers="waivers.yaml"))[0] == ("TS-DOC-010", 5)


@pytest.mark.parametrize(
    ("entry", "key"),
    [
        ({"reason": " "}, "reason"),
        ({"reason": "..."}, "reason"),
        ({"owner": "\u200b"}, "owner"),
        ({"owner": "\u3164"}, "owner"),
    ],
)
def test_a_waiver_that_says_nothing_silences_nothing(entry: dict[str, Any], key: str) -> None:
    write("plan.yaml", BAD)
    waivers(entry)
    report = judge("plan.yaml", waivers="waivers.yaml")
    [finding] = [finding for finding in report.findings if finding.path == "waivers.yaml"]
    assert (finding.requirement, finding.pointer) == ("TS-DOC-017", ("waivers", 0, key))
    assert not report.suppressed


# --- what was not read --------------------------------------------------------------------------------------

NOT_DOCUMENTS = {
    "TS-DOC-001": "a: [",
    "TS-DOC-002": "a: 1\na: 2\n",
    "TS-DOC-003": "a: " + "[" * 70 + "]" * 70,
    "TS-DOC-004": "apiVersion: trainspec/v1\nkind: Plan\n",
}


PICKLE = b"\x80\x02}q\x00."


def test_what_reports_an_unread_file_is_known() -> None:
    """Every failure to read a document, and what the readers of checkpoints report for files that they do not read."""
    assert {*LOAD_REQUIREMENTS.values(), SYNTAX, KIND_UNKNOWN} == set(NOT_DOCUMENTS)
    assert set(NOT_DOCUMENTS) | {"TS-CKP-083", "TS-SEC-003"} == NOT_READ


@pytest.mark.parametrize(("requirement", "text"), NOT_DOCUMENTS.items())
def test_a_file_that_was_not_judged_is_in_no_baseline(requirement: str, text: str) -> None:
    write("plan.yaml", text)
    assert {name for name, _ in told(record("plan.yaml"))} == {requirement}
    assert json.loads(Path("baseline.json").read_text())["findings"] == []
    entry = {"file": "plan.yaml", "requirement": requirement, "pointer": "", "count": 1}
    write("baseline.json", {"format_version": "1", "findings": [entry]})
    report = judge("plan.yaml", baseline="baseline.json")
    assert {finding.requirement for finding in report.findings} == {requirement, "TS-DOC-015"}
    assert not report.suppressed
    record("plan.yaml")
    assert json.loads(Path("baseline.json").read_text())["findings"] == [], "a written one drops the entry"


def test_a_comment_cannot_make_a_document_of_what_is_none() -> None:
    write("plan.yaml", f"# trainspec: ignore-file[TS-DOC-004] known\n{NOT_DOCUMENTS['TS-DOC-004']}")
    report = judge("plan.yaml")
    assert {finding.requirement for finding in report.findings} == {"TS-DOC-004", "TS-DOC-015"}
    assert not report.suppressed


@pytest.mark.parametrize(("requirement", "text"), NOT_DOCUMENTS.items())
@pytest.mark.parametrize("ignore", ["{}", "TS-DOC"])
def test_a_file_that_was_not_judged_cannot_be_ignored(ignore: str, requirement: str, text: str) -> None:
    write("plan.yaml", text)
    report = judge("plan.yaml", selection=Selection(ignore=(ignore.format(requirement),)))
    assert [finding.requirement for finding in report.findings] == [requirement]
    assert not any(requirement in entry.requirements for entry in report.left_out)


@pytest.mark.parametrize(
    "selection", [Selection(select=("TS-SEC-001",)), Selection(ignore=("TS-CKP",)), Selection(ignore=("TS-CKP-083",))]
)
def test_a_file_of_a_checkpoint_that_was_not_read_is_an_error(selection: Selection) -> None:
    """No pickle passes the search for code because nothing could read it."""
    write("run/optimizer.pt", "no pickle")
    Path("run", "scheduler.pt").write_bytes(saved(PICKLE))
    report = judge("run", selection=selection)
    assert [finding.requirement for finding in report.findings if finding.severity == "error"] == ["TS-CKP-083"]


def test_what_was_read_is_in_no_list_that_it_was_not_selected_for() -> None:
    Path("run").mkdir()
    Path("run", "scheduler.pt").write_bytes(saved(PICKLE))
    report = judge("run", selection=Selection(select=("TS-SEC-001",)))
    assert [outcome.requirement for outcome in report.outcomes] == ["TS-SEC-001"]


@pytest.mark.parametrize(("requirement", "text"), NOT_DOCUMENTS.items())
def test_a_file_that_was_not_judged_cannot_be_waived(requirement: str, text: str) -> None:
    write("plan.yaml", text)
    waivers({"requirement": requirement})
    report = judge("plan.yaml", waivers="waivers.yaml")
    assert {finding.requirement for finding in report.findings} == {requirement, "TS-DOC-015"}
    assert not report.suppressed


@pytest.mark.parametrize("is_absolute", [True, False])
def test_a_waiver_whose_path_is_written_in_a_way_that_fits_no_file_is_told(*, is_absolute: bool) -> None:
    write("plan.yaml", BAD)
    here = Path.cwd()
    waivers({"file": (here / "plan.yaml").as_posix() if is_absolute else f"../{here.name}/plan.yaml"})
    report = judge("plan.yaml", waivers="waivers.yaml")
    [about] = [finding for finding in report.findings if finding.path == "waivers.yaml"]
    assert about.requirement == "TS-DOC-016"
    assert about.help == "write plan.yaml, or remove the waiver"
