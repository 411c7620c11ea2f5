"""Memory of the PyTorch backend: tensors that live are counted, and a step is predicted without data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from trainspec_conformance.testbed import probe_runs, resident  # noqa: E402
from trainspec_conformance.testbed.probe_arrays import Request  # noqa: E402
from trainspec_conformance.testbed.probe_parts import UnsupportedError  # noqa: E402
from trainspec_conformance.testbed.torch.memory import LiveTensors, predicted_bytes  # noqa: E402
from trainspec_conformance.testbed.torch.probes import BackendProbes  # noqa: E402
from trainspec_reference.common.job import Job, ModelShape, Rates  # noqa: E402
from trainspec_reference.torch.models import make_model  # noqa: E402
from trainspec_reference.torch.parts import Part  # noqa: E402
from trainspec_reference.torch.passes import loss_sum  # noqa: E402

KIB = 1024


def job(num_layers: int = 1, length: int = 64, samples: int = 8) -> Job:
    shape = replace(probe_runs._SHAPE, num_layers=num_layers, hidden_size=32, sequence_length=length)
    return probe_runs._job(shape, Rates(), num_steps=1, sequences=samples)


def test_tensors_count_as_long_as_they_live() -> None:
    with LiveTensors() as live:
        one = torch.zeros(KIB, dtype=torch.float32)
        both = torch.cat((one, one))
        half = both[:KIB]
        assert live.take_peak() == 12 * KIB
        del one, both
        assert live.take_peak() == 12 * KIB, "the peak begins with what lived when it was taken"
        assert live.take_peak() == 8 * KIB, "a view keeps all of its storage"
        del half
        live.take_peak()
        assert live.take_peak() == 0


@pytest.mark.slow
def test_each_position_and_each_layer_is_predicted_alike() -> None:
    layers = [predicted_bytes(job(num_layers=number)) for number in (1, 2, 3)]
    assert layers[2] - layers[1] == layers[1] - layers[0] > 0
    samples = [predicted_bytes(job(samples=number)) for number in (8, 16, 24)]
    assert samples[2] - samples[1] == pytest.approx(samples[1] - samples[0], rel=1e-3)


def test_a_longer_sequence_takes_a_pass_more_of_its_recurrence() -> None:
    one, two, three = (predicted_bytes(job(length=length)) for length in (64, 128, 256))
    assert three - two > 2 * (two - one) > 0


@pytest.mark.slow
def test_peaks_of_steps_are_equal_and_no_less_than_a_part_of_the_prediction(tmp_path: Path) -> None:
    question = {"operation": "peaks", "num_layers": 1, "hidden_size": 32, "sequence_length": 64}
    source, probes = tmp_path / "in.json", BackendProbes()
    source.write_text(json.dumps({**question, "global_sequences": 8, "num_steps": 4}))
    try:
        peaks = probe_runs.peaks(Request.read(source), "torch", probes)["peak_bytes"]
    finally:
        if probes._live is not None:
            probes._live.__exit__(None, None, None)
    assert peaks[3] == pytest.approx(max(peaks[:3]), rel=0.01)
    assert 0.5 * predicted_bytes(job()) < peaks[3] < 1.5 * predicted_bytes(job())


def test_a_system_that_does_not_tell_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resident.resident_bytes() > 10 << 20
    monkeypatch.setattr(resident, "_STATUS", tmp_path / "absent")
    with pytest.raises(UnsupportedError, match="does not report"):
        resident.resident_bytes()
    (tmp_path / "absent").write_text("Name: x\n")
    with pytest.raises(UnsupportedError, match="VmRSS"):
        resident.resident_bytes()


def test_attention_is_predicted_without_its_scores() -> None:
    """The fused kernel of a processor keeps what one of an accelerator keeps, so that both counts agree."""
    text = ModelShape(
        num_layers=1, hidden_size=32, num_heads=2, ffn_hidden_size=64, vocabulary_size=64, sequence_length=512
    )
    of_text = replace(job(), model=text)
    model, samples = make_model(text, Part()), of_text.plan.batch.micro_sequences
    tokens = torch.zeros((samples, 512), dtype=torch.int64)
    for parameter in model.parameters():
        torch.nn.init.zeros_(parameter)
    with LiveTensors() as live:
        loss_sum(model(tokens), tokens).backward()  # type: ignore[no-untyped-call]
    state = sum(one.numel() * one.element_size() for one in model.parameters())
    assert predicted_bytes(of_text) == pytest.approx(live.peak_bytes + 3 * state, rel=0.01)
    assert predicted_bytes(of_text) < samples * 2 * 512 * 512 * 4, "the scores of all heads alone"
