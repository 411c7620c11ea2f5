"""SECURITY.md lists every limit on untrusted input, with the value that the code has."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "SECURITY.md"
BEGIN, END = "<!-- limits: written by tests/test_limits.py -->\n", "<!-- end of limits -->\n"


def modules() -> list[str]:
    """Every module that declares a limit."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
        imports = "trainspec_validate.budget import" in path.read_text(encoding="utf-8")
        if imports and any(isinstance(call.func, ast.Name) and call.func.id == "Limit" for call in calls):
            found.append(".".join(path.relative_to(SOURCE).with_suffix("").parts))
    return found


def table() -> str:
    """The limits as a table, by kind of input; other tests declare limits of their own, so a new process reads them."""
    code = (
        "import importlib, json, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "from trainspec_validate.budget import LIMITS\n"
        "print(json.dumps([[one.input, one.most, one.unit] for one in LIMITS.values()]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *modules()], capture_output=True, text=True, check=True)
    rows = sorted(json.loads(done.stdout))
    lines = [f"| {kind} | {most:,} | {unit} |" for kind, most, unit in rows]
    return "\n".join(["| input | at most | of |", "|---|---:|---|", *lines, ""])


def test_the_table_of_limits_is_that_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    listed, _, after = rest.partition(END)
    if os.environ.get("TRAINSPEC_UPDATE_GOLDEN"):
        PAGE.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")
    else:
        assert listed == table(), "TRAINSPEC_UPDATE_GOLDEN=1 writes the table again; read the difference"


def test_every_module_with_a_limit_is_found() -> None:
    assert "trainspec_validate.checkpoints.limits" in modules()
