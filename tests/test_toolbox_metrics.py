"""The command that shows metrics and events, and finds them by the names of other programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.every import every
from trainspec_validate.cli.toolbox import PROGRAM, command
from trainspec_validate.model.metrics import catalog, events, metrics

ALIASES = [alias for metric in metrics().values() for alias in metric.aliases]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["metrics", *arguments], prog_name=PROGRAM)


def shown(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()[1:]]


# --- lists --------------------------------------------------------------------------------------------------


def test_all_metrics_are_listed() -> None:
    assert first_words(shown()) == list(metrics())


def test_all_events_are_listed() -> None:
    assert first_words(shown("--events")) == list(events())


@pytest.mark.parametrize("level", catalog().levels)
def test_a_level_is_listed(level: str) -> None:
    expected = [name for name, metric in metrics().items() if metric.level == level]
    assert expected
    assert first_words(shown("--level", level)) == expected


@every("ecosystem", catalog().ecosystems)
def test_names_of_a_program_are_listed(ecosystem: str) -> None:
    lines = shown("--ecosystem", ecosystem).splitlines()[1:]
    expected = [alias for alias in ALIASES if alias.ecosystem == ecosystem]
    assert len(lines) == len(expected)
    for line, alias in zip(lines, expected, strict=True):
        assert line.startswith(alias.name)
        assert alias.metric in line
        assert alias.conversion() in line


def test_lists_for_programs() -> None:
    assert [entry["name"] for entry in json.loads(shown("--format", "json"))] == list(metrics())
    assert [entry["name"] for entry in json.loads(shown("--events", "--format", "json"))] == list(events())
    dcgm = json.loads(shown("--ecosystem", "dcgm", "--format", "json"))
    assert {"DCGM_FI_DEV_FB_USED": 1048576.0}.items() <= {entry["name"]: entry["factor"] for entry in dcgm}.items()


# --- one entry ----------------------------------------------------------------------------------------------


@every("name", metrics())
def test_a_metric_is_shown_whole(name: str) -> None:
    metric, stdout = metrics()[name], shown(name)
    flat = " ".join(stdout.split())
    assert stdout.startswith(f"{name}: {metric.title}\n")
    for text in (metric.definition, metric.why, metric.source, metric.note, metric.capability):
        assert " ".join(text.split()) in flat
    assert f"{metric.level}, profile {metric.profile}" in stdout
    assert [cadence for cadence in metric.cadences if f"  {cadence}: " not in stdout] == []
    assert [attribute for attribute in metric.attributes if f"  {attribute}: " not in stdout] == []
    assert [alias.name for alias in metric.aliases if f"\n{alias.name} " not in stdout] == []


@every("name", events())
def test_an_event_is_shown_whole(name: str) -> None:
    event, stdout = events()[name], shown(name)
    assert stdout.startswith(f"{name}: {event.title}\n")
    assert " ".join(event.emitted.split()) in " ".join(stdout.split())
    assert [word for word in (*event.attributes, *event.values, *event.closed_by) if word not in stdout] == []


def test_what_an_event_closes() -> None:
    assert "closes      train.checkpoint.begin\n" in shown("train.checkpoint.commit")


def test_a_synonym_is_shown_as_its_metric() -> None:
    assert shown("train.accelerator.busy") == shown("hw.gpu.utilization")
    assert shown("TRAIN.LOSS.MEAN") == shown("train.loss.mean")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "DCGM_FI_DEV_GPU_UTIL",
            "DCGM_FI_DEV_GPU_UTIL of NVIDIA DCGM exporter, in %: hw.gpu.utilization = value x 0.01",
        ),
        ("dcgm_fi_dev_fb_used", "hw.gpu.memory.usage = value x 1048576"),
        ("gpu.5.powerWatts", "in W: hw.power = value"),
        ("DCGM_FI_DEV_MEMORY_TEMP", "hw.temperature, hw.sensor_location memory = value"),
        ("train_steps_per_second", "train.step.duration = 1 / value"),
        ("number of skipped iterations", "train.step.skipped = value, added up"),
        ("GPU_USED_VRAM", "in a unit that is not settled: hw.gpu.memory.usage = does not convert"),
        ("perf/per_device_tokens_per_sec", "train.token.rate = value x num_accelerators"),
    ],
)
def test_a_foreign_name_finds_its_metric(name: str, line: str) -> None:
    stdout = shown(name)
    head, _, page = stdout.partition("\n\n")
    assert line in head
    assert page.split(":")[0] in metrics()


def test_a_name_of_two_programs_and_of_two_metrics() -> None:
    head = shown("grad_norm").partition("\n\n")[0]
    assert "of torchtitan" in head
    assert "of Hugging Face Trainer" in head
    assert "of torchtitan" not in shown("grad_norm", "--ecosystem", "huggingface").partition("\n\n")[0]
    both = shown("samples_count", "--ecosystem", "mlperf")
    assert "train.sample.count" in both
    assert "train.token.count" in both
    assert len(both.splitlines()) == 3


def test_entries_for_programs() -> None:
    (metric,) = json.loads(shown("train.gradient.variance", "--format", "json"))
    assert "train.gradient.tap" in metric["attributes"]
    (event,) = json.loads(shown("train.run.start", "--format", "json"))
    assert event["closed_by"] == ["train.run.end"]
    (alias,) = json.loads(shown("mfu(%)", "--format", "json"))
    assert (alias["metric"], alias["factor"]) == ("train.flops.utilization", 0.01)


# --- wrong use ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train.stpe.count"], "did you mean 'train.step.count'?"),
        (["DCGM_FI_DEV_GPU_UTILL"], "did you mean 'DCGM_FI_DEV_GPU_UTIL'?"),
        (["train.checkpoint.comit"], "did you mean 'train.checkpoint.commit'?"),
        (["zzzz"], "no metric is called 'zzzz'; `trainspec metrics` lists them"),
        (["DCGM_FI_DEV_GPU_UTIL", "--ecosystem", "amd"], "`trainspec metrics --ecosystem amd` lists them"),
        (["--ecosystem", "dgcm"], "did you mean 'dcgm'?"),
        (["--level", "requird"], "did you mean 'required'?"),
        (["--level", "bogus"], "there are required, conditional, recommended, optional"),
        (["--ecosystem", "bogus"], "there are opentelemetry, dcgm, gpud, amd, tpu, "),
        (["--events", "--level", "required"], "--events lists all events"),
        (["--events", "--ecosystem", "dcgm"], "--events lists all events"),
        (["train.loss.mean", "--level", "required"], "--level is for the list of metrics"),
        (["\x1b[2J" + "x" * 5000], "no metric is called"),
    ],
)
def test_wrong_use_says_what_would_be_right(arguments: list[str], told: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert "\x1b" not in result.stderr
    assert result.stdout == ""


def test_completion_knows_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TRAINSPEC_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "trainspec metrics dcgm_fi_prof_d")
    monkeypatch.setenv("COMP_CWORD", "2")
    result = CliRunner().invoke(command, [], prog_name=PROGRAM, complete_var="_TRAINSPEC_COMPLETE")
    assert result.output.split() == ["plain,DCGM_FI_PROF_DRAM_ACTIVE"]
