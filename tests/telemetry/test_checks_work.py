"""Devices that are busy work and draw what their counters say; clocks agree; probes reach all; the machine fits."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from telemetry_makers import Stream, judged, line_of, messages, micros, refused, view

from trainspec_validate.documents.load import load_file
from trainspec_validate.documents.types import ClusterProfile

CLUSTER = msgspec.convert(
    load_file(Path(__file__).resolve().parents[2] / "spec" / "v1" / "base" / "cluster.yaml").data, ClusterProfile
)
POWER, ENERGY = "hw.power{hw.type=gpu}", "hw.energy{hw.type=gpu}"
MATRIX = "train.accelerator.matrix.active"


def node(name: str, **head: object) -> Stream:
    return Stream(name, ("device",), host="n1", **head)


# --- power and energy ---------------------------------------------------------------------------------------


def metered(watts: float, joules: Iterable[float], *, busy: float | None = None) -> Stream:
    stream = node("meter", device="GPU-0")
    for number, value in enumerate(joules):
        values = {ENERGY: value, **({POWER: watts} if watts else {})}
        stream.sample(30 * number, {**values, **({"hw.gpu.utilization": busy} if busy is not None else {})})
    return stream


def test_a_short_run_is_too_short_for_energy_and_power() -> None:
    for seconds, told in ((18, False), (24, True)):
        stream = node("short", device="GPU-0")
        for number in range(0, seconds + 1, 2):
            stream.sample(number, {POWER: 75.0, ENERGY: 0.0})
        if told:
            assert [fault.message for fault in judged("TS-TEL-040", view(stream))]
        else:
            assert "over 20 s or more" in refused("TS-TEL-040", view(stream))


def test_energy_and_power_of_one_device_may_come_from_two_agents() -> None:
    power = node("power", device="GPU-0").every(range(0, 121, 30), {POWER: 700.0})
    energy = node("energy", device="GPU-0")
    for number in range(5):
        energy.sample(30 * number, {ENERGY: 21_000.0 * number})
    assert judged("TS-TEL-040", view(power, energy)) == []
    other = node("power", device="GPU-1").every(range(0, 121, 30), {POWER: 100.0})
    assert refused("TS-TEL-040", view(other, energy)).startswith("no hw.energy with hw.power")


@pytest.mark.parametrize(("factor", "num"), [(1.0, 0), (1.08, 0), (0.93, 0), (1.2, 1), (1000, 1), (0.001, 1)])
def test_energy_is_the_integral_of_power(factor: float, num: int) -> None:
    run = view(metered(700, [21_000 * factor * number for number in range(5)]))
    assert len(judged("TS-TEL-040", run)) == num


@pytest.mark.parametrize(("watts", "num"), [(700, 0), (700e3, 1), (0.7, 1)])
def test_a_busy_device_draws_what_one_can_draw(watts: float, num: int) -> None:
    run = view(metered(0, [watts * 30 * number for number in range(5)], busy=0.98))
    assert len(judged("TS-TEL-040", run)) == num
    idle = view(metered(0, [watts * 30 * number for number in range(5)], busy=0.1))
    assert refused("TS-TEL-040", idle).startswith("no hw.energy")


def test_a_counter_that_started_again_is_not_held_against_power() -> None:
    stream = metered(700, [0, 21_000, 42_000])
    stream.sample(90, {ENERGY: 10.0, POWER: 700.0}, start_us=micros(85))
    assert refused("TS-TEL-040", view(stream)).startswith("no hw.energy")


# --- busy without work --------------------------------------------------------------------------------------


def devices(active: list[list[float]], *, busy: float = 0.99) -> Stream:
    stream = node("agent", cadence_seconds={"C30": 10})
    for place, values in enumerate(active):
        for number, value in enumerate(values):
            more = {"hw.gpu.utilization": busy, MATRIX: value}
            stream.sample(10 * place, more, device=f"GPU-{number}")
    return stream


def test_a_device_that_never_computes_is_named() -> None:
    stream = devices([[0.45, 0.001]] * 40)
    (found,) = judged("TS-TEL-041", view(stream))
    assert found.message.startswith(f"{MATRIX} of device GPU-1 of n1 is at most 0.001 for 6.5 min")
    assert line_of(found, stream) == 2


def test_a_device_that_stops_to_compute_is_found() -> None:
    stream = devices([[0.45, 0.45]] * 20 + [[0.45, 0.001]] * 40)
    (found,) = judged("TS-TEL-041", view(stream))
    assert "the matrix units of device GPU-1 of n1 do nothing" in found.message
    assert line_of(found, stream) == 120
    assert judged("TS-TEL-041", view(devices([[0.45, 0.45]] * 20 + [[0.45, 0.001]] * 20))) == []
    assert judged("TS-TEL-041", view(devices([[0.45, 0.001]] * 40, busy=0.5))) == []


def test_a_blocking_save_is_no_spin() -> None:
    active = [[0.45, 0.45]] * 5 + [[0.001, 0.001]] * 40 + [[0.45, 0.45]] * 5
    assert len(judged("TS-TEL-041", view(devices(active)))) == 1
    save = Stream("job").between(45, 455, "checkpoint")
    assert judged("TS-TEL-041", view(devices(active), save)) == []
    evaluation = Stream("job").between(45, 455, "evaluation")
    assert len(judged("TS-TEL-041", view(devices(active), evaluation))) == 1


def test_spinning_needs_both_readings() -> None:
    run = view(node("agent", device="GPU-0").every((30, 60), {"hw.gpu.utilization": 1.0}))
    assert refused("TS-TEL-041", run) == f"no {MATRIX}"


# --- clocks and probes --------------------------------------------------------------------------------------


def clocks(*offsets: float) -> Stream:
    stream = Stream("clocks", ("node",), declared={"train.clock.reference": "utc-ptp"})
    for number, offset in enumerate(offsets):
        stream.sample(60, {"train.clock.offset": offset, "train.clock.error": 1e-5}, host=f"n{number}")
    return stream


def test_clocks_are_off_by_less_than_an_update() -> None:
    assert judged("TS-TEL-050", view(clocks(0.02, -0.02))) == []
    fast = Stream()
    for step in range(1, 4):
        fast.sample(0.01 * step, {"train.step.duration": 0.01}, step=step)
    assert len(judged("TS-TEL-050", view(clocks(0.02, 0.001), fast))) == 1
    assert len(judged("TS-TEL-050", view(clocks(0.2, -0.2)))) == 2


def test_no_effect_comes_before_its_cause() -> None:
    saved = Stream().event(10, "checkpoint.begin", {"train.checkpoint.id": "c"}, id="c")
    saved.event(50, "checkpoint.commit", {"train.checkpoint.id": "c"}, id="c")
    wanted = {"train.restore.step": 5, "train.restore.source": "c"}
    early = Stream(att=1).event(45, "checkpoint.restore.begin", wanted, id="r")
    (found,) = messages("TS-TEL-050", view(saved, early))
    assert found.startswith("train.checkpoint.restore.begin is 5 s before the train.checkpoint.commit")
    late = Stream(att=1).event(55, "checkpoint.restore.begin", wanted, id="r")
    assert judged("TS-TEL-050", view(saved, late)) == []
    assert refused("TS-TEL-050", view(Stream().sample(1, {"train.step.count": 1}))).startswith("no train.clock.offset")


def test_probes_need_two_hosts() -> None:
    pair = "train.network.latency{train.network.source=n1,train.network.target=n2}"
    stream = Stream("agent", ("device", "pair"), host="n1").sample(60, {"hw.gpu.utilization": 0.9}, device="GPU-0")
    stream.sample(60, {pair: {"count": 1, "sum": 4e-6}})
    assert refused("TS-TEL-054", view(stream)) == "no attempt with devices on two hosts and probes between them"


# --- the machine --------------------------------------------------------------------------------------------


def test_the_machine_has_room_for_the_ranks() -> None:
    fits = view(Stream(world_size=128).sample(1, {"train.step.count": 1}))
    assert judged("TS-TEL-080", fits, cluster=CLUSTER) == []
    start = {"train.run.attempt": 0, "train.world.size": 256}
    started = Stream(world_size=128).event(1, "attempt.start", start)
    (found,) = judged("TS-TEL-080", view(started), cluster=CLUSTER)
    assert line_of(found, started) == 1
    for num_devices, num in ((8, 0), (16, 1)):
        run = Stream(world_size=16, declared={"train.rank.num_devices": num_devices})
        assert len(judged("TS-TEL-080", view(run.sample(1, {"train.step.count": 1})), cluster=CLUSTER)) == num


def test_a_node_of_a_large_job_reports_all_its_devices() -> None:
    values = {"hw.gpu.utilization": 0.9}

    def seven(world_size: int | None) -> Stream:
        stream = node("agent", **({} if world_size is None else {"world_size": world_size}))
        for number in range(7):
            stream.sample(30, values, device=f"GPU-{number}")
        return stream

    assert messages("TS-TEL-081", view(seven(128)), cluster=CLUSTER) == [
        "fewer than 8 devices on 1 host in attempt 0: n1 7"
    ]
    assert len(judged("TS-TEL-081", view(seven(None)), cluster=CLUSTER)) == 1
    assert judged("TS-TEL-081", view(seven(7)), cluster=CLUSTER) == []


def test_the_peak_is_that_of_the_precision() -> None:
    def declared(peak: float, precision: str) -> Stream:
        head = {"train.flops.peak": peak, "train.flops.precision": precision}
        return Stream(declared=head).sample(1, {"train.flops.utilization": 0.4})

    assert judged("TS-TEL-082", view(declared(989.4e12, "bf16")), cluster=CLUSTER) == []
    assert judged("TS-TEL-082", view(declared(1979e12, "fp8")), cluster=CLUSTER) == []
    assert len(judged("TS-TEL-082", view(declared(1979e12, "bf16")), cluster=CLUSTER)) == 1
    assert refused("TS-TEL-082", view(declared(67e12, "fp64")), cluster=CLUSTER).startswith("no train.flops.peak with")


def test_clocks_and_probes_of_a_machine_keep_its_bounds() -> None:
    assert judged("TS-TEL-083", view(clocks(4e-5, -4e-5)), cluster=CLUSTER) == []
    assert len(judged("TS-TEL-083", view(clocks(6e-5, -6e-5)), cluster=CLUSTER)) == 1
    assert refused("TS-TEL-083", view(clocks(0.0)), cluster=CLUSTER) == "no train.clock.offset of two nodes"
    pair = "train.network.latency{train.network.source=n1,train.network.target=n2}"
    for mean, num in ((40e-6, 0), (40e-3, 1)):
        run = view(Stream("agent", ("pair",)).sample(60, {pair: {"count": 100, "sum": 100 * mean}}))
        assert len(judged("TS-TEL-084", run, cluster=CLUSTER)) == num
