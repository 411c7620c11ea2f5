"""A plan that names its framework is predicted with the kernels and the overlap of that release."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trainspec_validate.performance.costs.software import DEFAULT, RELEASES, is_known, software_of


def test_releases_have_a_source_and_ascend() -> None:
    for before, after in pairwise(RELEASES):
        assert before.name != after.name or before.since < after.since
    names = [release.name for release in RELEASES]
    assert all(release.source and release.name == release.name.lower() for release in RELEASES)
    assert all(RELEASES[names.index(name)].since == () for name in names), "every version has a release"


@pytest.mark.parametrize(
    ("version", "attention", "warm_up"),
    [("0.4.0", "flash-2", True), ("0.7", None, False), ("v0.9.0rc1", None, False), ("0.14", None, True)],
)
def test_a_version_takes_the_newest_release_that_it_has_reached(
    version: str, attention: str | None, warm_up: bool
) -> None:
    found = software_of("Megatron-Core", version)
    assert (found.attention, found.overlap_warm_up) == (attention, warm_up)


@pytest.mark.parametrize("version", [None, "latest", "main", ""])
def test_without_a_number_the_newest_release_is_taken(version: str | None) -> None:
    assert software_of("megatron-core", version) == software_of("megatron-core", "999")


@pytest.mark.parametrize("name", [None, "", "my-trainer"])
def test_a_framework_that_is_not_listed_changes_nothing(name: str | None) -> None:
    assert software_of(name, "1.0") == DEFAULT
    assert not is_known(name or "")
