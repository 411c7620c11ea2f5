"""Answers of probes are judged against references of the suite's own, and read without trust in their form."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pytest
from conformance_stacks import failed, fake, run
from trainspec_conformance.arrays import packed, unpacked
from trainspec_conformance.criteria import numbers_narrow
from trainspec_conformance.criteria.numbers_noise import readings
from trainspec_conformance.criteria.numbers_planning import operations, world_sizes
from trainspec_conformance.criteria.numbers_training import scales
from trainspec_conformance.history import read_history
from trainspec_conformance.judging import judge_trial
from trainspec_conformance.numerics import all_cases, case_input
from trainspec_conformance.reading import all_scenarios
from trainspec_conformance.suite import ScenarioResult
from trainspec_conformance.trial import HISTORY

from trainspec_validate.documents.types.conformance import StackDescriptor
from trainspec_validate.documents.types.scenario import Probe

SUMS = """
import base64, json, sys
import numpy as np
import psutil
asked = json.load(open(sys.argv[1]))
array = asked["gradients"]
terms = np.frombuffer(base64.b64decode(array["base64"]), "<f4").reshape(array["shape"]).astype(FORMAT)
json.dump({"sum": np.add.reduce(terms, (0, 1)).tolist()}, open(sys.argv[2], "w"), indent=1)
"""


def _stack(code: str) -> StackDescriptor:
    stack = fake()
    launch = msgspec.structs.replace(stack.launch, probe=("{python}", "-c", code, "{input}", "{output}"))
    return msgspec.structs.replace(stack, launch=launch, capabilities=(*stack.capabilities, "probe-reduce"))


def _result(code: str, out: Path) -> ScenarioResult:
    (result,) = run(_stack(code), out, all_scenarios()["reduction-precision"])
    return result


def test_an_answer_of_several_lines_is_judged_and_judged_again(tmp_path: Path) -> None:
    result = _result(SUMS.replace("FORMAT", "np.float64"), tmp_path)
    assert result.state == "pass", failed(result)
    entries = read_history(result.trials[0].directory / HISTORY)
    again = judge_trial(_stack(""), result.scenario, entries, None)
    assert all(judged.passed for judged in again)


def test_a_sum_that_is_too_coarse_fails(tmp_path: Path) -> None:
    assert "sum-as-declared" in failed(_result(SUMS.replace("FORMAT", "np.float16"), tmp_path))


def test_what_the_stack_says_it_has_no_code_for_is_unsupported(tmp_path: Path) -> None:
    code = 'import json, sys; json.dump({"unsupported": "no sums here"}, open(sys.argv[2], "w"))'
    result = _result(code, tmp_path)
    assert result.state == "unsupported"
    assert "no sums here" in result.reason
    assert not result.trials[0].passed


WRONG = {
    "it fails": "raise SystemExit(7)",
    "it writes nothing": "",
    "no JSON": 'import sys; open(sys.argv[2], "w").write("{")',
    "no text": 'import sys; open(sys.argv[2], "wb").write(b\'{"sum": "\\xff"}\')',
    "endless": 'import sys; open(sys.argv[2], "w").write("[" * 200_000)',
    "deep": 'import sys; open(sys.argv[2], "w").write(\'{"sum": \' + "[" * 900 + "]" * 900 + "}")',
    "no object": 'import sys; open(sys.argv[2], "w").write("[1]")',
    "no key": 'import sys; open(sys.argv[2], "w").write("{}")',
    "other shape": 'import sys; open(sys.argv[2], "w").write(\'{"sum": [1, 2]}\')',
    "no numbers": 'import sys; open(sys.argv[2], "w").write(\'{"sum": {"dtype": "object", "shape": []}}\')',
}


@pytest.mark.parametrize("code", WRONG.values(), ids=WRONG)
def test_an_answer_of_another_form_is_a_failure_and_no_error(code: str, tmp_path: Path) -> None:
    result = _result(code, tmp_path)
    assert result.state == "fail"
    assert "sum-as-declared" in failed(result)


@pytest.mark.parametrize("name", sorted(all_cases()))
def test_inputs_follow_the_seed_and_are_used(name: str) -> None:
    assert msgspec.json.encode(case_input(name, 5)) == msgspec.json.encode(case_input(name, 5))
    users = [one for one in all_scenarios().values() if Probe(case=name) in one.acts]
    assert users
    assert all(name in {criterion.case for criterion in one.criteria} for one in users)


def test_arrays_come_back_as_they_were() -> None:
    values = np.array([[1.5, -2.0], [0.0, 3e-300]])
    assert (unpacked(json.loads(json.dumps(packed(values)))) == values).all()
    assert (unpacked([[1.5, -2], [0, 3e-300]]) == values).all()
    assert math.isnan(unpacked(["NaN", None])[1])
    for wrong in ({"dtype": "float64"}, [[1], [1, 2]], ["word"], {"dtype": "float64", "shape": [3], "base64": "AAAA"}):
        with pytest.raises(ValueError, match=r"."):
            unpacked(wrong)


def test_the_reference_of_noise_knows_the_example_of_the_specification() -> None:
    signal, noise, norm = readings(np.array([[[5.0], [1.0]]]), np.array([1.0, 3.0]))
    assert (signal[0], noise[0], norm[0]) == (1.0, 12.0, 2.0)


def test_the_reference_of_the_loss_scale_tolerates_and_grows() -> None:
    rule = {"initial_scale": 8, "growth_factor": 2, "backoff_factor": 0.5, "growth_interval_steps": 2}
    path = scales({**rule, "hysteresis_steps": 1, "min_scale": 4}, [True, True, True, False, False, True, True])
    assert path == [8, 8, 4, 4, 4, 8, 8, 4]


def test_the_references_of_planning_know_published_examples() -> None:
    asked = {"global_sequences": 12, "micro_sequences": [1, 2], "min_accelerators": 24, "max_accelerators": 48}
    assert world_sizes({**asked, "model_parallel": 8, "ranks_per_node": 8}) == [24, 32, 48]
    gpt3 = {"num_layers": 96, "hidden_size": 12288, "num_attention_heads": 96, "ffn_hidden_size": 49152}
    model = {**gpt3, "vocabulary_size": 51200, "tied_embeddings": True}
    found = operations({"model": model, "convention": "6n-full-attention", "sequence_length": 2048})
    printed = 72 * 96 * 12288**2 * (1 + 2048 / (6 * 12288) + 51200 / (12 * 12288 * 96))
    assert found == pytest.approx(printed, rel=1e-4)


@pytest.mark.slow
def test_a_process_that_a_probe_leaves_is_ended(tmp_path: Path) -> None:
    code = "import subprocess, sys; print(subprocess.Popen(['sleep', '60']).pid, file=open(sys.argv[2] + '.pid', 'w'))"
    result = _result(code, tmp_path)
    told = [int(path.read_text()) for path in result.trials[0].directory.glob("*.pid")]
    assert told
    running = [one for one in psutil.process_iter(["pid", "status"]) if one.info["pid"] in told]
    assert not [one for one in running if one.info["status"] != psutil.STATUS_ZOMBIE]


def test_numbers_of_four_bits_are_those_that_ocp_lists() -> None:
    assert numbers_narrow.E2M1.all().tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


@pytest.mark.parametrize(
    ("numbers", "library_type"),
    [
        (numbers_narrow.E4M3, "float8_e4m3fn"),
        (numbers_narrow.E5M2, "float8_e5m2"),
        (numbers_narrow.E2M1, "float4_e2m1fn"),
    ],
)
def test_narrow_numbers_are_those_of_a_library(numbers: numbers_narrow.Numbers, library_type: str) -> None:
    library = pytest.importorskip("ml_dtypes")
    positive = np.arange(2 ** (numbers.num_exponent_bits + numbers.num_mantissa_bits), dtype=np.uint8)
    wanted = positive.view(getattr(library, library_type)).astype(np.float64)
    assert numbers.all().tolist() == wanted[np.isfinite(wanted)].tolist()
    assert numbers.smallest_normal == float(library.finfo(getattr(library, library_type)).smallest_normal)
