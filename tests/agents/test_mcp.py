"""The server for agents: over standard input and output with the client of the official SDK, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from trainspec_validate.cli import bounded_child
from trainspec_validate.cli.commands.mcp import MAX_LETTERS, Refused, Tools
from trainspec_validate.cli.toolbox import PROGRAM, command

OUTSIDE = "outside.yaml"
SECRET = "num_secrets: 1\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with starter documents, next to a file that no tool may read."""
    folder = tmp_path / "root"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(command, ["init"], prog_name=PROGRAM).exit_code == 0
    (tmp_path / OUTSIDE).write_text(SECRET, encoding="utf-8")
    return folder


@pytest.fixture
def tools(root: Path, tmp_path: Path) -> Tools:
    settings = tmp_path / "trainspec.toml"
    settings.touch()
    return Tools(root, settings)


def test_documents_are_judged(tools: Tools, root: Path) -> None:
    good = tools.validate(["cluster.yaml", "plan.yaml"])
    assert good["exit_code"] == 0
    text = (root / "plan.yaml").read_text(encoding="utf-8")
    (root / "plan.yaml").write_text(text.replace("num_accelerators: 16", "num_accelerators: 32", 1), encoding="utf-8")
    bad = tools.validate(["."], select=["PAR"])
    assert bad["exit_code"] == 1
    assert "TS-PAR-001" in {finding["requirement"] for finding in bad["result"]["findings"]}


def test_a_file_that_cannot_be_read_hides_no_other(tools: Tools, root: Path) -> None:
    text = (root / "plan.yaml").read_text(encoding="utf-8")
    (root / "plan.yaml").write_text(text.replace("num_accelerators: 16", "num_accelerators: 32", 1), encoding="utf-8")
    os.mkfifo(root / "pipe.yaml")
    found = tools.validate(["."], select=["PAR"])
    assert found["exit_code"] == 2
    assert "TS-PAR-001" in {finding["requirement"] for finding in found["result"]["findings"]}
    assert any("pipe.yaml" in note for note in found["notes"])


def test_a_requirement_and_a_metric_are_explained(tools: Tools) -> None:
    (entry,) = tools.explain("world-size")["result"]
    assert entry["id"] == "TS-PAR-001"
    (metric,) = tools.metrics("train.loss.mean")["result"]
    assert metric["unit"] == "1"
    assert len(tools.metrics(ecosystem="dcgm")["result"]) > 10


@pytest.mark.slow
def test_a_job_is_planned(tools: Tools) -> None:
    found = tools.plan("cluster.yaml", "llama3-8b", num_ranks=16, top=1)
    assert found["exit_code"] == 0
    assert found["result"]["plans"]


def test_the_newest_whole_checkpoint_is_found(tools: Tools, root: Path) -> None:
    assert tools.newest_good(".") == {"exit_code": 1, "result": None, "notes": tools.newest_good(".")["notes"]}
    for step in (1, 2):
        folder = root / "run" / f"step-{step}"
        folder.mkdir(parents=True)
        header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
        (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
    (root / "run" / "step-2" / "model.safetensors").write_bytes(b"\0" * 7)
    found = tools.newest_good("run")
    assert found["exit_code"] == 0
    assert found["result"].endswith("run/step-1")
    assert any("step-2" in note for note in found["notes"])


@pytest.mark.parametrize(
    "path", ["../outside.yaml", "/etc/passwd", "-", "absent.yaml", "a\0b", "", "x" * 5000, "*.yaml"]
)
def test_paths_stay_inside(tools: Tools, path: str) -> None:
    for call in (
        lambda: tools.validate([path]),
        lambda: tools.newest_good(path),
        lambda: tools.plan(path, "llama3-8b"),
    ):
        with pytest.raises(Refused):
            call()
    with pytest.raises(Refused):
        tools.plan("cluster.yaml", f"{path[:MAX_LETTERS]}.yaml")


def test_links_and_references_stay_inside(tools: Tools, root: Path) -> None:
    (root / "link.yaml").symlink_to(root.parent / OUTSIDE)
    with pytest.raises(Refused, match="outside"):
        tools.validate(["link.yaml"])
    text = (root / "plan.yaml").read_text(encoding="utf-8")
    (root / "plan.yaml").write_text(f"{text}cluster: {{file: ../{OUTSIDE}}}\n", encoding="utf-8")
    found = json.dumps([tools.validate(["plan.yaml"]), tools.validate(["."])])
    assert "num_secrets" not in found


def test_settings_of_the_directory_run_nothing(tools: Tools, root: Path) -> None:
    (root / "own.py").write_text("open('ran', 'w').close()\n", encoding="utf-8")
    (root / "trainspec.toml").write_text('rules = ["own.py"]\nignore = ["PAR"]\n', encoding="utf-8")
    assert tools.validate(["plan.yaml"], select=["PAR"])["exit_code"] == 0
    assert not (root / "ran").exists()


@pytest.mark.parametrize("word", ["--help", "--output=x", "-x", "TS-PAR-999", "\x1b[31m", "x" * 5000])
def test_words_are_no_options(tools: Tools, root: Path, word: str) -> None:
    before = sorted(root.iterdir())
    for call in (lambda: tools.explain(word), lambda: tools.metrics(word), lambda: tools.plan("cluster.yaml", word)):
        with pytest.raises(Refused):
            call()
    assert sorted(root.iterdir()) == before


def test_wrong_numbers_are_refused_with_the_reason(tools: Tools) -> None:
    with pytest.raises(Refused, match="num-ranks"):
        tools.plan("cluster.yaml", "llama3-8b", num_ranks=-1)
    with pytest.raises(Refused, match="1 to 100"):
        tools.validate([])


def test_a_child_that_prints_or_takes_too_much_is_stopped(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_child, "MAX_OUTPUT_BYTES", 1000)
    with pytest.raises(Refused, match="more than 1,000 bytes"):
        tools.metrics()
    monkeypatch.setattr(bounded_child, "MAX_SECONDS", 0.0)
    with pytest.raises(Refused, match="stopped after 0 s"):
        tools.metrics()


def test_a_program_that_cannot_start_is_no_finding(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_child, "_PROGRAM", bounded_child._PROGRAM.replace("trainspec_validate", "absent"))
    with pytest.raises(Refused, match="ended with 3"):
        tools.newest_good(".")


def test_without_the_sdk_the_command_says_what_to_install(root: Path) -> None:
    code = "import sys; sys.modules['mcp'] = None; from trainspec_validate.cli.toolbox import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "mcp", "."], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install '.[mcp]'" in done.stderr


# --- with the SDK -------------------------------------------------------------------------------------------


@pytest.fixture
def answers(root: Path) -> list[Any]:
    """What the server answers to a client of the SDK: the tools, a good call, a bad one and one of a crash."""
    pytest.importorskip("mcp", reason="mcp is not installed: run make mcp-test")
    import anyio
    from mcp import Client, StdioServerParameters, stdio_client

    code = "from trainspec_validate.cli.toolbox import main; main()"
    given = dict(os.environ)

    async def visit() -> list[Any]:
        server = StdioServerParameters(command=sys.executable, args=["-c", code, "mcp", str(root)], env=given)
        async with Client(stdio_client(server)) as client:
            return [
                await client.list_tools(),
                await client.call_tool("validate", {"paths": ["cluster.yaml"]}),
                await client.call_tool("explain", {"requirement": "TS-PAR-001"}),
                await client.call_tool("validate", {"paths": [f"../{OUTSIDE}"]}),
                await client.call_tool("plan", {"cluster": 5, "model": []}),
            ]

    return anyio.run(visit)


def test_a_client_of_the_sdk_is_served(answers: list[Any]) -> None:
    listed, good, explained, outside, wrong = answers
    assert [tool.name for tool in listed.tools] == ["validate", "explain", "plan", "metrics", "newest_good"]
    assert all(tool.description and tool.input_schema["properties"] for tool in listed.tools)
    assert not good.is_error
    assert json.loads(good.content[0].text)["exit_code"] == 0
    assert json.loads(explained.content[0].text)["result"][0]["id"] == "TS-PAR-001"
    assert outside.is_error
    assert "outside of the directory" in outside.content[0].text
    assert "num_secrets" not in outside.content[0].text
    assert wrong.is_error
