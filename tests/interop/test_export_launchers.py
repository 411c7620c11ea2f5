"""Scripts and manifests for launchers: run with stand-ins for Slurm and torchrun, and read back."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from export_jobs import job, unknown_requirements

from trainspec_validate.interop.document import NotExpressible
from trainspec_validate.interop.writers import kubernetes, slurm, torchrun
from trainspec_validate.interop.writers._target import rank_order

SRUN = """\
#!/usr/bin/env bash
# Runs a command once for each host, as srun does with one task for each node.
order="${HOSTS}"
for word in "$@"; do [[ "${word}" == --distribution=arbitrary ]] && order="${SLURM_HOSTFILE}"; done
while [[ "$1" == --* ]]; do echo "$1" >>"${LOG}.options"; shift; done
if [[ -n "${ANNOUNCE_END:-}" && "$*" == *torchrun* ]]; then
  kill -USR1 "${PPID}"
  until [[ -e "${NOTICE_FILE}" ]]; do sleep 0.01; done
fi
rank=0 code=0
while read -r host _; do
  switch="$(awk -v host="${host}" '$1 == host {print $2}' "${HOSTS}")"
  address="${switch:+${switch}.${host}}"
  SLURM_PROCID="${rank}" SLURMD_NODENAME="${host}" SLURM_TOPOLOGY_ADDR="${address}" "$@" </dev/null || code=$?
  rank=$((rank + 1))
done <"${order}"
exit "${code}"
"""
TORCHRUN = """\
#!/usr/bin/env bash
echo "${SLURMD_NODENAME:-} $*" >>"${LOG}"
(( $(wc -l <"${LOG}") > ${FAIL_FIRST:-0} ))
"""
SCONTROL = """\
#!/usr/bin/env bash
awk '{print $1}' "${HOSTS}"
"""
SWITCHED = "n1 top.s2\nn2 top.s1\nn3 top.s2\nn4 top.s1\n"
FOUR_NODES = {"parallelism": {"num_accelerators": 32, "data": 8, "tensor": 4}}


@dataclass
class Ran:
    """What came of a script."""

    code: int
    starts: list[list[str]]
    stderr: str
    options: str
    directory: Path


def run(script: str, tmp_path: Path, hosts: str = SWITCHED, **environment: str) -> Ran:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"srun": SRUN, "torchrun": TORCHRUN, "scontrol": SCONTROL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "hosts").write_text(hosts)
    (tmp_path / "job").write_text(script)
    log = tmp_path / "log"
    log.touch()
    given = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LOG": str(log),
        "HOSTS": str(tmp_path / "hosts"),
        "SLURM_JOB_ID": "7",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "SLURM_JOB_NODELIST": "n[1-4]",
        "TMPDIR": str(tmp_path),
        **environment,
    }
    command = ["bash", str(tmp_path / "job"), "train.py", "--lr", "a b"]
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=600)
    options = tmp_path / "log.options"
    starts = [line.split(" ") for line in log.read_text().splitlines()]
    return Ran(done.returncode, starts, done.stderr, options.read_text() if options.exists() else "", tmp_path)


def in_order(order: str | None) -> dict[str, Any]:
    return FOUR_NODES | ({} if order is None else {"parallelism.rank_order": order})


# --- torchrun -----------------------------------------------------------------------------------------------


def test_torchrun_keeps_the_order_of_the_launcher(tmp_path: Path) -> None:
    script = torchrun.write(job(in_order("topology"))).text
    ran = run(script, tmp_path, NODE_RANK="3", MASTER_ADDR="n9")
    expected = "--nnodes=4 --nproc-per-node=8 --node-rank=3 --master-addr=n9 --master-port=29500 --max-restarts=0"
    assert ran.code == 0
    assert " ".join(ran.starts[0]).strip() == f"{expected} train.py --lr a b"


@pytest.mark.parametrize("order", ["alphabetical", None])
def test_torchrun_meets_by_c10d_where_hosts_are_sorted_by_name(order: str | None, tmp_path: Path) -> None:
    script = torchrun.write(job(in_order(order), policy={})).text
    ran = run(script, tmp_path, MASTER_ADDR="n9", RUN_ID="x")
    expected = "--nnodes=4 --nproc-per-node=8 --rdzv-backend=c10d --rdzv-endpoint=n9:29500 --rdzv-id=x --max-restarts=3"
    assert " ".join(ran.starts[0]).strip() == f"{expected} train.py --lr a b"


def test_one_node_needs_nobody(tmp_path: Path) -> None:
    plan = {"parallelism": {"num_accelerators": 4, "tensor": 4, "rank_order": "topology"}}
    ran = run(torchrun.write(job(plan)).text, tmp_path)
    assert ran.starts[0][1:5] == ["--nnodes=1", "--nproc-per-node=4", "--standalone", "--max-restarts=0"]


def test_torchrun_says_what_is_missing(tmp_path: Path) -> None:
    ran = run(torchrun.write(job(in_order("topology"))).text, tmp_path)
    assert ran.code != 0
    assert "NODE_RANK" in ran.stderr
    assert not ran.starts


def test_the_variables_of_the_library_are_read(tmp_path: Path) -> None:
    (tmp_path / "nccl-env.sh").write_text('echo "sourced" >&2\n')
    ran = run(torchrun.write(job(in_order(None))).text, tmp_path, MASTER_ADDR="n9", RUN_ID="x")
    assert "sourced" in ran.stderr


def test_a_plan_that_fills_no_nodes_is_refused() -> None:
    with pytest.raises(NotExpressible, match="12 ranks do not fill nodes of 8"):
        torchrun.write(job({"parallelism": {"num_accelerators": 12, "data": 3, "tensor": 4}}))


def test_the_order_of_ranks_is_told_from_the_inside_outwards() -> None:
    plan = {"parallelism": {"num_accelerators": 64, "data": 2, "tensor": 8, "pipeline": 4, "schedule": "1f1b"}}
    assert rank_order(job(plan)) == [
        "tensor: groups of 8, 1 apart, inside a node",
        "data: groups of 2, 8 apart, over 2 nodes on fabric back",
        "pipeline: groups of 4, 16 apart, over 8 nodes on fabric back",
    ]


def test_a_group_may_lie_inside_a_domain_of_several_nodes() -> None:
    cluster = {"node_groups.0.scale_up.domain_num_accelerators": 32}
    plan = {"parallelism": {"num_accelerators": 64, "tensor": 16, "data": 4}}
    assert rank_order(job(plan, cluster))[0].endswith("inside a scale-up domain of 4 nodes")


# --- slurm --------------------------------------------------------------------------------------------------


def test_hosts_become_ranks_by_their_switches(tmp_path: Path) -> None:
    ran = run(slurm.write(job(in_order("topology"))).text, tmp_path)
    assert ran.code == 0, ran.stderr
    assert [start[0] for start in ran.starts] == ["n2", "n4", "n1", "n3"]
    assert [start[1] for start in ran.starts] == [f"--node-rank={rank}" for rank in range(4)]
    assert {start[4] for start in ran.starts} == {"--master-addr=n2"}
    assert ran.starts[0][-4:] == ["train.py", "--lr", "a", "b"]
    assert {"--ntasks=4", "--distribution=arbitrary", "--cpus-per-task=96"} <= set(ran.options.split())


def test_without_switches_the_order_of_slurm_stays(tmp_path: Path) -> None:
    ran = run(slurm.write(job(in_order("topology"))).text, tmp_path, hosts="n12\nn3\nn7\n")
    assert [start[0] for start in ran.starts] == ["n12", "n3", "n7"]


def test_more_than_ten_hosts_are_sorted_by_number(tmp_path: Path) -> None:
    names = [f"h{number}" for number in range(12)]
    ran = run(slurm.write(job(in_order("topology"))).text, tmp_path, hosts="".join(f"{name} s\n" for name in names))
    assert [start[0] for start in ran.starts] == names


def test_the_order_of_the_scheduler(tmp_path: Path) -> None:
    ran = run(slurm.write(job(in_order("scheduler"))).text, tmp_path)
    assert [start[0] for start in ran.starts] == ["n1", "n2", "n3", "n4"]
    assert {start[4] for start in ran.starts} == {"--master-addr=n1"}
    assert "--distribution=block" in ran.options


def test_c10d_in_slurm_counts_no_restarts_of_its_own(tmp_path: Path) -> None:
    ran = run(slurm.write(job(in_order(None), policy={})).text, tmp_path)
    words = "--rdzv-backend=c10d --rdzv-endpoint=n1:29500 --rdzv-id=7 --max-restarts=0"
    assert words in " ".join(ran.starts[0])


@pytest.mark.parametrize(
    ("policy", "environment", "num_attempts", "code"),
    [
        (None, {"FAIL_FIRST": "99"}, 1, 1),
        ({}, {"FAIL_FIRST": "99"}, 4, 1),
        ({}, {"FAIL_FIRST": "1"}, 2, 0),
        ({}, {"FAIL_FIRST": "99", "SLURM_RESTART_COUNT": "2"}, 2, 1),
        ({"restart.max_restarts": 0}, {"FAIL_FIRST": "99"}, 1, 1),
    ],
)
def test_restarts_are_those_of_the_policy(
    policy: dict[str, Any] | None, environment: dict[str, str], num_attempts: int, code: int, tmp_path: Path
) -> None:
    plan = {"parallelism": {"num_accelerators": 8, "data": 2, "tensor": 4}}
    ran = run(slurm.write(job(plan, policy=policy)).text, tmp_path, hosts="n1\n", **environment)
    assert (len(ran.starts), ran.code) == (num_attempts, code)


def test_an_announced_end_leaves_a_notice_and_no_restart(tmp_path: Path) -> None:
    policy = {"grace": {"preemptible": True, "notice_seconds": 119.5}}
    exported = slurm.write(job(in_order("scheduler"), policy=policy))
    assert "#SBATCH --signal=B:USR1@120\n" in exported.text
    ran = run(exported.text, tmp_path, ANNOUNCE_END="1", FAIL_FIRST="99")
    assert (ran.code, len(ran.starts)) == (0, 4)
    assert (ran.directory / "notice.7").exists()


def directives(text: str) -> set[str]:
    return {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")}


@pytest.mark.parametrize(
    ("plan", "cluster", "expected"),
    [
        ({}, {}, {"--nodes=8", "--ntasks-per-node=1", "--gpus-per-node=8", "--exclusive", "--cpus-per-task=96"}),
        ({"parallelism": {"num_accelerators": 4, "tensor": 4}}, {}, {"--nodes=1", "--gpus-per-node=4"}),
        (
            {"parallelism.placements": [{"axis": "tensor", "within": "fabric", "fabric_tier": "leaf"}]},
            {},
            {"--switches=2"},
        ),
        (
            {
                "parallelism": {
                    "num_accelerators": 64,
                    "tensor": 16,
                    "data": 4,
                    "placements": [{"axis": "tensor", "within": "scale-up-domain"}],
                }
            },
            {"node_groups.0.scale_up.domain_num_accelerators": 32},
            {"--segment=4"},
        ),
        ({}, {"node_groups.0.accelerator.num_ranks_per_accelerator": 2}, {"--nodes=4", "--gpus-per-node=16"}),
    ],
)
def test_directives_follow_from_the_documents(
    plan: dict[str, Any], cluster: dict[str, Any], expected: set[str]
) -> None:
    text = slurm.write(job(plan, cluster)).text
    assert expected <= directives(text)
    first_command = text.index("\nset -euo")
    assert text.rindex("#SBATCH") < first_command, "sbatch reads no directive below the first command"
    assert ("--exclusive" in directives(text)) == ("--gpus-per-node=4" not in directives(text))


@pytest.mark.parametrize(
    ("plan", "cluster", "words"),
    [
        ({}, {"node_groups.0.host": {}}, "host.num_cores is not stated"),
        (
            {"parallelism.placements": [{"axis": "data", "within": "fabric", "fabric_tier": "spine"}]},
            {},
            "fabric_tier is spine",
        ),
        (
            {
                "parallelism": {
                    "num_accelerators": 48,
                    "tensor": 16,
                    "data": 3,
                    "placements": [{"axis": "tensor", "within": "scale-up-domain"}],
                }
            },
            {"node_groups.0.scale_up.domain_num_accelerators": 32},
            "6 nodes are no multiple of domains of 4",
        ),
    ],
)
def test_what_slurm_cannot_say_is_told(plan: dict[str, Any], cluster: dict[str, Any], words: str) -> None:
    assert words in "\n".join(slurm.write(job(plan, cluster)).left_out)


@pytest.mark.parametrize("order", ["topology", "scheduler", "alphabetical", None])
@pytest.mark.parametrize("policy", [None, {}, {"grace": {"preemptible": True, "notice_seconds": 60}}])
def test_scripts_parse_and_name_known_requirements(order: str | None, policy: dict[str, Any] | None) -> None:
    for writer in (slurm, torchrun):
        text = writer.write(job(in_order(order), policy=policy)).text
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
        assert not unknown_requirements(text)


# --- kubernetes ---------------------------------------------------------------------------------------------


def manifest(
    plan: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, policy: dict[str, Any] | None = None
) -> Any:
    return yaml.safe_load(kubernetes.write(job(plan, cluster, policy)).text)


def pod(data: Any) -> Any:
    return data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_pods_are_the_nodes_of_the_job() -> None:
    data = manifest(in_order("topology"), policy={})
    assert (data["apiVersion"], data["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    spec = data["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (4, 4, "Indexed")
    assert data["spec"]["failurePolicy"] == {"maxRestarts": 3}
    container = pod(data)["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1,mlx5_10,mlx5_11"} in container["env"]


def test_the_index_of_a_pod_is_the_rank_of_its_node(tmp_path: Path) -> None:
    container = pod(manifest(in_order("topology")))["spec"]["containers"][0]
    shell, option, script, zeroth = container["command"]
    assert (shell, option, zeroth) == ("bash", "-c", "torchrun")
    program = "\n".join(["set --", f"set -- {' '.join(container['args'])}", script])
    ran = run(program, tmp_path, JOB_COMPLETION_INDEX="2")
    assert "--node-rank=2 --master-addr=tadpole-node-0-0.tadpole" in " ".join(ran.starts[0])
    assert ran.starts[0][-1] == "train.py"


@pytest.mark.parametrize(("transport", "locks"), [("infiniband", True), ("rocev2", True), ("tcp", False)])
def test_a_pod_has_shared_memory_and_locks_memory_where_its_network_does(transport: str, locks: bool) -> None:
    found = kubernetes.write(job(in_order("topology"), {"fabrics.0.transport": transport}))
    spec = pod(yaml.safe_load(found.text))["spec"]
    (container,) = spec["containers"]
    (mounted,) = [one for one in container["volumeMounts"] if one["mountPath"] == "/dev/shm"]
    assert {"name": mounted["name"], "emptyDir": {"medium": "Memory"}} in spec["volumes"]
    added = container.get("securityContext", {}).get("capabilities", {}).get("add", [])
    assert added == (["IPC_LOCK"] if locks else [])
    assert any("IPC_LOCK" in note for note in found.left_out) == locks


def test_a_job_that_knows_its_topology_wishes_for_the_lowest_tier_that_holds_it() -> None:
    notes = pod(manifest(in_order("topology")))["metadata"]["annotations"]
    assert notes == {"kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-leaf"}
    notes = pod(manifest({"parallelism.rank_order": "topology"}))["metadata"]["annotations"]
    assert notes == {"kueue.x-k8s.io/podset-preferred-topology": "cloud.provider.com/topology-spine"}
    assert "metadata" not in pod(manifest())


def test_groups_that_must_lie_together_are_slices() -> None:
    plan = {
        "parallelism": {
            "num_accelerators": 64,
            "tensor": 16,
            "data": 4,
            "placements": [{"axis": "tensor", "within": "scale-up-domain"}],
        }
    }
    notes = pod(manifest(plan, {"node_groups.0.scale_up.domain_num_accelerators": 32}))["metadata"]["annotations"]
    assert notes == {
        "kueue.x-k8s.io/podset-slice-required-topology": "nvidia.com/gpu.clique",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }


def test_a_group_as_large_as_the_job_requires_its_tier() -> None:
    plan = in_order("topology") | {
        "parallelism.placements": [{"axis": "data", "within": "fabric", "fabric_tier": "leaf"}]
    }
    notes = pod(manifest(plan))["metadata"]["annotations"]
    assert notes == {"kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-leaf"}


@pytest.mark.parametrize("name", ["Llama3.1_8B+x", "123", "true", "a" * 128, "x-" * 60 + "y", "null"])
def test_names_suit_kubernetes(name: str) -> None:
    found = manifest({"metadata.name": name})["metadata"]["name"]
    assert isinstance(found, str)
    assert len(f"{found}-node-0-99999-abcde") <= 63
    assert found[0].isalpha()
    assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in found)
    assert found == found.casefold().strip("-")


@pytest.mark.parametrize("value", ['a"b: {c', "'x' # y", "$(HOSTNAME)", "日本\x7f"])
def test_values_of_documents_survive_yaml(value: str) -> None:
    data = manifest(cluster={"node_groups.0.host.topology_file": value})
    found = {entry["name"]: entry["value"] for entry in pod(data)["spec"]["containers"][0]["env"]}
    assert found["NCCL_TOPO_FILE"].replace("$$(", "$(") == value


def test_grace_is_the_time_that_a_pod_has_to_end() -> None:
    data = manifest(policy={"grace": {"preemptible": True, "notice_seconds": 29.5}})
    assert pod(data)["spec"]["terminationGracePeriodSeconds"] == 30


def test_amd_has_its_own_resource() -> None:
    data = manifest(cluster={"node_groups.0.accelerator.model": "amd-mi300x-192gb"})
    assert pod(data)["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": 8}


def test_the_manifest_names_known_requirements() -> None:
    assert not unknown_requirements(kubernetes.write(job(in_order("topology"), policy={})).text)
