"""The benchmarks of the planner run, print the figures that they promise, and count them as they say."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.planner_makers import Make, make
from trainspec_validate.planner.search import search

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.fixture
def asked() -> Make:
    return make


def printed(*arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / "plans.py"), "--short", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_published_plans_are_ranked() -> None:
    text = printed("--part", "published")
    assert "Planner's search" not in text
    for row in ("llama3_t4-002", "megatron2021_t1-010", "korthikanti2022_t5-004", "megatron_h100_2024-009"):
        figures = re.search(rf"^{row} +[\d,]+ +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+) ", text, re.MULTILINE)
        assert figures, row
        measured, published, planner, ratio = map(float, figures.groups())
        assert ratio == pytest.approx(planner / published, abs=0.002)
        assert 0.5 < published / measured < 2
    assert re.search(r"at or below the published one in 4 of 4 rows", text)
    assert len(re.findall(r"published plan in the top tenth in \d of 4 rows", text)) == 2
    for line in re.findall(r"^(?:llama|mega|korth)\S+ +[\d,]+ .*\|.*$", text, re.MULTILINE):
        own = line.partition("|")[0].split()
        *_, candidates, faster, degrees, compared = own
        assert int(candidates.replace(",", "")) > 0
        assert float(degrees[:-1]) <= float(faster[:-1]), "the best choice with these degrees is one of them"
        assert float(compared[:-1]) <= 100
    assert re.search(r"^  llama3_t4-002 +\d+\.\d GB$", text, re.MULTILINE)


@pytest.mark.slow
def test_default_and_plan_are_chained() -> None:
    text = printed("--part", "default")
    rows = re.findall(
        r"^(\S+ [\d,]+) +\S+ +[\d.]+M +(\S+) +(.*%) +(\S+) +(-?\d+)% +(apart|overlap)$", text, re.MULTILINE
    )
    assert len(rows) == 3
    for job, default, changes, plan, less, _ in rows:
        left = float(default)
        for change in re.findall(r"([+-][\d.]+)%", changes):
            left *= 1 + float(change) / 100
        assert left == pytest.approx(float(plan), rel=0.01), job
        assert 100 * (1 - float(plan) / float(default)) == pytest.approx(float(less), abs=1), job
    assert "the field claims" in text
    assert "bytes over slowest links" in text


@pytest.mark.slow
def test_search_and_enumeration_are_compared() -> None:
    text = printed("--part", "exhaustive")
    distance = re.search(r"worst distance within the limits ([\d.]+)%", text)
    assert distance
    assert float(distance[1]) < 5
    assert re.search(r"^llama3-405b, 16,384 ranks +[\d,]+ +[\d,]+ +[\d.]+ +t\d+ c\d+ p\d+", text, re.MULTILINE)


def test_nothing_of_the_search_is_outside_the_enumeration(asked: Make) -> None:
    from every_choice import enumerate_all, every_layout, within_limits

    goal = asked("aws-p4de-a100", "llama3-8b", num_ranks=4, global_sequences=4).goal
    best = search(goal, 1).best[0]
    found = enumerate_all(goal)
    assert found.within is not None
    assert found.everything is not None
    assert found.everything.seconds <= found.within.seconds <= best.outlook.step.seconds
    unsharded = replace(best.choice.layout, sharding_stage=0, sharding_degree=None)
    assert unsharded in [layout for layout in every_layout(goal) if within_limits(goal, layout)]


def test_the_default_recipe_is_the_smallest_pipeline_that_fits(asked: Make) -> None:
    from default_plans import default_choice

    request = asked("dgx-superpod-h100", "llama3-70b", num_ranks=64, global_sequences=64)
    choice = default_choice(request.goal, 8)
    assert choice is not None
    assert (choice.layout.tensor, choice.layout.pipeline, choice.layout.data) == (8, 2, 4)
    assert choice.recompute == "full"
    assert default_choice(replace(request.goal, reserve_bytes=79e9), 8) is None


def test_bytes_over_the_slowest_links_shrink_in_the_order_of_the_topology(asked: Make) -> None:
    from default_plans import default_choice, slow_bytes

    from trainspec_validate.performance.forecast.outlook import Settings

    goal = asked("meta-llama3-24k", "llama3-405b", num_ranks=16384, global_sequences=2048).goal
    choice = default_choice(goal, 8)
    assert choice is not None
    anywhere, links = slow_bytes(goal, choice.layout, Settings(rank_order="alphabetical"), flat=True)
    placed, _ = slow_bytes(goal, choice.layout, Settings(), flat=True)
    assert links == "pod"
    assert 0 < placed < anywhere / 5


def test_a_published_layout_with_chunks_without_layers_is_kept() -> None:
    from plan_rows import goal_of, published_choices
    from training_sets import load, rows

    run = next(run for run in load()[0] if run.row == "llama3_t4-001")
    row = next(row for row in rows() if row["row_id"] == run.row)
    chunks = {choice.layout.num_virtual_stages: choice.layout.stage_layers for choice in published_choices(run, row)}
    assert chunks[8] == (0, *(1,) * 126, 0)
    assert sum(chunks[7]) == 126
    assert goal_of(run).global_sequences == 2048


def test_the_means_of_published_software_have_sources() -> None:
    from available_means import means_of
    from plan_rows import TOLD
    from training_sets import load, rows

    known = {row["row_id"]: row for row in rows()}
    runs = {run.row: run for run in load()[0] if run.dataset in TOLD}
    assert all(means_of(known[row]) for row in runs)
    with (BENCHMARKS / "published" / "available_means.csv").open(encoding="utf-8", newline="") as file:
        assert all(line["source"] and line["value"] for line in csv.DictReader(file))


def test_one_plan_under_two_names_counts_once() -> None:
    from standings import Space

    from trainspec_validate.performance.costs.layout import Layout
    from trainspec_validate.planner.space import RECOMPUTATIONS, Choice

    choices = [Choice(Layout(), recompute) for recompute in RECOMPUTATIONS]
    fused, unfused = (Space(lambda goal, layout: iter(()), fused_attention=flag) for flag in (True, False))
    assert [fused.effect(choice).recompute for choice in choices] == ["none", "none", "full"]
    assert [unfused.effect(choice) for choice in choices] == choices, "scores that are kept can be repeated"


def test_reasons_name_rows_and_have_evidence() -> None:
    from plans_published import reasons
    from training_sets import load

    known = reasons()
    assert known.keys() < {run.row for run in load()[0]}
    assert all(reason and "arXiv" in evidence for reason, evidence in known.values())


def test_what_software_could_not_run_is_no_candidate() -> None:
    from available_means import means_of
    from training_sets import load, rows

    from trainspec_validate.performance.costs.layout import Layout

    run = next(run for run in load()[0] if run.row == "megatron2021_t1-007")
    row = next(row for row in rows() if row["row_id"] == run.row)
    means, layout = means_of(row), Layout(data=24, tensor=8, pipeline=8, num_micro_batches=48)
    assert means.allows(layout, 80)
    assert means.allows(replace(layout, num_virtual_stages=5), 80)
    assert not means.allows(replace(layout, num_virtual_stages=4), 80), "chunks hold as many layers each"
    assert not means.allows(replace(layout, pipeline=2, num_virtual_stages=5), 80), "chunks need more than two stages"
    assert not means.allows(replace(layout, context=2), 80)
    forms = list(means.forms(layout, run, row))
    assert [(form.sharding_stage, form.sequence_parallel, recompute) for form, recompute in forms] == [
        (0, False, "full")
    ]
    assert not means.own(replace(run.work, layout=layout), run.work).overlap_gradients
    alone = replace(run.work, layout=replace(layout, pipeline=1))
    assert means.own(alone, run.work).overlap_gradients


def test_told_micro_batches_and_chunks_are_kept() -> None:
    from plan_rows import published_choices
    from training_sets import load, rows

    run = next(run for run in load()[0] if run.row == "megatron2021_t1-007")
    row = next(row for row in rows() if row["row_id"] == run.row)
    choices = list(published_choices(run, row))
    assert {(choice.layout.micro_sequences, choice.layout.num_virtual_stages) for choice in choices} == {(2, 2)}
