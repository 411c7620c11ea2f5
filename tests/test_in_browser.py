"""Runs the programs of the playground without what a browser's Python lacks; the site's tests run them in a browser."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from trainspec_site.playground_assets import EXAMPLES, LIBRARY_NOT_LOADED, NOT_LOADED, example_texts

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tools" / "trainspec_site" / "in_browser"
NO_SYSTEM = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "_posixsubprocess", "_multiprocessing")
NO_CLOCKS = ("thread_time", "thread_time_ns", "pthread_getcpuclockid")
NO_PROCESSES = ("fork", "forkpty", "posix_spawn", "register_at_fork", "sched_getaffinity")
"""What Python for WebAssembly does not have: https://pyodide.org/en/stable/usage/wasm-constraints.html."""
RUN = """
import importlib.abc, json, os, sys, time
from pathlib import Path
folder, absent, clocks, processes = json.loads(sys.argv[1])

def lacks(name):
    return any(name == one or name.startswith(one[:-1] if one[-1] == "*" else one + ".") for one in absent)

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if lacks(name):
            raise ModuleNotFoundError(f"the browser has no {name}", name=name)

sys.meta_path.insert(0, Absent())
for module, names in ((time, clocks), (os, processes)):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for name in filter(lacks, list(sys.modules)):
    del sys.modules[name]
import playground, proposing
playground.FOLDER = proposing.FOLDER = Path(folder)
for line in sys.stdin:
    print(getattr(playground if "judge" in line else proposing, json.loads(line)[0])(json.dumps(json.loads(line)[1])))
"""


def run(folder: Path, program: str, given: object) -> dict[str, object]:
    """What a program of the playground answers."""
    absent = [f"{one}*" if one[-1] not in "/y" else one for one in (*NOT_LOADED, *LIBRARY_NOT_LOADED)]
    absent = [one.removesuffix(".py").removesuffix("/").replace("/", ".") for one in absent]
    told = json.dumps([str(folder), [*absent, *NO_SYSTEM], NO_CLOCKS, NO_PROCESSES])
    ended = subprocess.run(
        [sys.executable, "-c", RUN, told],
        input=json.dumps([program, given]),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{PROGRAMS}:{ROOT / 'src'}", "PATH": ""},
    )
    assert ended.returncode == 0, ended.stderr
    answer: dict[str, object] = json.loads(ended.stdout)
    return answer


def example(name: str) -> dict[str, str]:
    return example_texts(ROOT / "examples", EXAMPLES[name])


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_judged_without_what_a_browser_lacks(name: str, tmp_path: Path) -> None:
    answer = run(tmp_path, "judge", example(name))
    broken = any("broken" in path for path in EXAMPLES[name].values())
    assert bool(answer["findings"]) == broken
    assert answer["outcomes"] or name == "A stream with five damaged records"


def test_a_plan_is_searched_without_what_a_browser_lacks(tmp_path: Path) -> None:
    files = {"cluster.yaml": example("Llama 3 405B: cluster, plan and policy")["cluster.yaml"]}
    answer = run(tmp_path, "propose", {"files": files, "model": "llama3-8b", "num_ranks": 8})
    assert isinstance(answer["files"], dict)
    assert set(answer["files"]) == {"plan.yaml", "checkpoint.yaml"}
