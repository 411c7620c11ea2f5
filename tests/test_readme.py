"""Every command, program and excerpt in README.md and in the how-tos does what the page shows.

In a `console` block a line that starts with `$ ` is run, and the lines below it are what a person sees at a terminal,
without colour. `...` stands for any lines, or for any text within a line. `# exit 1` after a command is its exit code,
0 without one. A block with `title="file"` is written before the next command, one with `excerpt="file"` stands in that
file word by word, and a `text` block below a `python` block is its output.

TRAINSPEC_UPDATE_GOLDEN=1 rewrites the output that differs.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.every import every
from trainspec_validate.documents.types import KINDS, SIDE_KINDS

ROOT = Path(__file__).resolve().parents[1]
GUIDES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "spec" / "guide").glob("*.md"))
PAGES = ["README.md", "spec/index.md", *GUIDES]
UPDATE = os.environ.get("TRAINSPEC_UPDATE_GOLDEN") == "1"
NOT_RUN = ("make", "pip", "git", "docker")
FENCE = re.compile(r"^```(?P<info>\S[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"#\s*exit (\d+)\s*$")


@dataclass
class Block:
    """A fenced block of a page."""

    language: str
    attributes: dict[str, str]
    text: str
    line: int
    span: tuple[int, int]


@dataclass
class Step:
    """A command and what the page shows below it."""

    command: str
    line: int
    shown: list[str] = field(default_factory=list)


def blocks(page: str) -> list[Block]:
    return [
        Block(
            match["info"].split()[0],
            dict(re.findall(r'(\w+)="([^"]*)"', match["info"])),
            match["text"],
            page.count("\n", 0, match.start()) + 1,
            match.span("text"),
        )
        for match in FENCE.finditer(page)
    ]


def steps(block: Block) -> Iterator[Step]:
    step = None
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            if step:
                yield step
            step = Step(line.removeprefix("$ "), number)
        else:
            assert step, f"line {number}: output before any command"
            step.shown.append(line)
    if step:
        yield step


def environment() -> dict[str, str]:
    ours = ("GITHUB_", "GITLAB_", "TRAINSPEC_", "FORCE_COLOR", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return kept | {"PATH": path, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "100"}


def at_terminal(command: str, folder: Path) -> tuple[int, list[str]]:
    """Exit code and lines of a command whose standard streams are a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        ["bash", "-c", command], cwd=folder, env=environment(), stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:  # Linux says so when the last writer is gone
                break
            if not piece:
                break
            written += piece
        code = process.wait(timeout=600)
    os.close(ours)
    # A progress bar comes and goes on a slow machine, and hides the cursor meanwhile.
    still = re.sub(
        r"\x1b\[\?25l.*?\x1b\[\?25h(?:\r\n)?(?:\r?\x1b\[1A\x1b\[2K)?", "", written.decode("utf-8"), flags=re.DOTALL
    )
    text = re.sub(r"\x1b\[[0-9;]*m", "", still)
    return code, [line.rstrip() for line in text.splitlines()]


def matches(shown: list[str], seen: list[str]) -> bool:
    if not shown:
        return not seen
    if shown[0] == "...":
        return any(matches(shown[1:], seen[start:]) for start in range(len(seen) + 1))
    return bool(seen) and line_matches(shown[0], seen[0]) and matches(shown[1:], seen[1:])


def line_matches(shown: str, seen: str) -> bool:
    return bool(re.fullmatch(".*".join(re.escape(part) for part in shown.split("...")), seen))


def check_unrun(step: Step) -> None:
    words = step.command.split("#")[0].split()
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert set(words[1:]) <= set(targets), step
    assert not step.shown, f"line {step.line}: output of a command that is not run"


def run_console(block: Block, folder: Path) -> str:
    """Run the commands; the text of the block with the output as it is now."""
    lines = []
    for step in steps(block):
        lines.append(f"$ {step.command}")
        if step.command.split()[0] in NOT_RUN:
            check_unrun(step)
            continue
        code, seen = at_terminal(step.command, folder)
        wanted = EXIT.search(step.command)
        assert code == int(wanted[1] if wanted else 0), f"line {step.line}: {step.command}\n" + "\n".join(seen)
        lines += step.shown if matches(step.shown, seen) else seen
    return "".join(f"{line}\n" for line in lines)


def run_python(block: Block, folder: Path) -> str:
    command = [sys.executable, "-c", block.text]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"line {block.line}: {done.stderr}"
    return done.stdout


def check_text(block: Block) -> None:
    if block.language == "yaml":
        assert yaml.safe_load(block.text) or block.text.startswith("#")
    elif block.language == "json":
        json.loads(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)


def execute(page: str, folder: Path) -> str:
    """Do everything that the page shows; the page with the output as it is now."""
    found = blocks(page)
    changes: list[tuple[tuple[int, int], str]] = []
    previous = ""
    for block in found:
        now = block.text
        if "excerpt" in block.attributes:
            assert block.text in (ROOT / block.attributes["excerpt"]).read_text(encoding="utf-8"), block
            continue
        if "title" in block.attributes:
            (folder / block.attributes["title"]).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            now = run_console(block, folder)
        elif block.language == "python":
            previous = run_python(block, folder)
        elif block.language == "text":
            now = previous
        check_text(block)
        if now != block.text:
            changes.append((block.span, now))
    for (start, end), now in reversed(changes):
        page = page[:start] + now + page[end:]
    return page


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize("name", PAGES)
def test_page_shows_what_happens(name: str, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    page = (ROOT / name).read_text(encoding="utf-8")
    assert blocks(page)
    now = execute(page, tmp_path)
    if UPDATE and now != page:
        (ROOT / name).write_text(now, encoding="utf-8")
        return
    assert page == now, "run: TRAINSPEC_UPDATE_GOLDEN=1 python -m pytest tests/test_readme.py"


def test_the_first_screen_shows_an_error_and_its_fix() -> None:
    screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])
    assert "$ make demo" in screen
    assert "$ make test" in screen
    assert "# exit 1" in screen
    assert "no findings" in screen


def test_the_wildcard() -> None:
    assert matches(["a", "...", "c"], ["a", "b", "b", "c"])
    assert matches(["...", "c"], ["c"])
    assert matches(["a ... c"], ["a b c"])
    assert not matches(["a"], ["a", "b"])
    assert not matches(["a.c"], ["abc"])


def test_pages_of_the_specification_are_reached_from_its_index() -> None:
    index = (ROOT / "spec" / "index.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "spec").as_posix() for path in (ROOT / "spec").glob("*/*.md")]
    assert not [page for page in pages if f"]({page})" not in index]


@every("name", [name for name in PAGES if name.startswith("spec/guide/")])
def test_a_how_to_says_whence_its_programs_are_before_it_begins(name: str) -> None:
    opening = (ROOT / name).read_text(encoding="utf-8").partition("\n## ")[0]
    assert "](../downloads.md#tools)" in opening


def test_the_guide_lists_the_formats_of_streams_once() -> None:
    from trainspec_validate.telemetry.formats.format import FORMATS

    guide = (ROOT / "spec" / "guide" / "streams.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)`: ([^|]+) \|", guide, re.MULTILINE)
    assert sorted(rows) == sorted((each.name, each.title) for each in FORMATS.values() if each.name != "metric-stream")


BUILT_WITH_THE_SITE = {
    *(ROOT / "spec" / folder / "index.md" for folder in ("documents", "rules")),
    *(ROOT / "spec/documents" / f"{kind}.md" for kind in (*KINDS, *SIDE_KINDS)),
}


@every("name", [*PAGES, "schemas/v1/README.md", "examples/README.md"])
def test_links_lead_to_files(name: str) -> None:
    page = FENCE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)#:]+)\)", page)
    files = [(ROOT / name).parent / link for link in links]
    assert not [file for file in files if not file.exists() and file.resolve() not in BUILT_WITH_THE_SITE]


def test_the_tables_of_the_readme_are_complete() -> None:
    from trainspec_validate.report import FORMATS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not [name for name in FORMATS if f"| `{name}` |" not in readme]
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", readme, re.MULTILINE)] == [0, 1, 2, 3, 130, 141]
