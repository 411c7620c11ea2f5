"""Pairs of figures that contradict each other: the name of a thing and its figure, two lengths, two counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate
from trainspec_validate.model.catalog import models
from trainspec_validate.rules.par_names import sizes_of

Findings = Callable[..., set[tuple[str, str]]]
STEP_TOKENS = 4194304
RATE = "optimizer.learning_rate"


# --- a generation that says the rate of a port ---------------------------------------------------------------


def nic(**fields: Any) -> dict[str, Any]:
    return {"node_groups": [{"name": "compute", "nics": [{"name": "storage", "technology": "ethernet", **fields}]}]}


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ({"generation": "400gbe", "rate_bytes_per_second": 50e9}, True),
        ({"generation": "400gbe", "rate_bytes_per_second": 25e9}, False),
        ({"generation": "400gbe", "rate_bytes_per_second": 100e9}, False),
        ({"generation": "400gbe", "num_ports": 2, "rate_bytes_per_second": 100e9}, True),
        ({"generation": "200g", "rate_bytes_per_second": 25e9}, True),
        ({"generation": "200g", "rate_bytes_per_second": 50e9}, False),
        ({"generation": "200 GbE", "rate_bytes_per_second": 12.5e9}, False),
        ({"generation": "100GBASE-SR4", "rate_bytes_per_second": 12.5e9}, True),
        ({"generation": "100GBASE-SR4", "rate_bytes_per_second": 50e9}, False),
        ({"generation": "2x200g", "rate_bytes_per_second": 50e9}, True),
        ({"generation": "2x200gbe", "rate_bytes_per_second": 25e9}, False),
        ({"generation": "800gbps", "rate_bytes_per_second": 50e9}, False),
        ({"generation": "rocev2", "rate_bytes_per_second": 50e9}, True),
        ({"generation": "connectx-7", "rate_bytes_per_second": 50e9}, True),
        ({"generation": "100gbe", "virtual": True, "rate_bytes_per_second": 10e9}, True),
        ({"generation": "100gbe", "virtual": True, "rate_bytes_per_second": 25e9}, False),
    ],
)
def test_a_generation_that_says_a_rate_has_it(fields: dict[str, Any], is_right: bool, findings: Findings) -> None:
    place = "node_groups.0.nics.1.rate_bytes_per_second"
    found = findings(cluster=nic(**fields), select=("TS-CLU-065",))
    assert found == (set() if is_right else {("TS-CLU-065", place)})


# --- lengths in steps and in tokens ---------------------------------------------------------------------------


def schedule(job: dict[str, Any] | None = None, **lengths: Any) -> dict[str, Any]:
    rate = {"kind": "warmup-stable-decay", "peak": 3e-4, **lengths}
    return {"optimizer": {"name": "adamw", "learning_rate": rate}, "job": job}


@pytest.mark.parametrize("part", ["warmup", "decay", "total"])
@pytest.mark.parametrize(("factor", "is_right"), [(1, True), (0.995, True), (1.005, True), (2, False), (0.5, False)])
def test_both_forms_of_a_length_agree(part: str, factor: float, is_right: bool, findings: Findings) -> None:
    steps = 10000 if part == "total" else 2000
    lengths: dict[str, Any] = {"decay_steps": 2000, "total_steps": 10000}
    lengths |= {f"{part}_steps": steps, f"{part}_tokens": steps * STEP_TOKENS * factor}
    found = findings(plan=schedule(**lengths), select=("TS-BAT-034",))
    assert found == (set() if is_right else {("TS-BAT-034", f"{RATE}.{part}_tokens")})


def test_the_smallest_batch_of_a_ramp_counts(findings: Findings) -> None:
    ramp = [{"from_tokens": 0, "global_sequences": 128}, {"from_tokens": 10e9, "global_sequences": 512}]
    plan = schedule(decay_steps=2000, total_steps=10000, warmup_steps=1000, warmup_tokens=1000 * STEP_TOKENS / 4)
    found = findings(plan={**plan, "batch": {"ramp": ramp}}, select=("TS-BAT-034",))
    assert not found
    assert findings(plan=plan, select=("TS-BAT-034",)) == {("TS-BAT-034", f"{RATE}.warmup_tokens")}


@pytest.mark.parametrize(
    ("job", "lengths", "is_right"),
    [
        ({"num_steps": 10000}, {"decay_steps": 9000}, True),
        ({"num_steps": 10000}, {"decay_steps": 20000}, False),
        ({"num_steps": 10000}, {"warmup_steps": 6000, "decay_steps": 8000}, False),
        ({"num_steps": 10000}, {"decay_tokens": 20000 * STEP_TOKENS}, False),
        ({"num_steps": None, "num_tokens": 10000 * STEP_TOKENS}, {"decay_steps": 20000}, False),
        ({"num_steps": None, "num_tokens": 10000 * STEP_TOKENS}, {"decay_steps": 9000}, True),
    ],
)
def test_a_decay_without_a_total_is_a_part_of_the_job(
    job: dict[str, Any] | None, lengths: dict[str, Any], is_right: bool, findings: Findings
) -> None:
    """Some jobs stop before their decay ends: it is a warning, as where the total is stated."""
    (key,) = (key for key in lengths if key.startswith("decay"))
    found = findings(plan=schedule(job, **lengths), select=("TS-BAT-033", "TS-BAT-034"))
    assert found == (set() if is_right else {("TS-BAT-033", f"{RATE}.{key}")})


def test_a_decay_fits_into_a_total_in_the_other_unit(findings: Findings) -> None:
    def found(steps: int) -> set[tuple[str, str]]:
        plan = schedule(decay_steps=steps, total_tokens=10000 * STEP_TOKENS)
        return findings(plan=plan, select=("TS-BAT-033", "TS-BAT-034"))

    assert found(20000) == {("TS-BAT-034", f"{RATE}.decay_steps")}
    assert not found(10000)


def test_tokens_of_warmup_and_decay_are_counted_in_steps(tmp_path: Path, findings: Findings) -> None:
    lengths = {"warmup_tokens": 1000 * STEP_TOKENS, "decay_tokens": 10000 * STEP_TOKENS}
    findings(plan=schedule({"num_steps": 8000}, **lengths), select=("TS-BAT-033",))
    [finding] = [one for one in validate([tmp_path]).findings if one.requirement == "TS-BAT-033"]
    assert finding.message == "warm-up and decay take 11,000 steps one after the other, and the job 8,000"


def test_a_decay_that_nothing_relates_to_is_not_judged(tmp_path: Path, findings: Findings) -> None:
    findings(plan=schedule(decay_steps=2000, kind="warmup-stable-decay"), select=("TS-BAT-033",))
    [entry] = [entry for entry in validate([tmp_path]).unjudged if "TS-BAT-033" in entry.requirements]
    assert entry.reason == "gives decay_steps, and no length of the schedule or of the job to compare the decay with"


# --- the name of a model --------------------------------------------------------------------------------------


def shape(name: str, of: str, **fields: Any) -> dict[str, Any]:
    return {"model": {**models()[of].model, "name": name, **fields}}


@pytest.mark.parametrize("of", models())
def test_models_of_the_catalog_have_their_names(of: str, findings: Findings) -> None:
    assert not findings(plan=shape(of, of), select=("TS-PAR-047",))


@pytest.mark.parametrize(
    ("name", "of", "is_right"),
    [
        ("llama3-70b", "llama3-8b", False),
        ("llama3-8b", "llama3-70b", False),
        ("llama3_8b", "llama3-8b", True),
        ("llama3-8b", "llama2-7b", False),
        ("my-llama-8b-ablation", "llama3-8b", True),
        ("my-llama-8b-131k", "llama3-8b", True),
        ("my-llama-1m", "llama3-8b", True),
        ("my-llama-15t", "llama3-8b", True),
        ("my_llama_70b", "llama3-8b", False),
        ("mixtral-8x22b", "mixtral-8x7b", False),
        ("baseline", "llama3-8b", True),
        ("qwen3-a22b", "qwen3-235b-a22b", True),
        ("gpt3-175b", "gpt-1t", False),
    ],
)
def test_a_name_says_the_size_and_the_shape(name: str, of: str, is_right: bool, findings: Findings) -> None:
    found = findings(plan=shape(name, of), select=("TS-PAR-047",))
    assert found == (set() if is_right else {("TS-PAR-047", "model.name")})


def test_sizes_in_names() -> None:
    assert sizes_of("olmoe-1b-7b") == [1e9, 7e9]
    assert sizes_of("pythia-160m") == [160e6]
    assert sizes_of("phi-3.5-mini") == sizes_of("gpt2-xl") == sizes_of("t5-base") == []


def test_another_vocabulary_is_no_other_shape(findings: Findings) -> None:
    assert not findings(plan=shape("llama3-8b", "llama3-8b", vocabulary_size=128512), select=("TS-PAR-047",))


# --- heads of latent attention, kept checkpoints, days ----------------------------------------------------------


@pytest.mark.parametrize(("groups", "is_right"), [(None, True), (128, True), (8, False), (1, False)])
def test_latent_attention_has_no_groups_of_heads(groups: int | None, is_right: bool, findings: Findings) -> None:
    plan = shape("deepseek-v3", "deepseek-v3", num_key_value_heads=groups)
    found = findings(plan=plan, select=("TS-PAR-015",))
    assert found == (set() if is_right else {("TS-PAR-015", "model.attention")})


@pytest.mark.parametrize(("own", "kept", "is_right"), [(4, 4, True), (4, 1, False), (None, 2, True), (4, 2, True)])
def test_the_number_of_the_policy_is_one_that_a_tier_keeps(
    own: int | None, kept: int, is_right: bool, findings: Findings
) -> None:
    tiers = [{"name": "durable", "num_kept": own}]
    policy = {"tiers": tiers, "retention": {"num_kept": kept, "error_detection_seconds": 60}}
    found = findings(checkpoint=policy, select=("TS-CKP-023",))
    assert found == (set() if is_right else {("TS-CKP-023", "retention.num_kept")})


@pytest.mark.parametrize(("days", "is_right"), [(-400, True), (0, True), (1, True), (3, False), (365, False)])
@pytest.mark.parametrize("file", ["cluster", "plan", "checkpoint"])
def test_a_source_was_not_read_on_a_day_to_come(file: str, days: int, is_right: bool, findings: Findings) -> None:
    day = (datetime.now(UTC) + timedelta(days=days)).date().isoformat()
    source = {"title": "a page", "reference": "https://example.org", "accessed": day}
    found = findings(**{file: json.dumps({"metadata": {"sources": [source]}})}, select=("TS-DOC-022",))
    assert found == (set() if is_right else {("TS-DOC-022", "metadata.sources.0.accessed")})
