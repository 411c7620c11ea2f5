"""`trainspec thresholds`: bus bandwidths where programs look for them, and no figure where none is predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from benchmarks.collective_points import Point, points
from trainspec_validate.cli.commands import thresholds as at_terminal
from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents.load import load_text
from trainspec_validate.documents.types import ClusterProfile, read
from trainspec_validate.interop.thresholds import PROGRAMS, SIZES_BYTES, NotPredictable, predicted
from trainspec_validate.performance.costs.collectives import best

CLUSTERS = Path(__file__).resolve().parents[1] / "examples" / "clusters"
H100 = CLUSTERS / "coreweave-h100.yaml"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["thresholds", *arguments])


def profile(path: Path, **changes: str) -> ClusterProfile:
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    found = read("ClusterProfile", load_text(text.encode(), path.name).data)
    assert isinstance(found, ClusterProfile)
    return found


def passes_in_cvs(
    config: dict[str, dict[str, dict[str, dict[str, dict[str, dict[str, str]]]]]], gigabytes: float
) -> bool:
    """What `rccl_perf` does for an all-reduce of 8 GiB on two nodes of 8 (ROCm/cvs@dddd9143:cvs/lib/rccl_lib.py)."""
    expected = config["rccl"]["results"]["connectx"]["all_reduce_perf-float-16"]["8589934592"]["bus_bw"]
    return gigabytes >= float(expected) * 0.95


def test_a_bandwidth_below_the_band_fails_and_one_in_it_passes() -> None:
    least = predicted(profile(H100), None, 2).least["all-reduce", SIZES_BYTES[0]] / 1e9
    found = json.loads(run(str(H100), "--to", "cvs", "--num-nodes", "2").output)
    assert passes_in_cvs(found, least + 0.01)
    assert not passes_in_cvs(found, least - 0.01)
    assert found["rccl"]["mpi_params"] == {"no_of_nodes": "2", "no_of_local_ranks": "8"}
    assert found["rccl"]["cvs_params"] == {"verify_bus_bw": "True"}


def test_a_recipe_has_the_least_of_both_sizes() -> None:
    test = predicted(profile(H100), None, 2)
    found = yaml.safe_load(run(str(H100), "--to", "aicr", "--num-nodes", "2").output)
    (constraint,) = found["validation"]["performance"]["constraints"]
    assert constraint["name"] == "nccl-all-reduce-bw"
    wanted = min(test.least["all-reduce", size] for size in SIZES_BYTES) / 1e9
    assert float(constraint["value"].removeprefix(">= ")) * 0.9 == pytest.approx(wanted, abs=0.01)


@pytest.mark.parametrize(("name", "is_spanned"), [("coreweave-h100.yaml", False), ("coreweave-gb200.yaml", True)])
def test_a_certification_has_the_least_of_both_sizes_without_a_tolerance(name: str, is_spanned: bool) -> None:
    """A bandwidth between the nodes of one NVLink domain is predicted, so that the program has to use it."""
    test = predicted(profile(CLUSTERS / name), None, 2)
    found = yaml.safe_load(run(str(CLUSTERS / name), "--to", "nvcre", "--num-nodes", "2").output)
    for category in found["spec"]["categories"]:
        operation = category["variant"].removeprefix("nccl-")
        wanted = min(test.least[operation, size] for size in SIZES_BYTES) / 1e9
        value = category["options"]["thresholds"]["busBandwidthGBps"].removeprefix("value >= ")
        assert float(value) == pytest.approx(wanted, abs=0.01)
        assert category["options"]["enableMNNVL"] is is_spanned
        assert (category["options"]["nodesPerJob"], category["domain"]) == (2, "communication")
        assert category["options"]["gpusPerNode"] == test.num_ranks_per_node
    assert [one["variant"] for one in found["spec"]["categories"]] == ["nccl-all-reduce", "nccl-all-gather"]


def test_slower_links_have_lower_thresholds() -> None:
    fast, slow = (
        predicted(profile(H100, **changes), None, 2).least
        for changes in ({}, {"rate_bytes_per_second: 50e9": "rate_bytes_per_second: 25e9"})
    )
    assert all(slow[key] < fast[key] for key in fast)


def test_all_nodes_of_the_largest_group_without_a_number() -> None:
    cluster = profile(H100)
    test = predicted(cluster, None, None)
    assert test.num_nodes == max(group.num_nodes for group in cluster.node_groups)
    assert test.num_ranks == test.num_nodes * test.num_ranks_per_node


@pytest.mark.parametrize(
    ("file", "arguments", "why"),
    [
        ("google-tpu-v5p-pod.yaml", ("--to", "cvs"), "bus bandwidths of other are not predicted"),
        ("frontier.yaml", ("--to", "cvs"), "over slingshot a time may be"),
        ("coreweave-h100.yaml", ("--to", "cvs", "--num-nodes", "449"), "has 448 nodes, not 449"),
        ("coreweave-h100.yaml", ("--to", "cvs", "--node-group", "absent"), "has no node group 'absent'"),
        ("coreweave-h100.yaml", ("--to", "aicr", "--num-nodes", "1"), "ask for two or more"),
    ],
)
def test_no_figure_where_none_is_predicted(file: str, arguments: tuple[str, ...], why: str) -> None:
    result = run(str(CLUSTERS / file), *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert why in result.stderr


@pytest.mark.parametrize("program", ["aicr", "nvcre"])
def test_programs_of_one_maker_are_for_its_accelerators(program: str, tmp_path: Path) -> None:
    text = (
        (CLUSTERS / "zyphra-ibm-mi300x.yaml")
        .read_text(encoding="utf-8")
        .replace("transport: other", "transport: rocev2")
    )
    place = tmp_path / "cluster.yaml"
    place.write_text(text, encoding="utf-8")
    assert run(str(place), "--to", "cvs", "--num-nodes", "2").exit_code == 0
    assert "is not of nvidia" in run(str(place), "--to", program).stderr


def test_what_is_there_is_kept(tmp_path: Path) -> None:
    place = tmp_path / "thresholds.json"
    place.write_text("mine", encoding="utf-8")
    arguments = (str(H100), "--to", "cvs", "--output", str(place))
    assert run(*arguments).exit_code == 2
    assert place.read_text(encoding="utf-8") == "mine"
    assert run(*arguments, "--force").exit_code == 0
    assert json.loads(place.read_text(encoding="utf-8"))["rccl"]["results"]


def test_the_programs_of_the_command_are_those_that_are_written() -> None:
    assert set(at_terminal._PROGRAMS) == set(PROGRAMS)


def test_few_published_measurements_are_below_their_threshold() -> None:
    """Each is of a machine that its owner found in order; the bands promise nine of ten."""

    def is_comparable(point: Point) -> bool:
        return (
            not point.excluded
            and point.algorithm == "automatic"
            and point.message_bytes >= 2**30
            and point.network.library in {"nccl", "rccl"}
            and not point.system.startswith("SimAI")
        )

    found = [
        (point, best(point.operation, point.message_bytes, point.network)) for point in points() if is_comparable(point)
    ]
    below = [
        point.system
        for point, estimate in found
        if point.bus_bandwidth < estimate.bus_bandwidth_bytes_per_second * estimate.seconds / estimate.high_seconds
    ]
    assert len(found) == 109
    assert len(below) == 6


def test_a_single_rank_has_no_collectives() -> None:
    single = profile(CLUSTERS / "dgx-spark-pair.yaml")
    with pytest.raises(NotPredictable, match="one rank has no collectives"):
        predicted(single, None, 1)
