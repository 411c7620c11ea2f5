"""Compares published layouts with the planner's, under one model and the same constraints.

Ranks, batch, sequence length, memory and number formats are those of the run for both. Settings that a
publication omits take the values that the model predicts to be best among those that fit and are predicted to take at
most twice the measured step, which favours the published plan.
Everything is compared twice:

- planner: with the kernels, the overlap and the memory savings that the planner counts on, among all candidates of its
  space;
- its time: with the kernels and the overlap of the run, among those candidates that its software could run
  (available_means.csv, with sources), so that an old plan is not blamed for its age.

A rank counts all candidates, and those that do not fit rank last: a planner must recognise them as well.
Candidates that are one plan in effect count once: with fused attention, selective recomputation repeats nothing, and is
no recomputation under another name. The summary also gives the rank if each counted for itself,
and the rank among the candidates that the search compares: they fit, and no other form of their layout is faster by
construction.

Where a published plan is not in the top tenth of its time, plan_reasons.csv says why, with sources, and what the same
authors published later for models of that size.

A published plan that does not fit by the memory model ran all the same; then both may use as much memory as it needs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

from plan_rows import TOLD
from plan_tables import LEGEND, short, table
from standings import SAME, Comparison, Standing, compare
from training_sets import Run, load, rows

from trainspec_validate.planner.space import RECOMPUTATIONS

TOP_SHARE = 0.1
_LARGE_ERROR = 0.15
_MANY = 100
"""Candidates below which a tenth says little."""
REASONS = Path(__file__).resolve().parent / "published" / "plan_reasons.csv"
SHORT_ROWS = ("llama3_t4-002", "megatron2021_t1-010", "korthikanti2022_t5-004", "megatron_h100_2024-009")


def why(one: Standing, measured: float) -> str:
    """Details of a plan that misses a target; empty where it meets all."""
    published, words = one.published.choice, list[str]()
    if one.ratio > 1 + SAME:
        split = published.layout.stage_layers
        words.append("chunks without layers, which the planner lacks" if 0 in split else "a form the planner lacks")
    if one.rank > TOP_SHARE:
        words += _slower(one)
        error = one.published.seconds / measured - 1
        if abs(error) > _LARGE_ERROR:
            words.append(f"the model is {error:+.0%} off the measured step")
    return ", ".join(words)


def reasons() -> dict[str, tuple[str, str]]:
    """Why the plan of a row was not the fastest of its time, and the evidence."""
    with REASONS.open(encoding="utf-8", newline="") as file:
        return {line["row_id"]: (line["reason"], line["evidence"]) for line in csv.DictReader(file)}


def _slower(one: Standing) -> list[str]:
    """What the published plan does that the best one does not."""
    published, best, words = one.published.choice, one.best.choice, []
    if RECOMPUTATIONS.index(published.recompute) > RECOMPUTATIONS.index(best.recompute):
        words.append(f"{published.recompute} recomputation where {best.recompute} fits")
    if published.layout.sharding_stage < best.layout.sharding_stage:
        words.append("optimizer not sharded")
    if published.layout.tensor > 1 and best.layout.sequence_parallel > published.layout.sequence_parallel:
        words.append("no sequence parallelism")
    if one.rank_of_degrees > TOP_SHARE:
        words.append("the model likes other degrees")
    return words or ["the model likes other chunks or another micro-batch"]


def print_published(*, small: bool) -> None:
    """Print the comparison of every published row."""
    known = {row["row_id"]: row for row in rows()}
    runs = [run for run in load()[0] if run.dataset in TOLD and (not small or run.row in SHORT_ROWS)]
    results = [compare(run, known[run.row]) for run in runs]
    print("\n== Published plans and the planner's ==\n" + (__doc__ or "").split("\n\n", 1)[1])
    print(LEGEND)
    print("ratio: best over published (aim: at most 1); faster: share of the candidates that are faster than the")
    print("published plan (aim: at most 10 %); degrees: the same for the best choice with the published degrees;")
    print("compared: the same of those that the search compares.\n")
    columns = ("ratio", "candidates", "faster", "degrees", "compared")
    head = ("row", "ranks", "measured s", "published s", "planner s", *columns, "| its time s", "best s", *columns)
    print(table(head, [_figures(one) for one in results]))
    plans = [
        (one.run.row, *(short(item.choice) for item in (one.planner.published, one.planner.best, one.its_time.best)))
        for one in results
    ]
    print("\n" + table(("row", "published, untold at its best", "planner", "best of its time"), plans))
    for name, standings in (
        ("planner", [one.planner for one in results]),
        ("its time", [one.its_time for one in results]),
    ):
        _summary(name, runs, standings)
    _reasons(results)
    _over(results)


def _reasons(results: list[Comparison]) -> None:
    known = reasons()
    print("\nWhy published plans are not in the top tenth of their time:")
    for one in results:
        if one.its_time.rank > TOP_SHARE:
            reason, evidence = known.get(one.run.row, ("not known", "none"))
            print(f"  {one.run.row:24} {reason}\n  {'':24} evidence: {evidence}")


def _figures(one: Comparison) -> tuple[str, ...]:
    run = one.run
    start = (run.row, f"{run.work.layout.num_ranks:,}", f"{run.seconds:.2f}")
    return (*start, *_columns(one.planner, ""), *_columns(one.its_time, "| "))


def _columns(one: Standing, before: str) -> tuple[str, ...]:
    return (
        f"{before}{one.published.seconds:.2f}",
        f"{one.best.seconds:.2f}",
        f"{one.ratio:.3f}",
        f"{one.num_candidates:,}",
        f"{one.rank:.1%}",
        f"{one.rank_of_degrees:.1%}",
        f"{one.compared_rank:.1%}",
    )


def _summary(name: str, runs: list[Run], standings: list[Standing]) -> None:
    count, many = len(standings), [one for one in standings if one.num_candidates >= _MANY]
    reached, ratio = sum(one.ratio <= 1 + SAME for one in standings), median(one.ratio for one in standings)
    print(f"\nCounted as {name}: best plan at or below the published one in {reached} of {count} rows (aim: all),")
    print(f"median ratio {ratio:.3f};")
    print(f"published plan in the top tenth in {_top([one.rank for one in standings])} (aim: all),")
    print(f"  in {_top([one.rank for one in many])} with {_MANY} candidates or more,")
    print(f"  in {_top([one.rank_with_repeats for one in standings])} where candidates that are one plan count each,")
    print(f"  in {_top([one.compared_rank for one in standings])} among those that the search compares;")
    print(
        f"best plan with the published degrees in the top tenth in {_top([one.rank_of_degrees for one in standings])}."
    )
    print("Details of misses:")
    for run, one in zip(runs, standings, strict=True):
        if words := why(one, run.seconds):
            print(f"  {run.row:24} {words}")


def _top(shares: list[float]) -> str:
    return f"{sum(share <= TOP_SHARE for share in shares)} of {len(shares)} rows"


def _over(results: list[Comparison]) -> None:
    print("\nPublished plans that need more than the memory less reserve by the model, and had it in the comparison:")
    for one in results:
        if over := max(one.planner.over_bytes, one.its_time.over_bytes):
            print(f"  {one.run.row:24} {over / 1e9:.1f} GB")
