"""Names of hosts, devices and emitters are hidden by a keyed hash, and texts that can hold them."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest

import trainspec_record
from trainspec_record.redaction import Redaction, read_key
from trainspec_record.values import key

from .recorded import errors, events, finish, records

SECRET = "0123456789abcdef0123456789abcdef"
SCRIPT = """
import trainspec_record
with trainspec_record.run(device="GPU-77") as run:
    drained = {"host.id": "node-17", "train.reason": "someone@example.org called"}
    run.event("train.node.drained", drained, identifier="drain-1")
    run.event("train.node.returned", {"host.id": "node-17"}, identifier="drain-1")
    for number in range(5):
        with run.step(number):
            run.log(loss=2.0 + number * 1e-3, samples=8, learning_rate=1e-3, gradient_norm=1 + number * 1e-3)
    with run.checkpoint("/mnt/home/someone/step-5"):
        pass
    with run.fault("process", component="node-17", reason="open('/mnt/home/someone/x') failed on node-17"):
        pass
    with run.step(5):
        run.log(loss=2.1, samples=8, learning_rate=1e-3, gradient_norm=1.2)
    raise KeyError("password of someone")
"""
AGAIN = """
import trainspec_record
with trainspec_record.run(device="GPU-77") as run:
    with run.restore("/mnt/home/someone/step-5", 5):
        pass
    for number in range(5, 9):
        with run.step(number):
            run.log(loss=2.1 + number * 1e-3, samples=8, learning_rate=1e-3, gradient_norm=1.3 + number * 1e-3)
"""


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    return path


def hidden(text: str) -> str:
    return "h:" + hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]


def test_a_run_is_written_without_names(folder: Path, key_file: Path) -> None:
    told = {"TRAINSPEC_REDACT": str(key_file), "TRAINSPEC_HOST": "node-17", "TRAINSPEC_NODE_SAMPLER": "thread"}
    finish(SCRIPT, folder, code=1, **told)
    finish(AGAIN, folder, **told)
    content = "".join(f"{path.name}\n{path.read_text()}" for path in folder.iterdir())
    for name in ("node-17", "GPU-77", "someone", "password", "/mnt"):
        assert name not in content
    for path in folder.iterdir():
        head = records(path)[0]
        assert head["redaction"] == "keyed-hash"
        assert head["emitter"].startswith("h:")
    head = records(folder / "rank-000000.0.jsonl")[0]
    assert (head["host"], head["device"]) == (hidden("node-17"), hidden("GPU-77"))
    assert head["emitter"] == hidden("rank-000000")
    assert (folder / f"node-{hidden('node-17').replace(':', '-')}.0.jsonl").exists()
    assert not errors(folder)


def test_what_was_joined_stays_joined(folder: Path, key_file: Path) -> None:
    finish(SCRIPT, folder, code=1, TRAINSPEC_REDACT=str(key_file), TRAINSPEC_HOST="node-17")
    job = folder / "job.0.jsonl"
    begun, committed = events(job, "train.checkpoint.begin") + events(job, "train.checkpoint.commit")
    place = hidden("/mnt/home/someone/step-5")
    assert begun["id"] == committed["id"] == committed["a"]["train.checkpoint.id"] == place
    mended, ended = events(job, "train.fault.detected")
    assert mended["a"]["train.fault.component"] == records(folder / "rank-000000.0.jsonl")[0]["host"]
    assert mended["a"]["train.reason"] == hidden("open('/mnt/home/someone/x') failed on node-17")
    assert ended["a"]["train.reason"] == "KeyError ended the program"  # the recorder's own words


@pytest.mark.parametrize("content", ["", "short", None])
def test_without_a_key_nothing_is_written(folder: Path, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    told = finish("import trainspec_record\ntrainspec_record.run().end()", folder, TRAINSPEC_REDACT=str(path))
    assert not folder.exists()
    assert "ValueError" in told
    with pytest.raises(ValueError, match=r"cannot be read|16 or more"):
        read_key(path)


def test_a_program_can_ask_for_it(folder: Path, key_file: Path) -> None:
    with trainspec_record.run(redaction_key=key_file):
        pass
    assert records(folder / "job.0.jsonl")[0]["redaction"] == "keyed-hash"


def test_without_asking_names_are_written(folder: Path) -> None:
    with trainspec_record.run():
        pass
    head = records(folder / "rank-000000.0.jsonl")[0]
    assert head["host"] == "node-1"
    assert "redaction" not in head


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/run/step", "/home/a/b", "C:\\runs\\a", "~/key", "10.1.2.3:29500", "\\\\server\\share"],
)
def test_places_are_hidden_wherever_they_stand(text: str) -> None:
    redaction = Redaction(SECRET.encode())
    assert redaction.text(text) == hidden(text)
    assert redaction.text(f"read of {text} failed") == f"read of {hidden(text)} failed"


@pytest.mark.parametrize("text", ["fault-1/restart/1", "plan.yaml sha256:ab12", "6n", "3/4", "1.2.3", "utc-ntp"])
def test_other_words_stay(text: str) -> None:
    assert Redaction(SECRET.encode()).text(text) == text


def test_hosts_are_hidden_in_texts_and_keys_and_only_once() -> None:
    redaction = Redaction(SECRET.encode())
    series = key("train.network.latency", train__network__source="n-1", train__network__target="n-2")
    told = redaction.record({"host": "n-1", "m": {series: 1.0}, "a": {"train.evaluation.set": "set of n-1, not n-11"}})
    assert told["host"] == hidden("n-1")
    assert list(told["m"]) == [
        f"train.network.latency{{train.network.source={hidden('n-1')},train.network.target={hidden('n-2')}}}"
    ]
    assert told["a"] == {"train.evaluation.set": f"set of {hidden('n-1')}, not n-11"}
    assert redaction.name(hidden("n-1")) == hidden("n-1")


def test_a_word_of_the_catalog_is_no_name() -> None:
    told = Redaction(SECRET.encode()).record({"host": "fault", "a": {"train.attempt.reason": "fault"}})
    assert told["a"] == {"train.attempt.reason": "fault"}
    assert json.dumps(told).count(hidden("fault")) == 1
