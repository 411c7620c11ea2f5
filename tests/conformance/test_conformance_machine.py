"""Checks of memory, kernels, energy, narrow formats, steps and order, on answers and traces that are made here."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from made_answers import MEGABYTE, energy, kernel, kernels
from trainspec_conformance.arrays import packed, unpacked
from trainspec_conformance.criteria import CannotJudgeError, Case, all_checks
from trainspec_conformance.numerics import case_input
from trainspec_conformance.peaks import PeakMemory
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Entry, Probed, Started
from trainspec_conformance.testbed.probe import answer
from trainspec_conformance.view import View

from trainspec_validate.documents.types.conformance import Claims
from trainspec_validate.documents.types.trace import StepDone

Answers = Mapping[str, tuple[Any, int]]


def found(scenario: str, answers: Answers) -> dict[str, list[str]]:
    """Messages of the checks of a scenario, on answers to its cases, each with the peak that the suite saw."""
    entries = [
        Entry(
            seconds=0.0,
            record=Probed(
                case=name,
                status=0,
                input=msgspec.Raw(msgspec.json.encode(case_input(name, 1))),
                output=msgspec.Raw(msgspec.json.encode(text)),
                peak_bytes=peak,
            ),
        )
        for name, (text, peak) in answers.items()
    ]
    one = all_scenarios()[scenario]
    case = Case(one, Claims(), View(entries))
    messages: dict[str, list[str]] = {}
    for criterion in one.criteria:
        if criterion.case in answers:
            told = [problem.message for problem in all_checks()[criterion.check](case, criterion)]
            messages.setdefault(criterion.check, []).extend(told)
    return {name: told for name, told in messages.items() if told}


# --- kernels --------------------------------------------------------------------------------------------------


def test_kernels_above_their_floors_pass() -> None:
    assert not found("kernel-floors", {"kernels": (kernels(), 0)})


@pytest.mark.parametrize(
    ("number", "seconds", "message"),
    [
        (0, 2e9 / 4e14, "matmul of .* reaches 0.67 of its roofline, at least 0.70"),
        (1, 5.6e9 / 6e13, "attention of .* reaches 0.10 of its roofline, at least 0.25"),
        (2, 4e6 / 2e11, "normalization of .* reaches 0.10 of its roofline, at least 0.45"),
        (3, 1e300, "activation of .* reaches 0.00"),
    ],
)
def test_a_slow_kernel_fails(number: int, seconds: float, message: str) -> None:
    told = kernels()
    told["kernels"][number]["median_seconds"] = seconds
    (only,) = found("kernel-floors", {"kernels": (told, 0)})["kernels-above-floors"]
    assert re.match(message, only)


def test_kernels_need_runs_rooflines_and_all_operations() -> None:
    assert "100 runs" in str(found("kernel-floors", {"kernels": (kernels(num_timed_runs=10), 0)}))
    assert "no attention was measured" in str(
        found("kernel-floors", {"kernels": (kernels(kernels=kernels()["kernels"][:1]), 0)})
    )
    with pytest.raises(CannotJudgeError, match="no roofline"):
        found("kernel-floors", {"kernels": (kernels(rooflines=[]), 0)})
    with pytest.raises(CannotJudgeError, match="not a kernel with a floor"):
        found("kernel-floors", {"kernels": (kernels(kernels=kernels()["rooflines"]), 0)})
    with pytest.raises(CannotJudgeError, match="is not known"):
        found("kernel-floors", {"kernels": (kernels(kernels=[kernel("matmul", [1, 2], 1.0)]), 0)})


# --- energy ---------------------------------------------------------------------------------------------------


def test_energy_that_agrees_passes_with_readings_missing() -> None:
    assert not found("energy-counted", {"energy": (energy(), 0)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"watts": [0.0 if number % 7 == 3 else 300.0 for number in range(62)]}, "is null"),
        ({"watts": [250.0] * 62}, "add up to 1525 J"),
        ({"joules": [5000.0 - number for number in range(62)]}, "the energy counter decreases"),
        ({"joules": [0.0] * 62}, "the counter grew by 0 J"),
        ({"seconds": [number / 100 for number in range(62)]}, "end before the load"),
    ],
)
def test_energy_that_does_not_agree_fails(changes: dict[str, Any], message: str) -> None:
    assert message in str(found("energy-counted", {"energy": (energy(**changes), 0)}))


def test_energy_without_a_counter_is_not_judged() -> None:
    with pytest.raises(CannotJudgeError, match="no energy counter"):
        found("energy-counted", {"energy": (energy(joules=[None] * 62), 0)})


# --- memory ---------------------------------------------------------------------------------------------------


def memory(**taken: int) -> Answers:
    """Predictions in megabytes of 100 and 200, and what was taken of the base and the other."""
    text = {"memory": "host", "predicted_bytes": 100 * MEGABYTE}
    more = {**text, "predicted_bytes": 200 * MEGABYTE}
    return {
        "memory-base": (text, taken["base"] * MEGABYTE),
        "memory-layers": (more, taken["layers"] * MEGABYTE),
    }


def test_memory_is_compared_by_differences() -> None:
    assert not found("memory-by-factor", memory(base=150, layers=240))
    assert "5e+07 bytes more were taken, 1e+08 more" in str(found("memory-by-factor", memory(base=150, layers=200)))
    assert "memory-predicted" in found("memory-by-factor", memory(base=250, layers=350))
    with pytest.raises(CannotJudgeError, match="does not report"):
        found("memory-by-factor", memory(base=0, layers=0))


def test_memory_of_a_device_is_taken_from_the_answer() -> None:
    texts = [{"memory": "device", "predicted_bytes": one, "peak_bytes": 1.05 * one} for one in (1e9, 2e9)]
    assert not found("memory-by-factor", {"memory-base": (texts[0], 0), "memory-layers": (texts[1], 0)})


def sharded(whole: int, parts: int, *, off: float = 0.0) -> Answers:
    """Losses, and megabytes that were taken of whole replicas and of parts; both moments of one copy take 256."""
    text: dict[str, Any] = {"memory": "host", "losses": [3.0, 2.0, 1.0]}
    other = {**text, "losses": [3.0, 2.0 + off, 1.0]}
    return {"shards-none": (text, whole * MEGABYTE), "shards-parameters": (other, parts * MEGABYTE)}


def test_ranks_that_shard_take_less_and_train_the_same() -> None:
    assert not found("state-sharded", sharded(2000, 1800))
    for parts in (1850, 2000, 2100):
        assert "one copy of the moments alone takes 2.56e+08" in str(found("state-sharded", sharded(2000, parts)))
    assert not found("state-sharded", sharded(2000, 1500, off=1e-5))
    assert "losses are [3.0, 2.01, 1.0] with sharding" in str(found("state-sharded", sharded(2000, 1500, off=0.01)))
    assert "losses are" in str(found("state-sharded", sharded(2000, 1500, off=float("nan"))))
    assert "their state alone takes 7.68e+08" in str(found("state-sharded", sharded(700, 400)))
    with pytest.raises(CannotJudgeError, match="does not report"):
        found("state-sharded", sharded(0, 0))


def test_steps_and_processes_that_grow_fail() -> None:
    steady: dict[str, Any] = {"peak_bytes": [100] * 30}
    few: tuple[Any, int] = ({"peak_bytes": [100] * 3}, 1000)
    assert not found("steady-memory", {"peaks-short": few, "peaks-long": (steady, 1020)})
    assert "steady-process" in found("steady-memory", {"peaks-short": few, "peaks-long": (steady, 1050)})
    grown = {"peak_bytes": [100 + number for number in range(30)]}
    assert "steady-steps" in found("steady-memory", {"peaks-short": few, "peaks-long": (grown, 1000)})


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_the_peak_of_a_process_is_seen() -> None:
    code = "held = bytearray(80_000_000); held = None; print('done', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        peak = PeakMemory(process.pid)
        peak.look()
        process.communicate(b"\n", timeout=600)
    assert peak.num_bytes > 80_000_000
    peak.look()
    assert peak.num_bytes > 80_000_000


# --- narrow formats -------------------------------------------------------------------------------------------


@pytest.fixture
def quantised(tmp_path: Path) -> Any:
    def asked(name: str) -> dict[str, Any]:
        (tmp_path / "in.json").write_bytes(msgspec.json.encode(case_input(name, 1)))
        answer("plain", tmp_path / "in.json", tmp_path / "out.json")
        told = msgspec.json.decode((tmp_path / "out.json").read_bytes())
        return {key: unpacked(told[key]) for key in ("dequantised", "scales")}

    return asked


def judged(name: str, told: Mapping[str, Any]) -> dict[str, list[str]]:
    return found("narrow-formats", {name: ({key: packed(value) for key, value in told.items()}, 0)})


@pytest.mark.parametrize("name", ["narrow-e4m3", "narrow-e5m2", "narrow-mxfp8", "narrow-mxfp4"])
def test_narrow_numbers_and_what_is_wrong_with_them(name: str, quantised: Any) -> None:
    told = quantised(name)
    assert not judged(name, told)
    largest = int(np.abs(told["dequantised"][0]).argmax())
    other = {key: value.copy() for key, value in told.items()}
    other["dequantised"][0, largest] *= 0.75
    assert "which is not the nearest number" in str(judged(name, other))
    assert "scales-as-defined" in judged(name, {**told, "scales": told["scales"] / 4})
    assert "not finite" in str(judged(name, {**told, "scales": told["scales"] * np.nan}))
    assert "nearest-of-format" in judged(name, {**told, "dequantised": told["dequantised"] * np.nan})


def test_a_block_may_round_its_scale_so_that_nothing_is_cut(quantised: Any) -> None:
    told = quantised("narrow-mxfp8")
    values = unpacked(case_input("narrow-mxfp8", 1)["values"]).reshape(-1, 32)
    largest = np.abs(values).max(1)
    whole = np.exp2(np.floor(np.log2(448 / np.where(largest > 0, largest, 448))))
    assert (whole != told["scales"]).any()
    assert "scales-as-defined" not in judged("narrow-mxfp8", {**told, "scales": whole})


# --- steps and convergence ----------------------------------------------------------------------------------


def test_updates_follow_gradients_up_to_the_declared_limit() -> None:
    gradient = np.array([0.003, 0.004])
    whole, limited = np.stack([gradient, 1024 * gradient]), np.stack([gradient, 0.25 * gradient / 0.005])

    def told(updates: Any) -> dict[str, Any]:
        return {"updates": packed(updates)}

    assert not found(
        "updates-as-declared", {"update-unclipped": (told(whole), 0), "update-clipped": (told(limited), 0)}
    )
    assert "no clipping is declared" in str(found("updates-as-declared", {"update-unclipped": (told(limited), 0)}))
    assert "at 0.25 is declared" in str(found("updates-as-declared", {"update-clipped": (told(whole), 0)}))
    for wrong in (whole[:1], whole * 0, whole * np.nan):
        with pytest.raises(CannotJudgeError):
            found("updates-as-declared", {"update-unclipped": (told(wrong), 0)})


def test_compression_may_end_as_far_off_as_seeds_do() -> None:
    falling = np.linspace(4, 2, 200)
    dense = np.stack([falling, falling + 0.05, falling - 0.05])

    def told(compressed: Any) -> Answers:
        return {"converge-top-k": ({"dense": packed(dense), "compressed": packed(compressed)}, 0)}

    assert not found("compression-converges", told(dense + 0.08))
    assert "seeds allow a gap of" in str(found("compression-converges", told(dense + 0.2)))
    assert "nothing was compressed" in str(found("compression-converges", told(dense)))
    assert "not finite" in str(found("compression-converges", told(dense * np.nan)))


# --- order ----------------------------------------------------------------------------------------------------


def order(*updates: tuple[list[int], list[int]]) -> list[str]:
    entries = [Entry(seconds=0, record=Started(pid=1, attempt=0, num_ranks=2))]
    for step, of_ranks in enumerate(updates, start=1):
        entries += [
            Entry(
                seconds=step,
                record=StepDone(time_us=0, rank=rank, step=step, loss=1.0, learning_rate=0.1, sample_ids=tuple(ids)),
            )
            for rank, ids in enumerate(of_ranks)
        ]
    one = all_scenarios()["declared-order"]
    one = msgspec.structs.replace(one, job=msgspec.structs.replace(one.job, global_sequences=4, samples_per_epoch=10))
    (criterion,) = [each for each in one.criteria if each.check == "order-as-declared"]
    case = Case(one, Claims(), View(entries))
    return [problem.message for problem in all_checks()["order-as-declared"](case, criterion)]


def test_samples_come_by_number_however_ranks_share_them() -> None:
    assert not order(([0, 2], [1, 3]), ([4], [5, 6, 7]), ([8, 9], [0, 1]), ([2, 3], [4, 5]))
    assert "step 2 consumed samples 4, 5, 6, 9" in str(order(([0, 2], [1, 3]), ([4, 5], [6, 9])))
    assert "step 1" in str(order(([0, 1], [5, 6])))
    with pytest.raises(CannotJudgeError, match="names no samples"):
        order(([], []))
