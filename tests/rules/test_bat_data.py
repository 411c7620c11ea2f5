"""Training data of a plan: sums of weights, digests, epochs by tokens and by samples, order after recovery."""

from __future__ import annotations

from typing import Any

import pytest

from trainspec_validate.model.finding import Verdict

DIGEST = "sha256:" + "0" * 64
WEB, CODE = {"name": "web", "digest": DIGEST}, {"name": "code", "digest": DIGEST[:-1] + "1"}
TOKENS = 83886080000


def data(*datasets: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"data": {"resume": "same-order", "datasets": list(datasets), **keys}}


@pytest.mark.parametrize(
    ("weights", "place"),
    [
        ((0.6, 0.4), None),
        ((0.667, 0.3335), None),
        ((1 / 3, 2 / 3), None),
        ((0.6, 0.3), "data.datasets"),
        ((0.6, 0.41), "data.datasets"),
        ((0.6, None), "data.datasets.1"),
        ((None, None), None),
    ],
)
def test_weights(findings, weights, place) -> None:
    first, second = ({**dataset, "weight": weight} for dataset, weight in zip((WEB, CODE), weights, strict=True))
    found = findings(plan=data(first, second), select=("TS-BAT-036",))
    assert found == (set() if place is None else {("TS-BAT-036", place)})


def test_a_dataset_is_listed_once(findings) -> None:
    found = findings(plan=data({**WEB, "weight": 0.5}, {**WEB, "weight": 0.5}), select=("TS-BAT-036",))
    assert found == {("TS-BAT-036", f"data.datasets.{position}.name") for position in (0, 1)}


def test_datasets_with_one_digest_are_one(findings) -> None:
    """Two copies of an entry keep the digest of the first."""
    copied = {**CODE, "digest": DIGEST, "num_tokens": 1e9, "weight": 0.5}
    found = findings(plan=data({**WEB, "weight": 0.5}, copied), select=("TS-BAT-036",))
    assert found == {("TS-BAT-036", "data.datasets.1.digest")}
    assert findings(plan=data({**WEB, "weight": 0.5}, {**CODE, "weight": 0.5}), select=("TS-BAT-036",)) == set()


def test_digests(findings) -> None:
    found = findings(plan=data(WEB, {"name": "code"}), select=("TS-BAT-037",))
    assert found == {("TS-BAT-037", "data.datasets.1")}


@pytest.mark.parametrize(
    ("order", "seed", "job_seed", "wrong"),
    [
        ("shuffled", None, None, True),
        ("shuffled", 0, None, False),
        ("shuffled", None, 1234, False),
        ("sequential", None, None, False),
    ],
)
def test_seed(findings, order, seed, job_seed, wrong) -> None:
    plan = {**data(WEB, order=order, seed=seed), "job": {"seed": job_seed}}
    assert findings(plan=plan, select=("TS-BAT-038",)) == ({("TS-BAT-038", "data.order")} if wrong else set())


@pytest.mark.parametrize(
    ("dataset", "place"),
    [
        ({"num_tokens": TOKENS / 2, "max_epochs": 2}, None),
        ({"num_tokens": TOKENS / 2.1, "max_epochs": 2}, "data.datasets.0.max_epochs"),
        ({"num_samples": 20000 * 512 / 4, "max_epochs": 4}, None),
        ({"num_samples": 20000 * 512 / 5, "max_epochs": 4}, "data.datasets.0.max_epochs"),
        ({"num_tokens": 1e9}, None),
    ],
)
def test_epochs(findings, dataset, place) -> None:
    found = findings(plan=data({**WEB, **dataset}), select=("TS-BAT-039",))
    assert found == (set() if place is None else {("TS-BAT-039", place)})


def test_epochs_count_by_weight(findings) -> None:
    small = {**CODE, "weight": 0.25, "num_tokens": TOKENS / 8, "max_epochs": 1.5}
    found = findings(plan=data({**WEB, "weight": 0.75}, small), select=("TS-BAT-039",))
    assert found == {("TS-BAT-039", "data.datasets.1.max_epochs")}


def test_a_recovered_job_reads_the_same_samples(findings, verdict) -> None:
    select = ("TS-BAT-040",)
    assert findings(plan=data(WEB), select=select) == set()
    assert findings(plan=data(WEB, resume="new-order"), select=select) == {("TS-BAT-040", "data.resume")}
    assert findings(plan=data(WEB, resume=None), select=select) == {("TS-BAT-040", "data")}
    omitted = {"state": {"omitted": [{"item": "data-position", "reason": "The loader starts a new epoch."}]}}
    found = verdict("TS-BAT-040", plan=data(WEB, resume="new-order"), checkpoint=omitted)
    assert found is Verdict.NOT_APPLICABLE
    assert verdict("TS-BAT-040", plan={}) is Verdict.NOT_APPLICABLE


def test_an_elastic_job_has_one_order(findings) -> None:
    elastic = {"batch": {"elastic": {"data_degrees": [2, 4], "micro_sequences": [1]}}}
    for scope, place in (("global", None), ("rank", "data.order_scope"), (None, "data")):
        found = findings(plan={**data(WEB, order_scope=scope), **elastic}, select=("TS-BAT-041",))
        assert found == (set() if place is None else {("TS-BAT-041", place)})
    assert findings(plan=data(WEB, order_scope="rank"), select=("TS-BAT-041",)) == set()


@pytest.mark.parametrize(
    ("tokens", "keys", "plan", "wrong"),
    [
        (TOKENS / 40, {}, {}, False),
        (TOKENS / 41, {}, {}, True),
        (TOKENS / 544, {}, {}, True),
        (TOKENS / 544, {"max_epochs": 600}, {}, False),
        (TOKENS / 544, {}, {"num_parameters_trained": 1e9}, False),
        (TOKENS / 544, {}, {"model": {"vocabulary_size": None}}, False),
        (TOKENS / 544, {}, {"job": {"num_tokens": None, "num_steps": None}}, False),
    ],
)
def test_a_language_model_does_not_repeat_its_data_hundreds_of_times(findings, tokens, keys, plan, wrong) -> None:
    plan = {**data({**WEB, "num_tokens": tokens, **keys}), **plan}
    found = findings(plan=plan, select=("TS-BAT-045",))
    assert found == ({("TS-BAT-045", "data.datasets.0.num_tokens")} if wrong else set())


def test_epochs_of_a_small_part_of_the_mixture(findings) -> None:
    small = {**CODE, "num_tokens": TOKENS / 100}
    for weight, wrong in ((0.3, False), (0.5, True)):
        datasets = {**WEB, "weight": 1 - weight, "num_tokens": TOKENS}, {**small, "weight": weight}
        found = findings(plan=data(*datasets), select=("TS-BAT-045",))
        assert found == ({("TS-BAT-045", "data.datasets.1.num_tokens")} if wrong else set())


@pytest.mark.parametrize(
    ("requirement", "parts", "answer"),
    [
        # whatever the split, each part lasts, the parts together do not, or the weights decide
        ("TS-BAT-039", ({"num_tokens": TOKENS, "max_epochs": 1}, {"num_tokens": TOKENS, "max_epochs": 1}), "pass"),
        ("TS-BAT-039", ({"num_tokens": TOKENS, "max_epochs": 1}, {"num_tokens": TOKENS / 2, "max_epochs": 1}), "open"),
        (
            "TS-BAT-039",
            ({"num_tokens": TOKENS / 8, "max_epochs": 4}, {"num_tokens": TOKENS / 8, "max_epochs": 3}),
            "fail",
        ),
        (
            "TS-BAT-039",
            ({"num_tokens": TOKENS / 8, "max_epochs": 4}, {"num_tokens": TOKENS / 8, "max_epochs": 4}),
            "open",
        ),
        ("TS-BAT-039", ({"num_tokens": TOKENS / 8, "max_epochs": 4}, {"num_tokens": TOKENS}), "open"),
        ("TS-BAT-039", ({"num_tokens": TOKENS}, {"num_tokens": TOKENS}), "none"),
        ("TS-BAT-045", ({"num_tokens": TOKENS / 10}, {"num_tokens": TOKENS}), "pass"),
        ("TS-BAT-045", ({"num_tokens": TOKENS / 90}, {"num_tokens": TOKENS / 90}), "fail"),
        ("TS-BAT-045", ({"num_tokens": TOKENS / 90}, {"num_tokens": TOKENS / 60}), "open"),
        ("TS-BAT-045", ({"num_tokens": TOKENS / 90}, {}), "open"),
    ],
)
def test_a_mixture_without_weights(findings, verdict, requirement, parts, answer) -> None:
    plan = data({**WEB, **parts[0]}, {**CODE, **parts[1]})
    fails = Verdict.FAIL if requirement == "TS-BAT-039" else Verdict.WARN
    wanted = {"pass": Verdict.PASS, "fail": fails, "open": Verdict.NOT_RUN, "none": Verdict.NOT_APPLICABLE}
    assert verdict(requirement, plan=plan) is wanted[answer]
    assert findings(plan=plan, select=(requirement,)) == (
        {(requirement, "data.datasets")} if answer == "fail" else set()
    )
