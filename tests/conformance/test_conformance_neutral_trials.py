"""A trial gives a stack nothing by which it could recognise the scenario, and nothing to resume from but its store."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from conformance_stacks import HERE, failed, fake, run, scenario
from made_stories import CLAIMS
from trainspec_conformance.criteria import Case, all_checks
from trainspec_conformance.damage import damage
from trainspec_conformance.drawing import drawn, drawn_job, num_kinds, run_seed, trial_seed
from trainspec_conformance.history import read_history
from trainspec_conformance.isolating import LEAST_AGE_SECONDS, MOST_AGE_SECONDS, memory_words, move_store, put_aside
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Damaged, Entry, Listed, Started
from trainspec_conformance.store import CANARY, CheckpointStore
from trainspec_conformance.suite import Order, run_suite
from trainspec_conformance.trial import HISTORY
from trainspec_conformance.view import View

from trainspec_validate.documents.types.conformance import Store
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.scenario import Damage as DamageAct
from trainspec_validate.documents.types.trace import Refused, Restore, Save, StepDone

SEVERAL = sorted(name for name, one in all_scenarios().items() if num_kinds(one) > 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL)
def test_each_kind_of_damage_has_a_trial_of_its_own_and_arrives(name: str, tmp_path: Path) -> None:
    one = scenario(name, num_steps=45, step_seconds=0.03)
    (result,) = run(fake(), tmp_path, one)
    assert result.state == "pass", failed(result)
    kinds = [
        [entry.record.kind for entry in read_history(trial.directory / HISTORY) if isinstance(entry.record, Damaged)]
        for trial in result.trials
    ]
    wanted = next(act.kinds for act in one.acts if isinstance(act, DamageAct))
    assert kinds == [[kind] for kind in wanted]


@pytest.mark.slow
def test_a_stack_is_given_no_name_of_scenario_trial_or_suite(tmp_path: Path) -> None:
    one = scenario("resume-equivalence", dropout=0.0)
    results = run(fake(), tmp_path, one, num_trials=2)
    trials = [*results[0].trials]
    tasks = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob("task-*.json"))]
    assert len(tasks) == 5, "two trials with two starts, and a run without faults"
    for task in tasks:
        told = json.dumps(task).replace(str(tmp_path), "")
        assert not [word for word in (one.metadata.name, "trial", "control", '"conformance"') if word in told]
    assert len({task["run"] for task in tasks}) == 3
    assert {task["job"]["seed"] for task in tasks} == {drawn_job(one.job, 0).seed}
    assert {task["job"]["num_steps"] for task in tasks} == {drawn_job(one.job, 0).num_steps}
    assert all(trial.passed for trial in trials), failed(results[0])


@pytest.mark.slow
def test_a_stopped_job_resumes_from_a_store_in_another_place(tmp_path: Path) -> None:
    (result,) = run(fake(), tmp_path, scenario("resume-equivalence", dropout=0.0))
    before, after = (
        Path(json.loads((result.trials[0].directory / f"task-{number}.json").read_text())["checkpoint_directory"])
        for number in range(2)
    )
    assert before.parent != after.parent
    moved = result.trials[0].directory / after.relative_to(before.parents[1])
    assert list(moved.glob("step-*"))
    assert not (result.trials[0].directory / "out" / before.name).exists()


def test_files_of_a_moved_store_are_dated_back_by_one_time(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "out" / "after"
    for number, name in enumerate(("step-10", "step-20")):
        (before / name).mkdir(parents=True)
        (before / name / "part").write_bytes(name.encode())
        os.utime(before / name / "part", (1_700_000_000 + number, 1_700_000_000 + number))
    (before / "latest").symlink_to("step-20")
    move_store(before, after, random.Random(3))
    assert not before.exists()
    assert (after / "latest").readlink() == Path("step-20")
    first, second = (1_700_000_000 - (after / name / "part").stat().st_mtime for name in ("step-10", "step-20"))
    assert (first, LEAST_AGE_SECONDS <= first <= MOST_AGE_SECONDS) == (pytest.approx(second + 1), True)


def test_what_a_stack_leaves_next_to_its_traces_is_gone_when_it_resumes(tmp_path: Path) -> None:
    trace, stream = tmp_path / "out" / "trace", tmp_path / "out" / "stream"
    kept = [trace / "rank-0.jsonl", stream / "rank-0.jsonl", tmp_path / "out" / CANARY]
    left = [
        trace / ".positions",
        trace / "hidden" / "state.jsonl",
        tmp_path / "out" / "run" / "state",
        stream.parent / "x",
    ]
    left.append(tmp_path / "moved" / "copy")
    for path in (*kept, *left):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("state")
    (trace / "link.jsonl").symlink_to(tmp_path / "elsewhere")
    put_aside(tmp_path / "moved", trace, tmp_path / "aside")
    assert all(path.is_file() for path in kept)
    assert not [path for path in left if path.exists()]
    assert len([path for path in (tmp_path / "aside").rglob("*") if path.is_file() and not path.is_symlink()]) == 5
    assert sorted(path.name for path in trace.iterdir()) == ["rank-0.jsonl"]


@pytest.mark.slow
def test_what_was_taken_away_is_kept_as_evidence_of_the_trial(tmp_path: Path) -> None:
    (result,) = run(fake("litter"), tmp_path, scenario("resume-equivalence", dropout=0.0))
    assert result.state == "pass", failed(result)
    assert (result.trials[0].directory / "aside-0" / "trace-left").read_text() == "state"
    assert not list(tmp_path.glob("*/trace")), "nothing is next to the trials"


SAYS = """
import json, os, sys
from pathlib import Path
task = json.loads(Path(sys.argv[1]).read_text())
places = [os.environ["TMPDIR"]]
for place in places:
    assert not os.listdir(place), place
    Path(place, "left").write_text("state")
print(places)
"""


def test_each_start_has_an_empty_temporary_directory_that_is_removed(tmp_path: Path) -> None:
    stack = fake()
    launch = msgspec.structs.replace(stack.launch, train=("{python}", "-c", SAYS, "{task}"), environment={})
    one = msgspec.structs.replace(scenario("null-run"), control=False)
    again = msgspec.structs.replace(one, acts=(*one.acts, *one.acts))
    (result,) = run_suite(Order(msgspec.structs.replace(stack, launch=launch), HERE, tmp_path, [again], num_trials=1))
    logs = [(result.trials[0].directory / f"log-{number}.txt").read_text() for number in range(2)]
    places = [json.loads(text.replace("'", '"'))[0] for text in logs]
    assert places[0] != places[1]
    assert not any(Path(place).exists() for place in places)


def test_drawn_jobs_are_equal_for_equal_jobs_and_differ_between_runs_of_the_suite() -> None:
    job = all_scenarios()["null-run"].job
    assert drawn_job(job, 3) == drawn_job(job, 3)
    assert len({drawn_job(job, seed).seed for seed in range(20)}) > 15
    assert all(1 <= drawn_job(job, seed).num_steps - job.num_steps <= 7 for seed in range(50))


def test_the_run_of_the_suite_is_known_from_the_seed_of_a_trial() -> None:
    assert [run_seed(trial_seed(seed, 7)) for seed in (0, 1, 2**31 - 1)] == [0, 1, 2**31 - 1]


def test_kinds_take_turns() -> None:
    one = all_scenarios()["truncated-shard"]
    kinds = [next(act.kinds for act in drawn(one, 0, n).acts if isinstance(act, DamageAct)) for n in range(1, 7)]
    assert kinds == 2 * [("cut-byte",), ("cut-half",), ("zero-block",)]


@pytest.mark.parametrize("kind", ["cut-byte", "flip-bit", "zero-block", "delete-file", "stale-file", "pointer-garbage"])
def test_times_of_modification_tell_nothing_of_damage(kind: str, tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Store(pointer="latest"))
    for step in (10, 20):
        folder = store.directory / f"step-{step}"
        folder.mkdir(parents=True)
        for number in range(2):
            (folder / f"part-{number}").write_bytes(bytes([step + number]) * 5000)
    (store.directory / "latest").write_text("step-20")
    files = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()}
    folders = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_dir()}
    (done,) = damage(kind, "newest", store, random.Random(1), 10)
    assert done.kind == kind
    kept = {path: was for path, was in files.items() if path.exists()}
    assert {path: path.stat().st_mtime_ns for path in kept} == {path: time for path, (time, _) in kept.items()}
    assert {path: path.stat().st_mtime_ns for path in folders} == folders
    assert [path for path, (_, content) in files.items() if not path.exists() or path.read_bytes() != content]


def refusal_at(seconds: float) -> list[str]:
    """What `names-damage` says of a refusal that is seen at some time, with restores at 4.62 s and a step at 5 s."""
    one = all_scenarios()["truncated-shard"]
    restore = {"step": 20, "source": "checkpoint", "checkpoint": "step-20", "attempt": 1, "time_us": 1}
    entries = [
        Entry(seconds=0.1, record=Started(pid=1, attempt=0, num_ranks=2)),
        *(
            Entry(seconds=0.5 + n, record=Save(checkpoint=f"step-{n}0", step=10 * n, stage="committed", time_us=1))
            for n in (1, 2, 3)
        ),
        Entry(seconds=4.0, record=Listed(checkpoints=("step-10", "step-20", "step-30"))),
        Entry(seconds=4.1, record=Damaged(kind="cut-byte", checkpoint="step-30", file="part-0")),
        Entry(seconds=4.2, record=Started(pid=2, attempt=1, num_ranks=2, resume=True)),
        Entry(seconds=4.620, record=Restore(rank=0, **restore)),
        Entry(seconds=4.630, record=Restore(rank=1, **restore)),
        Entry(seconds=5.0, record=StepDone(rank=0, step=21, loss=1.0, learning_rate=0.1, attempt=1, time_us=1)),
        Entry(seconds=seconds, record=Refused(checkpoint="step-30", reason="it is cut", attempt=1, time_us=1)),
    ]
    case = Case(one, CLAIMS, View(sorted(entries, key=lambda entry: entry.seconds)))
    return [problem.message for problem in all_checks()["names-damage"](case, Criterion(check="names-damage"))]


def test_a_refusal_counts_whichever_process_is_read_first() -> None:
    assert refusal_at(4.5) == []
    assert refusal_at(4.643) == []
    assert refusal_at(9.0) == ["step-30 was damaged (cut-byte) and was not refused by name"]


def test_segments_of_shared_memory_are_private(tmp_path: Path) -> None:
    words = memory_words()
    if not words:
        pytest.skip("this machine allows no private shared memory")
    shell = ["/bin/sh", "-c", "readlink /proc/self/ns/ipc; read _"]
    with ExitStack() as stack:  # all at once, as the system gives the number of one that has ended to the next
        started = [
            stack.enter_context(
                subprocess.Popen([*before, *shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for before in ((), words, words)
        ]
        spaces = [process.stdout.readline() for process in started if process.stdout]
        for process in started:
            process.communicate("\n", timeout=60)
    assert len(set(spaces)) == 3
    assert all(spaces)


def test_private_shared_memory_is_made_with_programs_of_the_suite() -> None:
    words = memory_words()
    if not words:
        pytest.skip("this machine allows no private shared memory")
    assert [Path(word).is_absolute() for word in (words[0], words[-1])] == [True, True]
    marker = Path("/dev/shm") / f"left-{os.getpid()}"
    marker.write_text("state")
    try:
        seen = subprocess.run(
            [*words, sys.executable, "-c", "import os; print(os.listdir('/dev/shm'))"],
            env={"PATH": "/nowhere"},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        marker.unlink()
    assert seen.stdout.strip() == "[]"


def test_lengths_of_jobs_are_short_and_long_in_turn() -> None:
    one = all_scenarios()["any-length"]
    found = [[drawn(one, seed, number).job.num_steps for number in (1, 2, 3, 4)] for seed in range(50)]
    assert all(8 <= short <= 20 for lengths in found for short in lengths[::2])
    assert all(10_000 <= long <= 1_000_000 for lengths in found for long in lengths[1::2])
    assert len({tuple(lengths) for lengths in found}) == 50
    assert found[7] == [drawn(one, 7, number).job.num_steps for number in (1, 2, 3, 4)]
