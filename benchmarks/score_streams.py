"""Scores stream checks by the kinds of damage to runs and to MLPerf logs that they detect.

Run with `python benchmarks/score_streams.py`. The runs are made (`tests/streams_made`), so that nothing but the damage
is wrong with them; findings that the undamaged run has do not count. Damage is caught when a requirement that is meant
for it finds it. For comparison, the compliance checker of MLPerf runs on the same damaged logs, unmodified
(`pip install mlperf-logging`, or `--checker` with an interpreter that has it).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from machine import describe
from streams_made.damage import Damage, few_kinds, kinds
from streams_made.mllog_damage import log_kinds
from streams_made.score import CRASHED, Verdict, damaged_log, judge, judge_log, log_texts, other_checker_accepts

from trainspec_validate.telemetry.kernels.jit import compile_loops

LEAST_SHARE = 0.95


def _short(requirements: tuple[str, ...], num: int = 4) -> str:
    names = [name.removeprefix("TS-") for name in requirements]
    return " ".join(names[:num]) + (f" +{len(names) - num}" if len(names) > num else "")


def _verdict(verdict: Verdict) -> str:
    if CRASHED in verdict.found:
        return "CRASHED"
    if verdict.caught:
        return "caught"
    return "noticed" if verdict.noticed else "MISSED"


def score_runs(chosen: Iterable[Damage]) -> list[Verdict]:
    """Print and give the verdict on each kind of damage to a run."""
    print("Damage to metric streams")
    print(f"  {'kind':36} {'meant for':24} {'ours':8} found by")
    verdicts = []
    for kind in chosen:
        verdict = judge(kind)
        verdicts.append(verdict)
        print(f"  {kind.name:36} {_short(kind.requirements):24} {_verdict(verdict):8} {_short(verdict.found)}")
    return verdicts


def score_logs(pattern: str, interpreter: str) -> list[Verdict]:
    """Print and give the verdict on each kind of damage to a log; what cannot be done to a log is left out."""
    verdicts = []
    for name in log_texts():
        print(f"\nDamage to {name}")
        print(f"  {'kind':38} {'ours':8} {'MLPerf checker':16} found by")
        accepted = judged = 0
        other = None
        for kind in log_kinds():
            text = damaged_log(kind, name) if pattern in kind.name else None
            verdict = judge_log(kind, name) if text is not None else None
            if text is None or verdict is None:
                continue
            other = other_checker_accepts(text, name, interpreter)
            judged += 1
            accepted += bool(other)
            says = {None: "not installed", True: "accepts", False: "rejects"}[other]
            ours = "beyond" if kind.beyond and not verdict.found else _verdict(verdict)
            print(f"  {kind.name:38} {ours:8} {says:16} {_short(verdict.found) or kind.beyond}")
            if not kind.beyond:
                verdicts.append(verdict)
        if other is not None:
            print(f"  the MLPerf checker accepts {accepted} of {judged}")
    return verdicts


def summary(title: str, verdicts: list[Verdict]) -> float:
    """Print and give the share of damage that is caught."""
    caught, noticed = sum(v.caught for v in verdicts), sum(v.noticed for v in verdicts)
    share = caught / len(verdicts) if verdicts else 1.0
    print(f"{title}: caught {caught} of {len(verdicts)} ({share:.1%}), noticed by anything {noticed}")
    missed = [verdict.name for verdict in verdicts if not verdict.caught]
    if missed:
        print(f"  not caught: {', '.join(missed)}")
    return share


def main() -> int:
    """Print all tables; 1 where less is caught than the least share."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="judge the kinds whose name holds this text")
    parser.add_argument("--checker", default=sys.executable, help="interpreter that has mlperf-logging")
    parser.add_argument("--runs-only", action="store_true", help="leave the logs out")
    parser.add_argument("--short", action="store_true", help="judge the kinds of damage that name all requirements")
    arguments = parser.parse_args()
    print(describe("numpy", "msgspec", "trainspec-validate"))
    compile_loops()
    begin = time.perf_counter()
    chosen = few_kinds() if arguments.short else kinds()
    runs = score_runs(kind for kind in chosen if arguments.only in kind.name)
    logs = [] if arguments.runs_only else score_logs(arguments.only, arguments.checker)
    print()
    share = summary("Runs", runs)
    if logs:
        summary("Logs", logs)
    print(f"{time.perf_counter() - begin:.0f} s")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
