"""What an optimizer step applied follows from the checkpoints before and after it, where they hold moments of Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from trainspec_conformance.applied_steps import applied_step
from trainspec_conformance.criteria import Case, Problem
from trainspec_conformance.criteria.applied import steps_as_applied
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.records import Applied, Entry
from trainspec_conformance.stored_values import NoValuesError
from trainspec_conformance.view import View

from trainspec_validate.documents.types.conformance import Claims
from trainspec_validate.documents.types.scenario import Criterion
from trainspec_validate.documents.types.trace import StepDone

Arrays = dict[str, npt.NDArray[Any]]
SIZES = {"embedding": 600, "hidden": 600, "bias": 30}
FIRST, LAST = 20, 26
RATE = 3e-3


class Run:
    """Adam in 32 bits on random gradients; each of the last steps is a checkpoint."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root, self.options = root, options
        self.chance = np.random.default_rng(7)
        self.values = {name: self._random(size) for name, size in SIZES.items()}
        self.first = {name: np.zeros(size, np.float32) for name, size in SIZES.items()}
        self.second = {name: np.zeros(size, np.float32) for name, size in SIZES.items()}
        self.largest = {name: np.zeros(size, np.float32) for name, size in SIZES.items()}
        self.told: list[StepDone] = []
        for step in range(1, LAST + 1):
            self._step(step)
            if step >= FIRST:
                self._save(step)

    def _random(self, size: int) -> npt.NDArray[np.float32]:
        return self.chance.normal(0, 0.02, size).astype(np.float32)

    def _step(self, step: int) -> None:
        one, other = self.options.get("betas", (0.9, 0.999))
        spread = float(self.chance.uniform(0.2, 2))
        gradients = {name: self._random(size) * spread for name, size in SIZES.items()}
        gradients |= {name: np.zeros(SIZES[name], np.float32) for name in self.options.get("unreached", ())}
        norm = math.sqrt(sum(float(np.square(gradient.astype(float)).sum()) for gradient in gradients.values()))
        clip = self.options.get("clip", math.inf)
        for name, gradient in gradients.items():
            taken = gradient * np.float32(min(1, clip / norm)) + self.options.get("coupled", 0) * self.values[name]
            self.first[name] = (one * self.first[name] + (1 - one) * taken).astype(np.float32)
            self.second[name] = (other * self.second[name] + (1 - other) * taken**2).astype(np.float32)
            self.largest[name] = np.maximum(self.largest[name], self.second[name])
            if name not in self.options.get("frozen", ()):
                self._move(name, step, one, other)
        told = {"time_us": step, "rank": 0, "step": step, "loss": 1.0, "learning_rate": RATE}
        self.told.append(StepDone(**told, gradient_norm=self.options.get("norm", lambda norm: norm)(norm)))

    def _move(self, name: str, step: int, one: float, other: float) -> None:
        squares = self.largest[name] if self.options.get("amsgrad") else self.second[name]
        is_corrected = self.options.get("corrected", True)
        first, second = (1 - one**step, 1 - other**step) if is_corrected else (1, 1)
        if not np.any(squares):
            return
        moved = (self.first[name] / first) / (np.sqrt(squares / second) + 1e-8)
        rate = RATE * self.options.get("factor", {}).get(name, self.options.get("of_all", 1.0))
        decay = self.options.get("decay", 0.0) * self.values[name]
        self.values[name] = (self.values[name] - rate * (moved + decay)).astype(np.float32)

    def _save(self, step: int) -> None:
        directory = self.root / f"step-{step}"
        directory.mkdir(parents=True)
        kept = self.options.get("kept", lambda array: array)
        values, first, second = self.options.get("names", ("{}", "{}.exp_avg", "{}.exp_avg_sq"))
        parts = {first.format(name): kept(array) for name, array in self.first.items()}
        parts |= {second.format(name): kept(array) for name, array in self.second.items()}
        named = {values.format(name): array for name, array in self.values.items()}
        arrays: Mapping[str, Any] = {**named, **parts, **self.options.get("more", lambda step: {})(step)}
        np.savez(directory / "state.npz", **arrays)

    def applied(self) -> list[Applied]:
        steps = range(FIRST + 1, LAST + 1)
        return [applied_step(self.root / f"step-{step - 1}", self.root / f"step-{step}", step) for step in steps]

    def problems(self) -> list[Problem]:
        records = [*self.told, *self.applied()]
        view = View([Entry(seconds=float(number), record=record) for number, record in enumerate(records)])
        case = Case(all_scenarios()["reported-losses"], Claims(), view)
        return list(steps_as_applied(case, Criterion(check="steps-as-applied")))

    def messages(self) -> list[str]:
        return [problem.message for problem in self.problems()]


FOLDERS = ("parameters/{}", "optimizer/first/{}", "optimizer/second/{}")
SOUND = {
    "names in folders": {"names": FOLDERS},
    "plain": {},
    "other coefficients": {"betas": (0.95, 0.98)},
    "no first mean": {"betas": (0.0, 0.95)},
    "decay of values": {"decay": 0.1},
    "decay in the gradient": {"coupled": 0.01},
    "clipped always": {"clip": 0.01},
    "clipped at times": {"clip": 1.0},
    "clipped, with decay in the gradient": {"clip": 0.01, "coupled": 0.01},
    "without correction": {"corrected": False},
    "rates of layers": {"factor": {"embedding": 0.1, "hidden": 0.5}},
    "maxima of squares": {"amsgrad": True},
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_of_adam_passes(name: str, tmp_path: Path) -> None:
    assert Run(tmp_path, **SOUND[name]).messages() == []


def test_rate_and_norm_are_found(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for found, told in zip(run.applied(), run.told[FIRST:], strict=True):
        assert found.rates == pytest.approx([RATE] * len(SIZES), rel=1e-3)
        assert math.sqrt(found.squared_norm) == pytest.approx(told.gradient_norm, rel=1e-4)
        assert (found.resting, found.others) == ((), ())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"of_all": 0.1}, "the learning rate of step 21 is 0.003 as reported, 0.0003 by the values"),
        ({"of_all": 1.3}, "0.003 as reported, 0.0039 by"),
        ({"frozen": ("embedding",)}, "the moments of embedding.npy, and left the values as they were"),
        ({"frozen": ("hidden",), "names": FOLDERS}, "the moments of parameters/hidden.npy, and left"),
        ({"norm": lambda norm: 0.4}, "by the moments before and after it"),
        ({"norm": lambda norm: 0.8 * norm}, "by the moments before and after it"),
        ({"norm": lambda norm: 1.5 * norm}, "by the moments before and after it"),
        ({"clip": 0.01, "norm": lambda norm: 0.009}, "by the moments before and after it"),
    ],
)
def test_what_is_reported_and_not_applied_fails(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    (problem,) = Run(tmp_path, **options).problems()
    assert words in problem.message
    assert not problem.is_remark


@pytest.mark.parametrize(
    ("options", "name"),
    [({"unreached": ("hidden",)}, "hidden"), ({"more": lambda step: {"mask": np.ones(600, np.float32)}}, "mask")],
)
def test_tensors_that_no_step_changes_are_named(options: dict[str, Any], name: str, tmp_path: Path) -> None:
    (problem,) = Run(tmp_path, **options).problems()
    assert problem.is_remark
    assert problem.message == f"optimizer steps left {name}.npy as they were"


def test_different_rates_of_parameters_are_no_failure(tmp_path: Path) -> None:
    (problem,) = Run(tmp_path, factor={"embedding": 0.1, "hidden": 0.5, "bias": 0.3}).problems()
    assert problem.is_remark
    assert "parameters have rates from 0.0003 to 0.0015" in problem.message


def test_a_part_of_the_gradient_is_a_lower_bound(tmp_path: Path) -> None:
    def others(step: int) -> Arrays:
        return {"momentum": np.full(900, step, np.float32)}

    assert Run(tmp_path / "more", norm=lambda norm: 1.5 * norm, more=others).messages() == []
    (message,) = Run(tmp_path / "less", norm=lambda norm: 0.8 * norm, more=others).messages()
    assert "by the moments" in message


def bf16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    return (array.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def no_moments(root: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "no gradient explains both moments", Run(root / "rounded", kept=bf16).applied
    run = Run(root / "other", kept=lambda array: np.cos(array * 1e4).astype(np.float32))
    yield "no gradient explains both moments", run.applied


def test_moments_that_are_not_those_of_adam_are_not_judged(tmp_path: Path) -> None:
    for words, judge in no_moments(tmp_path):
        with pytest.raises(NoValuesError, match=words):
            judge()
    for step in (1, 2):
        (tmp_path / f"sgd-{step}").mkdir()
        np.savez(tmp_path / f"sgd-{step}" / "state.npz", weight=np.full(9, step, np.float32))
    with pytest.raises(NoValuesError, match="holds no two moments of one parameter"):
        applied_step(tmp_path / "sgd-1", tmp_path / "sgd-2", 2)
