"""Reports of `nvidia-smi -q`: what is an error of a GPU, since when, and what a file of several reports says."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from click.testing import CliRunner
from reading import Result, read_text

from tests.node_reports import smi
from trainspec_validate import validate
from trainspec_validate.cli.toolbox import PROGRAM, command
from trainspec_validate.pipeline.acceptance_runs import run_stream
from trainspec_validate.telemetry.formats.detection import detect, detect_beyond

THIRD = "GPU-00000000-0000-0000-0000-000000000020"
"""The GPU that is odd in reports of `smi`."""
UNCORRECTED = "hw.errors{error.type=uncorrected,hw.type=gpu}"
START = datetime(2026, 11, 26, 12)
# Shapes of the reports of two drivers: tags of v12 of the device type, and of the ones before it.
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
\t<timestamp>{time}</timestamp>
\t<attached_gpus>1</attached_gpus>
\t<gpu id="00000000:0A:00.0">
\t\t<product_name>NVIDIA A100</product_name>
\t\t<uuid>GPU-a</uuid>
\t\t<pci><pci_bus_id>00000000:0A:00.0</pci_bus_id><replay_counter>{replays}</replay_counter></pci>
\t\t<clocks_event_reasons>
\t\t\t<clocks_event_reason_hw_slowdown>{slowdown}</clocks_event_reason_hw_slowdown>
\t\t\t<clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap>
\t\t</clocks_event_reasons>
\t\t<clocks_event_reasons_counters>
\t\t\t<clocks_event_reasons_counters_sw_power_cap>{held} us</clocks_event_reasons_counters_sw_power_cap>
\t\t\t<clocks_event_reasons_counters_hw_power_brake>0 us</clocks_event_reasons_counters_hw_power_brake>
\t\t\t<clocks_event_reasons_counters_sw_therm_slowdown>3 us</clocks_event_reasons_counters_sw_therm_slowdown>
\t\t\t<clocks_event_reasons_counters_hw_therm_slowdown>5 us</clocks_event_reasons_counters_hw_therm_slowdown>
\t\t</clocks_event_reasons_counters>
\t\t<fb_memory_usage><total>40960 MiB</total><free>40000 MiB</free></fb_memory_usage>
\t\t<utilization><gpu_util>97 %</gpu_util></utilization>
\t\t<ecc_errors>
\t\t\t<volatile><dram_correctable>1</dram_correctable><dram_uncorrectable>{errors}</dram_uncorrectable></volatile>
\t\t\t<aggregate><dram_uncorrectable>9</dram_uncorrectable></aggregate>
\t\t</ecc_errors>
\t\t<remapped_rows>
\t\t\t<remapped_row_corr>0</remapped_row_corr><remapped_row_unc>2</remapped_row_unc>
\t\t\t<remapped_row_pending>{pending}</remapped_row_pending><remapped_row_failure>No</remapped_row_failure>
\t\t</remapped_rows>
\t\t<temperature><gpu_temp>41 C</gpu_temp><memory_temp>N/A</memory_temp></temperature>
\t\t<gpu_power_readings><average_power_draw>310.50 W</average_power_draw></gpu_power_readings>
\t\t<clocks><sm_clock>1410 MHz</sm_clock></clocks>
\t</gpu>
</nvidia_smi_log>
"""
SOUND = {"replays": "7", "slowdown": "Not Active", "held": "39595", "errors": "0", "pending": "No"}


def at(seconds: float) -> str:
    moment = START + timedelta(seconds=seconds)
    return f"{moment:%a %b} {moment.day:>2} {moment:%H:%M:%S %Y}"


def text(seconds: float = 0.0, num: int = 8, **odd: object) -> str:
    return smi(num, **odd).replace("Thu Nov 26 12:00:00 2026", at(seconds))


def document(seconds: float = 0.0, **odd: str) -> str:
    return XML.format(time=at(seconds), **{**SOUND, **odd})


def errors(found: Result) -> list[tuple[float, str | None, str]]:
    """Seconds since the start, device and code of each error."""
    start_us = round((START - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
    return [((e.time_us - start_us) / 1e6, e.device, str(e.a["train.fault.vendor_code"])) for e in found.events]


@pytest.mark.parametrize(
    ("odd", "codes"),
    [
        ({}, []),
        ({"errors": 2}, ["ecc:uncorrected"]),
        ({"pending": "Yes"}, ["row-remap:pending"]),
        ({"pending": "Yes                      <==="}, ["row-remap:pending"]),  # a remark in a published report
        ({"thermal": "Active"}, ["throttle:thermal"]),
        ({"reset": "Yes", "drain": "Yes"}, ["reset:recommended", "reset:required"]),
        ({"reset": "Requested functionality has been deprecated"}, []),
        ({"action": "Drain P2P"}, ["recovery-action:drain-p2p"]),
        ({"retired": "Yes"}, ["page-retirement:pending"]),
        ({"sram": "Yes"}, ["sram:threshold-exceeded"]),
        ({"health": "Unhealthy"}, ["fabric:unhealthy"]),
        ({"ecc": "Unknown Error"}, ["driver:unknown-error"]),
        ({"errors": "GPU is lost"}, ["driver:gpu-is-lost"]),
        ({"mig": "Enabled", "fabric": "In Progress"}, []),  # states of a machine, and no errors
    ],
)
def test_errors_of_a_report(odd: dict[str, object], codes: list[str]) -> None:
    found = read_text(text(**odd))
    assert errors(found) == [(0.0, THIRD, code) for code in codes]
    assert len(found.samples) == 8
    assert not found.refusals


def test_the_number_of_errors_is_said() -> None:
    assert read_text(text(errors=2)).events[0].a["train.reason"] == "errors of memory since the driver was loaded: 2"


def test_corrected_and_aggregate_errors_are_no_new_errors() -> None:
    """Each GPU of `smi` has 7 corrected errors, and 9 uncorrected ones over its life."""
    found = read_text(text())
    assert found.values(UNCORRECTED) == [0.0] * 8
    assert found.values("hw.errors{error.type=corrected,hw.type=gpu}") == [7.0] * 8
    assert found.values("train.accelerator.memory.remapped_rows{error.type=uncorrected}") == [1.0] * 8
    assert not found.events


def test_values_of_a_document() -> None:
    found = read_text(document())
    throttled = {f"train.accelerator.throttled{{train.throttle.reason={k}}}" for k in ("hardware", "power")}
    assert found.samples[0].device == "GPU-a"
    assert found.samples[0].m == {
        "hw.errors{error.type=replay,hw.type=gpu}": 7.0,
        "hw.errors{error.type=corrected,hw.type=gpu}": 1.0,
        UNCORRECTED: 0.0,
        "hw.gpu.utilization": 0.97,
        "hw.power{hw.type=gpu}": 310.5,
        "hw.temperature{hw.sensor_location=core}": 41.0,
        "hw.gpu.memory.limit": 40960 * 2.0**20,
        "hw.gpu.memory.usage": 960 * 2.0**20,
        "train.accelerator.clock.frequency": 1.41e9,
        "train.accelerator.memory.remapped_rows{error.type=corrected}": 0.0,
        "train.accelerator.memory.remapped_rows{error.type=uncorrected}": 2.0,
        "train.accelerator.throttle.time{train.throttle.reason=power}": pytest.approx(0.039595),
        **{key: float("power" in key) for key in throttled},
    }  # two times for heat may overlap
    assert not found.events


@pytest.mark.parametrize(
    ("odd", "code"),
    [
        ({"slowdown": "Active"}, "throttle:hardware"),
        ({"errors": "3"}, "ecc:uncorrected"),
        ({"pending": "Yes"}, "row-remap:pending"),
    ],
)
def test_errors_of_a_document(odd: dict[str, str], code: str) -> None:
    assert errors(read_text(document(**odd))) == [(0.0, "GPU-a", code)]


@pytest.mark.parametrize("make", [text, document])
def test_an_error_of_a_loop_is_told_where_it_begins(make: object) -> None:
    assert callable(make)
    reports = [make(30.0 * k, pending="Yes" if k >= 2 else "No") for k in range(5)]
    assert [(seconds, code) for seconds, _, code in errors(read_text("".join(reports)))] == [
        (60.0, "row-remap:pending")
    ]


def test_an_error_that_begins_again_is_told_again() -> None:
    states = ["Active", "Not Active", "Active", "Active"]
    found = read_text("".join(text(30.0 * k, thermal=state) for k, state in enumerate(states)))
    assert [seconds for seconds, *_ in errors(found)] == [0.0, 60.0]


def test_counts_that_rise_and_fall(tmp_path: Path) -> None:
    """A driver that is loaded again counts from 0, which is no counter that falls."""
    content = "".join(text(30.0 * k, errors=n) for k, n in enumerate([1, 1, 3, 0, 0, 1]))
    found = read_text(content)
    assert [(seconds, code) for seconds, _, code in errors(found)] == [
        (0.0, "ecc:uncorrected"),
        (60.0, "ecc:uncorrected"),
        (150.0, "ecc:uncorrected"),
    ]
    anew = [sample for sample in found.samples if sample.start_us is not None]
    assert {sample.device for sample in anew} == {THIRD}
    assert [key.partition("{")[0] for sample in anew for key in sample.m] == ["hw.errors"] * 6
    assert found.lost["meaning", "start"] == 1
    (tmp_path / "loop.txt").write_text(content)
    assert not validate(str(tmp_path / "loop.txt")).findings


def test_a_reset_that_is_asked_for_and_not_done(tmp_path: Path) -> None:
    busy = "    Utilization\n        Gpu                               : 97 %\n    ECC Mode\n"
    reports = [text(30.0 * k, reset="Yes" if k else "No").replace("    ECC Mode\n", busy) for k in range(6)]
    (tmp_path / "loop.txt").write_text("".join(reports))
    found = [finding.requirement for finding in validate(str(tmp_path / "loop.txt")).findings]
    assert found == ["TS-TEL-087"]


def test_a_gpu_that_does_not_answer() -> None:
    line = "Unable to determine the device handle for GPU 0000:48:00.0: GPU is lost.  Reboot the system\n"
    attached = text(num=7).replace(": 7\n", ": 8\n")
    assert "Attached GPUs                             : 8" in attached
    found = read_text(attached + line)
    assert errors(found) == [(0.0, "0000:48:00", "driver:no-handle")]
    assert found.events[0].a["train.error.severity"] == "fatal"
    assert ("device", "attached_gpus") not in found.lost


def test_a_gpu_that_is_no_longer_attached() -> None:
    found = read_text(text(0.0) + text(30.0, num=7) + text(60.0, num=7))
    assert errors(found) == [(30.0, "GPU-00000000-0000-0000-0000-000000000048", "driver:not-attached")]


def test_reports_of_two_machines_in_one_file() -> None:
    other = text(5.0, num=4).replace("GPU-00000000-", "GPU-00000001-")
    assert not errors(read_text(text() + other))


def test_attached_gpus_that_are_not_listed_are_counted(tmp_path: Path) -> None:
    """As of `nvidia-smi -q -i 0`, and of a file that was cut between two GPUs."""
    content = text(num=1).replace(": 1\n", ": 8\n", 1)
    assert read_text(content).lost["device", "attached_gpus"] == 7
    (tmp_path / "first.txt").write_text(content)
    notes = validate(str(tmp_path / "first.txt")).coverage[0].notes
    assert "attached GPUs that the report does not list (7)" in notes


def test_a_report_that_is_cut_off() -> None:
    whole = text()
    found = read_text(text(0.0) + whole[: whole.rindex("    FB Memory Usage")])
    assert [refusal.code for refusal in found.refusals] == ["cut-off"]
    cut = document()[:-30]
    assert [refusal.code for refusal in read_text(cut).refusals] == ["cut-off"]
    assert not read_text(cut).samples


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (text(num=0), "lists no GPU"),
        (text(num=2).replace("08:00.0", "10:00.0").replace("000018", "000010"), "a GPU twice"),
        (document().replace("<uuid>", "<uuid>&evil;"), "entity"),
        (document().replace("</pci>", ""), "XML"),
    ],
)
def test_what_is_no_report_is_refused(content: str, word: str) -> None:
    found = read_text(content)
    assert [word in refusal.message for refusal in found.refusals] == [True]
    assert not found.samples


def test_times() -> None:
    content = text(0.0) + text(0.0) + text(30.0)
    found = read_text(content)
    first = found.heads[0].time_us
    assert [(sample.time_us - first) for sample in found.samples[::8]] == [0, 1, 30_000_000]
    assert (found.losses.clock, read_text(content, utc_offset_seconds=3600).losses.clock) == ("local", "utc")
    assert first - read_text(content, utc_offset_seconds=3600).heads[0].time_us == 3600_000000
    without = read_text(re.sub(r"Timestamp.*\n", "", content), start_us=5)
    assert ({sample.time_us for sample in without.samples}, without.losses.clock) == ({5}, "none")


def test_a_gpu_without_a_uuid_goes_by_its_address() -> None:
    found = read_text(re.sub(r"(GPU UUID +: ).*", r"\1Unknown Error", text()))
    assert found.samples[0].device == "0000:10:00"
    assert ("identity", "device") in found.lost


def test_what_one_gpu_does_not_state_is_asked_of_none(tmp_path: Path) -> None:
    busy = "    Utilization\n        Gpu                               : {}\n    ECC Mode\n"
    gpus = text().split("    ECC Mode\n")
    shares = ["97 %"] * 7 + ["N/A"]
    content = gpus[0] + "".join(busy.format(share) + rest for share, rest in zip(shares, gpus[1:], strict=True))
    assert "hw.gpu.utilization" in read_text(content).heads[0].unsupported
    (tmp_path / "mig.txt").write_text(content)
    assert not validate(str(tmp_path / "mig.txt")).findings


def test_text_and_documents_in_one_file() -> None:
    found = read_text(text() + document(30.0, errors="1") + text(60.0, thermal="Active"))
    assert [code for *_, code in errors(found)] == ["ecc:uncorrected", "throttle:thermal"]
    assert len(found.samples) == 17
    assert len(read_text(document().replace("\n", "") + document(30.0).replace("\n", "") + "\n").samples) == 2


def test_a_log_of_training_that_begins_with_a_report_stays_one() -> None:
    step = b"iter 0: loss 10.8, time 250.00ms\n"
    found = detect(text().encode() + step)
    assert found is not None
    assert found.name == "nanogpt-iterations-log"
    report = detect(text().encode())
    later = detect_beyond([text().encode(), step], report)
    assert later is not None
    assert later.name == "nanogpt-iterations-log"


def test_a_report_is_no_run_of_a_node(tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(text())
    assert run_stream(tmp_path / "smi.txt", tmp_path) is None


def test_words_of_a_document_stay_words() -> None:
    found = read_text(document().replace("GPU-a", escape("<b>")))
    assert found.samples[0].device == "<b>"


def test_a_document_is_imported_as_the_profile_unless_the_stream_is_named(tmp_path: Path) -> None:
    (tmp_path / "smi.xml").write_text(document(errors="3"))
    arguments = ["import", str(tmp_path / "smi.xml")]
    profile = CliRunner().invoke(command, arguments, prog_name=PROGRAM)
    assert "kind: ClusterProfile" in profile.stdout
    assert "--format nvidia-smi-xml reads the errors of its devices" in profile.stderr
    stream = CliRunner().invoke(command, [*arguments, "--format", "nvidia-smi-xml"], prog_name=PROGRAM)
    assert "ecc:uncorrected" in stream.stdout
