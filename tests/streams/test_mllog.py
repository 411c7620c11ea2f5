"""The log of MLPerf: what its entries become, and what step means in each round."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reading import Result, read_text


def entry(key: str, value: Any = None, time_ms: int = 1_000, **metadata: Any) -> str:
    content = {"time_ms": time_ms, "event_type": "POINT_IN_TIME", "key": key, "value": value, "metadata": metadata}
    return ":::MLLOG " + json.dumps(content) + "\n"


def log(*entries: str, batch: int = 32, length: int = 64) -> str:
    settings = (
        entry("submission_benchmark", "llama31_405b"),
        entry("global_batch_size", batch),
        entry("max_sequence_length", length),
    )
    return "".join((*settings, *entries))


def stats(loss: float, **metadata: Any) -> str:
    return entry("tracked_stats", {"train_step_time": 2.5, "reduced_train_loss": loss}, **metadata)


LOSS = "train.loss.mean{train.loss.name=total}"


def test_a_job() -> None:
    found = read_text(
        log(
            entry("init_start"),
            entry("init_stop"),
            entry("run_start", time_ms=2_000),
            entry("block_start", time_ms=2_000),
            stats(3.0, step=0.0, samples_count=32.0),
            entry("block_stop", time_ms=3_000),
            entry("eval_start", time_ms=3_000, samples_count=32, step=1),
            entry("eval_accuracy", 5.5, time_ms=3_500, samples_count=32),
            entry("eval_stop", time_ms=3_600, samples_count=32, step=1),
            entry("run_stop", time_ms=4_000, samples_count=32, status="success"),
        ),
        run="r-1",
        attempt=2,
    )
    assert not found.refusals
    (head,) = found.heads
    assert (head.run, head.att, head.emitter, head.scopes, head.time_us) == (
        "r-1",
        2,
        "a/file.log",
        ("job",),
        1_000_000,
    )
    assert head.unsupported["train.gradient.norm"] == "the format mllog has no such value"
    assert "train.loss.mean" not in head.unsupported
    assert head.extensions["org.trainspec.import"]["format"] == "mllog"
    batch, step, evaluated = found.samples
    assert batch.m == {"train.batch.size": 32.0}
    assert (step.step, step.m) == (
        1,
        {
            "train.step.duration": 2.5,
            LOSS: 3.0,
            "train.step.count": 1.0,
            "train.sample.count": 32.0,
            "train.token.count{train.token.kind=all}": 2048.0,
        },
    )
    evaluation = {"train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}": 5.5}
    assert (evaluated.step, evaluated.m) == (1, evaluation)
    assert [(event.name, event.id, event.step) for event in found.events] == [
        ("train.run.start", "run-1", None),
        ("train.attempt.start", "run-1-attempt", None),
        ("train.evaluation.begin", "eval-3", 1),
        ("train.evaluation.end", "eval-3", 1),
        ("train.attempt.end", "run-1-attempt", 1),
        ("train.run.end", "run-1", 1),
    ]
    assert found.events[3].m == evaluation
    assert found.events[5].a["train.run.status"] == "completed"
    assert ("identity", "run") not in found.lost


@pytest.mark.parametrize(
    ("metadata", "steps", "told"),
    [
        ([{"step": 32.0}, {"step": 64.0}], [1, 2], "samples"),
        ([{"step": 0.0, "samples_count": 32}, {"step": 1.0, "samples_count": 64}], [1, 2], "from 0"),
        ([{"step": 0}, {"step": 1}], [1, 2], "from 0"),
        ([{"step": 1}, {"step": 2}], [1, 2], "completed steps"),
        ([{"step": 1, "samples_count": 32}, {"step": 2, "samples_count": 64}], [1, 2], "completed steps"),
        ([{"step": 7}, {"step": 8}], [None, None], "not stated"),
        ([{"step": 0.5}, {"step": [2, 608]}], [None, None], None),
        ([{"epoch_num": 32 * 64}, {"epoch_num": 2 * 32 * 64}], None, None),
    ],
)
def test_what_step_counts(metadata: list[dict[str, Any]], steps: list[int | None] | None, told: str | None) -> None:
    found = read_text(log(*(stats(3.0, **each) for each in metadata)))
    samples = found.samples[1:]
    assert [sample.step for sample in samples] == (steps or [None, None])
    messages = [loss.message for loss in found.losses.entries if loss.what == "step"]
    assert bool(messages) == (told is not None)
    assert told is None or told in messages[0]


@pytest.mark.parametrize(("epoch", "step"), [(32 * 64 * 3, 3), (32 * 5, 5), (33, None), (0.5, None)])
def test_epochs_count_tokens_or_samples(epoch: float, step: int | None) -> None:
    found = read_text(log(entry("eval_accuracy", 4.0, epoch_num=epoch)))
    assert found.samples[1].step == step


BERT = (150_304, 300_608, 450_912, 2_854_432)
"""Samples of evaluations in a public log with a batch of 448: every second count is no multiple of it."""


def evaluated_at(*epochs: float, batch: int, **settings: int) -> Result:
    configuration = [entry(key, value) for key, value in settings.items()]
    return read_text(
        log(
            *configuration,
            entry("global_batch_size", batch),
            *(entry("eval_accuracy", 0.7, epoch_num=n) for n in epochs),
        )
    )


def test_evaluations_between_updates_are_kept() -> None:
    found = evaluated_at(*BERT, batch=448)
    assert found.values("train.sample.count") == [float(samples) for samples in BERT]
    assert found.values("train.step.count") == [335, 671, 1_006, 6_371]
    assert found.lost["step", "epoch_num"] == 4
    assert found.lost["step", "epoch_num rounded"] == 3
    assert [sample.step for sample in found.samples if "train.sample.count" in sample.m] == [None, 671, None, None]


def test_equal_intervals_in_samples_are_one_interval_of_reports() -> None:
    found = evaluated_at(*(150_304 * n for n in (1, 2, 3, 4, 5)), batch=448)
    assert found.heads[0].report_interval_steps == 336


def test_counts_of_samples_between_updates_are_kept() -> None:
    found = read_text(log(*(entry("eval_accuracy", 0.7, samples_count=n) for n in (64, 100))))
    assert found.values("train.sample.count") == [64.0, 100.0]
    assert found.values("train.step.count") == [2, 3]
    assert found.lost["step", "samples_count rounded"] == 1


@pytest.mark.parametrize(
    ("epochs", "batch", "settings"),
    [
        ((1, 2, 3, 8, 16), 8, {}),
        ((0.05, 0.1, 1.0), 1, {}),
        ((1.05, 1.1, 2.0), 2, {}),
        ((1_000, 1_020, 1_120), 56, {"train_samples": 168}),
        ((1_008, 1_028), 56, {"train_samples": 168}),
    ],
)
def test_epochs_are_no_samples(epochs: tuple[float, ...], batch: int, settings: dict[str, int]) -> None:
    found = evaluated_at(*epochs, batch=batch, **settings)
    assert found.values("train.step.count") == []
    assert found.lost["step", "epoch_num"] == len(epochs)


def test_steps_can_count_tokens() -> None:
    tokens = 32 * 64
    found = read_text(log(*(stats(3.0, step=tokens * n) for n in (1, 2, 3))))
    assert found.values("train.step.count") == [1, 2, 3]
    assert found.values("train.sample.count") == [32, 64, 96]


def test_the_time_of_a_block_is_no_time_of_an_update() -> None:
    found = read_text(log(stats(3.0, step=0), entry("tracked_stats", {"train_step_time": 9.0}, samples_count=64)))
    assert found.values("train.step.duration") == [2.5]
    assert found.lost["step", "tracked_stats.train_step_time"] == 1


def test_what_sums_up_a_block_has_the_place_of_the_log() -> None:
    """One round states the start of the block there."""
    mean = entry("tracked_stats", {"throughput": 10.0, "train_step_time": 2.0}, step=0)
    found = read_text(log(stats(3.0, step=32), stats(2.5, step=64), mean))
    assert [sample.step for sample in found.samples[1:]] == [1, 2, 2]
    assert found.values("train.step.duration") == [2.5, 2.5]
    assert found.values("train.step.count") == [1.0, 2.0]
    assert found.lost["step", "tracked_stats.train_step_time"] == 1
    alone = entry("tracked_stats", {"throughput": 10.0, "train_step_time": 2.0}, step=64)
    assert read_text(log(alone)).values("train.step.duration") == [2.0]


def test_throughput_needs_the_length_of_a_sample() -> None:
    found = read_text(log(entry("tracked_stats", {"throughput": 10.0}, step=32)))
    assert found.values("train.token.rate") == [640.0]
    found = read_text(entry("tracked_stats", {"throughput": 10.0}, step=32))
    assert found.lost["quantity", "tracked_stats.throughput"] == 1
    found = read_text(entry("tracked_stats", {"throughput": 10.0}), quantities={"tokens_per_sample": 2.0})
    assert found.values("train.token.rate") == [20.0]


def test_names_that_are_not_known_are_told() -> None:
    found = read_text(
        log(entry("tracked_stats", {"train_loss ": 3.0, "walltime": 1.0, "max_memory_usage": 80.0}, step=1))
    )
    messages = {loss.what: loss.message for loss in found.losses.entries}
    assert (
        "begins or ends with a blank; 'tracked_stats.train_loss' would be known"
        in messages["tracked_stats.train_loss "]
    )
    assert ("unknown-name", "tracked_stats.walltime") in found.lost
    assert "undeclared base" in messages["tracked_stats.max_memory_usage"]
    assert not found.values(LOSS)


def test_values_that_are_not_finite_become_texts() -> None:
    text = log(stats(1.0, step=1)).replace("1.0}", "NaN}")
    assert read_text(text).values(LOSS) == ["NaN"]
    assert read_text(text.replace("NaN", "-Infinity")).values(LOSS) == ["-Inf"]


def test_an_accuracy_is_no_loss() -> None:
    found = read_text(entry("submission_benchmark", "bert") + entry("eval_accuracy", 0.7))
    assert not found.samples
    assert found.lost["meaning", "eval_accuracy"] == 1


def test_intervals_that_do_not_close() -> None:
    found = read_text(log(entry("block_stop"), entry("block_start"), entry("eval_stop"), entry("run_start")))
    assert [refusal.code for refusal in found.refusals] == ["interval"] * 4
    assert [refusal.message for refusal in found.refusals] == [
        "block_stop closes nothing: no block is open",
        "eval_stop closes nothing: no eval is open",
        "block_start is never closed",
        "run_start is never closed",
    ]
    offsets = [offset for offset, item in found.items if item in found.refusals]
    assert offsets[2] < offsets[1]


def test_starts_of_processes_are_counted() -> None:
    found = read_text("".join(entry("init_start", time_ms=1_000 + n) for n in range(5)) + entry("run_stop"))
    (told,) = [loss for loss in found.losses.entries if loss.what == "init_start"]
    assert (told.num, told.message) == (5, "5 processes start within 0.004 s; none says its rank")


def power(*entries: str) -> str:
    return entry("power_measurement_start", time_ms=1_000) + "".join(entries)


def test_the_power_of_a_node() -> None:
    readings = [entry("power_reading", 3_000 + n, time_ms=1_000 + 2_000 * n) for n in range(3)]
    found = read_text(power(*readings, entry("power_measurement_stop", time_ms=5_000)))
    assert not found.refusals
    assert (found.heads[0].host, found.heads[0].scopes) == ("file", ("node",))
    assert found.values("hw.power{hw.type=enclosure}") == [3_000.0, 3_001.0, 3_002.0]
    assert ("identity", "host") in found.lost
    assert read_text(power(*readings), host="node-7").heads[0].host == "node-7"


def test_readings_outside_of_their_measurement() -> None:
    text = power(entry("power_reading", 3_000, time_ms=9_000), entry("power_measurement_stop", "null", time_ms=1_000))
    found = read_text(text)
    assert [refusal.code for refusal in found.refusals] == ["value", "interval"]
    assert "takes 0 s, but 1 readings span 0 s and reach 8 s beyond it" in found.refusals[1].message


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (":::MLLOG {", "the line ends before its JSON does"),
        (':::MLLOG {"key": "a", "key": "b", "time_ms": 1}', "key 'key' appears twice"),
        (":::MLLOG [1]", "no object follows"),
        (':::MLLOG {"time_ms": 1}', "has no key"),
        (':::MLLOG {"key": "a", "time_ms": -1}', "is no moment"),
        (':::MLLOG {"key": "a", "time_ms": "1"}', "is no moment"),
        (':::MLLOG {"key": "a", "time_ms": 99999999999999999999}', "is no moment"),
        (":::MLLOG {'key': 'a'}", "is no JSON"),
    ],
)
def test_what_is_no_entry_is_refused(line: str, words: str) -> None:
    found = read_text(f"{line}\n", "mllog")
    assert [words in refusal.message for refusal in found.refusals] == [True]


def test_other_lines_are_counted() -> None:
    found = read_text("hello\n" + entry("seed", 5) + "world\n", "mllog")
    assert found.lost["text", "text"] == 2
    assert not found.refusals


@pytest.mark.parametrize("value", [None, "x", -5, 1.5, 10**40])
def test_settings_that_are_no_number(value: Any) -> None:
    found = read_text(entry("global_batch_size", value) + stats(2.0, step=5, samples_count=7))
    assert found.values("train.batch.size") == []
    assert ("value", "global_batch_size") in found.lost


def test_a_loss_of_each_update_has_an_entry_of_its_own() -> None:
    found = read_text(log(*(entry("train_loss", 3.0 - n, samples_count=32 * n, lr=1e-4) for n in (1, 2))))
    assert found.values(LOSS) == [2.0, 1.0]
    assert [sample.step for sample in found.samples if sample.step] == [1, 2]
    assert not [group for _, group in found.lost if group.startswith("train_")]


def test_a_loss_of_several_updates_is_read_and_said_to_be_a_mean() -> None:
    found = read_text(log(*(entry("train_loss", 3.0 - n, samples_count=320 * n, lr=n / 100) for n in (1, 2))))
    assert found.values(LOSS) == [2.0, 1.0]
    assert found.values("train.learning_rate") == [0.01, 0.02]
    assert [sample.step for sample in found.samples if sample.step] == [10, 20]
    (told,) = [loss for loss in found.losses.entries if loss.what == "train_loss"]
    assert told.message == "train_loss is reported after 10 steps at once and can be a mean over them"


@pytest.mark.parametrize("metadata", [{"samples_count": 33}, {}])
def test_a_loss_of_an_update_that_is_not_stated_is_left_out(metadata: dict[str, int]) -> None:
    found = read_text(log(entry("train_loss", 3.0, **metadata)))
    assert found.values(LOSS) == []
    assert found.lost["meaning", "train_loss"] == 1


def test_a_loss_before_the_first_update() -> None:
    found = read_text(log(*(entry("train_loss", 3.0, samples_count=count) for count in (0, 32))))
    assert not found.refusals


@pytest.mark.parametrize("second", [320, 160])
def test_a_loss_whose_samples_do_not_grow(second: int) -> None:
    found = read_text(log(*(entry("train_loss", 3.0, samples_count=count) for count in (320, second))))
    (refused,) = found.refusals
    assert refused.message == f"train_loss is at {second // 32} optimizer steps, where the one before is at 10"
    assert refused.requirement == "TS-TEL-031"


def test_a_loss_that_is_a_text_is_refused() -> None:
    (refused,) = read_text(log(entry("train_loss", "N/A", samples_count=320))).refusals
    assert refused.message == "tracked_stats.train_loss is the text 'N/A'"
