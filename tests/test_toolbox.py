"""The commands of trainspec: what they print, and that what they write is valid."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import product
from operator import attrgetter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.every import every
from trainspec_validate.cli import terminal
from trainspec_validate.cli.toolbox import COMMANDS, PROGRAM, command
from trainspec_validate.documents.commented import figure
from trainspec_validate.documents.types import KINDS, SIDE_KINDS
from trainspec_validate.model.catalog import CatalogAccelerator, accelerators, links
from trainspec_validate.model.finding import Severity
from trainspec_validate.model.requirements import load_index
from trainspec_validate.pipeline import coverage
from trainspec_validate.pipeline.coverage import Hole
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.planner.starter import FILES, OTHER, documents, missing_figures
from trainspec_validate.planner.starter.cluster import torus
from trainspec_validate.planner.starter.machines import assumed, build_of

ROOT = Path(__file__).resolve().parents[1]
INDEX = load_index()


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM)


# --- the group ----------------------------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    stdout = invoke("--help").stdout
    assert not [name for name in COMMANDS if f"\n  {name} " not in stdout]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = invoke(name, "-h")
    assert result.exit_code == 0
    assert COMMANDS[name].split()[0] in result.stdout


def test_a_misspelt_command() -> None:
    result = invoke("explian", "TS-DOC-001")
    assert result.exit_code == 2
    assert "no command 'explian'; did you mean 'explain'?" in result.stderr


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("validate", "documents, streams and checkpoints are judged by trainspec-validate"),
        ("lint", "documents, streams and checkpoints are judged by trainspec-validate"),
        ("launch", "runs are recorded by trainspec-record"),
        ("conformance", "training stacks are tested by trainspec-conformance"),
    ],
)
def test_a_command_of_another_program_names_that_program(word: str, told: str) -> None:
    result = invoke(word, "x")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: no command '{word}'; {told}\n")


def test_version() -> None:
    assert "(specification " in invoke("--version").stdout


# --- explain ------------------------------------------------------------------------------------------------


@every("identifier", INDEX.by_id)
def test_every_requirement_is_explained(identifier: str) -> None:
    requirement = INDEX.by_id[identifier]
    stdout = invoke("explain", identifier).stdout
    flat = " ".join(stdout.split())
    assert stdout.startswith(f"{identifier}  {requirement.name}\n{requirement.title}\n")
    assert " ".join(requirement.statement.split()) in flat
    assert " ".join(requirement.why.split()) in flat
    assert INDEX.url(requirement) in stdout
    assert ("\nChecklist: " in stdout) == bool(requirement.checklist)
    assert stdout.count("\nBad, ") == len(requirement.bad)
    assert stdout.count("\nGood, ") == len(requirement.good)


def test_explain_takes_names_and_several() -> None:
    stdout = invoke("explain", "ts-doc-005", "text_form", "known-keys").stdout
    assert re.findall(r"^(TS-DOC-\d{3})  ", stdout, flags=re.MULTILINE) == ["TS-DOC-005", "TS-DOC-010"]


def test_explain_understands_a_former_name() -> None:
    result = invoke("explain", "axis_order")
    assert result.stdout.startswith("TS-PAR-006  dimension-order\n")
    assert "Before: axis-order" in result.stdout
    assert result.stderr == "Note: axis_order is now called dimension-order (TS-PAR-006)\n"


def test_explain_shows_the_ground_of_a_must() -> None:
    assert "\nMUST (error) · on the ground of arithmetic · profile core" in invoke("explain", "world-size").stdout
    assert "ground" not in invoke("explain", "TS-CKP-042").stdout


def test_explain_as_json() -> None:
    data = json.loads(invoke("explain", "TS-DOC-005", "--format", "json").stdout)
    assert [entry["id"] for entry in data] == ["TS-DOC-005"]
    assert {"statement", "why", "bad", "good", "url", "severity", "area"} <= data[0].keys()


@pytest.mark.parametrize(
    ("word", "told"),
    [("TS-DOC-0005", "did you mean"), ("knwon-keys", "'known-keys'"), ("zzz", "`trainspec rules`")],
)
def test_explain_of_nothing(word: str, told: str) -> None:
    result = invoke("explain", word)
    assert result.exit_code == 2
    assert told in result.stderr


def test_explain_needs_no_rules_and_no_network() -> None:
    code = (
        "import sys; from trainspec_validate.cli import toolbox, terminal;"
        "terminal.run(toolbox.command, 'trainspec', ['explain', 'TS-DOC-001']);"
        "sys.exit(', '.join({'msgspec', 'yaml', 'jsonschema_rs', 'rich', 'trainspec_validate.rules'}"
        " & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# --- rules --------------------------------------------------------------------------------------------------


def test_rules_lists_everything_in_order() -> None:
    lines = invoke("rules").stdout.splitlines()
    assert lines[0].split() == ["id", "name", "level", "check", "profile", "title"]
    assert [line.split()[0] for line in lines[1:]] == list(INDEX.by_id)


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        (["--area", "DOC"], "area", "TS-DOC"),
        (["--area", "ts-doc"], "area", "TS-DOC"),
        (["--level", "must_not"], "level", "MUST NOT"),
        (["--check", "schema"], "check", "schema"),
    ],
)
def test_rules_filters(arguments: list[str], key: str, value: str) -> None:
    found = json.loads(invoke("rules", "--format", "json", *arguments).stdout)
    assert [entry["id"] for entry in found] == [r.id for r in INDEX.by_id.values() if getattr(r, key) == value]
    assert found


@pytest.mark.parametrize("arguments", [["--area", "TSDOC"], ["--level", "MUTS"], ["--check", "shema"]])
def test_rules_filters_suggest(arguments: list[str]) -> None:
    result = invoke("rules", *arguments)
    assert result.exit_code == 2
    assert "did you mean" in result.stderr


def test_coverage_counts_and_fails_on_a_hole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "holes", list)
    result = invoke("rules", "--coverage")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-2].split()[-1] == str(len(INDEX.by_id))
    monkeypatch.setattr(coverage, "holes", lambda: [Hole("TS-DOC-099", "has a check (rule) but no heading")])
    result = invoke("rules", "--coverage")
    assert result.exit_code == 1
    assert "TS-DOC-099 has a check (rule) but no heading" in result.stdout
    assert json.loads(invoke("rules", "--coverage", "--format", "json").stdout)["holes"]


def test_coverage_shows_the_ground_of_each_must() -> None:
    grounds = json.loads(invoke("rules", "--coverage", "--format", "json").stdout)["grounds"]
    listed = sorted(identifier for some in grounds.values() for identifier in some)
    assert listed == sorted(r.id for r in INDEX.by_id.values() if r.level.startswith("MUST"))
    assert "TS-CNF-101" in grounds["practice"]
    rows = [line.split() for line in invoke("rules", "--coverage").stdout.splitlines()]
    assert ["safety", "and", "integrity", "TS-SEC", "3", "001", "002", "003"] in rows


def test_a_must_without_a_ground_is_a_hole() -> None:
    bare = replace(INDEX.by_id["TS-PAR-001"], ground="")
    index = replace(INDEX, by_id={**INDEX.by_id, "TS-PAR-001": bare})
    assert coverage.holes(index) == [Hole("TS-PAR-001", "is a MUST, and its ground is ''")]


# --- schema, catalog, completion ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *SIDE_KINDS])
@pytest.mark.parametrize("draft", ["2020-12", "07"])
def test_schema_is_the_published_one(kind: str, draft: str) -> None:
    printed = json.loads(invoke("schema", kind, "--draft", draft).stdout)
    published = ROOT / "schemas" / "v1" / printed["$id"].split("/v1/")[1]
    assert printed == json.loads(published.read_text(encoding="utf-8"))
    assert (draft == "07") == ("draft-07" in printed["$schema"])


def test_schema_takes_short_names_and_lists() -> None:
    assert invoke("schema").stdout.split() == [*KINDS, *SIDE_KINDS]
    assert json.loads(invoke("schema", "plan").stdout)["title"] == "TrainingPlan"
    assert json.loads(invoke("schema", "cluster-profile").stdout)["title"] == "ClusterProfile"
    result = invoke("schema", "ClusterProfil")
    assert result.exit_code == 2
    assert "did you mean 'ClusterProfile'?" in result.stderr


def test_catalog() -> None:
    lines = invoke("catalog").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(accelerators())
    assert "source" in invoke("catalog", "nvidia-h100-sxm-80gb").stdout
    data = json.loads(invoke("catalog", "nvidia-h100-sxm-80gb", "--format", "json").stdout)
    assert data[0]["memory_bytes"] == 81559 * 2**20
    assert "did you mean 'nvidia-h100-sxm-80gb'?" in invoke("catalog", "nvidia-h100-sxn-80gb").stderr


def test_catalog_shows_one_model() -> None:
    lines = invoke("catalog", "--models", "deepseek-v3").stdout.splitlines()
    assert lines[0].startswith("deepseek-v3: ")
    shown = dict(line.split(maxsplit=1) for line in lines[1:])
    assert shown["num_parameters"] == "671e9"
    assert shown["gated_ffn"] == "true"
    assert shown["experts.num_experts"] == "256"
    assert "arXiv" in shown["source"]
    assert json.loads(invoke("catalog", "--models", "deepseek-v3", "--format", "json").stdout)[0]["model"]["experts"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_covers_both_programs(shell: str) -> None:
    result = invoke("completion", shell)
    assert result.exit_code == 0
    for variable in ("_TRAINSPEC_COMPLETE", "_TRAINSPEC_VALIDATE_COMPLETE"):
        assert f"{variable}={shell}_complete" in result.stdout


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_completion_is_a_script() -> None:
    script = invoke("completion", "bash").stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


# --- init ---------------------------------------------------------------------------------------------------

FIGURE = re.compile(r":\s*\[?-?\d|_bytes|_seconds")


@pytest.mark.slow
@every("starter", product(accelerators(), (1, 2, 16, 37, 1024, 4096, 12_500, 60_000)))
def test_starters_validate_together(starter: tuple[str, int], tmp_path: Path) -> None:
    name, num_nodes = starter
    for file, text in documents(FILES, accelerators()[name], num_nodes).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    report = validate([tmp_path])
    assert len(report.documents) == len(FILES)
    found = report.at_or_above(Severity.ERROR)
    assert found == (), [f"{f.pointer}: {f.message}" for f in found]


@every("name", [*accelerators(), "other"])
def test_starters_say_what_is_not_known(name: str, tmp_path: Path) -> None:
    accelerator = accelerators().get(name, OTHER)
    for file, text in documents(FILES, accelerator, 2).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    report = validate([tmp_path])
    assert {found.requirement for found in report.at_or_above(Severity.WARNING)} <= {"TS-CLU-037"}
    missing = missing_figures(accelerator)
    text = (tmp_path / "cluster.yaml").read_text(encoding="utf-8")
    assert text.count("# fill in") == len(missing)
    unknown = " ".join(f"{entry.reason} {entry.help}" for entry in report.unjudged)
    assert [key for key in missing if key != "model" and key not in unknown] == []


@every("accelerator", [one for one in accelerators().values() if build_of(one).max_domain], ids=attrgetter("name"))
def test_starters_have_the_largest_published_scale_up_domain(accelerator: CatalogAccelerator) -> None:
    link = accelerator.scale_up
    assert link is not None
    row = links().scale_up[link["technology"], link["generation"]]
    assert build_of(accelerator).max_domain == row.max_domain_num_accelerators


@pytest.mark.parametrize("name", ["google-tpu-v4", "nvidia-gb10-128gb", "nvidia-gb200-186gb", "nvidia-h100-sxm-80gb"])
def test_starters_are_made_for_131072_accelerators(name: str, tmp_path: Path) -> None:
    accelerator = accelerators()[name]
    per_node = build_of(assumed(accelerator)).num_per_node
    for file, text in documents(FILES, accelerator, 131_072 // per_node).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    report = validate([tmp_path])
    assert "num_accelerators: 131072" in (tmp_path / "cluster.yaml").read_text(encoding="utf-8")
    assert report.at_or_above(Severity.ERROR) == ()


@pytest.mark.slow
@every("starter", product(sorted(set(accelerators()) - {"nvidia-h800-sxm-80gb"}), (1, 2, 16)))
def test_starters_are_predicted_to_keep_their_step_time(starter: tuple[str, int], tmp_path: Path) -> None:
    name, num_nodes = starter
    for file, text in documents(FILES, accelerators()[name], num_nodes).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    found = validate([tmp_path]).at_or_above(Severity.WARNING)
    assert {f.requirement for f in found} <= {"TS-CLU-037"}


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("H100", "nvidia-h100-sxm-80gb"),
        ("nvidia h100", "nvidia-h100-sxm-80gb"),
        ("l40s", "nvidia-l40s-48gb"),
        ("MI300A", "amd-mi300a-128gb"),
        ("trillium", "google-tpu-v6e"),
        ("DGX Spark", "nvidia-gb10-128gb"),
        ("CS-3", "cerebras-wse-3"),
    ],
)
def test_init_takes_product_names_with_a_note(word: str, name: str) -> None:
    result = invoke("init", "cluster", "--accelerator", word)
    assert result.exit_code == 0
    assert f"note: {word} is taken as {name}" in result.stderr
    assert f"model: {name} " in Path("cluster.yaml").read_text()
    assert invoke("catalog", word).stdout.startswith(f"{name}:")


def test_init_lists_what_a_word_may_mean() -> None:
    result = invoke("init", "--accelerator", "A100 PCIe")
    assert result.exit_code == 2
    assert "several accelerators: nvidia-a100-pcie-40gb, nvidia-a100-pcie-80gb" in result.stderr


def test_init_of_another_accelerator_leaves_its_figures_to_be_filled_in() -> None:
    result = invoke("init", "--accelerator", "other")
    assert result.exit_code == 0
    assert "fill in: model, memory_bytes, memory_bandwidth_bytes_per_second, peak_rates" in result.stderr
    place = Path("cluster.yaml")
    unjudged = {requirement for entry in validate([Path()]).unjudged for requirement in entry.requirements}
    assert {"TS-CLU-004", "TS-MEM-002", "TS-PRC-011"} <= unjudged
    text = place.read_text().replace("# memory_bytes:  ", "memory_bytes: 64e9  ", 1)
    text = text.replace("# memory_bandwidth_bytes_per_second:", "memory_bandwidth_bytes_per_second: 2e12")
    text = text.replace("      # peak_rates", "      peak_rates").replace("      #   - {", "        - {")
    place.write_text(text.replace("flops_per_second: }", "flops_per_second: 300e12}"))
    report = validate([Path()])
    assert report.at_or_above(Severity.ERROR) == ()
    assert not {"TS-CLU-004", "TS-MEM-002", "TS-PRC-011"} & {
        one for entry in report.unjudged for one in entry.requirements
    }


@pytest.mark.slow
def test_plan_names_the_figure_that_is_missing() -> None:
    assert invoke("init", "cluster", "--accelerator", "graphcore-bow").exit_code == 0
    result = invoke("plan", "cluster.yaml", "--model", "llama3-8b")
    assert "state memory_bandwidth_bytes_per_second in node_groups[0].accelerator" in result.stderr
    assert invoke("init", "cluster", "--accelerator", "google-tpu-v7x", "--force").exit_code == 0
    assert invoke("plan", "cluster.yaml", "--model", "llama3-8b").exit_code == 0


@pytest.mark.parametrize("kind", FILES)
def test_each_starter_validates_alone(kind: str, tmp_path: Path) -> None:
    for file, text in documents([kind], accelerators()["amd-mi300x-192gb"], 8).items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    for path in tmp_path.iterdir():  # in a directory, what it refers to would have to be there
        assert validate([path]).at_or_above(Severity.ERROR) == ()


@pytest.mark.parametrize("name", ["nvidia-gb200-186gb", "google-tpu-v5p", "graphcore-bow", "amd-mi250x-128gb"])
def test_every_figure_of_a_starter_says_where_it_comes_from(name: str) -> None:
    for text in documents(FILES, accelerators()[name], 16).values():
        lines = text.splitlines()
        assert re.fullmatch(
            r"# yaml-language-server: \$schema=https://trainspec\.org/schemas/v1/[a-z-]+\.schema\.json",
            lines[0],
        )
        bare = [line for line in lines[4:] if FIGURE.search(line.partition("  #")[0]) and "  # " not in line]
        assert bare == []
        said = {line.partition("  # ")[2].split(":")[0].split()[0] for line in lines[6:] if FIGURE.search(line)}
        assert said <= {"catalog", "derived", "replace", "chosen", "fill", "memory_bandwidth_bytes_per_second"}


def test_init_writes_and_refuses_to_overwrite() -> None:
    result = invoke("init", "--num-nodes", "4", "--directory", "new/place")
    assert (result.exit_code, result.stdout.split()) == (0, [f"new/place/{file}" for file in FILES.values()])
    assert "trainspec-validate new/place/cluster.yaml" in result.stderr
    before = Path("new/place/plan.yaml").read_text()
    Path("new/place/cluster.yaml").unlink()
    result = invoke("init", "--directory", "new/place")
    assert result.exit_code == 2
    assert "new/place/plan.yaml, new/place/checkpoint.yaml: already there; --force overwrites" in result.stderr
    assert Path("new/place/plan.yaml").read_text() == before
    assert not Path("new/place/cluster.yaml").exists(), "nothing is written when anything is refused"
    assert invoke("init", "--directory", "new/place", "--force").exit_code == 0
    assert Path("new/place/plan.yaml").read_text() != before


def test_init_of_some_kinds() -> None:
    assert invoke("init", "plan", "ClusterProfile").stdout.split() == ["plan.yaml", "cluster.yaml"]
    result = invoke("init", "paln")
    assert result.exit_code == 2
    assert "did you mean 'plan'?" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--accelerator", "nvidia-h1000"], "no accelerator is called 'nvidia-h1000'"),
        (["--num-nodes", "0"], "0 is not in the range"),
        (["--num-nodes", "1000001"], "1000001 is not in the range"),
        (["--num-nodes", "131072"], "have more than 1,000,000 ranks; use at most 125,000 nodes"),
    ],
)
def test_init_of_nothing_known(arguments: list[str], told: str) -> None:
    result = invoke("init", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert not list(Path().iterdir())


def test_documents_refuse_other_sizes() -> None:
    with pytest.raises(ValueError, match="1 to 1000000"):
        documents(FILES, accelerators()["google-tpu-v4"], 0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (8, "8"),
        (0.5, "0.5"),
        (80e9, "80e9"),
        (494.5e12, "494.5e12"),
        (999999, "999999"),
        (1e6, "1e6"),
        (1e15, "1e15"),
        (7.9771, "7.977"),
        (11538.46, "11540"),
        (207692.3, "207700"),
        (999949.6, "999900"),
        (999960.5, "999.961e3"),
    ],
)
def test_figures_are_readable(value: float, text: str) -> None:
    assert figure(value) == text
    assert float(text) == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(("size", "axes"), [(16, 2), (64, 3), (8960, 3), (4, 3), (37 * 4, 3), (1, 2)])
def test_torus_multiplies_to_its_size(size: int, axes: int) -> None:
    extents = torus(size, axes)
    product = 1
    for extent in extents:
        product *= extent
    assert (product, len(extents)) == (size, axes)


@pytest.mark.parametrize(
    "arguments",
    [
        *(["export", "NAME", "--to", "slurm"], ["import", "NAME"], ["topology", "NAME"], ["report", "NAME"]),
        *(["plan", "NAME", "--model", "llama3-8b"], ["checkpoint", "verify", "NAME"], ["checkpoint", "seal", "NAME"]),
        *(["export", "a.yaml", "--to", "slurm", "-o", "NAME"], ["init", "--directory", "NAME/x"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "x/" * 3000, "loop/x", "\udcff"], ids=lambda name: name[:6])
def test_names_that_no_file_can_have_are_wrong_use(
    arguments: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "a.yaml").write_text("apiVersion: trainspec/v1\n")
    code = terminal.run(
        command, "trainspec", [name if word == "NAME" else word.replace("NAME", name) for word in arguments]
    )
    assert code in {terminal.OK, terminal.WRONG_USE}
    assert code == terminal.OK or capsys.readouterr().err.strip()


def test_a_file_of_ours_that_is_gone_is_our_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*_arguments: object, **_options: object) -> None:
        Path(terminal.__file__).with_name("gone.json").read_bytes()

    monkeypatch.setattr(type(command), "main", lose)
    assert terminal.run(command, PROGRAM, []) == terminal.OUR_FAULT
