"""Boundaries and not-applicable cases of the rules on tiers, commit, integrity and state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainspec_validate.documents.load import load_file
from trainspec_validate.model.finding import Verdict
from trainspec_validate.model.requirements import load_index

Findings = Callable[..., set[tuple[str, str]]]
Verdicts = Callable[..., Verdict]


def base(file: str) -> Any:
    return load_file(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / file).data


def test_tier_storage_suggests(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-017",)
    missing = {"tiers": [{"name": "durable", "storage": None}]}
    assert findings(checkpoint=missing, select=select) == {("TS-CKP-017", "tiers.1")}
    no_stores = {"storage_targets": None}
    assert len(findings(cluster=no_stores, select=select)) == 2
    nameless = {"tiers": [{"name": "durable", "storage": None}, {"name": "partner-copies", "storage": None}]}
    assert verdict("TS-CKP-017", cluster=no_stores, checkpoint=nameless) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-018", cluster=no_stores) is Verdict.NOT_APPLICABLE


def test_a_tier_may_be_more_fragile_than_its_store(findings: Findings) -> None:
    fragile = {"tiers": [{"name": "partner-copies", "failure_domain": "process"}]}
    assert findings(checkpoint=fragile, select=("TS-CKP-018", "TS-CKP-019", "TS-CKP-020")) == set()


def test_survival(findings: Findings) -> None:
    select = ("TS-CKP-019",)
    only_local = {
        "tiers": [
            {"name": "durable", "failure_domain": "node"},
            {"name": "partner-copies", "num_replicas": None, "replicas_across": None},
        ]
    }
    assert findings(checkpoint=only_local, select=select) == {("TS-CKP-019", "tiers")}
    domain = {"tiers": [{"name": "durable", "failure_domain": "scale-up-domain"}]}
    assert findings(checkpoint=domain, select=select) == {("TS-CKP-019", "tiers")}
    rack = {"tiers": [{"name": "durable", "failure_domain": "rack"}]}
    assert findings(checkpoint=rack, select=select) == set()


def test_replicas(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-020",)

    def tier(**keys: Any) -> dict[str, Any]:
        return {"tiers": [{"name": "partner-copies", **keys}]}

    assert findings(checkpoint=tier(replicas_across=None), select=select) == {("TS-CKP-020", "tiers.0.num_replicas")}
    assert findings(checkpoint=tier(num_replicas=1), select=select) == {("TS-CKP-020", "tiers.0.replicas_across")}
    assert findings(checkpoint=tier(num_replicas=16), select=select) == set()
    assert findings(checkpoint=tier(num_replicas=17), select=select) == {("TS-CKP-020", "tiers.0.num_replicas")}
    single = tier(num_replicas=None, replicas_across=None)
    assert verdict("TS-CKP-020", checkpoint=single) is Verdict.NOT_APPLICABLE


def test_tier_intervals(findings: Findings) -> None:
    select = ("TS-CKP-021",)
    fresher = {"tiers": [{"name": "partner-copies", "interval_seconds": 600}]}
    assert findings(checkpoint=fresher, select=select) == {("TS-CKP-021", "tiers.0.interval_seconds")}
    unused = {"interval": {"steps": 20, "seconds": 600}}
    assert findings(checkpoint=unused, select=select) == {("TS-CKP-021", "interval.seconds")}


@pytest.mark.parametrize(("kept", "ok"), [(363, True), (364, False)])
def test_shared_store_fills_to_nine_tenths(findings: Findings, kept: int, ok: bool) -> None:
    found = findings(checkpoint={"tiers": [{"name": "durable", "num_kept": kept}]}, select=("TS-CKP-113",))
    assert (found == set()) is ok


@pytest.mark.parametrize(("kept", "ok"), [(144, True), (145, False)])
def test_a_store_per_node_holds_the_share_of_its_node(findings: Findings, kept: int, ok: bool) -> None:
    tiers = {"tiers": [{"name": "partner-copies", "num_kept": kept}]}
    assert (findings(checkpoint=tiers, select=("TS-CKP-113",)) == set()) is ok


def test_tiers_on_one_store_add_up(findings: Findings) -> None:
    both = {
        "tiers": [
            {"name": "durable", "num_kept": 220},
            {"name": "archive", "storage": "shared-files", "failure_domain": "cluster", "num_kept": 220},
        ]
    }
    assert findings(checkpoint=both, select=("TS-CKP-022",)) == {("TS-CKP-022", "tiers.2.num_kept")}


def test_one_stripe_target_can_fill_up_first(findings: Findings) -> None:
    """5 checkpoints of 988 GB in 6 TB fit, but not beside one writer's file more on one of 12 targets."""
    store = {"name": "shared-files", "capacity_bytes": 6e12, "free_bytes": None}
    one_file = {"save": {"num_writers": 8}}
    whole = {"storage_targets": [store]}
    striped = {"storage_targets": [{**store, "num_stripe_targets": 12}]}
    assert findings(cluster=whole, checkpoint=one_file, select=("TS-CKP-113",)) == set()
    assert findings(cluster=striped, checkpoint=one_file, select=("TS-CKP-113",)) == {
        ("TS-CKP-113", "tiers.1.num_kept")
    }


BOTH = ("TS-CKP-022", "TS-CKP-113")


def test_a_full_store_takes_nothing(findings: Findings) -> None:
    store = {"name": "shared-files", "free_bytes": 0}
    assert findings(cluster={"storage_targets": [store]}, select=BOTH) == {("TS-CKP-022", "tiers.1.num_kept")}


@pytest.mark.parametrize(
    ("kept", "requirement"), [(363, ""), (364, "TS-CKP-113"), (403, "TS-CKP-113"), (404, "TS-CKP-022")]
)
def test_more_than_fits_is_an_error_and_a_nearly_full_store_a_warning(
    findings: Findings, kept: int, requirement: str
) -> None:
    """404 checkpoints of 988 GB are 399.2 TB, and 405 are 400.1 TB; the store has 400 TB."""
    found = findings(checkpoint={"tiers": [{"name": "durable", "num_kept": kept}]}, select=BOTH)
    assert found == ({(requirement, "tiers.1.num_kept")} if requirement else set())
    levels = {name: load_index().by_id[name].level for name in BOTH}
    assert levels == {"TS-CKP-022": "MUST", "TS-CKP-113": "SHOULD"}


def test_kept(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-023",)

    def kept(latency: float, number: int | None = 4, policy: int = 4) -> dict[str, Any]:
        return {
            "tiers": [{"name": "durable", "num_kept": number}],
            "retention": {"num_kept": policy, "error_detection_seconds": latency},
        }

    assert findings(checkpoint=kept(5400), select=select) == set()
    assert findings(checkpoint=kept(5401), select=select) == {("TS-CKP-023", "tiers.1.num_kept")}
    assert findings(checkpoint=kept(5401, None), select=select) == {("TS-CKP-023", "retention.num_kept")}
    assert findings(checkpoint=kept(60, 1), select=select) == {("TS-CKP-023", "tiers.1.num_kept")}
    assert findings(checkpoint=kept(60, 4, 40), select=select) == {("TS-CKP-023", "retention.num_kept")}
    assert findings(checkpoint=kept(29), select=select) == {("TS-CKP-023", "retention.error_detection_seconds")}
    assert verdict("TS-CKP-023", checkpoint={"interval": {"final_only": True}}) is Verdict.NOT_APPLICABLE


def test_commit(findings: Findings, verdict: Verdicts) -> None:
    unstated = {"storage_targets": [{"name": "shared-files", "kind": "object-store", "atomic_rename": None}]}
    assert findings(cluster=unstated, select=("TS-CKP-025",)) == {("TS-CKP-025", "commit.protocol")}
    files = {"storage_targets": [{"name": "shared-files", "atomic_rename": None}]}
    assert findings(cluster=files, select=("TS-CKP-025",)) == set()
    marked = {"commit": {"protocol": "transaction", "pointer": "none"}}
    assert verdict("TS-CKP-025", checkpoint=marked) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-026", checkpoint=marked) is Verdict.NOT_APPLICABLE
    unsaid = {"commit": {"durable_before_commit": None}}
    assert findings(checkpoint=unsaid, select=("TS-CKP-027",)) == {("TS-CKP-027", "commit")}


def test_integrity(findings: Findings, verdict: Verdicts) -> None:
    select = ("TS-CKP-028", "TS-CKP-029", "TS-CKP-032", "TS-CKP-111")
    assert findings(checkpoint={"integrity": {"manifest": False}}, select=select) == {
        ("TS-CKP-028", "integrity.manifest")
    }
    weak = {"integrity": {"digest": "xxh3", "signed": True, "format": "framework-native"}}
    assert findings(checkpoint=weak, select=select) == {
        ("TS-CKP-111", "integrity.digest"),
        ("TS-CKP-029", "integrity.digest"),
    }
    nothing = {"integrity": {"digest": "none", "format": None}}
    assert verdict("TS-CKP-029", checkpoint=nothing) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-032", checkpoint=nothing) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-111", checkpoint=nothing) is Verdict.NOT_APPLICABLE
    assert verdict("TS-CKP-111", checkpoint={"integrity": {"signed": False}}) is Verdict.NOT_APPLICABLE


def test_rank_zero_cannot_hash_for_all(findings: Findings, verdict: Verdicts) -> None:
    """A manifest that one rank makes: 5.29 TB with SHA-256 take an hour."""
    save = {"size_bytes": 5.29e12, "num_writers": 1, "persist_seconds_p95": 600}
    assert findings(checkpoint={"save": save}, select=("TS-CKP-030",)) == {("TS-CKP-030", "save.num_writers")}
    save["num_writers"] = 512
    assert findings(checkpoint={"save": save}, select=("TS-CKP-030",)) == set()
    assert verdict("TS-CKP-030", checkpoint={"integrity": {"digest": "sha512"}}) is Verdict.NOT_APPLICABLE


NEEDED = "model optimizer learning-rate-schedule rng data-position step samples-or-tokens layout config-digest"


@pytest.mark.parametrize("item", NEEDED.split())
def test_every_item_of_state_counts(findings: Findings, item: str) -> None:
    left = [name for name in NEEDED.split() if name != item]
    assert findings(checkpoint={"state": {"items": left}}, select=("TS-CKP-033",)) == {("TS-CKP-033", "state.items")}
    reasoned = {"items": left, "omitted": [{"item": item, "reason": "It is derived from the step."}]}
    assert findings(checkpoint={"state": reasoned}, select=("TS-CKP-033",)) == set()


def test_named_once(findings: Findings) -> None:
    omitted = [{"item": "ema-weights", "reason": "None are kept."}]
    both = {"items": [*NEEDED.split(), "ema-weights"], "omitted": omitted}
    assert findings(checkpoint={"state": both}, select=("TS-CKP-034",)) == {("TS-CKP-034", "state.omitted")}
    again = {"state": {"omitted": omitted * 2}}
    assert findings(checkpoint=again, select=("TS-CKP-034",)) == {("TS-CKP-034", "state.omitted")}


def test_named_once_in_lists() -> None:
    from trainspec_validate.documents.types import CheckpointPolicy, read
    from trainspec_validate.rules.ckp_contents import named_once

    data = base("checkpoint.yaml")
    for section in ("tiers", "detection", "recovery"):
        policy = read("CheckpointPolicy", {**data, section: [*data[section], data[section][0]]})
        assert isinstance(policy, CheckpointPolicy)
        (violation,) = named_once(policy)
        assert violation.place.pointer == (section, len(data[section]))


def test_bitwise(findings: Findings, verdict: Verdicts) -> None:
    promise = {"state": {"resume_class": "bitwise", "rng_scope": "global"}}
    found = findings(checkpoint=promise, plan={"precision": {"deterministic": True}})
    assert found == {("TS-CKP-035", "state.rng_scope"), ("TS-CKP-036", "state.resume_class")}
    assert findings(checkpoint=promise, plan={"precision": {"deterministic": False}}, select=("TS-CKP-037",))
    for requirement in ("TS-CKP-036", "TS-CKP-037"):
        assert verdict(requirement) is Verdict.NOT_APPLICABLE
