"""The log_history of `trainer_state.json`: what an entry gives, restarts, damage."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from reading import read_text

from tests.streams_made.foreign_logs import trainer_entries, trainer_state
from trainspec_validate.pipeline.detect import search
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.telemetry.formats import detect
from trainspec_validate.telemetry.formats.items import Refusal
from trainspec_validate.telemetry.formats.json_list import JsonList

LOSS = "train.loss.mean{train.loss.name=total}"
EVALUATED = "train.evaluation.loss{{train.evaluation.set={},train.loss.name=total}}"


def test_entries_are_records_with_their_step() -> None:
    entries = trainer_entries(10, 20)
    found = read_text(trainer_state([*entries, {"epoch": 0.5, "eval_loss": 2.5, "eval_wer": 0.5, "step": 20}]))
    assert [(sample.step, sample.m) for sample in found.samples[:2]] == [
        (
            entry["step"],
            {
                LOSS: entry["loss"],
                "train.learning_rate": entry["learning_rate"],
                "train.gradient.norm": entry["grad_norm"],
                "train.step.count": float(entry["step"]),
            },
        )
        for entry in entries
    ]
    assert found.samples[2].m == {EVALUATED.format("eval"): 2.5}
    assert found.losses.clock == "none"
    assert found.lost["unknown-name", "eval_wer"] == 1
    assert not found.refusals


def test_a_checkpoint_before_the_first_entry_is_of_its_step(tmp_path: Path) -> None:
    found = read_text(trainer_state([], global_step=64))
    assert [(sample.step, sample.m) for sample in found.samples] == [(64, {"train.step.count": 64.0})]
    assert found.losses.clock == "none"
    (tmp_path / "trainer_state.json").write_text(trainer_state([], global_step=64))
    report = validate([str(tmp_path / "trainer_state.json")])
    assert report.findings == ()
    assert report.unjudged, "one value of a run is no verdict"


@pytest.mark.parametrize("step", [None, -1, 1.5, [64], {"step": 64}, True, 10**30])
def test_a_step_that_is_none_gives_no_record(step: object) -> None:
    assert read_text(trainer_state([], global_step=step)).samples == []


def test_sets_of_evaluations_have_their_names() -> None:
    found = read_text(trainer_state([{"eval_code_loss": 1.5, "eval_law, old_loss": 2.5, "step": 5}]))
    assert found.samples[0].m == {EVALUATED.format("code"): 1.5, EVALUATED.format("law_ old"): 2.5}


def test_means_of_the_whole_run_are_no_values_of_a_step() -> None:
    last = {"step": 40, "train_loss": 2.5, "train_runtime": 9.5, "train_steps_per_second": 4.2, "total_flos": 1e15}
    found = read_text(trainer_state([*trainer_entries(40), last | {"num_input_tokens_seen": 512}]))
    assert len(found.samples) == 1
    assert {name for reason, name in found.lost if reason == "meaning"} >= {
        *("train_loss", "train_runtime", "train_steps_per_second", "num_input_tokens_seen"),
    }


def test_a_norm_that_is_not_finite_is_kept() -> None:
    entries = trainer_entries(10)
    entries[0] |= {"grad_norm": float("nan"), "loss": float("inf")}
    found = read_text(trainer_state(entries))
    assert found.values("train.gradient.norm") == ["NaN"]
    assert found.values(LOSS) == ["+Inf"]


def test_steps_that_fall_begin_an_attempt() -> None:
    found = read_text(trainer_state([*trainer_entries(10, 20, 30), *trainer_entries(20, 30, 40)]))
    assert [sample.att for sample in found.samples] == [0, 0, 0, 1, 1, 1]
    assert [head.att for head in found.heads] == [0, 1]
    assert found.lost["step", "attempt"] == 1
    assert not found.refusals


@pytest.mark.parametrize("entry", ['"a"', "5", "null", "[1]", '{"step": -1, "loss": 1}', '{"step": 1.5, "loss": 1}'])
def test_entries_that_are_refused(entry: str) -> None:
    found = read_text(f'{{"global_step": 2, "log_history": [{entry}, {{"loss": 2.5, "step": 2}}]}}\n')
    assert [refusal.code for refusal in found.refusals] == ["value"]
    assert found.values(LOSS) == [2.5]


def test_what_comes_before_a_cut_is_read() -> None:
    text = trainer_state(trainer_entries(10, 20, 30))
    for end in range(text.index("log_history") + 20, len(text) - 3, 7):
        found = read_text(text[:end])
        assert [refusal.code for refusal in found.refusals] == ["cut-off"]
        assert found.values("train.step.count") == [10.0, 20.0, 30.0][: text[:end].count("}")]


def test_a_document_on_one_line_gives_the_same() -> None:
    text = trainer_state(trainer_entries(10, 20, 30))
    assert [sample.m for sample in read_text(json.dumps(json.loads(text))).samples] == [
        sample.m for sample in read_text(text).samples
    ]


def test_the_place_of_an_entry_is_the_line_that_it_begins_on() -> None:
    text = trainer_state(trainer_entries(10, 20))
    found = read_text(text)
    for offset, item in found.items:
        if item in found.samples:
            assert text[offset:].lstrip().startswith("{")


@pytest.mark.parametrize(
    "entry",
    ['{"loss": 2.5, "step": 10}', '{"epoch": 0.5, "eval_loss": 2.5, "step": 10}', '{"epoch": 1, "grad_norm": 2}'],
)
def test_a_state_without_its_step_is_known_by_its_entries(entry: str) -> None:
    found = read_text(f'{{"best_metric": null, "log_history": [\n  {entry}\n]}}\n')
    assert [sample.step for sample in found.samples] == [json.loads(entry).get("step")]
    assert not found.refusals


def test_a_state_without_entries_is_known_by_its_other_keys() -> None:
    assert detect(b'{"is_world_process_zero": true, "log_history": []}')


@pytest.mark.parametrize(
    "entry",
    ['{"time": "10:00", "item": "coil"}', '{"step": "wash", "loss": 5}', "[1]", "5", '{"a": {"step": 1, "loss": 2}}'],
)
def test_the_history_of_another_program_is_no_trainer_state(entry: str) -> None:
    assert detect(f'{{"log_history": [{entry}]}}'.encode()) is None


@pytest.mark.parametrize(
    "text", ['{"log_history": []}', '{"global_step": 5}', '[{"log_history": [], "global_step": 5}]', "log_history: []"]
)
def test_other_documents_are_no_trainer_state(text: str) -> None:
    assert detect(text.encode()) is None


@pytest.mark.parametrize(
    "text", ['{"a": [], "x": [{}]}', '{"x": {"a": [1]}}', '{"a": 5}', '{"b": "[{\\"a\\": [", "a": []}']
)
def test_a_list_is_found_by_its_key_alone(text: str) -> None:
    listed = JsonList("a")
    assert list(listed.line(0, text)) == []
    assert listed.end() == json.loads(text)


def test_objects_of_a_list_that_are_too_large_are_refused() -> None:
    listed = JsonList("a")
    found = [item for text in ('{"a": [{"b": [', *["5," * 1_000_000] * 20) for _, item in listed.line(0, text)]
    assert len(found) == 1
    assert isinstance(found[0], Refusal)
    assert found[0].code == "size"
    assert listed.end() == {}


def test_a_state_that_a_later_one_begins_with_is_no_stream_of_its_own(tmp_path: Path) -> None:
    for name, *steps in (("a/checkpoint-9", 5, 9), ("a/checkpoint-10", 5, 10), ("b", 7), ("b/checkpoint-7", 7)):
        (tmp_path / str(name)).mkdir(parents=True)
        (tmp_path / name / "trainer_state.json").write_text(trainer_state(trainer_entries(*steps)))
    states = [file.path.parent.relative_to(tmp_path).as_posix() for file in search([str(tmp_path)]).files]
    assert states == ["a/checkpoint-10", "b"]
    assert [file.name for file in search([str(tmp_path / "b/checkpoint-7/trainer_state.json")]).files]


def test_findings_of_a_file_without_times_name_no_date(tmp_path: Path) -> None:
    path = tmp_path / "trainer_state.json"
    entries = [{"epoch": 0.1 * n, "learning_rate": -1e-5, "loss": 2.0, "step": n} for n in range(1, 9)]
    path.write_text(json.dumps({"global_step": 8, "log_history": entries, "max_steps": 8}), encoding="utf-8")
    (found,) = (each for each in validate(path).findings if each.requirement == "TS-TEL-012")
    assert "is -1e-05, below 0" in found.message
    assert "1970" not in found.message


def refused(text: str) -> list[tuple[str, str]]:
    return [(refusal.requirement, refusal.message) for refusal in read_text(text).refusals]


def test_a_step_below_the_log_is_refused() -> None:
    assert refused(trainer_state(trainer_entries(10, 20), global_step=10)) == [
        ("TS-TEL-001", "global_step is 10, and log_history reaches step 20")
    ]
    assert not refused(trainer_state(trainer_entries(10, 20), global_step=20))
    assert not refused(trainer_state(trainer_entries(10, 20), global_step=25))


@pytest.mark.parametrize(
    ("step", "steps", "is_cut"),
    [
        (50_000, range(10, 5_010, 10), True),
        (5_000, range(10, 5_010, 10), False),
        (5_015, range(10, 5_010, 10), False),
        (1_500, (500, 1_000), False),
        (2_600, (500, 1_000, 1_500), True),
        (2_400, (500, 1_000, 1_500), False),
        (30_000, (10, 20, 10_020), False),
    ],
)
def test_a_log_that_ends_long_before_its_save_is_refused(step: int, steps: Sequence[int], is_cut: bool) -> None:
    found = refused(trainer_state([{"loss": 2.5, "step": each} for each in steps], global_step=step))
    words = f"global_step is {step:,}, and log_history has entries every "
    assert [(group, message.startswith(words)) for group, message in found] == [("TS-TEL-004", True)] * is_cut


def test_a_step_beyond_the_last_one_is_noted() -> None:
    entries = trainer_entries(10, 20)
    found = read_text(trainer_state(entries, global_step=20, max_steps=15))
    assert found.lost["meaning", "max_steps"] == 1
    for most in (20, 30, -1, 0):
        assert ("meaning", "max_steps") not in read_text(trainer_state(entries, global_step=20, max_steps=most)).lost


@pytest.mark.parametrize("key", ["loss", "policy_loss"])
def test_a_log_without_a_loss_is_said_to_be_unjudged(tmp_path: Path, key: str) -> None:
    entries = [{"step": step, key: 2.5, "learning_rate": 1e-4} for step in range(10, 100, 10)]
    (tmp_path / "trainer_state.json").write_text(trainer_state(entries, global_step=90))
    found = [one for one in validate([tmp_path / "trainer_state.json"]).unjudged if "no loss" in one.reason]
    assert [one.requirements for one in found] == [("TS-TEL-055", "TS-TEL-088")] * (key != "loss")


def test_a_step_that_is_there_twice_is_refused() -> None:
    entries = trainer_entries(10, 20)
    assert refused(trainer_state([*entries, entries[1]])) == [("TS-TEL-019", "the entry is there twice")]
    other = {**entries[1], "loss": 9.5}
    assert refused(trainer_state([*entries, other])) == [("TS-TEL-019", "step 20 has two entries with a loss")]
    assert not refused(trainer_state([*entries, {"eval_loss": 2.5, "step": 20}, {"eval_a_loss": 2.5, "step": 20}]))
    assert not refused(trainer_state([*entries, *trainer_entries(10, 20)]))


def test_a_log_that_is_there_twice_is_refused_once() -> None:
    entries = trainer_entries(*range(10, 120, 10))
    assert [requirement for requirement, _ in refused(trainer_state([*entries, *entries]))] == ["TS-TEL-019"]
    again = [{**entry, "loss": entry["loss"] + 0.5} for entry in entries]
    assert not refused(trainer_state([*entries, *again]))


def test_an_epoch_that_falls_while_steps_go_on_is_noted() -> None:
    entries = [{**entry, "epoch": epoch} for entry, epoch in zip(trainer_entries(10, 20, 30), (1, 2, 1.5), strict=True)]
    found = read_text(trainer_state(entries))
    assert found.lost["meaning", "epoch"] == 1
    assert not found.refusals
    back = [*entries[:2], {**trainer_entries(10)[0], "epoch": 1}]
    assert ("meaning", "epoch") not in read_text(trainer_state(back)).lost


def test_a_part_of_the_log_that_is_there_twice_is_reported(tmp_path: Path) -> None:
    """The Trainer resumes with the log of its checkpoint, so that no step of a later one is in it."""
    entries = trainer_entries(*range(10, 410, 10))
    found = read_text(trainer_state([*entries[:30], *entries[15:]]))
    assert [refused.message for refused in found.refusals] == [
        "rows repeat an earlier part of the log, each with the same step and the same values"
    ]
    changed = [{**entry, "loss": entry["loss"] + 0.125} for entry in entries[15:]]
    assert not read_text(trainer_state([*entries[:30], *changed])).refusals
    assert not read_text(trainer_state([*entries[:20], *entries[12:]])).refusals
