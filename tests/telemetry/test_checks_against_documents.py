"""What streams tell of a plan and of a profile: TS-TEL-063 to 069 and TS-TEL-089."""

from __future__ import annotations

from typing import Any

import pytest
from life_makers import Stream, messages, places, why_not

TOKENS = "token.count{train.token.kind=all}"
STEP = 1_000_000
RAMP = [
    {"from_tokens": 0, "global_sequences": 256, "global_tokens": STEP, "learning_rate_factor": 1},
    {"from_tokens": 3 * STEP, "global_sequences": 512, "global_tokens": 2 * STEP, "learning_rate_factor": 2},
]
RAMPED = {"batch": {"global_sequences": 512, "ramp": RAMP, "learning_rate": {"rule": "linear"}}}
SLOPE = {"batch": {"global_sequences": 512, "ramp": [{**RAMP[0], "transition": "linear"}, RAMP[1]]}}


def updates(*each: float, **values: list[float]) -> Stream:
    """Optimizer steps that read so many steps of tokens each, with further values."""
    run, read = Stream(), 0.0
    for number, tokens in enumerate(each):
        read += tokens * STEP
        more = {name.replace("__", "."): series[number] for name, series in values.items()}
        run.update(30 * number + 30, number + 1, **{TOKENS: read, **more})
    return run


# --- TS-TEL-063


def test_the_batch_of_a_plan() -> None:
    plan = {"batch": {"global_sequences": 512}}
    assert places("TS-TEL-063", updates(1, 1, batch__size=[512, 512]), plan=plan) == []
    assert places("TS-TEL-063", updates(1, 1, batch__size=[512, 448]), plan=plan) == [(0, 3)]
    assert why_not("TS-TEL-063", updates(1), plan=plan) == "no train.batch.size in the run"


def test_the_batch_of_a_ramp_follows_the_tokens() -> None:
    sizes: list[float] = [256, 256, 256, 512, 512]
    assert places("TS-TEL-063", updates(1, 1, 1, 2, 2, batch__size=sizes), plan=RAMPED) == []
    sizes[1], sizes[4] = 512, 256
    assert places("TS-TEL-063", updates(1, 1, 1, 2, 2, batch__size=sizes), plan=RAMPED) == [(0, 3), (0, 6)]
    late = updates(1, 1, 1, 1, 1, 1, batch__size=[256.0] * 6)
    assert places("TS-TEL-063", late, plan=RAMPED) == [(0, 6), (0, 7)]


def test_a_slope_has_every_batch_between() -> None:
    run = updates(1, 1.33, 1.78, 2, batch__size=[256, 341, 455, 512])
    assert places("TS-TEL-063", run, plan=SLOPE) == []
    assert places("TS-TEL-063", updates(1, 1.33, batch__size=[256, 512]), plan=SLOPE) == [(0, 3)]


def test_a_controller_stays_within_its_bounds() -> None:
    controller = {"signal": "loss", "min_global_sequences": 256, "max_global_sequences": 1024, "interval_steps": 10}
    plan = {"batch": {"global_sequences": 512, "controller": controller}}
    assert places("TS-TEL-063", updates(1, 1, batch__size=[256, 1024]), plan=plan) == []
    assert places("TS-TEL-063", updates(1, 1, batch__size=[256, 2048]), plan=plan) == [(0, 3)]
    assert why_not("TS-TEL-064", updates(1, 1), plan=plan)


# --- TS-TEL-064


def test_tokens_of_updates() -> None:
    assert places("TS-TEL-064", updates(1, 1, 1, 2, 2), plan=RAMPED) == []
    assert places("TS-TEL-064", updates(1, 1, 1, 1, 2), plan=RAMPED) == [(0, 5)]
    assert places("TS-TEL-064", updates(1, 1.33333, 1.77), plan=SLOPE) == []
    assert places("TS-TEL-064", updates(1, 1.33333, 1.2), plan=SLOPE) == [(0, 4)]


def test_a_report_of_several_updates_is_their_mean() -> None:
    run = Stream().update(30, 1, **{TOKENS: STEP}).update(120, 4, **{TOKENS: 5 * STEP})
    assert places("TS-TEL-064", run, plan=RAMPED) == []
    assert places("TS-TEL-064", run.update(150, 6, **{TOKENS: 8 * STEP}), plan=RAMPED) == [(0, 4)]


def test_lengths_that_vary_bound_the_tokens() -> None:
    plan = {"batch": {"global_sequences": 512, "global_tokens": STEP, "variable_length": True}}
    assert places("TS-TEL-064", updates(1, 0.7, 1), plan=plan) == []
    assert places("TS-TEL-064", updates(1, 1.2, 1), plan=plan) == [(0, 3)]
    assert "the plan says at most " in messages("TS-TEL-064", updates(1, 1.2, 1), plan=plan)[0]
    exact = {"batch": {"global_sequences": 512, "global_tokens": STEP}}
    assert "at most" not in messages("TS-TEL-064", updates(1, 1.2, 1), plan=exact)[0]


def test_a_new_attempt_reads_again() -> None:
    second = Stream(1, 200).update(230, 2, **{TOKENS: 2 * STEP}).update(260, 3, **{TOKENS: 3 * STEP})
    assert places("TS-TEL-064", updates(1, 1, 1), second, plan=RAMPED) == []
    assert why_not("TS-TEL-064", updates(1), plan=RAMPED)


# --- TS-TEL-065


@pytest.mark.parametrize(
    ("rates", "line"),
    [([1, 1, 1, 2, 2], None), ([1, 1, 1, 1, 2], 5), ([1, 1, 2, 2, 2], 5), ([1, 1, 1.02, 2.04, 2], None)],
)
def test_the_rate_follows_the_ramp(rates: list[float], line: int | None) -> None:
    run = updates(1, 1, 1, 2, 2, learning_rate=[rate * 1e-4 for rate in rates])
    assert places("TS-TEL-065", run, plan=RAMPED) == ([] if line is None else [(0, line)])


def test_the_rule_gives_factors_that_the_ramp_leaves_out() -> None:
    ramp = [{key: value for key, value in stage.items() if key != "learning_rate_factor"} for stage in RAMP]
    plan = {"batch": {"global_sequences": 512, "ramp": ramp, "learning_rate": {"rule": "square-root"}}}
    run = updates(1, 1, 1, 2, learning_rate=[1e-4, 1e-4, 1e-4, 1.414e-4])
    assert places("TS-TEL-065", run, plan=plan) == []
    (message,) = messages("TS-TEL-065", run, plan=RAMPED)
    assert message.endswith("where stage 2 of the ramp begins, but the plan says 2")


def test_a_rate_that_the_plan_does_not_schedule() -> None:
    assert why_not("TS-TEL-065", updates(1, learning_rate=[1e-4]), plan={})
    assert why_not("TS-TEL-065", updates(1, 1, learning_rate=[1e-4, 1e-4]), plan=RAMPED).startswith("no train.learning")


@pytest.mark.parametrize(
    ("read", "rates"),
    [
        ([1, 1, 1], [1e-4, 1e-4, 1e-4]),  # the step that begins with the stage is not there
        ([4, 2, 2], [1e-4, 1e-4, 1e-4]),  # nor the last one before
        ([1, 1, 1, 2], [0, 0, 0, 2e-4]),  # nothing is a multiple of no rate
    ],
)
def test_a_factor_needs_rates_on_both_sides(read: list[float], rates: list[float]) -> None:
    run, later = updates(*read, learning_rate=rates), Stream(1, 500)
    later.update(530, len(read) + 1, **{TOKENS: 9 * STEP, "learning_rate": 9e-4})
    for streams in ([run], [run, later]):
        assert why_not("TS-TEL-065", *streams, plan=RAMPED).startswith("no train.learning_rate before and after")


# --- TS-TEL-066 and TS-TEL-067


def test_world_sizes_of_an_elastic_plan() -> None:
    elastic = {"batch": {"elastic": {"data_degrees": [2, 4], "micro_sequences": [1]}}}
    assert places("TS-TEL-066", Stream().started(1, world_size=64), plan={}) == [(0, 2)]
    assert places("TS-TEL-066", Stream().started(1, world_size=64), plan=elastic) == []
    assert places("TS-TEL-066", Stream(head={"world_size": 96}).update(1, 1), plan=elastic) == [(0, 1)]
    assert why_not("TS-TEL-066", Stream().update(1, 1), plan={}) == "no attempt states its world size"


def test_processes_that_drive_several_devices() -> None:
    def started(num_devices: object) -> Stream:
        head = {"world_size": 32, "declared": {"train.rank.num_devices": num_devices, "train.parallel.data.rank": 9}}
        return Stream(head=head).update(1, 1)

    assert places("TS-TEL-066", started(4), plan={}) == []
    assert messages("TS-TEL-066", started(8), plan={}) == [
        "attempt 0 starts with 32 ranks of 8 devices each, but the plan says 128"
    ]
    for unusable in (1, 0, -4, 10**9, "4", True):
        assert messages("TS-TEL-066", started(unusable), plan={}) == [
            "attempt 0 starts with 32 ranks, but the plan says 128"
        ]
    assert why_not("TS-TEL-067", started(4), plan={}) == "ranks drive several devices, whose coordinates differ"
    assert places("TS-TEL-067", started(1), plan={}) == [(0, 1)]


def coordinates(rank: int, **stated: int) -> Stream:
    declared = {f"train.parallel.{axis}.rank": value for axis, value in stated.items()}
    return Stream(head={"emitter": f"rank-{rank}", "scopes": ["rank"], "rank": rank, "declared": declared})


def test_coordinates_of_ranks() -> None:
    assert places("TS-TEL-067", coordinates(45, tensor=5, data=1, pipeline=1, context=0), plan={}) == []
    assert places("TS-TEL-067", coordinates(45, tensor=4), plan={}) == [(0, 1)]
    assert messages("TS-TEL-067", coordinates(45, tensor=8), plan={}) == [
        "rank 45 has the tensor coordinate 8, but the tensor degree of the plan is 8"
    ]
    assert places("TS-TEL-067", coordinates(45, expert=0), plan={}) == []
    assert places("TS-TEL-067", coordinates(45, expert=1), plan={}) == [(0, 1)]
    assert why_not("TS-TEL-067", Stream().update(1, 1), plan={}) == "no head declares a parallel coordinate"


def test_coordinates_of_an_attempt_of_another_size() -> None:
    plan = {"batch": {"elastic": {"data_degrees": [2, 4, 8], "micro_sequences": [1]}}}
    for size, rank, data, stage in ((64, 40, 1, 2), (256, 56, 7, 0), (256, 130, 0, 2)):
        run = coordinates(rank, tensor=rank % 8, data=data, pipeline=stage).update(1, 1)
        run.head["world_size"] = size
        assert places("TS-TEL-067", run, plan=plan) == []
        assert places("TS-TEL-067", run, plan={}) != []
    run = coordinates(56, data=8).update(1, 1)
    run.head["world_size"] = 256
    assert messages("TS-TEL-067", run, plan=plan) == [
        "rank 56 has the data coordinate 8, but the data degree of the plan is 8"
    ]


# --- TS-TEL-068 and TS-TEL-069

GROUP = {"name": "compute", "node_power_watts": 10_000, "accelerator": {"memory_bytes": 80e9, "power_watts": 700}}
CLUSTER = {"node_groups": [GROUP]}


def device(metric: str, *values: float, name: str | None = "GPU-1") -> Stream:
    run = Stream(head={"emitter": "agent", "scopes": ["device"], "host": "n1", **({"device": name} if name else {})})
    for number, value in enumerate(values):
        run.values(30 * number, {metric: value})
    return run


@pytest.mark.parametrize(("limit", "found"), [(85_520_809_984, 0), (81_559, 1), (42_949_672_960, 1)])
def test_memory_of_devices(limit: float, found: int) -> None:
    assert len(places("TS-TEL-068", device("hw.gpu.memory.limit", limit), cluster=CLUSTER)) == found


def test_memory_of_a_device_with_two_ranks() -> None:
    halves: dict[str, Any] = {**GROUP, "accelerator": {**GROUP["accelerator"], "num_ranks_per_accelerator": 2}}  # type: ignore[dict-item]
    run = device("hw.gpu.memory.limit", 42_949_672_960)
    assert places("TS-TEL-068", run, cluster={"node_groups": [halves]}) == []
    assert why_not("TS-TEL-068", Stream().update(1, 1), cluster=CLUSTER)


def test_power_is_judged_by_its_mean() -> None:
    assert places("TS-TEL-069", device("hw.power", 1200, 300, 400), cluster=CLUSTER) == []
    (message,) = messages("TS-TEL-069", device("hw.power", 900_000, 700_000), cluster=CLUSTER)
    assert "is 800 kW on average, 1.14e+03 times the 700 W" in message


def test_power_of_nodes() -> None:
    assert places("TS-TEL-069", device("hw.power", 10_400, name=None), cluster=CLUSTER) == []
    assert places("TS-TEL-069", device("hw.power", 12_400, name=None), cluster=CLUSTER) == [(0, 2)]
    assert why_not("TS-TEL-069", Stream().update(1, 1), cluster=CLUSTER)


# --- TS-TEL-089

PEAK = {"kind": "cosine", "peak": 1e-4, "final": 1e-5, "warmup_steps": 100, "total_steps": 5100}


def rates(*each: tuple[int, float], **more: float) -> Stream:
    """Reports of the learning rate by optimizer step."""
    run = Stream()
    for number, (step, rate) in enumerate(each):
        run.update(30 * number + 30, step, **{"learning_rate": rate, **more})
    return run


def scheduled(**keys: Any) -> dict[str, Any]:
    return {"batch": {"ramp": [], "learning_rate": None}, "optimizer": {"name": "adamw", "learning_rate": PEAK | keys}}


@pytest.mark.parametrize(
    ("run", "wrong"),
    [
        (rates((50, 5e-5), (110, 1e-4), (5000, 1e-5)), []),
        (rates((110, 1.04e-4)), []),  # rounded, or between two steps
        (rates((110, 1e-4), (1005, 0.03)), [(0, 3)]),
        (rates((110, 1e-3)), [(0, 2)]),
        (rates((110, 5e-5), (120, 5e-5)), [(0, 2)]),
        (rates((90, 5e-5), (150, 1e-4)), []),
    ],
)
def test_the_largest_rate_is_the_peak_of_the_plan(run: Stream, wrong: list[tuple[int, int]]) -> None:
    assert places("TS-TEL-089", run, plan=scheduled()) == wrong


def test_what_is_said_of_a_rate_that_differs() -> None:
    assert messages("TS-TEL-089", rates((110, 1e-4), (1005, 0.03), (1010, 0.03)), plan=scheduled()) == [
        "train.learning_rate of step 1,005 is 0.03, but the plan says at most 0.0001, and in 1 more report"
    ]
    assert messages("TS-TEL-089", rates((110, 5e-5)), plan=scheduled()) == [
        "train.learning_rate of step 110 is 5e-05 after the warm-up of 100 steps, but the plan says 0.0001"
    ]


@pytest.mark.parametrize(
    ("run", "plan", "reason"),
    [
        (rates((50, 5e-5), (4000, 2e-5)), scheduled(), "no report right after the warm-up"),
        (rates((110, 5e-5)), scheduled(kind="inverse-square-root"), "no report right after the warm-up"),
        (rates((110, 5e-5)), scheduled(warmup_steps=None, warmup_tokens=1e6), "no report right after the warm-up"),
        (rates((110, 5e-5)), {}, "the plan states no schedule"),
        (Stream().update(30, 1), scheduled(), "no train.learning_rate in the run"),
        (rates((110, 1e-3)), RAMPED | {"optimizer": {"name": "adamw", "learning_rate": PEAK}}, "the batch changes"),
        (
            rates((110, 1e-3)),
            {
                "optimizer": {
                    "name": "muon",
                    "learning_rate": PEAK,
                    "auxiliary": {"name": "adamw", "num_parameters": 1e9},
                }
            },
            "the plan has two optimizers",
        ),
    ],
)
def test_a_rate_without_its_peak_is_not_judged(run: Stream, plan: dict[str, Any], reason: str) -> None:
    assert why_not("TS-TEL-089", run, plan=plan).startswith(reason)
