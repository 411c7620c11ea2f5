"""The public interface of the package: its names and signatures, frozen here as data."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import trainspec_validate
from trainspec_validate import Finding, InputError, Report, Severity, validate

BASE = Path(__file__).resolve().parents[1] / "spec" / "v1" / "base"

NAMES = [
    *("CheckpointPolicy", "ClusterProfile", "Constraints", "Coverage", "DocumentSummary", "Dumps", "Evidence"),
    *("Exported", "Finding"),
    *("Input", "InputError", "InvalidDocumentError", "LeftOut", "NamedText", "NoPlanError", "NotExpressible"),
    *("Outcome", "PartialInputError", "PlanSearch", "PlannedJob", "Related", "Report", "Selection", "Severity"),
    *("Span", "Suppressed", "SuppressionKind", "TrainingPlan", "Unjudged", "UnreadableError", "Verdict"),
    *("__version__", "export", "export_formats", "judge_run", "plan", "render", "validate"),
]
VALIDATE = {
    "inputs": "Input | Iterable[Input]",
    "selection": "Selection | None = None",
    "stdin_name": "str = '<stdin>'",
    "waivers": "str | os.PathLike[str] | None = None",
    "baseline": "Baseline | str | os.PathLike[str] | None = None",
    "today": "date | None = None",
    "progress": "Progress | None = None",
}
FIELDS = {
    "Finding": [
        *("requirement", "name", "severity", "message", "path", "pointer"),
        *("points_at_key", "span", "help", "url", "related", "evidence", "source_line"),
    ],
    "Report": [
        *("findings", "suppressed", "documents", "outcomes"),
        *("specification_version", "tool_version", "coverage", "unjudged", "settings", "left_out", "passed_over"),
        "never_fails",
    ],
    "Selection": ["profile", "select", "ignore"],
}


def test_names() -> None:
    assert sorted(trainspec_validate.__all__) == NAMES
    assert not [name for name in NAMES if not hasattr(trainspec_validate, name)]
    assert set(NAMES) <= set(dir(trainspec_validate))


def test_signature_of_validate() -> None:
    signature = inspect.signature(validate)
    found = {
        name: str(parameter).split(": ", 1)[1].replace('"', "'") for name, parameter in signature.parameters.items()
    }
    assert {name: text.replace("'", "") for name, text in found.items()} == {
        name: text.replace("'", "") for name, text in VALIDATE.items()
    }
    assert str(signature.return_annotation) == "Report"
    keyword_only = [name for name, p in signature.parameters.items() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert keyword_only == list(VALIDATE)[2:]


@pytest.mark.parametrize("name", FIELDS)
def test_fields(name: str) -> None:
    assert [field.name for field in dataclasses.fields(getattr(trainspec_validate, name))] == FIELDS[name]


def test_severities() -> None:
    assert [severity.value for severity in Severity] == ["error", "warning", "note"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="valdiate"):
        _ = trainspec_validate.valdiate  # type: ignore[attr-defined]


def test_use(tmp_path: Path) -> None:
    report = validate([BASE / "plan.yaml"])
    assert isinstance(report, Report)
    assert report.at_or_above(Severity.ERROR) == ()
    bad = tmp_path / "plan.yaml"
    bad.write_text("apiVersion: trainspec/v1\nkind: TrainingPlan\n", encoding="utf-8")
    findings = validate([bad]).at_or_above(Severity.ERROR)
    assert findings
    assert all(isinstance(finding, Finding) for finding in findings)


def test_input_errors_carry_the_rest(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        validate([BASE / "plan.yaml", tmp_path / "absent.yaml"])
    assert len(caught.value.args) == 1
    assert isinstance(caught.value.report, Report)  # type: ignore[attr-defined]
    with pytest.raises(InputError) as caught:
        validate([tmp_path / "absent.yaml", tmp_path / "gone.yaml"])
    assert len(caught.value.args) == 2


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'msgspec', 'yaml', 'jsonschema_rs', 'click', 'rich', 'trainspec_validate.pipeline.validation'}"
    code = f"import sys, trainspec_validate; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_of_the_caller_is_left_alone(enabled: bool, tmp_path: Path) -> None:
    """Also while it validates: other threads of the process go on."""
    (tmp_path / "plan.yaml").write_text("apiVersion: trainspec/v1\nkind: TrainingPlan\n")
    seen = []
    before = gc.isenabled(), gc.get_threshold()
    (gc.enable if enabled else gc.disable)()
    try:
        validate([tmp_path], progress=lambda *_: seen.append(gc.isenabled()))
        assert set(seen) == {enabled}
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if before[0] else gc.disable)()
    assert (gc.isenabled(), gc.get_threshold()) == before


SETTINGS = """
import decimal, gc, json, locale, logging, os, resource, signal, sys, threading, warnings

def settings():
    signals = {str(each): str(signal.getsignal(each)) for each in signal.valid_signals()}
    found = [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), dict(os.environ), os.getcwd(), signals]
    found += [sys.getrecursionlimit(), sys.get_int_max_str_digits(), sys.getswitchinterval(), str(sys.excepthook)]
    found += [locale.setlocale(locale.LC_ALL), str(decimal.getcontext()), list(map(str, warnings.filters))]
    found += [[id(each) for each in logging.getLogger().handlers], logging.getLogger().level, sys.path, sys.argv]
    found += [[each.name for each in threading.enumerate()], [id(sys.stdin), id(sys.stdout), id(sys.stderr)]]
    found += [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT")]
    mask = os.umask(0)
    os.umask(mask)
    return json.dumps([*found, mask, threading.excepthook is threading.__excepthook__], indent=1)

import numpy  # which adds filters of warnings when it is loaded
from trainspec_validate import export, judge_run, plan, validate
before = settings()
base, stream, place = sys.argv[1:]
files = [f"{base}/{name}.yaml" for name in ("cluster", "plan", "checkpoint")]
validate(files)
validate([place])
judge_run(stream, *files)
plan(files[0], "llama3-8b", num_ranks=64, global_sequences=512)
export(files[1], "slurm", cluster=files[0])
after = settings()
print(*(line for line in after.splitlines() if line not in before.splitlines()), sep="\\n")
sys.exit(after != before)
"""


@pytest.mark.slow
def test_the_process_of_the_caller_is_left_alone(tmp_path: Path) -> None:
    """Collector, signals, environment, limits, locale, warnings, logging, threads, directory and standard files."""
    root = BASE.parents[2]
    (tmp_path / "a.yaml").write_text("apiVersion: trainspec/v1\nkind: TrainingPlan\n", encoding="utf-8")
    arguments = [str(BASE), str(root / "examples" / "broken" / "job.jsonl"), str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", SETTINGS, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


AT_ONCE = """
import sys, threading, traceback
from concurrent.futures import ThreadPoolExecutor

sys.setswitchinterval(1e-4)
from trainspec_validate import validate

files, barrier = sys.argv[1:], threading.Barrier(8, timeout=60)

def judged(_):
    barrier.wait()
    return [[str(finding) for finding in validate([file]).findings] for file in files]

with ThreadPoolExecutor(8) as threads:
    first, *others = threads.map(judged, range(8))
sys.exit(f"{first} differs from {others}" if any(other != first for other in others) else 0)
"""


def test_threads_that_validate_first_at_once_get_equal_findings() -> None:
    """Types and checks are loaded at their first use, which was a crash where two threads met it."""
    examples = BASE.parents[2] / "examples"
    files = [*sorted((examples / "broken").glob("*.yaml")), examples / "broken" / "job.jsonl"]
    done = subprocess.run([sys.executable, "-c", AT_ONCE, *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
