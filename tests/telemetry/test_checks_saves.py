"""How often a job saves, what saves cost, and what can be restored: TS-TEL-045, 046, 060, 061, 062."""

from __future__ import annotations

from typing import Any

from life_makers import Stream, messages, places, why_not

CADENCE, RESTORABLE, DURABLE, TIME, SIZE = "TS-TEL-045", "TS-TEL-046", "TS-TEL-060", "TS-TEL-061", "TS-TEL-062"
EVERY_TWO = {"interval": {"steps": 2, "seconds": None, "step_seconds": 30}}
EVERY_MINUTE = {"interval": {"steps": None, "seconds": 60, "step_seconds": 30}, "job": {"step_seconds_p99": 30}}
BLOCKING = "checkpoint.duration{train.checkpoint.phase=blocking}"


def trained(*saved: int, last: int = 6, att: int = 0) -> Stream:
    """Optimizer steps of half a minute, with saves after some of them."""
    run = Stream(att)
    for step in range(1, last + 1):
        run.update(30 * step, step)
        if step in saved:
            run.save(30 * step, step)
    return run


# --- TS-TEL-045


def test_saves_in_updates() -> None:
    assert places(CADENCE, trained(2, 4, 6), policy=EVERY_TWO) == []
    (message,) = messages(CADENCE, trained(2, 5, last=5), policy=EVERY_TWO)
    assert message.startswith(
        "3 optimizer steps from checkpoint 'c-2' at step 2 to checkpoint 'c-5' at step 5 without a save"
    )


def test_saves_in_seconds_have_a_tenth_and_a_step_to_spare() -> None:
    assert places(CADENCE, trained(2, 5), policy=EVERY_MINUTE) == []
    assert places(CADENCE, trained(2, 6), policy=EVERY_MINUTE) == [(0, 10)]


def test_an_evaluation_is_not_between_saves() -> None:
    run = trained(2, last=2).event(61, "evaluation.begin", "e-1").event(400, "evaluation.end", "e-1")
    assert places(CADENCE, run.update(430, 3).update(460, 4).save(460, 4), policy=EVERY_MINUTE) == []


def test_what_follows_the_newest_save_counts_with_its_persist_time() -> None:
    policy = {**EVERY_TWO, "save": {"mode": "asynchronous", "persist_seconds_p95": 20}}
    assert places(CADENCE, trained(2, last=5), policy=policy) == []
    assert places(CADENCE, trained(2, last=6), policy=policy) == [(0, 9)]


def test_saves_that_fail_are_none() -> None:
    run = trained(2, last=4).event(120, "checkpoint.begin", "c-4", step=4, a={"checkpoint.id": "c-4"})
    run.event(121, "checkpoint.fail", "c-4", a={"checkpoint.id": "c-4"}).update(150, 5).update(180, 6).update(210, 7)
    assert places(CADENCE, run, policy=EVERY_TWO) == [(0, 12)]


def test_each_attempt_counts_from_what_it_restored() -> None:
    second = Stream(1, 300).started(301, step=4).update(331, 5).update(361, 6).save(361, 6)
    assert places(CADENCE, trained(2, 4, last=5), second, policy=EVERY_TWO) == []


def test_a_run_without_a_checkpoint() -> None:
    assert why_not(CADENCE, trained(last=2), policy=EVERY_TWO) == "no checkpoint was committed in the run"
    assert places(CADENCE, trained(last=9), policy=EVERY_TWO) == [(0, 10)]
    final = {"interval": {"steps": None, "seconds": None, "step_seconds": None, "final_only": True}}
    assert why_not(CADENCE, trained(2), policy=final) == "the policy saves at the end of the job only"


# --- TS-TEL-060


def tiers(inner: float, outer: float) -> dict[str, Any]:
    return {
        "interval": {"seconds": inner, "step_seconds": 30},
        "job": {"step_seconds_p99": 30},
        "tiers": [
            {"name": "partner-copies", "interval_seconds": inner},
            {"name": "durable", "interval_seconds": outer},
        ],
    }


def test_each_durability_has_its_own_cadence() -> None:
    run = Stream()
    for step in range(1, 13):
        run.update(30 * step, step).save(30 * step, step, durability="site" if step == 1 else "node")
    (message,) = messages(DURABLE, run, policy=tiers(60, 120))
    assert message.endswith("without a checkpoint that outlives the job, but the policy saves every 2 min")
    assert places(DURABLE, run, policy=tiers(60, 600)) == []


def test_a_later_commit_makes_a_checkpoint_more_durable() -> None:
    run = Stream()
    for step in range(1, 9):
        run.update(30 * step, step).save(30 * step, step, durability="process")
        more = {"checkpoint.id": f"c-{step}", "checkpoint.durability": "job"}
        run.event(30 * step + 20, "checkpoint.commit", f"c-{step}", a=more)
    assert places(DURABLE, run, policy=tiers(30, 30)) == []


def test_commits_that_do_not_say_what_they_outlive() -> None:
    run = Stream().update(1, 1).event(2, "checkpoint.begin", "c").event(3, "checkpoint.commit", "c")
    assert why_not(DURABLE, run, policy=tiers(60, 60)) == "no commit says what its checkpoint outlives"


# --- TS-TEL-046


def restored(step: int, source: str | None = None, att: int = 1) -> Stream:
    return Stream(att, 900).restore(901, 910, step, source)


def test_what_is_restored_is_committed_and_of_that_step() -> None:
    assert places(RESTORABLE, trained(2, 4), restored(4)) == []
    assert messages(RESTORABLE, trained(2, 4), restored(3, "c-4")) == [
        "the restore names step 3, but checkpoint 'c-4' is of step 4"
    ]
    assert places(RESTORABLE, trained(2, 4), restored(6)) == [(1, 2)]


def test_a_deleted_or_a_later_checkpoint_is_not_restorable() -> None:
    deleted = trained(2).event(300, "checkpoint.delete", a={"checkpoint.id": "c-2", "reason": "old"})
    assert places(RESTORABLE, deleted, restored(2)) == [(1, 2)]
    assert places(RESTORABLE, trained(last=1), restored(8).save(950, 8)) == [(1, 2)]


def test_the_first_attempt_can_go_on_from_another_run() -> None:
    reason = "no restore names a checkpoint of the run"
    assert why_not(RESTORABLE, restored(0, "llama-base", att=0)) == reason
    assert why_not(RESTORABLE, trained(2), Stream(1, 900).restore(901, 902, 0, "none")) == reason
    assert why_not(RESTORABLE, trained(2), Stream(1, 900).restore(901, 902, 6, "peers")) == reason


def test_a_restore_that_was_given_up_can_name_anything() -> None:
    run = Stream(1, 900)
    run.event(901, "checkpoint.restore.begin", "l", a={"restore.step": 9, "restore.source": "c-9"})
    run.event(902, "checkpoint.restore.end", "l", a={"restore.step": 9, "restore.source": "c-9", "reason": "damaged"})
    assert why_not(RESTORABLE, trained(2), run) == "no restore in the run"


# --- TS-TEL-061 and TS-TEL-062


def timed(num: int, slow: int, **slow_save: Any) -> Stream:
    run = Stream()
    for step in range(1, num + 1):
        run.update(60 * step, step).save(60 * step, step, **(slow_save if step == slow else {}))
    return run.update(60 * num + 60, num + 1)


def test_one_save_of_twenty_can_be_slow() -> None:
    policy = {"save": {"blocking_seconds": 2, "persist_seconds_p95": 20}}
    assert places(TIME, timed(20, 3, persist=50), policy=policy) == []
    assert places(TIME, timed(19, 3, persist=50), policy=policy) == [(0, 10)]
    assert places(TIME, timed(5, 3, persist=22), policy=policy) == []


def test_blocking_time_is_that_of_the_commit() -> None:
    policy = {"save": {"blocking_seconds": 2, "persist_seconds_p95": 20}}
    value = {"count": 1, "sum": 9.0, "min": 9.0, "max": 9.0}
    assert messages(TIME, timed(2, 1, **{BLOCKING: value}), policy=policy) == [
        "checkpoint 'c-1' blocks training 9 s, but the policy says 2 s, and 1 of 1 saves take longer"
    ]


def test_the_last_save_of_a_job_blocks_nothing() -> None:
    value = {"count": 1, "sum": 9.0, "min": 9.0, "max": 9.0}
    run = Stream().update(30, 1).save(30, 1, persist=9, **{BLOCKING: value})
    assert places(TIME, run, policy={"save": {"blocking_seconds": 2, "persist_seconds_p95": 20}}) == []


def test_a_run_whose_saves_have_no_time_is_not_judged() -> None:
    run = Stream().update(30, 1).save(30, 1, persist=9).update(90, 2)
    waits_for_nothing = {"save": {"mode": "synchronous", "blocking_seconds": 2, "persist_seconds_p95": None}}
    assert places(TIME, run, policy=waits_for_nothing) == [(0, 4)]
    assert why_not(TIME, Stream().update(30, 1).update(90, 2), policy=waits_for_nothing)


def test_a_synchronous_save_blocks_until_it_is_committed() -> None:
    policy = {"save": {"mode": "synchronous", "blocking_seconds": 5, "persist_seconds_p95": None}}
    assert places(TIME, timed(2, 1, persist=50), policy=policy) == [(0, 4)]


def test_size_of_checkpoints() -> None:
    policy = {"save": {"size_bytes": 1e9}}
    assert places(SIZE, Stream().save(1, 1, **{"checkpoint.size": 1.05e9}), policy=policy) == []
    assert places(SIZE, Stream().save(1, 1, **{"checkpoint.size": 1.2e9}), policy=policy) == [(0, 3)]
    assert why_not(SIZE, Stream().save(1, 1), policy=policy) == "no commit of the run has the size of its checkpoint"
