"""Hosts, interfaces, meters and devices as the kernel and the drivers show them, from trees made for the test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainspec_record.identity import identity
from trainspec_record.node import amd, host, nvml, ports, power, sampler
from trainspec_record.node.source import Reading, Source


def make(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def read(source: Source) -> list[Reading]:
    assert source.read is not None
    return list(source.read())


# --- memory -------------------------------------------------------------------------------------------------

MEMORY = "MemTotal:  1000 kB\nMemFree:  400 kB\nBuffers:  50 kB\nCached:  200 kB\nSReclaimable:  50 kB\nMapped: 5 kB"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7"


def test_memory_is_told_by_state_and_adds_up(tmp_path: Path) -> None:
    root = make(tmp_path, {"proc/meminfo": MEMORY, "proc/pressure/memory": PRESSURE.format(0)})
    (reading,) = read(host.host_source(root))
    shares = {key.partition("=")[2][:-1]: value for key, value in reading.m.items() if "state" in key}
    assert shares == {"used": 0.3, "free": 0.4, "buffers": 0.05, "cached": 0.25}


def test_pressure_is_the_growth_of_some_over_the_window(tmp_path: Path) -> None:
    moments = iter([10.0, 14.0, 16.0])
    make(tmp_path, {"proc/meminfo": MEMORY, "proc/pressure/memory": PRESSURE.format(1_000_000)})
    source = host.host_source(tmp_path, lambda: next(moments))
    make(tmp_path, {"proc/pressure/memory": PRESSURE.format(2_000_000)})
    assert [each.m[host.PRESSURE] for each in read(source)] == [0.25]
    assert [each.m[host.PRESSURE] for each in read(source)] == [0.0]


def test_a_kernel_without_pressure_says_so(tmp_path: Path) -> None:
    source = host.host_source(make(tmp_path, {"proc/meminfo": MEMORY}))
    assert set(source.unsupported) == {host.PRESSURE}
    assert host.host_source(tmp_path / "empty").read is None


# --- interfaces ---------------------------------------------------------------------------------------------


def test_cards_count_words_of_four_bytes(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1/counters"
    counters = {
        "port_rcv_data": 10,
        "port_xmit_data": 20,
        "symbol_error": 3,
        "link_downed": 0,
        "link_error_recovery": 1,
    }
    root = make(tmp_path, {f"{port}/{name}": value for name, value in counters.items()})
    (reading,) = read(ports.port_source(root, "n1"))
    assert reading.device == "n1/mlx5_0/1"
    assert reading.m == {
        "hw.network.io{network.io.direction=receive}": 40,
        "hw.network.io{network.io.direction=transmit}": 80,
        "hw.errors{error.type=symbol,hw.type=network}": 3,
        "hw.errors{error.type=link_down,hw.type=network}": 0,
        "hw.errors{error.type=link_recovery,hw.type=network}": 1,
    }


def interface(name: str, rx_bytes: int, *, state: str = "up", kind: int = 1) -> dict[str, object]:
    folder = f"sys/class/net/{name}"
    statistics = {"rx_bytes": rx_bytes, "tx_bytes": 2, "rx_crc_errors": 0}
    return {
        **{f"{folder}/statistics/{key}": value for key, value in statistics.items()},
        f"{folder}/operstate": state,
        f"{folder}/type": kind,
    }


def test_without_cards_real_interfaces_are_read(tmp_path: Path) -> None:
    root = make(tmp_path, interface("eth0", 5) | interface("eth1", 6, state="down") | interface("lo", 7, kind=772))
    make(root, interface("br0", 8))
    for name in ("eth0", "eth1"):
        (root / f"sys/class/net/{name}/device").mkdir()
    found = read(ports.port_source(root, "n1"))
    assert [(each.device, each.m["hw.network.io{network.io.direction=receive}"]) for each in found] == [("n1/eth0", 5)]
    assert "hw.network.io" in ports.port_source(tmp_path / "empty", "n1").unsupported


# --- power --------------------------------------------------------------------------------------------------


def test_the_platform_is_the_node_and_processors_are_no_metric_of_the_catalog(tmp_path: Path) -> None:
    zone = "sys/class/powercap/intel-rapl:"
    root = make(
        tmp_path,
        {
            f"{zone}0/name": "package-0", f"{zone}0/energy_uj": 900, f"{zone}0/max_energy_range_uj": 1000,
            f"{zone}1/name": "psys", f"{zone}1/energy_uj": 5_000_000, f"{zone}1/max_energy_range_uj": 10**9,
            f"{zone}0:0/name": "core", f"{zone}0:0/energy_uj": 1,
            "sys/class/hwmon/hwmon3/name": "power_meter", "sys/class/hwmon/hwmon3/power1_average": 450_000_000,
        },
    )  # fmt: skip
    source = power.power_source(root)
    (reading,) = read(source)
    key = "linux.powercap.energy{linux.powercap.zone=package-0}"
    assert reading.m == {key: 0.0009, power.ENERGY: 5.0, power.POWER: 450.0}
    make(tmp_path, {f"{zone}0/energy_uj": 100})
    assert read(source)[0].m[key] == pytest.approx(0.0011)  # the counter started again at its limit
    assert set(source.extension_metrics) == {power.PROCESSORS}
    assert power.power_source(tmp_path / "empty").read is None


# --- devices of AMD -----------------------------------------------------------------------------------------


def test_amdgpu(tmp_path: Path) -> None:
    card = "sys/class/drm/card1/device"
    root = make(
        tmp_path,
        {
            f"{card}/vendor": "0x1002", f"{card}/unique_id": "A1B2", f"{card}/gpu_busy_percent": 98,
            f"{card}/mem_info_vram_used": 7, f"{card}/mem_info_vram_total": 206_141_652_992,
            f"{card}/hwmon/hwmon5/power1_average": 700_000_000, f"{card}/hwmon/hwmon5/freq1_input": 2_100_000_000,
            f"{card}/hwmon/hwmon5/temp2_label": "junction", f"{card}/hwmon/hwmon5/temp2_input": 71_000,
            f"{card}/hwmon/hwmon5/temp1_label": "edge", f"{card}/hwmon/hwmon5/temp1_input": 60_000,
            f"{card}/ras/umc_err_count": "ue: 1\nce: 20", f"{card}/ras/gfx_err_count": "ue: 0\nce: 2",
            "sys/class/drm/card0/device/vendor": "0x10de", "sys/class/drm/card1-DP-1/device/vendor": "0x1002",
        },
    )  # fmt: skip
    source = amd.amd_source(root)
    (reading,) = read(source)
    assert reading.device == "GPU-a1b2"
    assert reading.m["hw.gpu.utilization"] == 0.98
    assert reading.m["hw.power{hw.type=gpu}"] == 700.0
    assert reading.m["hw.temperature{hw.sensor_location=core}"] == 71.0
    assert reading.m["hw.errors{error.type=corrected,hw.type=gpu}"] == 22
    assert reading.m["hw.errors{error.type=uncorrected,hw.type=gpu}"] == 1
    assert set(source.unsupported) == {"hw.energy", "train.accelerator.matrix.active"}
    assert amd.amd_source(tmp_path / "empty").read is None


# --- devices of NVIDIA --------------------------------------------------------------------------------------


class Binding:
    """A binding of NVML with two devices; the second one tells little, and blank values."""

    NVML_CLOCK_SM = 1
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5

    def __init__(self) -> None:
        self.num_samples = 0

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:  # noqa: N802
        return [b"GPU-aa", "GPU-bb"][handle]

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(gpu=50, memory=10)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(total=80_000_000_000, free=60_000_000_000, used=19_000_000_000)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:  # noqa: N802
        return [700_123, 2_147_483_632][handle]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:  # noqa: N802
        if handle:
            raise RuntimeError("not supported")
        return 5_000

    def nvmlGpmQueryDeviceSupport(self, handle: int) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(handle == 0))

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        self.num_samples += 1
        return object()

    def nvmlGpmSampleGet(self, handle: int, sample: object) -> object:  # noqa: N802
        return sample

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        self.num_samples -= 1

    def c_nvmlGpmMetricsGet_t(self) -> Any:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(nvmlReturn=0, value=47.0)])

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802
        return asked


def test_nvml_tells_what_it_has_in_units_of_the_catalog() -> None:
    binding = Binding()
    source = nvml.nvml_source(binding)
    first, second = read(source)
    assert (first.device, second.device) == ("GPU-aa", "GPU-bb")
    assert first.m == {
        "hw.gpu.utilization": 0.5,
        "hw.gpu.memory.limit": 80_000_000_000,
        "hw.gpu.memory.usage": 20_000_000_000,
        "hw.power{hw.type=gpu}": 700.123,
        "hw.energy{hw.type=gpu}": 5.0,
        "train.accelerator.matrix.active": 0.47,
    }
    assert "hw.power{hw.type=gpu}" not in second.m  # 2147483632 stands for no value
    assert source.unsupported == {
        "hw.errors": nvml.NOT_TOLD,
        "train.accelerator.matrix.active": nvml.NEEDS_PROFILER,
    }
    for _ in range(5):
        read(source)
    assert binding.num_samples == 1  # one device counts; a sample is freed when the next one is taken


@pytest.mark.parametrize(
    ("visible", "has_devices"), [(None, True), ("0", True), ("1,0", True), ("GPU-bb", True), ("", False), ("-1", False)]
)
def test_a_program_that_is_given_no_device_samples_none(
    visible: str | None, has_devices: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Devices of the host that a run on its cores does not use are not of the run."""
    monkeypatch.setattr(nvml, "binding", Binding)
    environment = {"TRAINSPEC_RUN": str(tmp_path), **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})}
    who = identity(environment)
    assert who is not None
    found = sampler.sources_of(who, environment, tmp_path)
    assert any("device" in source.scopes for source in found) is has_devices


def test_without_a_binding_there_are_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert nvml.nvml_source(None).read is None
    monkeypatch.setattr(nvml.importlib.util, "find_spec", lambda name: None)
    assert nvml.binding() is None
    assert nvml.device_uuid({"CUDA_VISIBLE_DEVICES": "0"}, 0) is None


def test_the_device_of_a_rank_is_asked_for_by_its_visible_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "binding", Binding)
    assert nvml.device_uuid({"CUDA_VISIBLE_DEVICES": "1,0"}, 0) == "GPU-bb"
    assert nvml.device_uuid({"CUDA_VISIBLE_DEVICES": "1"}, 3) == "GPU-bb"
    assert nvml.device_uuid({}, 1) == "GPU-bb"
    assert nvml.device_uuid({"CUDA_VISIBLE_DEVICES": ""}, 0) is None


@pytest.mark.parametrize("odd", ["9" * 25, "9" * 5000, "x"])
def test_a_number_that_no_kernel_writes_is_none(tmp_path: Path, odd: str) -> None:
    folder = "sys/class/net/eth0"
    card = "sys/class/drm/card0/device"
    make(
        tmp_path,
        {
            "proc/meminfo": MEMORY.replace("1000", odd), "proc/pressure/memory": PRESSURE.format(odd),
            "proc/stat": f"cpu 1\nbtime {odd}", f"{folder}/type": 1, f"{folder}/statistics/rx_bytes": odd,
            f"{card}/vendor": amd.VENDOR, f"{card}/unique_id": "a1", f"{card}/mem_info_vram_total": odd,
            f"{card}/ras/umc_err_count": f"ue: {odd}\nce: 2",
        },
    )  # fmt: skip
    assert host.shares(tmp_path) == {}
    assert host.waited_us(tmp_path) is None
    assert sampler.started_us(tmp_path) is None
    assert ports.read_whole(tmp_path / folder / "statistics/rx_bytes") is None
    (reading,) = read(amd.amd_source(tmp_path))
    assert reading.m == {"hw.errors{error.type=corrected,hw.type=gpu}": 2}
