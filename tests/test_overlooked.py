"""Links and hidden files in a judged directory are named where they may be ours; what looks like noise is not."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.trees import build
from trainspec_validate import validate
from trainspec_validate.cli.validate import PROGRAM, command
from trainspec_validate.pipeline.claims import why_no_document
from trainspec_validate.report import FORMATS, render

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"
CLUSTER, PLAN = ((BASE / name).read_text(encoding="utf-8") for name in ("cluster.yaml", "plan.yaml"))
BAD_PLAN = PLAN.replace("data: 4", "data: 8", 1)


@pytest.fixture(autouse=True)
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "plan.yaml").write_text(PLAN, encoding="utf-8")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "cluster.yaml").write_text(CLUSTER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def put(path: str, text: str = PLAN) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")


def link(path: str, *, to: str) -> None:
    Path(path).symlink_to(to)


def left_out(argument: str = "tree") -> list[tuple[str, str]]:
    return [(entry.path, entry.reason) for entry in validate([argument]).unjudged]


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, list(arguments), prog_name=PROGRAM)


@pytest.mark.parametrize("pattern", ["tree", "tree/*.yaml"])
def test_a_link_out_of_the_tree_is_named(pattern: str) -> None:
    link("tree/plan.yaml", to="../outside/plan.yaml")
    assert left_out(pattern) == [("tree/plan.yaml", "is a link, which is not followed")]
    assert invoke(pattern, "--fail-on", "error,unjudged").exit_code == 1
    assert invoke(pattern).exit_code == 0


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "statistics"])
def test_every_format_names_it(name: str) -> None:
    link("tree/plan.yaml", to="../outside/plan.yaml")
    text = render(validate(["tree"]), name)
    assert "tree/plan.yaml" in text
    assert "is a link" in text


def test_a_link_that_leads_nowhere_is_named() -> None:
    link("tree/plan.yaml", to="../gone.yaml")
    assert left_out() == [("tree/plan.yaml", "is a link that leads nowhere")]


def test_links_by_the_names_of_checkpoints_are_named() -> None:
    put("outside/model.pt")
    link("tree/model.pt", to="../outside/model.pt")
    link("tree/step-20", to="gone")
    assert left_out() == [
        ("tree/model.pt", "is a link, which is not followed"),
        ("tree/step-20", "is a link that leads nowhere"),
    ]


def test_a_link_next_to_files_that_are_a_checkpoint_each_is_named() -> None:
    build(Path("tree"), "epoch=0-step=5.ckpt  torch a=F32[4]\n")
    link("tree/epoch=1-step=10.ckpt", to="gone")
    link("tree/last.ckpt", to="epoch=0-step=5.ckpt")
    assert ("tree/epoch=1-step=10.ckpt", "is a link that leads nowhere") in left_out()
    assert "tree/last.ckpt" not in {path for path, _ in left_out()}


def test_links_in_and_into_checkpoints_that_are_judged_leave_nothing_out() -> None:
    build(Path("tree/step-10"), "model.pt  torch a=F32[4]\nsub/text.txt  text a\n")
    link("tree/step-10/copy.pt", to="model.pt")
    link("tree/step-10/sub/gone.pt", to="gone.pt")
    link("tree/best.pt", to="step-10/model.pt")
    link("tree/step-5", to="step-10")
    assert {path for path, _ in left_out()} == {"tree/step-10"}  # no CheckpointPolicy


def test_a_link_to_a_directory_elsewhere_is_named() -> None:
    link("tree/plans", to="../outside")
    assert left_out() == [("tree/plans", "is a link to a directory elsewhere, which is not followed")]


@pytest.mark.parametrize("hidden", [".ci/plan.yaml", ".plan.yaml", ".ci/deep/plan.json"])
def test_a_hidden_document_is_named(hidden: str) -> None:
    put(f"tree/{hidden}", json.dumps({"apiVersion": "trainspec/v1"}) if hidden.endswith(".json") else PLAN)
    assert left_out() == [(f"tree/{hidden}", "is hidden by a name that begins with a dot")]


def test_a_hidden_document_and_the_link_to_it_are_one_gap() -> None:
    put("tree/..data/plan.yaml")
    link("tree/plan.yaml", to="..data/plan.yaml")
    assert [path for path, _ in left_out()] == ["tree/..data/plan.yaml"]


@pytest.mark.parametrize("name", ["plan.YAML", "plan.Yml", "plan.JSON"])
def test_an_upper_case_ending_is_judged(name: str) -> None:
    text = BAD_PLAN
    if name.endswith("JSON"):
        text = '{"apiVersion": "trainspec/v1", "kind": "TrainingPlan"}'
    put(f"tree/{name}", text)
    report = validate(["tree"])
    assert {document.path for document in report.documents} == {"tree/cluster.yaml", f"tree/{name}"}
    assert any(finding.path == f"tree/{name}" for finding in report.findings)


def test_a_file_in_upper_case_that_is_not_ours_is_no_word_worth() -> None:
    put("tree/VALUES.YAML", "replicas: 3\n")
    assert left_out() == []


def test_links_within_the_tree_and_to_what_is_judged_leave_nothing_out() -> None:
    link("tree/latest.yaml", to="cluster.yaml")
    put("tree/real/values.yaml", "replicas: 3\n")
    link("tree/current", to="real")
    link("tree/values.yaml", to="real/values.yaml")
    assert left_out() == []


def test_a_link_to_a_document_that_is_found_by_its_name_leaves_nothing_out() -> None:
    shutil.move("tree/cluster.yaml", "outside/cluster.yaml")
    link("tree/machine.yaml", to="../outside/cluster.yaml")
    put("tree/other.yaml", "apiVersion: trainspec/v1\nkind: ClusterProfile\n")
    assert "tree/machine.yaml" in [path for path, _ in left_out()]
    Path("tree/other.yaml").rename("tree/plan.yaml")
    put("tree/plan.yaml")
    assert "tree/machine.yaml" not in [path for path, _ in left_out()]


def test_directories_of_tools_and_files_of_others_need_no_word() -> None:
    for directory in (".git", ".venv", ".mine", ".tox/py311"):
        put(f"tree/{directory}/plan.yaml")
    put("tree/.git/HEAD", "ref: refs/heads/main\n")
    for directory in (".venv", ".mine", ".tox/py311"):
        put(f"tree/{directory}/pyvenv.cfg", "")
    put("tree/.github/workflows/ci.yaml", "uses: trainspec/validate@v1\n")
    put("tree/.pre-commit-config.yaml", "repos: []\n")
    link("tree/notes.md", to="../outside/plan.yaml")
    put("tree/node_modules/tool/package.json", "{}")
    link("tree/node_modules/root", to="/")
    link("tree/loop", to="loop")
    assert left_out() == []


def test_directories_that_have_the_name_of_one_of_a_tool_and_are_none_are_looked_at() -> None:
    names = [f"tree/{directory}/plan.yaml" for directory in (".cache/x", ".git", ".nox", ".tox/py311", ".venv")]
    for name in names:
        put(name)
    assert sorted(left_out()) == [(name, "is hidden by a name that begins with a dot") for name in names]


def test_state_in_directories_of_packages_is_named_by_directory() -> None:
    put("tree/node_modules/tool/model.onnx", "\0")
    put("tree/web/node_modules/a.pt", "\0" * 64)
    put("tree/web/node_modules/b.gguf", "\0" * 64)
    assert sorted(left_out()) == [
        ("tree/node_modules", "is a directory of packages, and holds a file of state"),
        ("tree/web/node_modules", "is a directory of packages, and holds 2 files of state"),
    ]


@pytest.mark.parametrize(
    "name", ["job.otlp", "job.metrics", "job.jsonl.1", "job.gz", "job.jsonl.xz", "job.jsonl.2.bz2"]
)
def test_streams_under_other_names_are_named(name: str) -> None:
    stream = b'{"resourceMetrics": []}\n'
    packed = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}.get(Path(name).suffix, bytes)(stream)
    Path("tree", name).write_bytes(packed)
    ((path, reason),) = left_out()
    assert path == f"tree/{name}"
    held = "holds a stream (OpenTelemetry metrics and logs, OTLP/JSON)"
    is_unread = name.endswith(("xz", "bz2"))
    assert reason == held + (
        ", and is compressed in a way that is not read" if is_unread else " under a name that is not searched"
    )


@pytest.mark.parametrize("mark", [";", ",", "\t", "|"])
@pytest.mark.parametrize("title", ["epoch {} train/loss {} lr", "Step {} loss {} acc", "iteration {} val/loss {} x"])
def test_a_table_of_a_training_log_is_named(mark: str, title: str) -> None:
    build(Path(), "checkpoints/step-10/model.pt  torch w=F32[4]\n")
    rows = "".join(f"{step}{mark}2.5{mark}0.1\n" for step in range(1, 5))
    Path("history.csv").write_text(title.format(mark, mark).replace(" ", "") + "\n" + rows)
    Path("notes.csv").write_text(f"name{mark}loss{mark}epoch\nabc{mark}def{mark}ghi\n")
    told = {one.path: one.reason for one in validate(["."]).unjudged}
    assert told["history.csv"] == "looks like a training log, and is of no known format"
    assert "notes.csv" not in told


def test_other_files_under_such_names_need_no_word() -> None:
    for name in ("app.metrics", "notes.txt.1", "table.csv.gz", "photo.7"):
        put(f"tree/{name}", "a,b\n1,2\n")
    assert left_out() == []


def test_documents_below_directories_of_packages_are_named() -> None:
    for directory in ("node_modules", "site-packages/x", "__pycache__"):
        put(f"tree/{directory}/plan.yaml")
    told = dict(left_out())
    assert told["tree/node_modules/plan.yaml"] == "is below node_modules"
    assert set(told) == {f"tree/{name}/plan.yaml" for name in ("node_modules", "site-packages/x", "__pycache__")}


def test_a_link_to_a_text_that_is_not_judged_is_named() -> None:
    put("tree/real.txt", BAD_PLAN)
    link("tree/plan.yaml", to="real.txt")
    assert left_out() == [("tree/plan.yaml", "is a link, which is not followed")]


@pytest.mark.parametrize(
    "written",
    [
        r'"train\x73pec/v1"',
        r'"trainspec\/v1"',
        r'"\u0074rainspec/v1"',
        r'"trainspe\U00000063/v1"',
        '"train\\\n     spec/v1"',
        '"train\\\r\n\tspec\\x2Fv1"',
        "TrainSpec/v1",
        "trainspec/\N{FULLWIDTH LATIN SMALL LETTER V}1",
    ],
)
def test_however_a_document_writes_its_version_it_is_judged(written: str) -> None:
    put("tree/renamed.yaml", BAD_PLAN.replace("trainspec/v1", written, 1))
    done = invoke("tree")
    assert done.exit_code == 1, done.output
    assert "tree/renamed.yaml:" in done.output


@pytest.mark.parametrize(
    "emptied",
    [
        BAD_PLAN.replace("apiVersion: trainspec/v1\n", "", 1),
        "kind: ClusterProfile\n",
        "# moved\napiVersion:\nkind: ClusterProfile\n",
        "apiVersion: null  # later\r\nkind: TrainingPlan\r\nmetadata:\r\n",
        '{"kind": "CheckpointPolicy"}',
        '{\n  "apiVersion": "",\n  "kind": "CheckpointPolicy"\n}\n',
        "apiVersion: trainspec/v1\n",
    ],
)
def test_a_document_of_which_little_is_left_is_an_error(emptied: str) -> None:
    put("tree/h100.yaml", emptied)
    put("tree/other.yaml", "apiVersion: multicluster.x-k8s.io/v1\nkind: ClusterProfile\n")
    done = invoke("tree")
    assert done.exit_code == 1, done.output
    assert "tree/h100.yaml:" in done.output
    assert "other.yaml" not in done.output


def test_a_kind_below_other_keys_is_named() -> None:
    put("tree/renamed.yaml", "wrapped:\n  kind: ClusterProfile\n")
    put("tree/other.yaml", "apiVersion: multicluster.x-k8s.io/v1\nkind: ClusterProfile\n")
    put("tree/several.yaml", "kind: ClusterProfile\n---\napiVersion: multicluster.x-k8s.io/v1\n")
    put("tree/letter.yaml", "spec:\n  kinds: [TrainingPlan]\n")
    assert left_out() == [("tree/renamed.yaml", "has the kind of a document and no apiVersion")]


@pytest.mark.parametrize("left", ["", "# moved\n", "{}\n", "---\n", "metadata: {name: example-cluster}\n", "kind:\n"])
def test_a_named_file_of_which_nothing_is_left_is_an_error(left: str) -> None:
    plan = PLAN
    put("tree/job.yaml", plan.replace("cluster: {name: example-cluster}", "cluster: {file: h100.yaml}", 1))
    put("tree/h100.yaml", left)
    done = invoke("tree")
    assert done.exit_code == 1, done.output
    assert "tree/h100.yaml" in done.output


def test_a_circle_of_links_ends() -> None:
    link("tree/a.yaml", to="b.yaml")
    link("tree/b.yaml", to="a.yaml")
    link("tree/up", to="..")
    assert {path for path, _ in left_out()} <= {"tree/a.yaml", "tree/b.yaml", "tree/up"}
    assert ("tree/a.yaml", "is a link that leads nowhere") in left_out()


def test_a_checkpoint_of_links_is_no_gap() -> None:
    put("blobs/config", "{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    Path("tree/model").mkdir()
    Path("tree/model/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    link("tree/model/config.json", to="../../blobs/config")
    assert "tree/model/config.json" not in [path for path, _ in left_out()]
    link("tree/config.json", to="../blobs/config")
    assert "tree/config.json" in [path for path, _ in left_out()]


STATE = [
    "m.bin",
    "m.npy",
    "m.npz",
    "m.h5",
    "m.hdf5",
    "m.pkl",
    "m.dill",
    "m.sav",
    "m.joblib",
    "m.msgpack",
    "m.gguf",
    "m.ggml",
    "m.onnx",
    "m.nemo",
    "m.mar",
    "m.tflite",
    "m.engine",
    "m.pt2",
    "m.pdparams",
    "M.GGUF",
    "saved_model.pb",
    "m.pt.gz",
    "m.safetensors.zst",
]
ARCHIVES = ["m.tar", "m.tgz", "m.tar.gz", "m.tar.bz2", "m.tar.xz", "m.tar.zst", "m.zip", "m.7z"]


@pytest.mark.parametrize("name", [*STATE, *ARCHIVES])
def test_a_file_of_state_that_no_reader_takes_is_named(name: str) -> None:
    put(f"tree/deep/{name}", "\0" * 64)
    ((path, reason),) = left_out()
    assert path == f"tree/deep/{name}"
    assert reason.startswith("is an archive" if name in ARCHIVES else "has the name of a file of state")
    assert invoke("tree", "--fail-on", "error,unjudged").exit_code == 1


@pytest.mark.parametrize("name", [".zarray", "zarr.json"])
def test_arrays_outside_of_checkpoints_are_named(name: str) -> None:
    put(f"tree/deep/w/{name}", '{"zarr_format": 2, "shape": [4]}')
    assert left_out() == [("tree/deep/w", "holds arrays of Zarr, and is in no checkpoint that was found")]


def test_binary_state_without_an_ending_is_named_and_text_of_that_name_is_not() -> None:
    put("tree/checkpoint_100", "\x81\xa1w\xc7\0\0")
    put("tree/checkpoint", 'model_checkpoint_path: "ckpt-9"\n')
    assert left_out() == [("tree/checkpoint_100", "is no text, and is in no checkpoint that was found")]


@pytest.mark.parametrize(
    ("name", "help_"),
    [("m.tar", "unpack it"), ("w/.zarray", "save it in a format"), ("checkpoint_1", "save it in")],
)
def test_what_cannot_be_judged_when_it_is_named_has_another_remedy(name: str, help_: str) -> None:
    put(f"tree/{name}", "\0" * 64)
    (entry,) = validate(["tree"]).unjudged
    assert entry.help.startswith(help_)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("m.gguf", "is a GGUF container, which is not read"),
        ("m.npz", "has the name of a file of state, and is of no format that is judged"),
        ("m.joblib", "has the name of a file of state, and is of no format that is judged"),
    ],
)
def test_a_file_of_state_that_is_named_and_not_judged_is_said_to_be(name: str, reason: str) -> None:
    put(f"tree/{name}", "x\0" * 32)
    assert (f"tree/{name}", reason) in left_out(f"tree/{name}")


def test_an_archive_in_a_checkpoint_is_named() -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    Path("tree/model").mkdir()
    Path("tree/model/model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    put("tree/model/optimizer.tar", "\0" * 64)
    assert ("tree/model/optimizer.tar", "is an archive, and its files are not looked at") in left_out()


@pytest.mark.parametrize("arguments", [(), ("--list-files",)])
@pytest.mark.parametrize("pattern", ["links", "links/*.yaml"])
def test_a_directory_of_links_alone_names_them(pattern: str, arguments: tuple[str, ...]) -> None:
    put("links/.hidden.yaml" if pattern == "links" else "links/other.txt")
    link("links/plan.yaml", to="../outside/plan.yaml")
    found = invoke(pattern, *arguments)
    assert found.exit_code == 2
    assert "links/plan.yaml: " in found.stderr
    assert "is a link, which is not followed" in found.stderr
    assert ("links/.hidden.yaml: " in found.stderr) == (pattern == "links")


def test_the_list_of_files_names_what_is_left_out() -> None:
    link("tree/plan.yaml", to="../outside/plan.yaml")
    put("tree/.hidden/plan.yaml")
    found = invoke("tree", "--list-files")
    assert (found.exit_code, found.stdout) == (0, "tree/cluster.yaml\n")
    assert found.stderr.splitlines() == [
        "left out: tree/.hidden/plan.yaml: it is hidden by a name that begins with a dot",
        "left out: tree/plan.yaml: it is a link, which is not followed",
    ]


@pytest.mark.parametrize(
    "version", ["tr\u0430inspec/v1", "train\u00adspec/v1", "transpec/v1", "TrainSpec-v1", "train\uff53pec/v1"]
)
def test_a_version_with_a_slip_is_judged(version: str) -> None:
    put("tree/slip.yaml", CLUSTER.replace("trainspec/v1", version, 1))
    found = validate(["tree"]).findings
    assert ("TS-DOC-004", "tree/slip.yaml") in {(finding.requirement, finding.path) for finding in found}


@pytest.mark.parametrize(
    "version", ["v1", "apps/v1", "trainer.kubeflow.org/v1alpha1", "\u8bad\u7ec3/v1", "train/v1", "aec/v1", "\u0441t/v1"]
)
def test_versions_of_other_programs_need_no_word(version: str) -> None:
    put("tree/other.yaml", f"apiVersion: {version}\nkind: Deployment\n")
    assert not [finding for finding in validate(["tree"]).findings if finding.path == "tree/other.yaml"]
    assert not left_out()


@pytest.mark.parametrize("piece", ["\n", "{", "\n{", " \n", "$schema:", "kind ", "apiVersion:", "trainspec", "\\x74"])
def test_any_text_is_looked_at_in_time_by_its_length(piece: str) -> None:
    """A quadratic search over four million characters would take hours."""
    put("tree/long.yaml", piece * (4_000_000 // len(piece)))
    assert why_no_document(Path("tree/long.yaml")) == ("" if piece.strip() else "is blank")


def test_a_document_that_only_names_its_schema_is_judged() -> None:
    line = "# yaml-language-server: $schema=https://trainspec.org/schemas/v1/cluster-profile.schema.json\n"
    put("tree/bare.yaml", line + "metadata: {name: a}\nnum_nodes: 16\n")
    found = validate(["tree"]).findings
    assert ("TS-DOC-004", "tree/bare.yaml") in {(finding.requirement, finding.path) for finding in found}


@pytest.mark.parametrize(
    ("name", "told"),
    [("plan.yaml\u200b", "U+200B"), ("plan.\u0443aml", "U+0443"), ("plan.yaml.gz", "is a compressed document")],
)
def test_documents_under_odd_names_are_named(name: str, told: str) -> None:
    text = PLAN.encode()
    Path("tree", name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    Path("tree", f"other.{name.partition('.')[2]}").write_bytes(
        gzip.compress(b"a: 1\n") if name.endswith(".gz") else b"a: 1\n"
    )
    [(path, reason)] = left_out()
    assert path == f"tree/{name}"
    assert told in reason


@pytest.mark.parametrize(
    "name", ["plan", "plan.txt", "plan.yaml.j2", "plan.yaml.bak", "plan.json5", "plan.jsonc", "plan.yaml ", "plan.YML~"]
)
def test_documents_that_were_renamed_are_named(name: str) -> None:
    Path("tree", name).write_text(PLAN, encoding="utf-8")
    Path("tree", f"other {name}").write_text("a: 1\n", encoding="utf-8")
    [(path, reason)] = left_out()
    assert path == f"tree/{name}"
    assert "claims to be ours" in reason


@pytest.mark.parametrize("content", [b"\x00\xff\xfe step 1", b"step 1 loss 2.5\n", b""])
def test_logs_that_are_not_read_are_named(content: bytes) -> None:
    Path("tree", "train.log").write_bytes(content)
    Path("tree", "notes.txt").write_bytes(content)
    [(path, reason)] = left_out()
    assert path == "tree/train.log"
    assert "log in no format" in reason


ITERATION = "iteration {}/ 1000 | consumed samples: 8 | elapsed time per iteration (ms): 9.0 | lm loss: 2.5E+00 |"


@pytest.mark.parametrize("quotes", ["# {}\n", "  // {}\n"])
@pytest.mark.parametrize("begins", ["#!/bin/bash\n", "echo\n"])
def test_a_line_of_a_log_in_a_comment_makes_no_log(quotes: str, begins: str) -> None:
    for name in ("launch.slurm", "launch"):
        text = begins + "".join(quotes.format(ITERATION.format(n)) for n in range(1, 9)) + "srun train\n"
        Path("tree", name).write_text(text, encoding="utf-8")
    assert left_out() == []


@pytest.mark.parametrize("begins", ["#!/bin/bash\n", "\n#SBATCH --nodes=4\n"])
def test_a_program_that_quotes_lines_of_a_log_is_none(begins: str) -> None:
    Path("tree", "launch.job").write_text(f"{begins}cat <<E\n{ITERATION.format(1)}\nE\n", encoding="utf-8")
    Path("tree", "other.job").write_text(begins + "step 1 loss 2.5\nstep 2 loss 2.4\n", encoding="utf-8")
    assert left_out() == []


def test_the_output_of_a_job_that_begins_with_its_program_is_a_log() -> None:
    lines = "\n".join(ITERATION.format(n) for n in range(1, 9))
    Path("tree", "run.job").write_text(f"#!/bin/bash\nsrun train\n{lines}\n", encoding="utf-8")
    lines = "\n".join(f"step {n} loss 2.5" for n in range(1, 9))
    Path("tree", "run.odd").write_text(f"#!/bin/bash\nsrun train\n{lines}\n", encoding="utf-8")
    reasons = [reason for _, reason in left_out()]
    assert len(reasons) == 2
    assert "holds a stream (log of Megatron-LM" in reasons[0]
    assert "looks like a training log" in reasons[1]


def test_documentation_that_quotes_a_log_is_none() -> None:
    for name in ("notes.adoc", "notes.org", "notes.tex"):
        Path("tree", name).write_text(f"{ITERATION.format(1)}\n", encoding="utf-8")
    assert left_out() == []


def test_a_part_that_is_too_deep_is_not_judged_and_the_rest_is() -> None:
    deep = "/".join(["tree", *("d" * 33)])
    put(f"{deep}/notes.txt", "nothing of ours\n")
    put("tree/plan.yaml", BAD_PLAN)
    reason = "is below more than 32 levels of directories, and was not searched for checkpoints"
    assert (deep, reason) in left_out()
    assert invoke("tree").exit_code == 1
    put("tree/plan.yaml", PLAN)
    assert left_out() == [(deep, reason)]
    assert invoke("tree").exit_code == 0
    assert invoke("tree", "--fail-on", "error,unjudged").exit_code == 1
    assert f"left out: {deep}: it {reason}" in invoke("tree", "--list-files").stderr


def test_several_parts_that_are_too_deep_are_named_once() -> None:
    for name in ("a", "b", "c"):
        put("/".join(["tree", *("d" * 32), name, "notes.txt"]), "nothing of ours\n")
    ((_, reason),) = left_out()
    assert "more than 32 levels of directories (and 2 more)" in reason


def test_a_part_that_is_too_deep_and_is_named_too_is_judged() -> None:
    deep = "/".join(["tree", *("d" * 33)])
    put(f"{deep}/plan.yaml")
    assert validate(["tree", deep]).unjudged == ()


def test_a_checkpoint_that_is_too_deep_refuses_itself_alone() -> None:
    build(Path("tree"), "step-10/model.safetensors  safetensors w=F32[4]\n")
    put("/".join(["tree/step-10", *("d" * 33), "notes.txt"]), "nothing of ours\n")
    for argument in ("tree", "tree/step-10"):
        shown = invoke(argument)
        assert (shown.exit_code, "TS-SEC-003" in shown.output) == (1, True)
        assert "levels of directories" in shown.output


@pytest.mark.parametrize(
    "end", ["toml", "ini", "csv", "py", "sh", "html", "svg", "xml", "pdf", "ipynb", "bin.txt", "h"]
)
def test_a_whole_document_is_named_whatever_its_name_ends_with(end: str) -> None:
    put(f"tree/b.{end}")
    (gap,) = (entry for entry in validate("tree").unjudged if entry.path.endswith(f"b.{end}"))
    assert "claims to be ours under a name that is not searched" in gap.reason


@pytest.mark.parametrize("end", ["py", "sh", "html", "toml", "ipynb", "csv"])
def test_a_program_that_quotes_a_document_needs_no_word(end: str) -> None:
    put(f"tree/b.{end}", f'text = """\n{PLAN}"""\nprint(text)\n')
    assert not [entry for entry in validate("tree").unjudged if entry.path.endswith(f"b.{end}")]


@pytest.mark.parametrize("name", ["b.txt", "b.csv", "b.svg", "deep/b.py", "cluster.yaml.tmpl"])
def test_a_document_in_a_checkpoint_is_named(name: str) -> None:
    entry = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    Path("tree/step-1").mkdir()
    Path("tree/step-1/model.safetensors").write_bytes(len(entry).to_bytes(8, "little") + entry + bytes(4))
    Path("tree/step-1/README.md").write_text(
        "# A model\n\nIts plan has `apiVersion: trainspec/v1`.\n", encoding="utf-8"
    )
    before = {gap.path for gap in validate("tree").unjudged}
    put(f"tree/step-1/{name}", BAD_PLAN)
    assert {gap.path for gap in validate("tree").unjudged} - before == {f"tree/step-1/{name}"}


@pytest.mark.parametrize("name", ["plans.py", "plans.md", "plans.sh"])
def test_a_second_document_under_any_name_is_named(name: str) -> None:
    put(f"tree/{name}", f"notes: any\n---\n{PLAN}")
    assert left_out() == [(f"tree/{name}", "claims to be ours under a name that is not searched")]


@pytest.mark.parametrize(
    "text",
    [
        f"---\ntitle: a page\n---\n# A page\n\n```yaml\n{PLAN}```\n",
        f'"""A program."""\nPLAN = """\n{PLAN}"""\n',
        "notes: any\n---\ntext: |\n  apiVersion: trainspec/v1\n  kind: TrainingPlan\n",
    ],
)
def test_a_text_that_quotes_a_document_is_none(text: str) -> None:
    for name in ("page.md", "program.py"):
        put(f"tree/{name}", text)
    assert left_out() == []


def test_a_document_in_toml_is_named() -> None:
    head = 'apiVersion = "trainspec/v1"\nkind = "TrainingPlan"\n\n[metadata]\nname = "a"\n'
    put("tree/plan.toml", head)
    put("tree/pyproject.toml", '[tool.other]\napiVersion = "trainspec/v1"\ntext = "kind"\n')
    put("tree/b.toml", 'apiVersion = "apps/v1"\nkind = "TrainingPlan"\n')
    assert left_out() == [("tree/plan.toml", "is a document in TOML, which is not read")]


def test_what_is_no_part_of_a_checkpoint_is_named_next_to_one() -> None:
    """A file of state makes its directory a checkpoint, whose readers take neither documents nor logs."""
    put("tree/sub/m.log", PLAN)
    with zipfile.ZipFile("tree/sub/texts.zip", "w") as archive:
        archive.writestr("plan.yaml", PLAN)
    link("tree/sub/plan.yaml", to="../../outside/plan.yaml")
    put("outside/run.jsonl", '{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.4}\n')
    link("tree/sub/run.jsonl", to="../../outside/run.jsonl")
    before = left_out()
    assert len(before) == 4
    build(Path("tree/sub"), "model.safetensors  safetensors w=F32[4]\n")
    after = [entry for entry in left_out() if entry[0] != "tree/sub"]
    assert after == before


def test_an_archive_in_a_checkpoint_is_named_once() -> None:
    build(Path("tree/sub"), "model.safetensors  safetensors w=F32[4]\n")
    put("tree/sub/optimizer.tar", "\0" * 64)
    assert [path for path, _ in left_out()].count("tree/sub/optimizer.tar") == 1


MEGATRON = "".join(
    f" [2026-01-31 12:00:0{i}] iteration {i}/ 8 | consumed samples: {64 * i} | elapsed time per iteration (ms): 1001.0 "
    f"| learning rate: 3.0E-04 | global batch size: 64 | lm loss: 2.{i}E+00 | loss scale: 1.0 | grad norm: 1.0 |\n"
    for i in range(1, 9)
)
GZIP = b"\x1f\x8b"
STATE = '{"log_history": [{"step": 1, "loss": 2.5, "epoch": 0.1}], "global_step": 1}'


@pytest.mark.parametrize("pack", [lzma.compress, bz2.compress, lambda text: gzip.compress(gzip.compress(text))])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.log", MEGATRON),
        ("slurm-12.out", MEGATRON),
        ("trainer_state.json", STATE),
        ("metrics.csv", "step,loss\n1,2.5\n2,nan\n"),
        ("run.mllog", ':::MLLOG {"key": "x"}\n'),
    ],
)
def test_what_would_be_read_unpacked_is_named(name: str, text: str, pack: Callable[[bytes], bytes]) -> None:
    path = Path(f"tree/{name}.{'gz.gz' if pack(b'').startswith(GZIP) else 'xz'}")
    path.write_bytes(pack(text.encode()))
    ((named, reason),) = left_out()
    assert named == path.as_posix()
    assert reason.endswith("and is compressed in a way that is not read")
    assert [entry.help for entry in validate(["tree"]).unjudged] == ["unpack it to have it judged"]


@pytest.mark.parametrize("name", ["train.log.lz4", "job.out.br", "metrics.csv.Z", "trainer_state.json.lz4"])
def test_the_name_decides_where_nothing_can_be_unpacked(name: str) -> None:
    Path(f"tree/{name}").write_bytes(b"\x04\x22\x4d\x18\0\xff\0" * 9)
    assert [path for path, _ in left_out()] == [f"tree/{name}"]


def test_compressed_files_of_other_programs_are_no_word_worth() -> None:
    for name, text in (("table.csv", "a,b\n1,2\n"), ("data.json", '{"a": 1}'), ("words.txt", "a\n"), ("a.md", "# A\n")):
        Path(f"tree/{name}.xz").write_bytes(lzma.compress(text.encode()))
    Path("tree/data.json.lz4").write_bytes(b"\x04\x22\x4d\x18\0\xff")
    assert left_out() == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((name, MEGATRON) for name in ("logs.yaml", "train.json", "train.md", "train.py")),
        ("steps.json", '[{"step": 1, "loss": 2.5}, {"step": 2, "loss": NaN}]'),
        ("steps.json", '[\n  {"loss": 2.5,\n   "step": 1},\n  {"loss": 2.4, "step": 2}\n]'),
    ],
)
def test_what_a_run_wrote_under_the_name_of_another_thing_is_named(name: str, text: str) -> None:
    put(f"tree/{name}", text)
    assert [path for path, _ in left_out()] == [f"tree/{name}"]


def test_pages_and_programs_that_quote_a_log_are_no_word_worth() -> None:
    put("tree/README.md", f"# Results\n\n{'A line of words.' * 3}\n" * 9 + MEGATRON)
    put("tree/train.py", 'print("a")\n' * 9 + f'"""{MEGATRON}"""\n')
    put("tree/notes.json", '[{"step": 1, "title": "loss"}, {"step": 2, "title": "data"}]')
    assert left_out() == []
