from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_machines import h100_node
from recorded_nvml import binding, recorded

from tests.examples import examples
from trainspec_validate.interop.discover import LocalMachine, RecordedMachine, discover
from trainspec_validate.interop.discover.machine import Machine
from trainspec_validate.interop.discover.nvml import survey
from trainspec_validate.interop.document import document, facts_of
from trainspec_validate.interop.fragment import Fragment
from trainspec_validate.interop.merge import merge
from trainspec_validate.interop.shape import fitting

HERE = Path(__file__).parent
MATRIX = ("nvidia-smi", "topo", "-m")


def asked(calls: Any, machine: RecordedMachine | None = None) -> dict[str, Fragment]:
    """Fragments of a machine on which the binding is installed."""
    text = json.dumps(survey(binding(calls)))
    return described(replace(machine or RecordedMachine(), nvml_survey=text))


def described(machine: Machine) -> dict[str, Fragment]:
    found = {fragment.format: fragment for fragment in discover(machine)}
    for fragment in found.values():
        assert fitting("ClusterProfile", fragment.facts) == (fragment.facts, [])
    return found


def group(fragment: Fragment) -> dict[str, Any]:
    [only] = fragment.facts["node_groups"]
    return dict(only)


def told(fragment: Fragment) -> str:
    return "\n".join(remark.message for remark in fragment.remarks)


def unknown(fragment: Fragment) -> dict[str, str]:
    return {".".join(map(str, item.pointer[2:])): item.reason for item in fragment.unknown}


def test_both_ways_describe_the_same_cluster() -> None:
    tools = discover(h100_node())
    library = discover(replace(h100_node(), nvml_survey=json.dumps(survey(binding(recorded("h100"))))))
    assert [fragment.format for fragment in tools[1:]] == ["nvidia-smi-query-csv", "nvidia-smi-topology-matrix"]
    assert [fragment.format for fragment in library[1:]] == ["nvml"]
    one, other = merge(tools), merge(library)
    assert facts_of(one) == facts_of(other)
    assert facts_of(one)["node_groups"][0]["scale_up"]["num_links"] == 18
    assert {entry.pointer for entry in one.unknown} == {entry.pointer for entry in other.unknown}
    assert [entry.remark.message for entry in one.remarks] == [entry.remark.message for entry in other.remarks]
    assert "#   NVML through nvidia-ml-py (nvml)\n" in document(other, "discover")
    assert "nvidia-smi" not in document(other, "discover").split("apiVersion")[0]


def test_what_the_library_tells_of_a_node() -> None:
    found = asked(recorded("h100"))["nvml"]
    assert group(found) == {
        "name": "nodes",
        "accelerator": {"model": "nvidia-h100-sxm-80gb", "vendor": "nvidia", "power_watts": 700.0},
        "num_accelerators_per_node": 8,
        "host_link": {"technology": "pcie", "generation": 5, "num_lanes": 16},
        "scale_up": {"technology": "nvlink", "topology": "switched", "num_links": 18, "domain_num_accelerators": 8},
    }
    assert found.facts["software"] == {"driver": {"name": "nvidia", "version": "550.90.07"}}
    assert found.remarks == ()
    assert unknown(found)["accelerator.memory_bytes"].startswith("left to the catalog")


def test_links_that_lead_from_accelerator_to_accelerator() -> None:
    found = asked(recorded("v100-direct"))["nvml"]
    scale_up = {"technology": "nvlink", "topology": "hybrid-mesh", "num_links": 6, "domain_num_accelerators": 8}
    assert group(found)["scale_up"] == scale_up
    assert group(found)["accelerator"]["model"] == "nvidia-v100-sxm2-32gb"
    assert found.remarks == ()


def test_two_of_eight_accelerators_know_that_their_links_go_through_switches() -> None:
    found = asked(recorded("h100", nvmlDeviceGetCount={"": 2}))["nvml"]
    assert group(found)["scale_up"]["topology"] == "switched"
    assert group(found)["scale_up"]["domain_num_accelerators"] == 2


def test_links_to_accelerators_that_are_not_listed_leave_the_shape_open() -> None:
    found = asked(recorded("v100-direct", nvmlDeviceGetCount={"": 4}))["nvml"]
    expected = {"technology": "nvlink", "num_links": 6, "domain_num_accelerators": 4}
    assert group(found)["scale_up"] == expected
    assert "some NVLinks lead to accelerators that are not listed" in told(found)
    assert "scale_up.topology" in unknown(found)


def test_mig_and_what_it_does_to_links() -> None:
    found = asked(recorded("a100-mig"))["nvml"]
    assert "MIG is enabled, so that jobs see parts of an accelerator" in told(found)
    assert "the driver lets no two accelerators reach each other" in unknown(found)["scale_up"]
    assert group(found)["accelerator"]["power_watts"] == 400.0
    assert "nvmlDeviceGetPowerManagementLimit: NoPermission (4 times)" in told(found)
    off = asked(recorded("a100-mig", nvmlDeviceGetMigMode={"*": [0, 0]}, nvmlDeviceGetP2PStatus={"* * 2": 0}))["nvml"]
    assert "MIG" not in told(off)
    assert group(off)["scale_up"]["num_links"] == 12


def test_links_that_are_down() -> None:
    states = {"3 0": 0, "3 1": 0, **recorded("h100")["nvmlDeviceGetNvLinkState"]}
    found = asked(recorded("h100", nvmlDeviceGetNvLinkState=states))["nvml"]
    assert "accelerator-3: 16 of 18 NVLinks are active" in told(found)
    assert "pairs differ in NVLinks: NV16, NV18; links may be down" in told(found)
    assert group(found)["scale_up"]["topology"] == "switched"
    assert "scale_up.num_links" in unknown(found)
    none = asked(recorded("h100", nvmlDeviceGetNvLinkState={"* *": 0}))["nvml"]
    assert unknown(none)["scale_up"] == "NVML shows no active NVLink"


def test_links_whose_far_end_stays_hidden_are_read_like_the_matrix() -> None:
    hidden = {"* *": "NVMLError_NotSupported"}
    far = {"nvmlDeviceGetNvLinkRemoteDeviceType": hidden, "nvmlDeviceGetNvLinkRemotePciInfo": hidden}
    found = asked(recorded("h100", **far))["nvml"]
    assert group(found)["scale_up"]["topology"] == "switched"
    silent = asked(recorded("h100", **far, nvmlDeviceGetP2PStatus={"* * *": "NVMLError_Unknown"}))["nvml"]
    assert "scale_up" not in group(silent)


def test_the_memory_of_a_coherent_host_leaves_the_domain_open() -> None:
    found = asked(recorded("h100", nvmlDeviceGetNumaNodeId={"*": 4}))["nvml"]
    assert "domain_num_accelerators" not in group(found)["scale_up"]
    assert "coherent hosts may span nodes" in unknown(found)["scale_up.domain_num_accelerators"]


def test_a_lost_accelerator_is_counted_and_told() -> None:
    lost = {"5": "NVMLError_GpuIsLost", "*": None}
    found = asked(recorded("h100", nvmlDeviceGetHandleByIndex=lost), h100_node())
    assert group(found["nvml"])["num_accelerators_per_node"] == 8
    assert "accelerator-5: NVML does not open the device" in told(found["nvml"])
    assert "nvmlDeviceGetHandleByIndex: GpuIsLost (1 times)" in told(found["nvml"])
    assert facts_of(merge(list(found.values())))["node_groups"][0]["accelerator"]["model"] == "nvidia-h100-sxm-80gb"


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ({"nvmlInit": {"": "NVMLError_DriverNotLoaded"}}, "gave no answer: DriverNotLoaded"),
        ({"nvmlDeviceGetCount": {"": "NVMLError_Unknown"}}, "gave no answer: nvmlDeviceGetCount: Unknown"),
        ({"nvmlDeviceGetCount": {"": 0}}, "gave no answer: lists 0 devices"),
    ],
)
def test_where_the_library_fails_the_tool_is_asked(calls: Any, words: str) -> None:
    found = asked(recorded("h100", **calls), h100_node())
    assert list(found) == ["linux-kernel", "nvidia-smi-query-csv", "nvidia-smi-topology-matrix"]
    assert f"NVML {words}; nvidia-smi is asked instead" in told(found["linux-kernel"])


@pytest.mark.parametrize("text", ["", "\x00", "[]", "{}", '{"devices": 7}', "[" * 100_000, '{"devices": []}'])
def test_a_library_that_crashed_is_told(text: str) -> None:
    found = described(replace(h100_node(), nvml_survey=text))
    assert list(found)[1:] == ["nvidia-smi-query-csv", "nvidia-smi-topology-matrix"]
    assert "nvidia-smi is asked instead" in told(found["linux-kernel"])


def test_a_machine_without_the_driver_is_no_failure() -> None:
    found = asked(recorded("h100", nvmlInit={"": "NVMLError_LibraryNotFound"}))
    assert list(found) == ["linux-kernel"]
    assert "NVML" not in told(found["linux-kernel"])


ERRORS = ("NotSupported", "NoPermission", "GpuIsLost", "Unknown", "Timeout", "FunctionNotFound", "LibRmVersionMismatch")


@pytest.mark.parametrize("name", ["h100", "v100-direct", "a100-mig"])
@pytest.mark.parametrize("error", ERRORS)
def test_no_error_of_a_single_call_stops_discovery(name: str, error: str) -> None:
    for function, answers in recorded(name).items():
        parts = {len(known.split()) for known in answers}
        raised = {" ".join(["*"] * max(parts)): f"NVMLError_{error}"}
        assert asked(recorded(name, **{function: raised}))["linux-kernel"]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JUNK = st.recursive(VALUES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner))


@pytest.mark.slow
@examples(150)
@given(st.data())
def test_garbage_in_a_survey_never_stops_discovery(data: st.DataObject) -> None:
    found = survey(binding(recorded("a100-mig")))
    for _ in range(3):
        place: Any = found
        while isinstance(place, dict | list) and place:
            keys = sorted(place) if isinstance(place, dict) else range(len(place))
            key = data.draw(st.sampled_from(list(keys)))
            if data.draw(st.booleans()) or not isinstance(place[key], dict | list):
                place[key] = data.draw(JUNK)
                break
            place = place[key]
    assert described(RecordedMachine(nvml_survey=json.dumps(found)))["linux-kernel"]


def installed(directory: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> LocalMachine:
    """The local machine with a binding of our own."""
    source = f"import sys\nsys.path.append({str(HERE)!r})\n{body}\n"
    (directory / "pynvml.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(directory))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(directory), *filter(None, sys.path)]))
    return LocalMachine(root=directory, timeout_seconds=30)


PLAYED = "from recorded_nvml import binding, recorded\nsys.modules[__name__] = binding(recorded('h100'))"


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="programs are started on POSIX systems alone")
def test_the_library_is_asked_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = installed(tmp_path, monkeypatch, PLAYED)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)  # another test may have loaded the real one
    assert json.loads(machine.nvml() or "") == json.loads(json.dumps(survey(binding(recorded("h100")))))
    assert "pynvml" not in sys.modules
    for body in ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "import time\ntime.sleep(60)"):
        broken = installed(tmp_path, monkeypatch, body)
        assert replace(broken, timeout_seconds=2).nvml() == ""
    failing = installed(tmp_path, monkeypatch, "raise RuntimeError('too old for this interpreter')")
    assert json.loads(failing.nvml() or "") == {"error": "too old for this interpreter"}


@pytest.mark.skipif(os.name != "posix", reason="programs are started on POSIX systems alone")
def test_no_library_of_the_working_directory_is_run(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("raise SystemExit('was run')", encoding="utf-8")
    call = "from trainspec_validate.interop.discover import LocalMachine; print(repr(LocalMachine().nvml() or ''))"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '')\n{call}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "was run" not in done.stdout + done.stderr
    assert not (tmp_path / "__pycache__").exists()


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_an_isolated_interpreter_starts_one_that_is(tmp_path: Path) -> None:
    for name in ("pynvml", "json", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()", encoding="utf-8")
    call = "from trainspec_validate.interop.discover import LocalMachine; LocalMachine().nvml()"
    variables = {**os.environ, "PYTHONPATH": "."}
    subprocess.run([sys.executable, "-I", "-c", call], cwd=tmp_path, env=variables, check=True)
    assert not (tmp_path / "mark").exists()


@pytest.mark.skipif(find_spec("pynvml") is None, reason="needs nvidia-ml-py")
def test_the_library_has_the_functions_that_are_called() -> None:
    import pynvml

    called = {name for name in recorded("h100") if name.startswith("nvml")} | {"nvmlDeviceGetEnforcedPowerLimit"}
    assert not [name for name in called if not hasattr(pynvml, name)]
    assert pynvml.NVML_P2P_CAPS_INDEX_NVLINK == 2
    assert {name for name in ("NVMLError_NotSupported", "NVMLError_LibraryNotFound") if hasattr(pynvml, name)}
