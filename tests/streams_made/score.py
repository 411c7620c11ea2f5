"""Judges damaged runs and logs: whether the damage is detected, and by which requirement."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from trainspec_validate.model.finding import Finding
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

from .damage import BASES, Damage, undamaged
from .mllog import entries, make_log, text_of
from .mllog_damage import LogDamage
from .run import make_run
from .write import put

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = Path(os.environ.get("TRAINSPEC_SAMPLES", ROOT.parent / "shared" / "samples"))
MADE = "made log"
RULESETS = {
    MADE: "5.1.0",
    "mlperf_v51_llama31_405b_5120xGB200.mllog.txt": "5.1.0",
    "mlperf_v40_gpt3_tpu_v5p_12288_maxtext.mllog.txt": "4.0.0",
}
"""Logs that are damaged, with the rules that they were written by; those of other people lie outside the repository."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of one kind of damage."""

    name: str
    what: str
    meant: tuple[str, ...]
    found: tuple[str, ...]
    """Requirements with more or other findings than the undamaged run has."""

    @property
    def caught(self) -> bool:
        """Whether a requirement that is meant to notice the damage does."""
        return bool(set(self.meant) & set(self.found))

    @property
    def noticed(self) -> bool:
        """Whether anything notices it; a crash notices nothing."""
        return bool(set(self.found) - {CRASHED})


Fingerprints = Counter[tuple[str, str, str]]
CRASHED = "error"
"""Stands for a requirement where the validator does not come to an end."""


def findings(files: Mapping[str, bytes | str], name: str = "") -> Fingerprints:
    """What the validator says of files that lie in one folder, or of one of them."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return _fingerprints(list(validate([put(files, Path(folder)) / name]).findings))
        except InputError as refused:
            return Counter({("refused", "", type(refused).__name__): 1})
        except Exception as crash:
            return Counter({(CRASHED, "", repr(crash)): 1})


def _fingerprints(found: list[Finding]) -> Fingerprints:
    """Requirement, file and message, without what differs between equal runs."""
    return Counter((f.requirement, Path(f.path).name, re.sub(r"\d+", "#", f.message)) for f in found)


@cache
def of_undamaged(base: str) -> Fingerprints:
    """What the validator says of an undamaged run."""
    return findings(undamaged(base))


def judge(kind: Damage) -> Verdict:
    """Damage a run and say what notices it."""
    files = kind.apply(make_run(BASES[kind.base]))
    new = findings(files) - of_undamaged(kind.base)
    return Verdict(kind.name, kind.what, kind.requirements, tuple(sorted({key[0] for key in new})))


# --- logs in the MLPerf text format


@cache
def log_texts() -> dict[str, str]:
    """Logs to damage: the made one, and the samples where they are there."""
    paths = {name: SAMPLES / name for name in RULESETS if name != MADE}
    real = {name: path.read_text(encoding="utf-8") for name, path in paths.items() if path.is_file()}
    return {MADE: text_of(make_log()), **real}


@cache
def of_undamaged_log(name: str) -> Fingerprints:
    """What the validator says of an undamaged log."""
    return findings({"log.txt": text_of(entries(log_texts()[name]))}, "log.txt")


def damaged_log(kind: LogDamage, name: str) -> str | None:
    """The damaged log; None where it holds nothing that this kind damages."""
    text = text_of(entries(log_texts()[name]))
    damaged = kind.apply(text)
    return None if damaged == text else damaged


def judge_log(kind: LogDamage, name: str) -> Verdict | None:
    """Damage a log and say what notices it; None where there is nothing to damage."""
    text = damaged_log(kind, name)
    if text is None:
        return None
    new = findings({"log.txt": text}, "log.txt") - of_undamaged_log(name)
    return Verdict(kind.name, kind.what, kind.requirements, tuple(sorted({key[0] for key in new})))


def other_checker_accepts(text: str, name: str, interpreter: str = sys.executable) -> bool | None:
    """Whether the compliance checker of MLPerf accepts a log; None where that interpreter does not have it."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log.txt").write_text(text, encoding="utf-8")
        module = "mlperf_logging.compliance_checker"
        arguments = ["--usage", "training", "--ruleset", RULESETS[name], "log.txt"]
        command = [interpreter, "-m", module, *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    if "No module named" in done.stderr:
        return None
    return bool(re.search(r"^\S+ - SUCCESS$", done.stderr, re.MULTILINE))
