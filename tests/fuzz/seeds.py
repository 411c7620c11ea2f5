"""The sound inputs that the fuzzer damages: documents, settings, streams, files of other programs, checkpoints."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path

import msgspec

from tests import node_reports
from tests.fuzz import formats
from tests.streams_made.foreign_logs import files as logs
from tests.streams_made.run import make_run
from tests.streams_made.shape import Shape
from tests.streams_made.write import by_emitter, together
from tests.trees import build
from trainspec_validate.cli import terminal
from trainspec_validate.cli.toolbox import command as toolbox
from trainspec_validate.documents.types.conformance_report import Evidence
from trainspec_validate.model.requirements import load_index

Files = dict[str, bytes]

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT.parent / "shared" / "samples"
_FENCE = re.compile(r"```ya?ml[^\n]*\n(.*?)```", re.DOTALL)
_MAX_SAMPLE_BYTES = 200_000
_SHARE = 4
"""How often a format that no example shows comes up, next to an example."""
_NUM_LINES = 250
"""Of one stream: enough for every record there is, few enough for thousands of cases."""


@cache
def documents() -> tuple[Files, ...]:
    """Documents that are judged together, and the machines and plans of the examples."""
    base = {path.name: path.read_bytes() for path in sorted((ROOT / "spec/v1/base").glob("*.yaml"))}
    alone = [{path.name: path.read_bytes()} for path in sorted((ROOT / "examples").glob("*/*.yaml"))]
    return (base, base, *alone)


@cache
def settings() -> tuple[Files, ...]:
    """A document with settings beside it, in each of the two files that may hold them."""
    plan = {"plan.yaml": (ROOT / "spec/v1/base/plan.yaml").read_bytes()}
    keys = 'fail-on = "warning"\nselect = ["PAR", "TS-CKP-001"]\nignore = ["MEM"]\nprofile = "core"\n'
    text = (keys + 'format = ["json"]\nquiet = true\ncolor = "never"\n').encode()
    return ({"trainspec.toml": text, **plan}, {"pyproject.toml": b"[tool.trainspec]\n" + keys.encode(), **plan})


def _guide(page: str, kind: str) -> bytes:
    found = _FENCE.findall((ROOT / "spec/guide" / page).read_text(encoding="utf-8"))
    return next(text for text in found if f"kind: {kind}" in text).encode()


@cache
def silenced() -> tuple[Files, ...]:
    """Waivers and a baseline beside what they are for."""
    plan = (ROOT / "examples/broken/plan.yaml").read_bytes()
    beside: Files = {"plan.yaml": plan, "waivers.yaml": _guide("silence.md", "Waivers")}
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "plan.yaml").write_bytes(plan)
        from trainspec_validate.cli.validate import command as gate

        baseline = place / "baseline.json"
        _quietly(lambda: terminal.run(gate, "x", [str(place), "--baseline", str(baseline), "--write-baseline"]))
        beside["baseline.json"] = baseline.read_bytes()
    return (beside,)


@cache
def gated() -> tuple[Files, ...]:
    """Trees whose settings, waivers, baseline and rules decide about a change of them."""
    named = {"waivers": "waivers.yaml", "baseline": "baseline.json", "rules": "rules.yaml"}
    found = list(settings())
    for files in (*silenced(), *ruled()):
        text = "".join(f'{key} = "{name}"\n' for key, name in named.items() if name in files)
        found.append({"trainspec.toml": text.replace('"rules.yaml"', '["rules.yaml"]').encode(), **files})
    return tuple(found)


@cache
def ruled() -> tuple[Files, ...]:
    """Rules of a user beside the stream that they judge."""
    stream = (ROOT / "examples/broken/job.jsonl").read_bytes()
    return ({"rules.yaml": _guide("own-rules.md", "UserRules"), "job.jsonl": stream},)


def _quietly(work: object) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        work()  # type: ignore[operator]


def _shortened(files: Files) -> Files:
    return {name: b"".join(text.splitlines(keepends=True)[:_NUM_LINES]) for name, text in files.items()}


@cache
def streams() -> tuple[Files, ...]:
    """Streams of a run: by emitter, together, compressed, and one that is broken on purpose."""
    run = make_run(Shape(num_nodes=1, devices_per_node=2, num_steps=70, faults=True))
    apart, one = _shortened(by_emitter(run.streams)), _shortened(together(run.streams))
    text = one["run.jsonl"]
    broken = {path.name: path.read_bytes() for path in (ROOT / "examples/broken").glob("*.jsonl")}
    return (apart, one, _shortened(broken), {"run.jsonl.gz": gzip.compress(text, mtime=0)}, *_exported(text))


def _exported(text: bytes) -> list[Files]:
    """The same stream in the formats that it is exported to."""
    found = []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "run.jsonl").write_bytes(text)
        for form, name in (("parquet", "run.parquet"), ("otlp", "run.json"), ("prometheus", "run.prom")):
            arguments = ["export", str(place / "run.jsonl"), "--to", form, "--output", str(place / name)]
            _quietly(lambda arguments=arguments: terminal.run(toolbox, "x", arguments))
            found.append({name: (place / name).read_bytes()})
    return found


@cache
def foreign() -> tuple[Files, ...]:
    """Files of other programs: those of the tests, what was exported, and the real ones where they are at hand."""
    paths = [path for path in sorted((ROOT / "tests/interop/fixtures").rglob("*")) if path.is_file()]
    paths += [path for path in sorted((ROOT / "tests/golden/export").rglob("*")) if path.is_file()]
    if SAMPLES.is_dir():
        paths += [path for path in sorted(SAMPLES.rglob("*")) if path.is_file() and path.suffix != ".md"]
    found = [{path.name: path.read_bytes()[:_MAX_SAMPLE_BYTES]} for path in paths]
    found += [{name: content} for name, content in logs().items()]
    found += formats.texts()
    return (*found, *(files for files in streams() if not any(name.endswith("jsonl") for name in files)))


@cache
def checkpoints() -> tuple[Files, ...]:
    """The checkpoints of the examples of the specification, and some of the other formats."""
    judged = [requirement for requirement in load_index().by_id.values() if requirement.check == "artifact"]
    examples = [example for requirement in judged for example in (*requirement.good, *requirement.bad)]
    found = (_tree(example.text) for example in examples if example.file == "checkpoints")
    return (*(files for files in found if files), *formats.checkpoints() * _SHARE)


@cache
def sealed() -> tuple[Files, ...]:
    """Checkpoints with a manifest."""
    return tuple(files for files in checkpoints() if any("manifest" in name for name in files))


def _tree(text: str) -> Files:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        build(place, text)
        paths = [path for path in sorted(place.rglob("*")) if path.is_file() and not path.is_symlink()]
        return {p.relative_to(place).as_posix(): p.read_bytes() for p in paths if p.stat().st_size < 1_000_000}


@cache
def reports() -> tuple[Files, ...]:
    """A report of the conformance suite."""
    from conformance_reports import report, scenario_report, trial

    made = report(scenario_report("kill-rank", "fail", trial(failed="it did not end"), trial(2)))
    return ({"report.json": msgspec.json.format(msgspec.json.encode(made))},)


@cache
def evidence() -> tuple[Files, ...]:
    """Reports of the conformance suite with the histories that they are judged by."""
    import made_stories as stories
    from conformance_reports import report, scenario_report, trial
    from trainspec_conformance.reading import all_scenarios

    told = {"null-run": stories.calm, "kill-rank": stories.struck, "hang-rank": stories.hung, "full-disk": stories.full}
    found = []
    for name in sorted(told.keys() & all_scenarios().keys()):
        scenario = all_scenarios()[name]
        files = {"x/trial-1/history.jsonl": told[name](scenario), "c/control-1/history.jsonl": stories.calm(scenario)}
        lines = {path: b"".join(msgspec.json.encode(one) + b"\n" for one in told) for path, told in files.items()}
        listed = [Evidence(path=p, size_bytes=len(t), sha256=hashlib.sha256(t).hexdigest()) for p, t in lines.items()]
        one = scenario_report(name, "pass", trial(), control="c/control-1")
        made = report(one, evidence=tuple(listed))
        found.append({"report.json": msgspec.json.format(msgspec.json.encode(made)), **lines})
    return tuple(found)


@cache
def resumable() -> tuple[Files, ...]:
    """Directories of checkpoints that a launcher may resume from: each of one series with another next to it."""
    found = []
    for files in checkpoints():
        tops = sorted({name.partition("/")[0] for name in files if "/" in name})
        if tops:
            beside = {f"step-9/{n.partition('/')[2]}": c for n, c in files.items() if n.startswith(f"{tops[0]}/")}
            found.append({**files, **beside})
    return tuple(found)


@cache
def nodes() -> tuple[Files, ...]:
    """A cluster profile, and what the tools of its two nodes printed."""
    printed = {
        "smi.txt": node_reports.smi(),
        "ibstat.txt": node_reports.ports(),
        "dcgmi.txt": node_reports.diagnostic(),
        "all_reduce.txt": node_reports.benchmark(480),
    }
    told = {f"nodes/node{n}/{name}": text.encode() for n in (1, 2) for name, text in printed.items()}
    return ({"cluster.yaml": node_reports.profile(2).encode(), **told},)
