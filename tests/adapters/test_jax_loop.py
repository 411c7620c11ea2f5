"""A loop in JAX is recorded: steps when their values are there, compilation, waits for input, and saves of Orbax."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.stacks import LOSS, Recorded, clean, need, run

BATCH, NUM_STEPS, GROWN = 4, 16, 10


@pytest.fixture(autouse=True)
def installed() -> None:
    need("jax", "flax", "optax", "orbax.checkpoint")


def train(out: Path, first: int = 0, **environment: str) -> Recorded:
    return run("jax_loop.py", out, str(first), JAX_PLATFORMS="cpu", **environment)


def test_a_loop(tmp_path: Path) -> None:
    found = train(tmp_path)
    clean(found)
    assert list(found.steps(LOSS)) == list(range(1, NUM_STEPS + 1))
    assert list(found.steps(LOSS).values()) == pytest.approx(found.truth["losses"])
    assert list(found.steps("train.gradient.norm").values()) == pytest.approx(found.truth["norms"])
    rates = list(found.steps("train.learning_rate").values())
    assert rates == pytest.approx([0.1 * 0.9**number for number in range(NUM_STEPS)])
    assert found.values("train.sample.count")[-1] == BATCH * (NUM_STEPS + 1)
    assert found.values("train.data.wait.time", "rank-000000")
    (evaluated,) = found.events("train.evaluation.end")
    assert evaluated["step"] == NUM_STEPS


def test_saves_are_committed_by_orbax(tmp_path: Path) -> None:
    found = train(tmp_path)
    commits = found.events("train.checkpoint.commit")
    assert [(each["id"], each["m"]["train.checkpoint.step"]) for each in commits] == [
        (f"step-{number}", number) for number in (4, 8, 12, 16)
    ]
    assert all(each["m"]["train.checkpoint.size"] > 100 for each in commits)
    begun = found.events("train.checkpoint.begin")
    assert [each["step"] for each in begun] == [4, 8, 12, 16]


def test_compilation_is_no_sign_of_the_pace(tmp_path: Path) -> None:
    found = train(tmp_path)
    warm = [
        record["step"]
        for record in found.file()
        if (record.get("a") or {}).get("train.step.warmup") and record["k"] == "m"
    ]
    assert warm == [1, GROWN + 1]
    (told,) = found.events("train.step.warmup_reset")
    assert told["step"] == GROWN + 1


def test_a_restore_goes_on_from_the_saved_counters(tmp_path: Path) -> None:
    whole = train(tmp_path)
    found = train(tmp_path, first=8)
    assert found.code == 0, found.output
    assert found.truth["losses"] == whole.truth["losses"][8:]
    (restored,) = found.events("train.checkpoint.restore.end", attempt=1)
    assert restored["a"]["train.restore.source"] == "step-8"
    assert found.values("train.sample.count", attempt=1)[0] == 8 * BATCH


def test_nothing_where_nothing_is_recorded(tmp_path: Path) -> None:
    found = train(tmp_path, TRAINSPEC_RUN="")
    assert found.code == 0, found.output
    assert not found.folder.exists()
    assert len(found.truth["losses"]) == NUM_STEPS


def test_the_loop_does_not_wait_for_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    import jax
    import jax.numpy as jnp

    import trainspec_record
    from tests.record.recorded import values
    from trainspec_record.adapters.jax import Loop

    monkeypatch.setenv("TRAINSPEC_RUN", str(tmp_path / "r-1"))
    monkeypatch.setenv("TRAINSPEC_NODE_SAMPLER", "none")
    lets_go, waiting, real = threading.Event(), threading.Event(), jax.block_until_ready

    def slow(found: object) -> object:
        waiting.set()
        lets_go.wait(600)
        return real(found)

    monkeypatch.setattr(jax, "block_until_ready", slow)
    with trainspec_record.run() as run, Loop(run) as loop:
        for number in range(3):
            with loop.step(number):
                loop.log(loss=jnp.float32(number), samples=2)
        assert waiting.wait(600)
        assert not loop.drain(0.01)
        lets_go.set()
        assert loop.drain()
    assert values(tmp_path / "r-1" / "job.0.jsonl", LOSS) == [0.0, 1.0, 2.0]
