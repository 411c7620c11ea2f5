"""trainspec import and discover: files in, one document out, and a message for what cannot be read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.every import every
from trainspec_validate.cli.toolbox import PROGRAM, command
from trainspec_validate.documents.load import load_text
from trainspec_validate.interop.recognise import formats
from trainspec_validate.telemetry.formats import FORMATS

FIXTURES = Path(__file__).parent / "interop" / "fixtures" / "network"
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in FIXTURES.iterdir():
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(command, [*arguments], prog_name=PROGRAM, input=stdin)


def test_one_file_to_standard_output() -> None:
    result = invoke("import", "tree.conf")
    assert result.exit_code == 0
    data = load_text(result.stdout, "out.yaml").data
    assert (data["kind"], data["num_nodes"]) == ("ClusterProfile", 8)
    assert result.stderr.splitlines()[0].split() == ["source", "format", "facts", "remarks"]
    assert result.stderr.splitlines()[1].split()[:2] == ["tree.conf", "slurm-topology-conf"]
    assert "remark: tree.conf: LinkSpeed 400 has no unit" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("next: fill in what is unknown (")


@pytest.mark.parametrize("options", [[], ["--name", "hall"], ["--name", "hall", "--num-nodes", "16"]])
@pytest.mark.parametrize("files", [["ibnetdiscover.out"], ["tree.conf", "nccl.log"]])
def test_the_count_of_what_is_unknown_is_that_of_the_document(files: list[str], options: list[str]) -> None:
    result = invoke("import", *files, *options)
    whole = re.sub(r"\n *#   ", " ", result.stdout)
    told = sum(len(found.split(",")) for found in re.findall(r"(?m)^ *# unknown: ([^:]+): ", whole))
    assert f"next: fill in what is unknown ({told}), then run: " in result.stderr
    assert result.stderr.count("unknown") == 1


def test_several_files_make_one_document() -> None:
    result = invoke("import", "mlperf-system.json", "ibnetdiscover.out", "--name", "hall", "--output", "hall.yaml")
    assert (result.exit_code, result.stdout) == (0, "")
    data = load_text(Path("hall.yaml").read_text(encoding="utf-8"), "hall.yaml").data
    assert data["metadata"]["name"] == "hall"
    assert data["fabrics"][0]["tiers"][0]["uplinks_found"] == [2, 2, 1]


def test_the_number_of_nodes_wins() -> None:
    data = load_text(invoke("import", "mlperf-system.json", "--num-nodes", "16").stdout, "out.yaml").data
    assert (data["num_nodes"], data["num_accelerators"], data["node_groups"][0]["num_nodes"]) == (16, 128, 16)


def test_what_was_imported_is_checked() -> None:
    result = invoke("import", "mlperf-system.json", "nccl.log", "--output", "out.yaml", "--check")
    assert result.exit_code == 0
    assert "warning[TS-CLU-058] 2 interfaces carry collectives, but a node has 8 compute NICs" in result.stderr
    result = invoke("import", "mlperf-system.json", "rccl-sockets.log", "--output", "other.yaml", "--check")
    assert result.exit_code == 1
    told = "error[TS-CLU-057] the library used tcp, but the compute NICs are declared on infiniband"
    assert told in result.stderr


def test_a_clean_import_passes_its_check() -> None:
    Path("whole.json").write_text(json.dumps(whole()), encoding="utf-8")
    result = invoke("import", "whole.json", "--output", "out.yaml", "--check")
    assert "error[" not in result.stderr
    assert result.exit_code == 0


ONE_BIT = """{"train_batch_size": 96, "train_micro_batch_size_per_gpu": 3, "fp16": {"enabled": true},
"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 400}}}"""
TRAINER = "per_device_train_batch_size: 4\nfp16: true\ndeepspeed: zero2.json\nmax_grad_norm: 1.0\n"


@pytest.mark.parametrize(
    ("text", "requirement", "needs"),
    [
        (ONE_BIT, "TS-COM-006", "parallelism.data"),
        (TRAINER, "TS-PRC-001", "precision.loss_scaling"),
        ("torus", "TS-CLU-015", "node_groups[].scale_up.wraparound"),
    ],
)
def test_no_default_stands_for_what_the_file_does_not_tell(text: str, requirement: str, needs: str) -> None:
    if text == "torus":
        chips = {"number_of_nodes": "4", "accelerators_per_node": "4", "accelerator_model_name": "TPU v5p"}
        text = json.dumps(whole() | chips | {"accelerator_interconnect_topology": "2x2x4"})
    Path("file.in").write_text(text, encoding="utf-8")
    result = invoke("import", "file.in", "--output", "out.yaml", "--check")
    assert f"[{requirement}]" not in result.stderr
    causes = ("not judged: does not give", "not judged: lists")
    unjudged = " ".join(line for line in result.stderr.splitlines() if any(cause in line for cause in causes))
    assert needs in unjudged, result.stderr
    assert requirement in unjudged or requirement[-3:] in unjudged


def whole() -> dict[str, object]:
    """A description of one node, which needs no network."""
    data: dict[str, object] = json.loads(Path("mlperf-system.json").read_text(encoding="utf-8"))
    return data | {"number_of_nodes": "1", "host_networking": "", "accelerator_interconnect_topology": ""}


def test_standard_input() -> None:
    result = invoke("import", "-", stdin=Path("ibnetdiscover.out").read_bytes())
    assert result.exit_code == 0
    assert "#   standard input (ibnetdiscover)" in result.stdout


def test_a_directory_stands_for_its_files() -> None:
    Path("logs/inner").mkdir(parents=True)
    for name in ("nccl.log", "rccl-sockets.log"):
        shutil.copy(name, "logs")
    shutil.copy("tree.conf", "logs/inner")
    Path("logs/notes.txt").write_text("nothing known\n", encoding="utf-8")
    Path("logs/.hidden.conf").write_text("SwitchName=a Nodes=n1\n", encoding="utf-8")
    Path("logs/link.conf").symlink_to(Path("tree.conf").resolve())
    result = invoke("import", "logs")
    assert result.exit_code == 0
    assert len(load_text(result.stdout, "out.yaml").data["observations"]) == 2
    assert "num_nodes: 8" not in result.stdout
    assert "left out: logs/notes.txt: fits no known format" in result.stderr


def test_a_pattern_stands_for_files() -> None:
    result = invoke("import", "*.log")
    assert result.exit_code == 0
    assert "#   nccl.log (collective-library-log)" in result.stdout
    assert invoke("import", "*.nothing").stderr == "Error: *.nothing: no file matches the pattern\n"


def test_files_of_one_name_are_told_apart() -> None:
    for name in ("a", "b"):
        Path(name).mkdir()
        shutil.copy("nccl.log", name)
    result = invoke("import", "a/nccl.log", "b/nccl.log")
    assert "#   a/nccl.log (collective-library-log)\n#   b/nccl.log" in result.stdout


def test_every_unreadable_file_has_its_line_and_nothing_is_written() -> None:
    Path("bad.conf").write_text("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[3-1]\n", encoding="utf-8")
    Path("strange.txt").write_text("nothing known\n", encoding="utf-8")
    Path("binary.out").write_bytes(b"\x7fELF\0")
    result = invoke("import", "tree.conf", "bad.conf", "strange.txt", "binary.out", "gone.xml", "--output", "out.yaml")
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert lines[0].startswith("Error: bad.conf:2: the range 3-1 in 'n[3-1]' runs backwards")
    assert lines[1] == "Error: strange.txt: fits no known format (`trainspec import --list` shows what is read)"
    assert lines[2] == "Error: binary.out: this is a binary file, not text (name a text file)"
    assert lines[3].startswith("Error: gone.xml: the file cannot be read: no such file or directory")
    assert lines[4] == "Error: nothing was imported; tree.conf can be imported without these files"
    assert not Path("out.yaml").exists()


def test_a_file_is_overwritten_on_request_only() -> None:
    Path("out.yaml").write_text("mine\n", encoding="utf-8")
    result = invoke("import", "tree.conf", "--output", "out.yaml")
    assert (result.exit_code, result.stderr) == (2, "Error: out.yaml: already there; --force overwrites\n")
    assert Path("out.yaml").read_text(encoding="utf-8") == "mine\n"
    assert invoke("import", "tree.conf", "--output", "out.yaml", "--force").exit_code == 0
    assert "kind: ClusterProfile" in Path("out.yaml").read_text(encoding="utf-8")


def test_a_folder_that_is_not_there() -> None:
    result = invoke("import", "tree.conf", "--output", "nowhere/out.yaml")
    assert result.exit_code == 2
    assert "nowhere/out.yaml: cannot be written: no such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "slurm-topology-con"], "did you mean 'slurm-topology-conf'?"),
        (["--format", "x"], "no format 'x'; `trainspec import --list` shows what is read"),
        (["--name", "a b"], "'a b' is no name"),
        (["--num-nodes", "0"], "0 is not in the range"),
        (["--check"], "--check needs --output"),
    ],
)
def test_wrong_use(arguments: list[str], words: str) -> None:
    result = invoke("import", "tree.conf", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_format_is_named_where_content_does_not_tell() -> None:
    result = invoke("import", "--format", "ibnetdiscover", "tree.conf")
    assert result.exit_code == 2
    assert "tree.conf:2: this is no line of ibnetdiscover: SwitchName=spine" in result.stderr


@pytest.mark.parametrize("format_name", sorted(formats()))
@pytest.mark.parametrize("text", ["foreign: 1\n", "{}", "#!/bin/sh\necho done\n"])
def test_a_file_that_states_nothing_of_a_named_format_is_refused(format_name: str, text: str) -> None:
    Path("nothing.txt").write_text(text, encoding="utf-8")
    result = invoke("import", "--format", format_name, "nothing.txt", "--output", "made.yaml")
    assert (result.exit_code, Path("made.yaml").exists()) == (2, False), result.output
    assert result.stderr.startswith("Error: n")


def test_files_that_state_no_fact_are_no_import() -> None:
    Path("open.sh").write_text("#!/bin/bash\npython pretrain_gpt.py $ARGS\n", encoding="utf-8")
    result = invoke("import", "--format", "megatron-arguments", "open.sh")
    assert (result.exit_code, result.stdout) == (2, ""), result.output


@pytest.mark.parametrize(
    "text", ["# mine\napiVersion: trainspec/v1\n", '{"kind": "x",\n "apiVersion": "trainspec/v1"}']
)
def test_a_trainspec_document_is_told_as_one(text: str) -> None:
    Path("mine.yaml").write_text(text, encoding="utf-8")
    result = invoke("import", "mine.yaml")
    told = "Error: mine.yaml: this already is a TrainSpec document (validate it with trainspec-validate)\n"
    assert (result.exit_code, result.stderr) == (2, told)


@every("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.stem)
def test_examples_are_taken_for_no_foreign_format(path: Path) -> None:
    assert "this already is a TrainSpec document" in invoke("import", str(path)).stderr


def test_the_list_shows_every_format() -> None:
    result = invoke("import", "--list")
    assert result.exit_code == 0
    documents = sorted(formats(), key=lambda name: (formats()[name].kind != "ClusterProfile", name))
    streams = sorted(name for name in FORMATS if name != "metric-stream")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [*documents, *streams]


def test_discover_writes_what_it_finds() -> None:
    result = invoke("discover", "--name", "here", "--num-nodes", "3", "--output", "node.yaml")
    assert result.exit_code == 0
    data = load_text(Path("node.yaml").read_text(encoding="utf-8"), "node.yaml").data
    assert (data["kind"], data["metadata"]["name"], data["num_nodes"]) == ("ClusterProfile", "here", 3)
    assert data["node_groups"][0]["num_nodes"] == 3
    assert "# Written by trainspec discover " in Path("node.yaml").read_text(encoding="utf-8")
    assert "next: " in result.stderr
    assert invoke("discover", "--output", "node.yaml").exit_code == 2


def test_an_empty_directory_is_named() -> None:
    Path("bare").mkdir()
    result = invoke("import", "bare")
    assert (result.exit_code, result.stderr) == (2, "Error: bare: no file was found\n")


def test_a_document_without_a_name_says_how_to_give_one() -> None:
    told = "# unknown: metadata: a document needs a name; --name gives it"
    assert told in invoke("import", "tree.conf").stdout
    assert told not in invoke("import", "tree.conf", "--name", "hall").stdout
