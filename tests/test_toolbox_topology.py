"""`trainspec topology`: the graph of a machine, what parallel groups talk over, and the roles of a rank."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainspec_validate.cli.toolbox import command
from trainspec_validate.documents.load import load_file

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
META = str(EXAMPLES / "clusters" / "meta-llama3-24k.yaml")
LLAMA = str(EXAMPLES / "plans" / "llama3-405b-16384.yaml")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["topology", *arguments], prog_name="trainspec")


def told(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_blocks_and_what_is_narrow() -> None:
    found = told(META)
    assert [(block["name"], block["num_ranks"], block["num_blocks"]) for block in found["blocks"]] == [
        ("node", 8, 3072),
        ("rack", 16, 1536),
        ("pod", 3072, 8),
        ("core", 24576, 1),
    ]
    assert found["bisection_bytes_per_second"] == pytest.approx(24576 / 2 * 50e9 / 7)
    assert "what leaves a pod is 7 times narrower" in run(META).stdout


def test_groups_of_a_plan() -> None:
    groups = {item["axis"]: item for item in told(META, "--plan", LLAMA)["groups"]}
    assert groups["tensor"]["num_domains"] == 1
    assert groups["pipeline"] == {
        "axis": "pipeline",
        "num_ranks": 16,
        "stride": 8,
        "num_domains": 16,
        "fabric_bytes_per_second": 50e9,
        "num_crossed_tiers": 1,
    }
    assert groups["data"]["num_crossed_tiers"] == 2


def test_the_plan_of_another_cluster_is_named_among_the_assumptions(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(json.dumps(load_file(Path(LLAMA)).data | {"cluster": {"name": "another"}}))
    found = told(META, "--plan", str(tmp_path / "plan.yaml"))
    assert found["assumptions"][0] == f"the plan is for cluster 'another', and {META} is 'meta-llama3-24k'"
    assert "the plan is for cluster 'another'" in run(META, "--plan", str(tmp_path / "plan.yaml")).stdout
    assert "the plan is for" not in run(META, "--plan", LLAMA).stdout


def test_roles_of_a_rank_agree_with_those_of_its_neighbours() -> None:
    mine = {role["axis"]: role for role in told(META, "--plan", LLAMA, "--rank", "13")["roles"]}
    after = mine["data"]["ring"]["next"]
    theirs = {role["axis"]: role for role in told(META, "--plan", LLAMA, "--rank", str(after))["roles"]}
    assert theirs["data"]["ring"]["previous"] == 13
    assert mine["tensor"]["members"] == list(range(8, 16))
    assert mine["pipeline"]["stages"] == {"previous": 5, "next": 21}


@pytest.mark.parametrize(
    ("rank", "stages"), [(0, "before none, after 8"), (13, "before 5, after 21"), (120, "before 112, after none")]
)
def test_the_first_and_the_last_stage_have_one_neighbour(rank: int, stages: str) -> None:
    stdout = run(META, "--plan", LLAMA, "--rank", str(rank)).stdout
    assert f"; stage {stages}\n" in stdout


@pytest.fixture
def several(tmp_path: Path) -> tuple[str, str]:
    """A cluster of two node groups, and a plan that names none of them."""
    cluster, plan = tmp_path / "cluster.yaml", tmp_path / "plan.yaml"
    data = load_file(Path(META)).data
    other = {**data["node_groups"][0], "name": "other", "num_nodes": 1024}
    cluster.write_text(json.dumps({**data, "node_groups": [*data["node_groups"], other]}), encoding="utf-8")
    unnamed = {key: value for key, value in load_file(Path(LLAMA)).data.items() if key != "node_group"}
    plan.write_text(json.dumps(unnamed), encoding="utf-8")
    return str(cluster), str(plan)


def test_the_largest_group_is_taken_where_none_is_named(several: tuple[str, str], tmp_path: Path) -> None:
    cluster, plan = several
    note = "node group: h100, the largest of 2; choose with --node-group: other"
    assert f"  assumed {note}\n" in run(cluster).stdout
    found = told(cluster, "--plan", plan)
    assert (found["node_group"], found["assumptions"]) == ("h100", [note])
    assert told(META)["assumptions"] == []
    named = tmp_path / "named.yaml"
    named.write_text(json.dumps({**load_file(Path(plan)).data, "node_group": "h100"}), encoding="utf-8")
    assert told(cluster, "--plan", str(named))["assumptions"] == []
    result = run(cluster, "--plan", str(named), "--node-group", "other")
    assert (result.exit_code, "the plan runs in node group 'h100'; leave --node-group out" in result.output) == (
        2,
        True,
    )


def test_a_named_group_is_shown(several: tuple[str, str]) -> None:
    cluster, plan = several
    assert told(cluster, "--node-group", "other")["num_ranks"] == 8192
    found = told(cluster, "--plan", plan, "--node-group", "h100")
    assert (found["node_group"], found["num_ranks"]) == ("h100", 16384)
    assert "the plan has 16,384 ranks, other has 8,192" in run(cluster, "--plan", plan, "--node-group", "other").output


def test_degrees_that_do_not_multiply_are_refused_before_groups_are_listed(tmp_path: Path) -> None:
    data = load_file(Path(LLAMA)).data
    plan = tmp_path / "plan.yaml"
    plan.write_text(json.dumps({**data, "parallelism": {**data["parallelism"], "data": 1_000_000}}), encoding="utf-8")
    result = run(META, "--plan", str(plan), "--rank", "3")
    assert result.exit_code == 2
    assert "the degrees of the plan multiply to 128,000,000, its ranks are 16,384" in result.output


def test_the_largest_machine_is_a_handful_of_lines() -> None:
    stdout = run(str(EXAMPLES / "clusters" / "mrc-131072.yaml")).stdout
    assert "131,072 ranks" in stdout
    assert len(stdout.splitlines()) < 20


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((META, "--rank", "3"), "--rank needs --plan"),
        ((META, "--plan", LLAMA, "--rank", "16384"), "ranks 0 to 16383"),
        ((META, "--node-group", "west"), "has no node group 'west'; choose with --node-group: h100"),
        (("nowhere.yaml",), "nowhere.yaml"),
        ((LLAMA,), "a ClusterProfile is wanted"),
    ],
)
def test_what_cannot_be_shown_is_said(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.output


ONE_NODE = """\
apiVersion: trainspec/v1
kind: ClusterProfile
node_groups:
  - name: nodes
    num_accelerators_per_node: 8
    accelerator: {vendor: nvidia}
    scale_up: {technology: nvlink, domain_num_accelerators: 8, num_links: 12}
    nics:
      - {name: nics, num_per_node: 8, technology: infiniband}
"""


def test_a_profile_of_one_node_is_drawn_with_what_it_lacks(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(ONE_NODE, encoding="utf-8")
    found = told(str(path))
    assert (found["num_ranks"], found["domain_num_ranks"], found["domain_shape"]) == (8, 8, "other")
    assert found["assumptions"] == [
        "one node: the profile lacks node_groups.0.num_nodes",
        "one rank for each accelerator: the profile lacks node_groups.0.accelerator.model",
        "a domain of no known shape: the profile lacks node_groups.0.scale_up.topology",
        "no interface of which the profile lacks node_groups.0.nics.*.rate_bytes_per_second",
    ]
    assert found["fabric_bytes_per_second"] is None


def test_a_domain_that_is_unknown_is_not_said_to_be_absent(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    lines = [line for line in ONE_NODE.splitlines() if "scale_up" not in line]
    path.write_text("\n".join([*lines, "unknowns: [node_groups.0.scale_up]"]) + "\n", encoding="utf-8")
    words = "no scale-up domain: the profile lists node_groups.0.scale_up as unknown"
    assert words in told(str(path))["assumptions"]
    assert f"  assumed {words}\n" in run(str(path)).stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    num_accelerators_per_node: 8\n", "", "a graph needs node_groups with num_accelerators_per_node"),
        ("per_node: 8\n    acc", "per_node: true\n    acc", "a graph needs node_groups"),
        ("technology: nvlink", "technology: string", "no graph: "),
        ("  - name: nodes", "  - name: nodes\n    num_nodes: many", "node_groups[0].num_nodes"),
        ("kind: ClusterProfile", "kind: ServicePlan", "no ClusterProfile"),
    ],
)
def test_a_part_that_no_graph_can_be_drawn_of_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "node.yaml"
    assert old in ONE_NODE
    path.write_text(ONE_NODE.replace(old, new), encoding="utf-8")
    result = run(str(path))
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((EXAMPLES / "clusters").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_has_a_graph(path: Path) -> None:
    found = told(str(path))
    assert found["blocks"]
    assert run(str(path)).exit_code == 0
