"""The numbers in requirements that rest on a prediction are the constants of the rules and of the models."""

from __future__ import annotations

from pathlib import Path

import appendix_collectives
import pytest

from benchmarks import score_memory, training_sets
from trainspec_validate.model.requirements import load_index
from trainspec_validate.performance.costs.collective_libraries import CALIBRATION as COLLECTIVES
from trainspec_validate.performance.costs.stage_memory import MAX_CHUNKS
from trainspec_validate.performance.costs.step_errors import BANDS as STEP
from trainspec_validate.performance.costs.step_time import step_time
from trainspec_validate.rules import _lean_memory, com_forecast, mem_peak, top_forecast
from trainspec_validate.rules._forecast import FASTEST, SLOWEST

CHAPTERS = Path(__file__).resolve().parent.parent / "spec" / "v1"
STATED = {
    "TS-TOP-024": (f"at most {top_forecast.WORTH} times",),
    "TS-COM-025": (f"{com_forecast.WORTH} times", f"at most {com_forecast.LEAST_LOSS} of"),
    "TS-COM-026": (f"at most {com_forecast.MOST_EXPOSED}.",),
    "TS-COM-027": (f"{com_forecast.MANY_BUCKETS} times as large", f"at most {com_forecast.BUCKET_SHARE} of"),
    "TS-COM-028": (f"1 - (1 - w) / {FASTEST}", f"1 - (1 - w) / {SLOWEST}"),
    "TS-MEM-020": (f"divided by {1 + _lean_memory.ERROR:g}",),
    "TS-MEM-021": (f"at least {mem_peak.LEAST_SHARE} times", "at most twice"),
    "TS-MEM-022": (f"{SLOWEST} times the predicted step",),
    "TS-PAR-035": (f"{FASTEST} to {SLOWEST} times the predicted step",),
    "TS-CKP-062": (f"{FASTEST} to {SLOWEST} times the predicted step",),
    "TS-CKP-063": (f"at least {FASTEST} times the predicted step",),
}
TWICE = (com_forecast.BUCKET_SLOWDOWN, mem_peak.MOST_SHARE, _lean_memory.MOST_KEPT)


def page(name: str) -> str:
    return " ".join((CHAPTERS / name).read_text(encoding="utf-8").split())


def text(identifier: str) -> str:
    entry = load_index().by_id[identifier]
    return " ".join(f"{entry.statement} {entry.details}".split())


@pytest.mark.parametrize("identifier", STATED)
def test_a_limit_is_the_constant_of_its_rule(identifier: str) -> None:
    assert [part for part in STATED[identifier] if part not in text(identifier)] == []


def test_what_is_written_as_twice_is_two() -> None:
    assert set(TWICE) == {2.0}
    assert pytest.approx(16 / 6) == mem_peak.MOST_LOSS


def test_a_prediction_never_decides_an_error() -> None:
    predicted = [entry for entry in load_index().by_id.values() if "predicted step" in text(entry.id)]
    assert len(predicted) > 5
    assert [entry.id for entry in predicted if entry.level != "SHOULD"] == []
    assert [load_index().by_id[identifier].level for identifier in STATED if identifier.startswith("TS-MEM")] == [
        "SHOULD"
    ] * 3


def test_errors_of_the_models_are_those_of_their_calibration() -> None:
    dense = [band for name, band in STEP.items() if name.startswith("dense, 16-bit")]
    low, high = f"{min(band.low for band in dense):.2f}", f"{max(band.high for band in dense):.2f}"
    for name in ("00-terms.md", "04-performance.md"):
        assert f"took {low} to {high} times as long" in page(name)
    text = page("05-predicted-communication.md")
    for band in (COLLECTIVES.domain_band, COLLECTIVES.fabric_band, COLLECTIVES.other_band):
        assert "{:g} to {:g}".format(*band) in text
    assert "{:g} to {:g} times are assumed".format(*COLLECTIVES.uncalibrated_band) in text
    assert f"more than {MAX_CHUNKS:,} pipeline chunks" in page("03-predicted-placement.md")


def test_errors_of_predicted_memory_are_those_of_its_score() -> None:
    cells = score_memory.by_table(score_memory.measured())
    rows = score_memory.measured(adapters=True)
    cells += [score_memory.Cell(row.row["row"], row.measured_gib, row.tensors_gib) for row in rows]
    text = page("06-predicted-memory.md")
    mean, worst = f"{100 * score_memory.mean(cells):.1f} %", f"{100 * score_memory.worst(cells):.1f} %"
    assert f"On {len(cells)} measured jobs its mean error was {mean}, the largest {worst}." in text
    assert f"overestimated one by {100 * max(cell.error for cell in cells):.1f} %" in text
    ratios = [cell.published / cell.predicted for cell in cells]
    least, most = min(ratios), max(ratios, default=0)
    assert f"were {least:.2f} to" in text
    assert most < 1 / mem_peak.LEAST_SHARE
    factors = [cell.published / cell.predicted for cell in score_memory.activation_factors()]
    assert f"keeps {min(factors):.2f} to {max(factors):.2f} times the formula" in text


def test_published_steps_within_the_bounds_are_as_many_as_the_reason_says() -> None:
    runs = [run for run in training_sets.load()[0] if run.family.startswith("dense, 16-bit")]
    within = [run for run in runs if FASTEST <= run.seconds / step_time(run.work, run.networks).seconds <= SLOWEST]
    assert f"{len(within)} of {len(runs)} runs are within them" in page("04-performance.md")


@pytest.mark.parametrize("machine", ["8 x NVLink 4, InfiniBand", "8 x MI300X, RoCE", "64 of NVL72, InfiniBand"])
def test_the_short_answer_agrees_with_the_long_one(machine: str) -> None:
    (short,) = [row[1:] for row in appendix_collectives.ring_from("all-reduce") if row[0] == machine]
    long = [row[2] for row in appendix_collectives.choices("all-reduce") if row[0] == machine]
    assert len(short) == len(long)
    for answer, choices in zip(short, long, strict=True):
        parts = choices.split(" → ")
        names, sizes = [part.split(" ")[0] for part in parts[::2]], ["0 B", *parts[1::2]]
        first = next(place for place in range(len(names)) if set(names[place:]) == {names[-1]})
        assert answer == (sizes[first] if names[-1] == "ring" else names[-1])


def test_the_size_of_shims_is_the_one_of_the_files() -> None:
    root = CHAPTERS.parents[1]

    def num_lines(path: Path) -> int:
        return len(path.read_text(encoding="utf-8").splitlines())

    names = ("accelerate_loop", "deepspeed_zero", "flax_orbax", "hf_trainer", "keras_workers")
    others = ("lightning_trainer", "ray_trainer", "torchtitan_trainer")
    shims = [root / "conformance" / "stacks" / "shims" / f"{name}.py" for name in (*names, *others)]
    sizes = [num_lines(path) for path in shims]
    minimal = [num_lines(root / "reference" / "minimal" / name) for name in ("minimal_torch.py", "task.py")]
    guide = page("../guide/conformant.md")
    assert f"have {min(sizes)} to {max(sizes)} lines" in guide
    assert "has {} lines, and its job {}.".format(*minimal) in guide
