"""What the backends do on accelerators, as far as a processor shows it."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("jax")
pytest.importorskip("torch")

import jax
import numpy as np
import psutil
import torch
import torch.distributed as dist
from recovery_run import PLANS, tiny_job
from trainspec_conformance.testbed import probe_machine
from trainspec_conformance.testbed.jax import narrow
from trainspec_reference.__main__ import main
from trainspec_reference.common import messages as say
from trainspec_reference.common import offers
from trainspec_reference.common.backend import Formation, make
from trainspec_reference.common.reading import NotTrainableError
from trainspec_reference.common.run_settings import IN_USE, Assignment
from trainspec_reference.common.worker import WorkerProcess
from trainspec_reference.jax import arithmetic, processes
from trainspec_reference.jax.compression import Compressor
from trainspec_reference.torch.groups import Groups
from trainspec_reference.torch.precision import prepare

from trainspec_record.node.source import Reading, Source
from trainspec_validate.documents.types.communication import Compression
from trainspec_validate.documents.types.precision import LowPrecisionRecipe, Precision

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import evidence
import evidence_parts
import gpu_check

CUDA = torch.device("cuda")


def formation(rank: int, hosts: tuple[str, ...]) -> Formation:
    return Formation(3, rank, hosts, "127.0.0.1:1", 5.0)


def groups(rank: int, hosts: tuple[str, ...], store: dist.Store) -> Groups:
    """Groups that have not joined."""
    found = Groups.__new__(Groups)
    found.formation, found.device, found.store = formation(rank, hosts), CUDA, store
    return found


@pytest.mark.parametrize(("num_devices", "wanted"), [(2, "nccl"), (1, "gloo")])
def test_ranks_that_share_a_device_exchange_over_gloo(
    num_devices: int, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: num_devices)
    store, hosts, answers = dist.HashStore(), ("a", "a", "b"), {}

    def ask(rank: int) -> None:
        answers[rank] = groups(rank, hosts, store)._backend(CUDA)

    threads = [threading.Thread(target=ask, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert answers == dict.fromkeys(range(3), wanted), "all ranks decide alike, also those of a host with one rank"


@pytest.mark.parametrize(("num_devices", "is_refused"), [(0, True), (1, True), (2, False), (3, False)])
def test_more_ranks_than_devices_are_refused_with_jax(
    num_devices: int, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "num_devices_of_jax", lambda: num_devices)
    job = tiny_job(2, device="cuda")
    offers.refuse_shared_devices("torch", job)
    offers.refuse_shared_devices("jax", tiny_job(2))
    if not is_refused:
        offers.refuse_shared_devices("jax", job)
        return
    with pytest.raises(
        NotTrainableError, match=r"parallelism\.num_accelerators .*: 2 ranks need a device each"
    ) as caught:
        offers.refuse_shared_devices("jax", job)
    assert (f"--ranks {num_devices}" in str(caught.value)) == (num_devices > 0)
    assert f"JAX sees {num_devices} here" in str(caught.value)


def test_ranks_without_a_device_are_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    papers = ("--plan", str(PLANS / "state-space.yaml"), "--checkpoint", str(PLANS / "policy.yaml"))
    assert main(["jax", *papers, "--device", "cuda", "--out", str(tmp_path / "run")]) == IN_USE
    message = "parallelism.num_accelerators of this plan: 2 ranks need a device each, and JAX sees 0"
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_abort_reaches_the_communicators_of_nccl_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    aborted: list[str] = []

    class Group:
        def __init__(self, name: str) -> None:
            self.name = name

        def abort(self) -> None:
            aborted.append(self.name)

    monkeypatch.setattr(dist, "get_backend", lambda group: "gloo" if group.name == "tensor" else "nccl")
    found: Any = groups(0, ("a", "b"), dist.HashStore())
    made = [Group("tensor"), Group("copies"), Group("world")]
    found.made = [weakref.ref(group) for group in made]
    found.abort()
    assert aborted == ["copies", "world"]
    found.formation = formation(0, ("a",))
    found.abort()
    assert len(aborted) == 2, "one rank waits for none"


def test_a_worker_that_waits_for_a_lost_peer_is_woken_by_another_thread(tmp_path: Path) -> None:
    """The loop is inside of a kernel, so that only the thread of the channel can end it."""
    woken: list[int] = []
    backend: Any = SimpleNamespace(abort=lambda: woken.append(threading.get_ident()))
    assignment = Assignment("torch", tiny_job(), tmp_path, tmp_path, ())
    worker = WorkerProcess(assignment, backend, SimpleNamespace(), 0)  # type: ignore[arg-type]
    worker._formation = 3
    worker.heard(say.Leave(formation=2))
    assert not woken, "an older formation"
    worker.heard(say.Leave(formation=3))
    assert woken == [threading.get_ident()]


@pytest.mark.parametrize("name", ["torch", "trainspec_conformance.testbed.plain"])
def test_a_worker_that_loses_a_peer_before_it_has_a_model_reports_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the formation and waits for the next one; its own process has no fault."""
    backend = make(name, tiny_job())
    lost = say.Ended(formation=3, kind="network", reason="recvValue failed: Connection reset by peer")
    heard: list[Any] = []
    worker = WorkerProcess(Assignment(name, tiny_job(), tmp_path, tmp_path, ()), backend, SimpleNamespace(), 0)  # type: ignore[arg-type]
    worker._link = SimpleNamespace(say=heard.append)  # type: ignore[assignment]
    monkeypatch.setattr(worker, "_tried", lambda form: (lost, "PeerLostError"))
    worker._form(SimpleNamespace(formation=3))  # type: ignore[arg-type]
    assert heard == [lost, say.Left(formation=3, step=None, digest=None, state=None)]


def test_a_process_of_jax_takes_the_device_of_its_place_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = ("a", "a", "b", "b")
    monkeypatch.setattr(processes.jax, "config", SimpleNamespace(jax_platforms="cpu"))
    assert [processes.local_devices(formation(rank, hosts)) for rank in range(4)] == [None] * 4
    monkeypatch.setattr(processes.jax, "config", SimpleNamespace(jax_platforms="cuda,cpu"))
    assert [processes.local_devices(formation(rank, hosts)) for rank in range(4)] == [[0], [1], [0], [1]]


def test_jax_keeps_the_platform_of_the_host_and_repeats_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=x")
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    precision = Precision(compute="fp32", parameters="fp32", gradients="fp32", reduction="fp32", deterministic=True)
    arithmetic.configure(precision, "cuda")
    assert told["jax_platforms"] == "cuda,cpu"
    assert os.environ["XLA_FLAGS"].split() == ["--xla_dump_to=x", "--xla_gpu_deterministic_ops=true"]
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    arithmetic.configure(precision, "cpu")
    assert told["jax_platforms"] == "cpu"


@pytest.mark.parametrize(
    ("text", "is_of_a_peer"),
    [
        ("INTERNAL: NCCL operation ncclAllReduce failed: CUDA_ERROR_LAUNCH_FAILED, remote process exited", True),
        ("UNAVAILABLE: heartbeat timeout of task 1", True),
        ("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered", False),
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes", False),
        ("INTERNAL: CUDNN_STATUS_EXECUTION_FAILED", False),
    ],
)
def test_an_error_of_the_own_device_is_no_lost_peer(text: str, is_of_a_peer: bool) -> None:
    assert processes._is_of_a_peer(jax.errors.JaxRuntimeError(text)) is is_of_a_peer


@pytest.mark.parametrize(("method", "digits"), [("bf16", "e8m7"), ("fp16", "e5m10")])
def test_a_residual_is_what_rounding_left_also_where_xla_drops_conversions(method: Any, digits: str) -> None:
    """A conversion to 16 bits and back can go missing on a GPU; a reduction of precision cannot."""
    compressor = Compressor(Compression(method=method, error_feedback=True), {"w": (2, 4)})

    def sent(vector: jax.Array) -> Any:
        total, rounded, _ = compressor.send(vector, jax.numpy.zeros(1), lambda narrow: narrow)
        return total, vector - rounded

    vector = jax.numpy.asarray(np.linspace(-3, 3, 8), jax.numpy.float32)
    total, residual = jax.jit(sent)(vector)
    assert f"format = {digits}" in jax.jit(sent).lower(vector).as_text()
    np.testing.assert_array_equal(np.asarray(total) + np.asarray(residual), np.asarray(vector))
    assert np.abs(residual).max() > 0


@pytest.mark.parametrize("name", ["fp8-e4m3", "fp8-e5m2", "mxfp8", "mxfp4"])
def test_formats_below_16_bits_are_rounded_without_a_conversion_that_xla_drops(name: Any) -> None:
    is_block = name.startswith("mx")
    recipe = LowPrecisionRecipe(
        format=name, scaling="block" if is_block else "current", block_size=32 if is_block else None
    )
    text = jax.jit(narrow.narrowed, static_argnums=1).lower(jax.numpy.ones(64), recipe).as_text()
    assert not re.search(r"tensor<[0-9x]*f[48]E", text)


def test_convolutions_in_fp32_take_no_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.cudnn.allow_tf32
    try:
        for compute, allowed in (("fp32", False), ("tf32", True)):
            prepare(Precision(compute=compute, parameters="fp32", gradients="fp32", reduction="fp32"))
            assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.backends.cudnn.allow_tf32 = before
        torch.set_float32_matmul_precision("highest")


def test_energy_is_that_of_the_device_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"hw.energy": 1.0, "hw.power": 2.0}
    source = Source(frozenset({"device"}), lambda: iter([Reading(values, device=uuid) for uuid in ("GPU-a", "GPU-b")]))
    monkeypatch.setattr(probe_machine, "nvml_source", lambda _: source)
    monkeypatch.setattr(probe_machine, "binding", lambda: None)
    assert [probe_machine._metered(uuid)[1] for uuid in ("GPU-b", "GPU-a", None)] == ["GPU-b", "GPU-a", "GPU-a"]


def test_parts_of_evidence_are_kept_for_the_same_machine_alone(tmp_path: Path) -> None:
    path, head = tmp_path / "cuda.json", {"device": "cuda", "machine": ["x"], "accelerators": ["H"]}
    parts = {"kernels": {"summary": "1"}, "fp8": {"not_measured": "y"}, "golden-jax": {"holds": False}, "steps": {}}
    evidence.write(path, head, parts)
    assert evidence.kept(path, head) == {"kernels": {"summary": "1"}, "steps": {}}
    assert evidence.kept(path, {**head, "accelerators": ["A"]}) == {}
    assert evidence.kept(tmp_path / "none.json", head) == {}


def test_a_plan_that_a_framework_refuses_is_left_out_by_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def traced(backend: str, plan: str, *_: str) -> dict[str, Any]:
        if plan == "experts":
            raise NotTrainableError(f"{backend} has no mixture of experts")
        return evidence_parts.golden_traces.golden(plan)

    monkeypatch.setattr(evidence_parts.golden_traces, "traced", traced)
    found = evidence_parts.golden("jax", "cuda", short=False)
    assert (found["holds"], found["left_out"]) == (True, {"experts": "jax has no mixture of experts"})
    assert found["largest_relative_difference"] == {"state-space": 0.0, "transformer": 0.0, "convolution": 0.0}


@pytest.mark.slow
def test_a_part_that_takes_too_long_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The part has started a process of its own, which is ended with it."""
    script, started = tmp_path / "part.py", tmp_path / "started"
    script.write_text(
        "import os, time\n"
        "child = os.fork()\n"
        f"if child: os.write(os.open({str(started)!r}, os.O_WRONLY | os.O_CREAT), str(child).encode())\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(evidence, "__file__", str(script))
    found = evidence.measured("golden-torch", "cpu", short=False, timeout_seconds=5.0)
    assert found == {"not_measured": "it took longer than 5 s"}
    for _ in range(6_000):  # the kernel ends a killed process soon, not at once
        if not is_running(int(started.read_text())):
            return
        time.sleep(0.1)
    raise AssertionError("the process that the part started is still there")


def is_running(process: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_check_says_what_is_missing() -> None:
    is_right, words = gpu_check.checked("nccl", "cpu")
    if not torch.cuda.is_available():
        assert not is_right
    assert words
