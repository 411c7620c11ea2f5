"""Messages that name the keys they are about, the figures on both sides, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate import validate

Findings = Callable[..., set[tuple[str, str]]]


def said(findings: Findings, directory: Path, requirement: str, **documents: Any) -> tuple[str, str]:
    """The message and the help of the only finding of a requirement."""
    findings(**documents, select=(requirement,))
    [found] = [finding for finding in validate([directory]).findings if finding.requirement == requirement]
    return found.message, found.help


def test_a_full_store_names_what_is_on_it(findings: Findings, tmp_path: Path) -> None:
    policy = {"tiers": [{"name": "durable", "num_kept": 400}], "retention": {"num_kept": 400}}
    message, remedy = said(findings, tmp_path, "TS-CKP-113", checkpoint=policy)
    assert message == (
        "'shared-files' has 400 TB, to be 90 % full, and needs 396.2 TB: checkpoints of 988 GB, 400 kept by tier "
        "'durable' and 1 being written"
    )
    assert remedy == (
        "let tier 'durable' keep 363 at most, which fill 89.91 % with what is being written, or name a larger store"
    )
    tiers = [{"name": "durable", "num_kept": 363}]
    assert not findings(checkpoint={"tiers": tiers, "retention": {"num_kept": 363}}, select=("TS-CKP-113",))
    tiers = [{"name": "durable", "num_kept": 364}]
    assert findings(checkpoint={"tiers": tiers, "retention": {"num_kept": 364}}, select=("TS-CKP-113",))


def test_few_large_checkpoints_leave_a_store_less_than_full(findings: Findings, tmp_path: Path) -> None:
    """Three kept and one being written are 79 % of a store that holds five."""
    tiers = {"tiers": [{"name": "durable", "num_kept": 4}], "retention": {"num_kept": 4}}
    store = {"storage_targets": [{"name": "shared-files", "capacity_bytes": 5e12, "free_bytes": 5e12}]}
    _, remedy = said(findings, tmp_path, "TS-CKP-113", checkpoint=tiers, cluster=store)
    assert "keep 3 at most" in remedy
    assert "which fill 79.04 % with what" in remedy


def test_copies_of_a_tier_are_told_from_checkpoints(findings: Findings, tmp_path: Path) -> None:
    tiers = [{"name": "durable", "num_kept": 200, "num_replicas": 2, "replicas_across": "site"}]
    policy = {"tiers": tiers, "retention": {"num_kept": 200}}
    message, remedy = said(findings, tmp_path, "TS-CKP-113", checkpoint=policy)
    assert "200 kept by tier 'durable' and 1 being written, 2 times each" in message
    assert remedy.startswith("let tier 'durable' keep 181 at most")


@pytest.mark.parametrize(
    ("tail", "requirement", "message", "remedy"),
    [
        (1, "TS-CKP-011", "is 1 s, less than the median of 30 s in interval.step_seconds", "write 30 or more"),
        (900, "TS-CKP-064", "is 15 min, more than 5 times the median of 30 s in interval.step_seconds", "write 30 to "),
    ],
)
def test_the_99th_percentile_is_explained(
    tail: float, requirement: str, message: str, remedy: str, request: pytest.FixtureRequest
) -> None:
    findings, directory = request.getfixturevalue("findings"), request.getfixturevalue("tmp_path")
    found = said(findings, directory, requirement, checkpoint={"job": {"step_seconds_p99": tail}})
    assert found[0].startswith("step_seconds_p99, which 99 of 100 steps do not exceed, is ")
    assert message in found[0]
    assert found[1].startswith(remedy)


def test_a_count_says_that_it_leaves_layers_for_multi_token_prediction_out(findings: Findings, tmp_path: Path) -> None:
    plan = {"model": {"num_mtp_layers": 2, "num_parameters": 90e9}}
    message, _ = said(findings, tmp_path, "TS-PAR-019", plan=plan)
    assert (
        "the shape has 70.55 billion, 68.45 billion without embeddings, 72.53 billion with its layers for " in message
    )
    assert "74.43 billion" not in message
    assert message.endswith("with those layers and without embeddings")


def test_a_count_with_latent_attention_is_a_range(findings: Findings, tmp_path: Path) -> None:
    plan = {"model": {"attention": "latent", "num_key_value_heads": None, "num_parameters": 90e9}}
    message, _ = said(findings, tmp_path, "TS-PAR-019", plan=plan)
    assert re.search(r"but the shape has [\d.]+ billion to [\d.]+ billion or ", message)


def test_a_reference_to_no_document_says_among_which(findings: Findings, tmp_path: Path) -> None:
    message, _ = said(findings, tmp_path, "TS-DOC-011", plan={"cluster": {"name": "other"}})
    assert message == "no ClusterProfile among the judged documents has the name 'other'"
