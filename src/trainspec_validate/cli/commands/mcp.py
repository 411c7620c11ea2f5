"""Offers validate, explain, plan, metrics and newest-good to agents, as a server of the Model Context Protocol."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from trainspec_validate._version import __version__
from trainspec_validate.cli import bounded_child, terminal
from trainspec_validate.cli.terminal import Failure
from trainspec_validate.system.atomic import write_atomically

MAX_PATHS = 100
MAX_LETTERS = 4096
"""Letters of one argument."""
_INSTRUCTIONS = (
    "Judges documents, metric streams and checkpoints of large-scale training by the requirements of TrainSpec."
    " Paths are relative to the directory that the server was started for. Nothing is written."
)


class Refused(Exception):  # noqa: N818 - said of a call
    """A call that is not carried out; the text says what would be right."""


class Tools:
    """The tools, over one directory. Each call runs in a child whose time and output are bounded."""

    def __init__(self, root: Path, settings: Path) -> None:
        self._root, self._settings = root.resolve(strict=True), settings

    def validate(self, paths: list[str], select: list[str] | None = None) -> dict[str, Any]:
        """Judge cluster profiles, training plans, checkpoint policies, streams of runs, and checkpoints on disk.

        `paths` are files and directories; those given together are also checked against each other. `select` limits
        the judgement to ids, names or areas of requirements, such as TS-PAR-001, world-size or PAR. Settings and
        own rules in the directory are not read. The exit code is 1 where there are errors, and 2 where a file cannot be
        read: `notes` name it, and `result` is of the others.
        """
        if not 0 < len(paths) <= MAX_PATHS or len(select or ()) > MAX_PATHS:
            raise Refused(f"name 1 to {MAX_PATHS} paths, and at most {MAX_PATHS} requirements")
        options = [option for word in select or () for option in ("--select", _plain(word))]
        where = [self._inside(path) for path in paths]
        options += ["--config", str(self._settings), "--no-progress", "--format", "json"]
        return self._answer("validate", [*options, "--", *where])

    def explain(self, requirement: str) -> dict[str, Any]:
        """Explain what a requirement says, why, and how it is checked; it is named by id or name."""
        return self._answer("toolbox", ["explain", "--format", "json", "--", _plain(requirement)])

    def plan(  # noqa: PLR0913 - the wishes of a person, one by one
        self,
        cluster: str,
        model: str,
        *,
        num_ranks: int | None = None,
        global_sequences: int | None = None,
        sequence_length: int | None = None,
        precision: Literal["bf16", "fp16", "fp8"] = "bf16",
        top: int = 5,
    ) -> dict[str, Any]:
        """Search the best ways to train a model on a cluster: degrees, memory, and step time with its band.

        `cluster` is the path of a cluster profile, `model` a name of the catalog such as llama3-70b, or the path of a
        training plan whose model is taken.
        """
        options = ["plan", "--format", "json", "--precision", _plain(precision), "--top", str(top)]
        wishes = {"num-ranks": num_ranks, "global-sequences": global_sequences, "sequence-length": sequence_length}
        options += [f"--{name}={value}" for name, value in wishes.items() if value is not None]
        is_file = Path(model).suffix in {".yaml", ".yml", ".json"}
        options += [f"--model={self._inside(model) if is_file else _plain(model)}"]
        return self._answer("toolbox", [*options, "--", self._inside(cluster)])

    def metrics(self, name: str | None = None, ecosystem: str | None = None) -> dict[str, Any]:
        """List the metrics of a training run, or show what one of them means.

        `name` is that of the specification or of another program; `ecosystem` limits names to those of one program,
        such as dcgm, megatron or mlperf.
        """
        options = ["metrics", "--format", "json"]
        options += [f"--ecosystem={_plain(ecosystem)}"] if ecosystem is not None else []
        return self._answer("toolbox", [*options, *(["--", _plain(name)] if name is not None else [])])

    def newest_good(self, directory: str) -> dict[str, Any]:
        """Find the newest whole checkpoint of a directory, and say why newer ones are not whole.

        The exit code is 1, and `result` is null, where no checkpoint is whole.
        """
        arguments = ["checkpoint", "newest-good", "--", self._inside(directory)]
        return self._answer("toolbox", arguments, is_json=False)

    def _inside(self, path: str) -> str:
        """A path below the root, relative to it, after every link was followed.

        Raises:
            Refused: it is elsewhere, or there is nothing.
        """
        word = _plain(path)
        try:
            found = (self._root / word).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise Refused(f"{word!r}: there is no such file below the directory of this server") from error
        if not found.is_relative_to(self._root):
            raise Refused(f"{word!r}: it is outside of the directory of this server")
        return f"./{found.relative_to(self._root).as_posix()}"

    def _answer(
        self, program: Literal["toolbox", "validate"], arguments: Sequence[str], *, is_json: bool = True
    ) -> dict[str, Any]:
        """What a program answers: exit code, result and notes.

        Raises:
            Refused: the call was wrong use, or it was stopped.
        """
        try:
            ended = bounded_child.run_child(program, arguments, self._root)
        except bounded_child.NotEnded as error:
            raise Refused(str(error)) from error
        result: Any = ended.output.strip() or None
        has_report = ended.code == terminal.WRONG_USE and is_json and result is not None
        if ended.code not in {terminal.OK, terminal.FINDINGS} and not has_report:
            raise Refused(ended.errors.strip() or f"the program ended with {ended.code}")
        if is_json and result is not None:
            result = json.loads(result)
        return {"exit_code": ended.code, "result": result, "notes": ended.errors.splitlines()}


def _plain(word: str) -> str:
    """An argument that a command line can hold.

    Raises:
        Refused: it is empty or too long, or holds a character that cannot be passed.
    """
    if not word or len(word) > MAX_LETTERS or "\0" in word or not word.isprintable():
        raise Refused(f"an argument has 1 to {MAX_LETTERS} printable letters")
    return word


@click.command(epilog="Example: trainspec mcp runs/ (an agent starts it, and speaks over standard input and output)")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(directory: Path) -> None:
    """Serve validate, explain, plan, metrics and newest-good to agents, over standard input and output.

    Speaks the Model Context Protocol, with its official SDK: from a checkout, pip install '.[mcp]'.

    Tools read files below DIRECTORY alone and write nothing. Settings and own rules in it are not read, since own
    rules can be programs. Each call runs in a process of its own, for five minutes at most.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: PLC0415
        from mcp.server.mcpserver.exceptions import ToolError  # noqa: PLC0415
    except ImportError as error:
        raise Failure(f"the SDK is not installed: from a checkout, pip install '.[mcp]' ({error})") from error
    with tempfile.TemporaryDirectory(prefix="trainspec-mcp-") as empty:
        settings = Path(empty, "trainspec.toml")
        write_atomically(settings, "")
        tools = Tools(directory, settings)
        server = MCPServer("trainspec", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
        for tool in (tools.validate, tools.explain, tools.plan, tools.metrics, tools.newest_good):
            server.add_tool(_refusing(tool, ToolError))
        server.run("stdio")


def _refusing(tool: Any, kind: type[Exception]) -> Any:
    """The tool with refusals as errors of the protocol, under its own name and signature."""
    from functools import wraps  # noqa: PLC0415

    @wraps(tool)
    def called(**arguments: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = tool(**arguments)
        except Refused as error:
            raise kind(str(error)) from error
        return found

    return called
