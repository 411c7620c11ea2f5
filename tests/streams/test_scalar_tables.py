"""Tables of scalars: metrics.csv of Lightning, histories of W&B, metric files of MLflow."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from reading import read_text

from tests.streams_made.foreign_logs import files
from trainspec_validate import validate
from trainspec_validate.pipeline.detect import search
from trainspec_validate.pipeline.files import File
from trainspec_validate.pipeline.streams import open_streams, runs
from trainspec_validate.telemetry.fold.engine import run_file
from trainspec_validate.telemetry.formats import detect
from trainspec_validate.telemetry.formats.scalars import seem_indices

LOSS = "train.loss.mean{train.loss.name=total}"
VALIDATED = "train.evaluation.loss{train.evaluation.set=val,train.loss.name=total}"
HEADER = "epoch,lr-AdamW,step,train_loss,val_loss\n"


def table(*rows: str) -> str:
    return HEADER + "".join(f"{row}\n" for row in rows)


def test_rows_of_lightning_count_from_zero() -> None:
    found = read_text(table("0,,49,2.5,", "0,0.5,99,2.25,", "0,,99,,3.5", "1,,149,nan,"))
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (50, {LOSS: 2.5, "train.step.count": 50.0}),
        (100, {LOSS: 2.25, "train.learning_rate": 0.5, "train.step.count": 100.0}),
        (100, {VALIDATED: 3.5}),
        (150, {LOSS: "NaN", "train.step.count": 150.0}),
    ]
    assert found.losses.clock == "none"
    assert not found.refusals


def test_steps_that_are_no_indices_are_left_out() -> None:
    found = read_text(table("0,,10,2.5,", "0,,20,2.25,", "0,,30,2.125,"))
    assert [(sample.step, sample.m) for sample in found.samples] == [(None, {LOSS: x}) for x in (2.5, 2.25, 2.125)]
    assert found.lost["step", "step"] == 3


@pytest.mark.parametrize("every", [10, 50])
def test_the_interval_of_rows_from_index_zero_counts_from_it(every: int, tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(table(*(f"0,,{index * every},{3 - index / 10}," for index in range(10))))
    assert validate([str(tmp_path / "metrics.csv")]).findings == ()


def test_a_step_is_whole_also_with_a_point() -> None:
    assert [sample.step for sample in read_text(table("0,,49.0,2.5,", "0,,99.0,2.25,")).samples] == [50, 100]


def test_steps_that_fall_begin_an_attempt_and_a_header_again_is_none() -> None:
    found = read_text(table("0,,49,2.5,", "0,,99,2.25,", HEADER.strip(), "0,,49,2.5,", "0,,99,2.25,"))
    assert [(sample.step, sample.att) for sample in found.samples] == [(50, 0), (100, 0), (50, 1), (100, 1)]
    assert not found.refusals


def test_columns_in_another_order_under_a_header_of_their_own() -> None:
    found = read_text(table("0,,49,2.5,", "step,val_loss,epoch,train_loss,lr-AdamW", "99,,0,2.25,"))
    assert [(sample.step, sample.m[LOSS]) for sample in found.samples] == [(50, 2.5), (100, 2.25)]
    assert not found.refusals


def test_a_table_that_is_there_twice_is_refused_once() -> None:
    rows = [f"0,,{50 * n + 49},{2.5 - n / 100}," for n in range(12)]
    found = read_text(table(*rows, *rows))
    assert [refusal.requirement for refusal in found.refusals] == ["TS-TEL-019"]
    assert not read_text(table(*rows, *rows[4:])).refusals, "a resume"
    assert not read_text(table(*rows, *rows[:5])).refusals, "a few steps"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("0,,149", "the row has 3 cells, and the header 5"),
        ("0,,149,2.5,,", "the row has 6 cells, and the header 5"),
        ("0,,-1,2.5,", "the step is '-1'"),
        ("0,,1.5,2.5,", "the step is '1.5'"),
        ("0,,x,2.5,", "the step is 'x'"),
    ],
)
def test_rows_that_are_refused(row: str, words: str) -> None:
    found = read_text(table("0,,49,2.5,", row, "0,,99,2.25,"))
    assert [(refusal.code, refusal.message) for refusal in found.refusals] == [("value", words)]
    assert found.values(LOSS) == [2.5, 2.25]


def test_a_cell_that_is_no_number_is_lost() -> None:
    found = read_text(table("0,,49,tensor(2.5),", "0,,99,2.25,"))
    assert found.values(LOSS) == [2.25]
    assert found.lost["value", "train_loss"] == 1


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        *(([], True), ([0], True), ([0, 10, 20], True), ([9], True), ([9, 19, 29, 35], True), ([4, 9, 14], True)),
        *(([100, 200], False), ([1, 2], False), ([7, 8, 9], False)),
    ],
)
def test_what_steps_seem_to_count(numbers: list[int], expected: bool) -> None:
    assert seem_indices(numbers) is expected


HISTORY: list[dict[str, object]] = [
    {"_step": 0, "_runtime": 1.5, "_timestamp": 1.7e9, "train/global_step": 10, "train/loss": 2.5, "train/epoch": 0.5},
    {
        "_step": 1,
        "_runtime": 2.5,
        "_timestamp": 1.7e9 + 1,
        "train/global_step": 10,
        "eval/loss": 3.5,
        "train/epoch": 0.5,
    },
    {
        "_step": 2,
        "_runtime": 3.5,
        "_timestamp": 1.7e9 + 2,
        "train/global_step": 20,
        "train/loss": 2.25,
        "train/epoch": 1,
    },
]
EVALUATED = "train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}"


def as_csv(*rows: dict[str, object]) -> str:
    names = list({name: None for row in rows for name in row})
    lines = [",".join(str(row.get(name, "")) for name in names) for row in rows]
    return "\n".join([",".join(names), *lines, ""])


def as_lines(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("text", [as_lines(*HISTORY), as_csv(*HISTORY)], ids=["json", "csv"])
def test_a_history_of_the_hugging_face_trainer(text: str) -> None:
    found = read_text(text)
    assert found.losses.clock == "utc"
    assert [(sample.step, sample.time_us, sample.m) for sample in found.samples] == [
        (10, 1_700_000_000_000_000, {LOSS: 2.5, "train.step.count": 10.0}),
        (10, 1_700_000_001_000_000, {EVALUATED: 3.5}),
        (20, 1_700_000_002_000_000, {LOSS: 2.25, "train.step.count": 20.0}),
    ]


def test_the_count_of_the_logger_is_no_step_of_the_program() -> None:
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5 - n / 100, "lr": 0.5} for n in range(3)]
    found = read_text(as_lines(*rows))
    assert [(sample.step, sample.m[LOSS]) for sample in found.samples] == [(None, 2.5), (None, 2.49), (None, 2.48)]
    without = [{**row, "train/global_step": None} for row in HISTORY]
    assert [sample.step for sample in read_text(as_lines(*without)).samples] == [None] * 3


@pytest.mark.parametrize(
    "name", ["train/step", "train/global_step", "trainer/step", "global_step", "iter", "train_step", "step"]
)
@pytest.mark.parametrize(("first", "expected"), [(0, [1, 11, 21, 31]), (10, [10, 20, 30, 40])])
def test_the_step_that_a_program_logs_next_to_its_values(name: str, first: int, expected: list[int]) -> None:
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5, name: 10 * n + first} for n in range(4)]
    found = read_text(as_lines(*rows))
    assert [sample.step for sample in found.samples] == expected
    assert [sample.m["train.step.count"] for sample in found.samples] == expected


def test_the_step_of_the_whole_run_is_before_others() -> None:
    rows = [
        {"_step": n, "_timestamp": 1.7e9 + n, "epoch": n // 2, "loss": 2.5, "step": n % 2 + 1, "global_step": n + 1}
        for n in range(4)
    ]
    assert [sample.step for sample in read_text(as_lines(*rows)).samples] == [1, 2, 3, 4]


def test_steps_of_an_epoch_are_none_of_the_run() -> None:
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5, "train/step": n % 3 + 1} for n in range(6)]
    found = read_text(as_lines(*rows))
    assert {sample.step for sample in found.samples} == {None}
    assert {sample.att for sample in found.samples} == {0}
    assert found.lost["step", "step"] == 6
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5, "train/step": n % 1_100 + 1} for n in range(2_200)]
    found = read_text(as_lines(*rows))
    assert [sample.step for sample in found.samples] == [*range(1, 1_101), *[None] * 1_100]
    assert found.lost["step", "again"] == 1_100


def test_a_step_that_falls_to_the_last_checkpoint_begins_an_attempt() -> None:
    steps = [10, 20, 30, 20, 30, 40]
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5, "global_step": step} for n, step in enumerate(steps)]
    found = read_text(as_lines(*rows))
    assert [(sample.step, sample.att) for sample in found.samples] == [
        (step, int(n > 2)) for n, step in enumerate(steps)
    ]


@pytest.mark.parametrize("more", [{}, {"train/epoch": 0.5}, {"epoch": 1}])
def test_the_axis_of_the_logger_is_named(more: dict[str, object]) -> None:
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "loss": 2.5, **more} for n in range(3)]
    found = read_text(as_lines(*rows))
    assert {sample.step for sample in found.samples} == {None}
    (loss,) = [each for each in found.losses.entries if each.what == "step"]
    assert loss.message.startswith("the axis is the count of the logger")
    assert loss.num == 3


def test_a_program_that_gives_the_logger_its_step() -> None:
    rows = [{"_step": n, "_timestamp": 1.7e9 + n, "lm loss": 2.5, "grad-norm": 1.5} for n in (10, 20)]
    assert [sample.step for sample in read_text(as_lines(*rows)).samples] == [10, 20]


def test_a_history_of_lightning_counts_from_zero() -> None:
    rows = [
        {"_step": n, "_timestamp": 1.7e9 + n, "trainer/global_step": 50 * n + 49, "train_loss": 2.5} for n in range(3)
    ]
    found = read_text(as_lines(*rows))
    assert [sample.step for sample in found.samples] == [50, 100, 150]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ('{"_step": 3, "_timestamp": "x", "train/loss": 2.5}', "time"),
        ('{"_step": 3, "_timestamp": -1, "train/loss": 2.5}', "time"),
        ('{"_step": 3, "train/loss": 2.5}', "time"),
        ('{"_step": -3, "_timestamp": 1.7e9, "train/loss": 2.5}', "value"),
        ('{"_step": 3, "_timestamp": 1.7e9, "train/lo', "cut-off"),
    ],
)
def test_rows_of_a_history_that_are_refused(row: str, code: str) -> None:
    found = read_text(as_lines(*HISTORY) + row)
    assert [refusal.code for refusal in found.refusals] == [code]
    assert found.values(LOSS) == [2.5, 2.25]


METRIC = "1700000000000 2.5 10\n1700000001000 2.25 20\n"
RUN = "0123456789abcdef0123456789abcdef"


def test_lines_of_mlflow_have_a_time_and_no_step_that_is_known() -> None:
    found = read_text(METRIC.replace("2.25", "nan"))
    assert [(sample.time_us, sample.step) for sample in found.samples] == []
    assert found.lost["unknown-name", "file.log"] == 2  # its name is that of the file


def test_metric_files_of_one_run_are_one_run(tmp_path: Path) -> None:
    place = tmp_path / "mlruns" / "0" / RUN / "metrics"
    (place / "train").mkdir(parents=True)
    paths = [place / "lr", place / "train" / "loss", tmp_path / "loss"]
    for path in paths:
        path.write_text(METRIC)
    found = [run_file(number, path, path.as_posix()) for number, path in enumerate(paths)]
    assert [file.format for file in found] == ["mlflow-metric"] * 3
    assert [[file.path for file in files] for files in runs(found)] == [paths[:2], paths[2:]]


@pytest.mark.parametrize("line", ["1700000000000 2.5", "1700000000000 x 5", "17000000000000000 2.5 5", "a b c"])
def test_lines_of_mlflow_that_are_refused(line: str) -> None:
    assert len(read_text(METRIC + line).refusals) == 1


def panel(header: str, *rows: str) -> str:
    """A chart with the least and the largest of each value next to it."""
    first, *names = header.split(",")
    lines = [",".join([first, *(f"{name}{end}" for name in names for end in ("", "__MIN", "__MAX"))])]
    for row in rows:
        place, *values = row.split(",")
        lines.append(",".join([place, *(cell for value in values for cell in (value.split("/") * 3)[:3])]))
    return "".join(line + "\n" for line in lines)


def test_a_chart_of_one_run_gives_its_values() -> None:
    found = read_text(panel("Step,a - b - train/loss,a - b - _step,a - b - f1", "0,2.5,0,1", "50,1.25,50,", "99,,99,1"))
    assert [head.run for head in found.heads] == ["a - b"]
    assert found.values(LOSS) == [2.5, 1.25]
    assert {sample.step for sample in found.samples} == {None}, "the logger's own count"
    assert found.losses.clock == "none"
    assert found.lost["unknown-name", "f1"] == 2


def test_a_mean_over_several_rows_is_no_value_of_a_step() -> None:
    found = read_text(panel("Step,a - loss", "0,2.5", "10,2/1/3"))
    assert found.values(LOSS) == [2.5]
    assert found.lost["meaning", "loss"] == 1


def test_the_step_of_the_program_is_the_axis_where_the_chart_has_it() -> None:
    found = read_text(panel("train/global_step,a - train/loss,a - train/epoch", "10,2.5,1", "20,1.5,2"))
    assert [(sample.step, sample.m[LOSS]) for sample in found.samples] == [(10, 2.5), (20, 1.5)]


@pytest.mark.parametrize("name", ["train/step", "trainer/step"])
def test_other_names_of_the_step_as_the_axis_of_a_chart(name: str) -> None:
    found = read_text(panel(f"{name},a - train/loss", "10,2.5", "20,1.5"))
    assert [sample.step for sample in found.samples] == [10, 20]


def test_a_chart_of_several_runs_is_one_stream_for_each(tmp_path: Path) -> None:
    text = panel("Step,a - loss,b - loss", "0,2.5,3.5", "1,,3")
    refused = read_text(text)
    assert [refusal.message for refusal in refused.refusals] == ["the chart has 2 runs, and none was named: 'a', 'b'"]
    assert read_text(text, run="b").values(LOSS) == [3.5, 3.0]
    assert "none that is called 'c'" in read_text(text, run="c").refusals[0].message
    path = tmp_path / "wandb_export.csv"
    path.write_text(text)
    opened, failures = open_streams([File(path, "wandb_export.csv")])
    assert not failures
    assert [[file.given.run for file in run] for run in runs(opened)] == [["a"], ["b"]]
    report = validate(path)
    assert not [finding for finding in report.findings if finding.severity.value == "error"]
    assert [coverage.run for coverage in report.coverage] == ["a", "b"]


@pytest.mark.parametrize(
    ("row", "words"), [("0,2.5,2.5", "3 cells"), ("x,2.5,2.5,2.5", "step is 'x'"), ('0,"2.5', "no row of CSV|cells")]
)
def test_rows_of_a_chart_that_are_refused(row: str, words: str) -> None:
    found = read_text(panel("Step,a - loss") + row + "\n1,2,2,2\n")
    assert re.search(words, found.refusals[0].message)
    assert found.values(LOSS) == [2.0]


def test_metric_files_are_found_below_a_tree(tmp_path: Path) -> None:
    place = tmp_path / "mlruns" / "0" / RUN / "metrics"
    (place / "train").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    for path in (place / "val_loss", place / "train" / "loss", tmp_path / "notes" / "loss"):
        path.write_text("1700000000000 2.5 10\n1700000001000 2.25 20\n")
    found = [file.path for file in search([str(tmp_path)]).files]
    assert found == [place / "val_loss", place / "train" / "loss"]
    (coverage,) = validate(tmp_path).coverage
    assert coverage.run == RUN


@pytest.mark.parametrize(
    "start",
    [
        *(b"Step,a - loss,a - loss__MIN\n0,1,1\n", b"Step,loss,loss__MIN,loss__MAX\n0,1,1,1\n"),
        *(b"step,loss\n1,2\n", b"epoch,step\n"[:10], b"_step,loss\n1,2\n", b"1700000000 2.5 5\n"),
        *(b"1700000000000 2.5\n", b'{"_step": 5}\n', b"epoch,batch,loss\n1,2,3\n"),
    ],
)
def test_other_tables_have_no_format(start: bytes) -> None:
    assert detect(start) is None


def test_made_files_are_of_the_format_that_they_show() -> None:
    formats = [found.name if (found := detect(content)) else None for content in files().values()]
    tables = ["lightning-csv", "wandb-history", "wandb-history"]
    logs = ["deepspeed-log", "maxtext-log", "nemo-log"]
    assert formats == ["trainer-state", "tensorboard", *tables, *logs, "mlflow-metric"]


def history(pauses: dict[int, float], results: set[int]) -> str:
    """A history with a step each half minute, longer ones before some steps, and results in the rows of others."""
    rows, time_s = ["_step,_timestamp,loss,step,val_loss"], 1_800_000_000.0
    for step in range(1, 41):
        time_s += pauses.get(step, 30.0)
        rows.append(f"{step},{time_s},{3 - step / 100},{step},{2.5 if step in results else ''}")
    return "\n".join(rows) + "\n"


def stalls(text: str, folder: Path) -> list[str]:
    path = folder / "history.csv"
    path.write_text(text, encoding="utf-8")
    return [each.message for each in validate(path).findings if each.requirement == "TS-TEL-033"]


EVERY_FIVE = set(range(5, 41, 5))


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_pauses_that_come_with_results_are_evaluations(shift: int, tmp_path: Path) -> None:
    pauses = {step + shift: 230.0 for step in EVERY_FIVE}
    assert stalls(history(pauses, EVERY_FIVE), tmp_path) == []
    assert len(stalls(history(pauses, set()), tmp_path)) == len([step for step in pauses if step <= 40])


def test_a_pause_that_no_result_shows_is_a_stall(tmp_path: Path) -> None:
    pauses = dict.fromkeys(EVERY_FIVE, 230.0)
    assert len(stalls(history({**pauses, 22: 500.0}, EVERY_FIVE), tmp_path)) == 1
    assert len(stalls(history({**pauses, 20: 2300.0}, EVERY_FIVE), tmp_path)) == 1
    assert len(stalls(history({22: 500.0}, EVERY_FIVE), tmp_path)) == 1
    assert len(stalls(history({21: 500.0}, EVERY_FIVE), tmp_path)) == 1


def test_a_log_of_results_alone_explains_no_pause(tmp_path: Path) -> None:
    assert len(stalls(history({22: 500.0}, set(range(1, 41))), tmp_path)) == 1


def test_reports_at_ends_of_epochs_between_those_of_an_interval_are_no_hole(tmp_path: Path) -> None:
    steps = sorted({*range(50, 751, 50), *range(75, 751, 75)})
    path = tmp_path / "metrics.csv"
    path.write_text(table(*(f"0,,{step - 1},{3 - step / 1000}," for step in steps)), encoding="utf-8")
    assert validate(path).findings == ()
    path.write_text(table(*(f"0,,{step - 1},{3 - step / 1000}," for step in steps if step != 400)), encoding="utf-8")
    assert {each.requirement for each in validate(path).findings} == {"TS-TEL-031"}


def test_an_evaluation_between_reports_of_several_updates_is_one(tmp_path: Path) -> None:
    rows, time_s = ["_step,_timestamp,loss,step,val_loss"], 1_800_000_000.0
    for step in range(1, 1301):
        time_s += 14.0
        if step % 50 == 0 or step % 46 == 1:
            rows.append(f"{len(rows)},{time_s},{3 - step / 1000},{step},")
        if step % 46 == 0:
            time_s += 85.0
            rows.append(f"{len(rows)},{time_s},,,2.5")
    assert stalls("\n".join(rows) + "\n", tmp_path) == []


def test_a_table_whose_losses_are_words_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.csv").write_text(table(*(f"0,,{index * 10 + 9},bad," for index in range(10))))
    found = validate([str(tmp_path / "metrics.csv")]).findings
    assert "train_loss is the text 'bad'; the first of 10 rows" in {each.message for each in found}


def test_a_table_whose_losses_end_is_silent_to_its_last_row(tmp_path: Path) -> None:
    losses = [str(3 - index / 40) if index < 20 else "" for index in range(40)]
    (tmp_path / "metrics.csv").write_text(table(*(f"0,,{index * 10 + 9},{loss}," for index, loss in enumerate(losses))))
    assert [each.requirement for each in validate([str(tmp_path / "metrics.csv")]).findings] == ["TS-TEL-023"]


def test_tables_of_epochs() -> None:
    found = read_text("epoch,train_loss,eval_loss,eval_top1,lr\n0,6.5,6.25,0.5,0.05\n1,6.125,4.5,14.5,0.025\n")
    evaluated = "train.evaluation.loss{train.evaluation.set=eval,train.loss.name=total}"
    assert [(sample.step, sample.m) for sample in found.samples] == [
        (None, {LOSS: 6.5, evaluated: 6.25, "train.learning_rate": 0.05}),
        (None, {LOSS: 6.125, evaluated: 4.5, "train.learning_rate": 0.025}),
    ]
    found = read_text('"epoch","accuracy","loss","val_loss"\n"0","0.9","2.5","2.25"\n')
    assert [sample.m for sample in found.samples] == [{LOSS: 2.5, VALIDATED: 2.25}]


@pytest.mark.parametrize(
    "start",
    [
        b"epoch,accuracy\n0,0.5\n",
        b"epoch,loss\nfirst,2.5\n",
        b"epoch,loss\n",
        b"name,epoch,loss\n0,1,2.5\n",
        b"epoch,loss\n1,2.5\n1,2.4\n",
    ],
)
def test_other_tables_are_none_of_epochs(start: bytes) -> None:
    assert detect(start) is None


def test_a_loss_of_epochs_that_is_lost_is_found(tmp_path: Path) -> None:
    rows = "".join(f"{epoch},{3 - epoch / 10 if epoch < 6 else 'nan'},2.5\n" for epoch in range(12))
    (tmp_path / "history.csv").write_text(f"epoch,loss,val_loss\n{rows}")
    assert "TS-TEL-088" in {each.requirement for each in validate([str(tmp_path / "history.csv")]).findings}
