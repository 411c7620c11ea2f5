"""Calls of agents to `trainspec mcp`, without its SDK and with its programs in this process."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click

from tests.fuzz.mutate import ODD
from tests.fuzz.seeds import Files
from tests.fuzz.standing import standing_for_a_process
from trainspec_validate.cli import bounded_child, terminal
from trainspec_validate.cli.commands.mcp import Refused, Tools
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.cli.validate import command as gate

SECRET = "kind: Outside"
_NUMBERS = (1, 2, 8, 16, 0, -1, 10**9, 2**63, 10**30, -(10**400))


@click.command()
@click.argument("call")
def asked(call: str) -> None:
    """Answer one call on `tree`: the name of a tool and its arguments, in JSON."""
    tool, arguments = json.loads(call)
    with tempfile.TemporaryDirectory() as empty:
        settings = Path(empty, "trainspec.toml")
        settings.touch()
        try:
            found = getattr(Tools(Path("tree"), settings), tool)(**arguments)
        except Refused as error:
            raise terminal.Failure(str(error)) from error
    answer = json.dumps(found)
    assert SECRET not in answer, "the answer holds a file from outside of the tree"
    terminal.emit(answer, "json")
    click.get_current_context().exit(found["exit_code"])


@contextmanager
def without_children() -> Iterator[None]:
    """The programs of a call run in this process."""
    with patch.object(bounded_child, "run_child", _run_here):
        yield


def _run_here(program: str, arguments: Sequence[str], directory: Path) -> bounded_child.Ended:
    out, err = io.BytesIO(), io.BytesIO()
    with chdir(directory):
        code = standing_for_a_process(gate if program == "validate" else toolbox, arguments, out, err)
    if len(out.getvalue()) > bounded_child.MAX_OUTPUT_BYTES or len(err.getvalue()) > bounded_child.MAX_ERROR_BYTES:
        raise bounded_child.NotEnded("the answer has too many bytes")
    return bounded_child.Ended(code, *(each.getvalue().decode(errors="replace") for each in (out, err)))


def calls(files: Files, dice: random.Random) -> list[str]:
    """A call of one of the tools, with sound and odd arguments."""

    def path() -> str:
        return dice.choice((dice.choice(sorted(files)), dice.choice(sorted(files)), ".", "../outside.yaml", _odd(dice)))

    def word(*sound: str) -> str:
        return _odd(dice) if dice.random() < 0.3 else dice.choice(sound)

    def number() -> int | None:
        return dice.choice((None, dice.choice(_NUMBERS)))

    made: dict[str, dict[str, Any]] = {
        "validate": {
            "paths": [path() for _ in range(dice.choice((1, 1, 2, 5, 0, 101)))],
            "select": dice.choice((None, [], [word("PAR", "TS-PAR-001", "world-size")])),
        },
        "explain": {"requirement": word("TS-PAR-001", "world-size", "TS-TEL-001")},
        "plan": {
            "cluster": dice.choice(("cluster.yaml", path())),
            "model": word("llama3-8b", "plan.yaml", "./plan.yaml"),
            **{name: number() for name in ("num_ranks", "global_sequences", "sequence_length")},
            "precision": dice.choice(("bf16", "fp16", "fp8")),
            "top": dice.choice(_NUMBERS),
        },
        "metrics": {
            "name": dice.choice((None, word("train.loss.mean"))),
            "ecosystem": dice.choice((None, word("dcgm", "megatron"))),
        },
        "newest_good": {"directory": dice.choice((".", path()))},
    }
    tool = dice.choice(("validate", "validate", "validate", "newest_good", "newest_good", "explain", "plan", "metrics"))
    return [json.dumps([tool, made[tool]])]


def _odd(dice: random.Random) -> str:
    return dice.choice(ODD)[:300].decode("utf-8", "surrogateescape")
