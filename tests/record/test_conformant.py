"""A small training loop on four processes, with an evaluation, saves, a killed rank and a restart, is conformant."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .recorded import errors, events, records, values

WORLD_SIZE, NUM_STEPS, FAULT_STEP, SAVE_EVERY = 4, 60, 33, 10
STEP_SECONDS = 0.02
BATCH, TOKENS = 8, 4096
OF_RUN: dict[str, Any] = {"flops_per_token": 4.2e5, "peak_flops": 1e9, "loss_reduction": "global-token-mean"}


def train(run: Any, barrier: Any, first: int) -> None:
    commits = []
    for number in range(first, NUM_STEPS):
        with run.phase("data_wait"):
            time.sleep(STEP_SECONDS / 10)
        with run.step(number):
            time.sleep(STEP_SECONDS)
            barrier.wait(600)
            if first == 0 and number == FAULT_STEP and os.environ["RANK"] == "2":
                os.kill(os.getpid(), signal.SIGKILL)
            loss = 2 + math.exp(-number / 50) + 1e-4 * (number * 7919 % 101)
            run.log(loss=loss, tokens=TOKENS, samples=BATCH, learning_rate=1e-3 / (number + 1))
            run.log(gradient_norm=1 + 1e-3 * (number * 104729 % 1009), clipped=number % 3 == 0)
        if number % 25 == 24:
            with run.evaluation("held-out") as evaluation:
                time.sleep(0.05)
                evaluation.log(loss=loss + 0.04)
        if number % SAVE_EVERY == SAVE_EVERY - 1:
            with run.checkpoint(size_bytes=1_000_000, asynchronous=True) as save:
                time.sleep(0.005)
            commits.append(threading.Timer(0.03, save.commit))
            commits[-1].start()
    for commit in commits:
        commit.join()


def process(environment: dict[str, str], barrier: Any, first: int) -> None:
    os.environ.update(environment)
    import trainspec_record

    with trainspec_record.run(**OF_RUN) as run:
        if first:
            with run.restore(f"step-{first}", first):
                time.sleep(0.05)
        train(run, barrier, first)


def launch(folder: Path, attempt: int, first: int) -> list[int | None]:
    """One attempt as torchrun starts it: when a rank dies, all others are killed."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(WORLD_SIZE)
    group = []
    for rank in range(WORLD_SIZE):
        environment = {
            "TRAINSPEC_RUN": str(folder),
            "TRAINSPEC_HOST": "node-1",
            "TRAINSPEC_DEVICE": f"GPU-{rank}",
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(WORLD_SIZE),
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
        }
        group.append(context.Process(target=process, args=(environment, barrier, first)))
    for each in group:
        each.start()
    while all(each.exitcode in {None, 0} for each in group) and any(each.exitcode is None for each in group):
        time.sleep(0.02)
    if any(each.exitcode for each in group):
        time.sleep(0.5)
        for each in group:
            each.kill()
    for each in group:
        each.join(600)
    return [each.exitcode for each in group]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "r-1"
    assert -signal.SIGKILL in launch(folder, 0, 0)
    assert launch(folder, 1, 30) == [0] * WORLD_SIZE
    return folder


@pytest.mark.slow
def test_the_validator_finds_no_error(run: Path) -> None:
    assert not errors(run)


@pytest.mark.slow
def test_each_emitter_has_a_file_for_each_attempt(run: Path) -> None:
    emitters = ["job", "node-node-1", *(f"rank-{rank:06}" for rank in range(WORLD_SIZE))]
    assert sorted(path.name for path in run.iterdir()) == sorted(f"{e}.{a}.jsonl" for e in emitters for a in (0, 1))
    for path in run.iterdir():
        records(path)


def test_the_killed_attempt_is_ended_by_its_successor(run: Path) -> None:
    names = Counter(record.get("name") for record in records(run / "job.0.jsonl"))
    assert names["train.attempt.end"] == names["train.fault.detected"] == names["train.recovery.begin"] == 1
    (resumed,) = events(run / "job.1.jsonl", "train.recovery.end")
    assert resumed["a"]["train.recovery.outcome"] == "resumed"
    assert resumed["m"]["train.step.repeated"] == FAULT_STEP + 1 - 30
    assert len(events(run / "job.1.jsonl", "train.fault.cleared")) == 1


def test_counters_go_on_from_the_restored_update(run: Path) -> None:
    samples = values(run / "job.1.jsonl", "train.sample.count")
    assert samples[0] == 30 * BATCH
    assert samples[-1] == NUM_STEPS * BATCH
    assert values(run / "job.1.jsonl", "train.gradient.clip.count")[-1] == NUM_STEPS // 3


def test_time_by_category_is_all_the_time(run: Path) -> None:
    last = [r for r in records(run / "job.1.jsonl") if "train.world.active" in r.get("m", {})][-1]
    spent = {key: value for key, value in last["m"].items() if key.startswith("train.goodput.time")}
    began_us = records(run / "job.0.jsonl")[0]["counters_start_us"]
    assert sum(spent.values()) == pytest.approx((last["time_us"] - began_us) / 1e6, rel=1e-3)
    of = {key.partition("=")[2].rstrip("}"): value for key, value in spent.items()}
    assert min(of[name] for name in ("productive", "replay", "evaluation", "checkpoint_save", "fault_wait")) > 0


def test_ranks_name_their_host_and_device(run: Path) -> None:
    heads = [records(run / f"rank-{rank:06}.1.jsonl")[0] for rank in range(WORLD_SIZE)]
    assert [head["device"] for head in heads] == [f"GPU-{rank}" for rank in range(WORLD_SIZE)]
    assert {head["host"] for head in heads} == {"node-1"}
