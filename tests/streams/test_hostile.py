"""Whatever a file holds, a reader ends, gives sound records only, and says what it refused."""

from __future__ import annotations

import json

import pytest
from any_records import streams
from hypothesis import example, given
from hypothesis import strategies as st
from otlp_documents import gauge, histogram, logs, metrics, point, total
from reading import assert_sound, read_bytes, read_text
from test_formats import STARTS

from tests.examples import examples
from trainspec_validate.documents.types.stream import encode_record
from trainspec_validate.telemetry.formats import FORMATS, Record, SourceError, parquet, read
from trainspec_validate.telemetry.formats.json_text import decode, open_brackets
from trainspec_validate.telemetry.formats.otlp.write import write as write_otlp
from trainspec_validate.telemetry.formats.source import MAX_LINE_BYTES

TEXTS = sorted(name for name, entry in FORMATS.items() if not entry.is_binary)
LINES = {
    **{name: STARTS[name].decode() for name in TEXTS},
    "metric-stream": '{"k":"m","time_us":1,"seq":0,"m":{"train.step.count":1.0}}\n',
    "otlp": metrics(gauge("train.learning_rate", point(0.5, attributes={"step": 1})), resource={"host.id": "n"}),
    "prometheus": 'hw_power_watts{hw_id="a",le="+Inf"} 1 5\n# TYPE a gauge\n',
    "mllog": ':::MLLOG {"key": "tracked_stats", "time_ms": 5, "value": {"train_loss": 1}, "metadata": {"step": 5}}\n',
    "torchtitan": '{"rank": 0, "log_type_name": "step_end", "time_us": 5, "seq_id": 0, "step": 3, "value": 5}\n',
    "megatron-log": " iteration 10/ 100 | consumed samples: 640 | lm loss: 1.0E+00 |\n",
    "alibaba-minibatch": ",worker,gpu,time,batch_time_norm\n0,0,25,1,476\n1,1,25,1,40\n",
}
NUMBERS = [
    "1e999",
    "-1",
    "0",
    "NaN",
    "Infinity",
    "1" * 5_000,
    "1e400",
    "99999999999999999999",
    "null",
    '"x"',
    "[]",
    "{}",
    "true",
]


@pytest.mark.parametrize("name", TEXTS)
@examples(60)
@given(content=st.binary(max_size=300))
@example(content=b"a\rb\n\r\x00")
def test_any_bytes(name: str, content: bytes) -> None:
    read_bytes(content, name)


@pytest.mark.parametrize("name", TEXTS)
@examples(100)
@given(data=st.data())
def test_lines_with_something_wrong(name: str, data: st.DataObject) -> None:
    """Lines in which one piece is cut out, doubled or replaced."""
    text = LINES[name] * 2
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        text = (
            text[:start] + data.draw(st.sampled_from([*NUMBERS, "", text[start:end] * 2, "\n", '"', "}"])) + text[end:]
        )
    read_text(text, name)


@pytest.mark.parametrize("name", TEXTS)
def test_every_number_replaced(name: str) -> None:
    text = LINES[name]
    for place, letter in enumerate(text):
        if letter.isdigit():
            for number in NUMBERS:
                read_text(text[:place] + number + text[place + 1 :], name)


@pytest.mark.parametrize("name", TEXTS)
def test_every_prefix(name: str) -> None:
    text = LINES[name]
    for end in range(len(text)):
        read_text(text[:end], name)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("inner", ["[" * 100_000, '{"a":' * 100_000, "[" * 2_000 + "]" * 2_000])
def test_deep_values(name: str, inner: str) -> None:
    start = LINES[name].split(":", 1)[0] if name != "mllog" else ":::MLLOG "
    found = read_text(f"{start}{inner}\n", name)
    assert not found.samples or name in {
        "megatron-log",
        "prometheus",
        "alibaba-minibatch",
        "lightning-csv",
        "wandb-panel",
        "build-nanogpt-file",
        "llmc-console-log",
        "epoch-csv",
    }


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("piece", ["a", '"', '{"a":', "| a: 1 "])
def test_a_line_of_ten_megabytes(name: str, piece: str) -> None:
    """A quadratic reader would take hours."""
    found = read_text(LINES[name].rstrip("\n") + piece * (10_000_000 // len(piece)) + "\n" + LINES[name], name)
    assert found.losses


@pytest.mark.parametrize("name", TEXTS)
def test_a_line_beyond_the_limit_is_refused_and_the_next_is_read(name: str) -> None:
    found = read_bytes(b"x" * (MAX_LINE_BYTES + 5) + b"\n" + LINES[name].encode(), name)
    assert next(refusal.code for refusal in found.refusals) == "size"
    if name not in {
        "alibaba-minibatch",
        "crash-log",
        "mlflow-metric",
    }:  # the second has the name of its metric from its file
        assert found.records
        assert min(offset for offset, item in found.items if item in found.records) > MAX_LINE_BYTES


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_not_utf8_is_refused_with_its_place(name: str) -> None:
    found = read_bytes(b"\n" + FORMATS[name].mark + b"\xff\xfe\n", name)
    told = [(1, "byte 0xff is not UTF-8")]
    if name == "metric-stream":  # as strict as validating it
        told = [(0, "the line is empty"), (1, "byte 1 is not UTF-8")]
    if name == "crash-log":  # whatever a program prints, nothing of it is a record
        told = []
    assert [(offset, item.message) for offset, item in found.items if item in found.refusals] == told  # type: ignore[union-attr]


@pytest.mark.parametrize("name", TEXTS)
def test_many_small_losses_are_bounded(name: str) -> None:
    text = {
        "otlp": "".join(metrics(gauge(f"name.{n}", point(1.0))) for n in range(2_000)),
        "prometheus": "".join(f"name_{n} 1\n" for n in range(2_000)),
        "mllog": "".join(f':::MLLOG {{"key": "k{n}", "time_ms": 5}}\n' for n in range(2_000)),
    }.get(name, LINES[name])
    assert len(read_text(text, name).losses.entries) <= 1_001


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 1}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 500 + "}",
        "{" * 100_000,
    ],
)
def test_json_that_is_refused(text: str) -> None:
    from trainspec_validate.telemetry.formats import Refusal

    assert isinstance(decode(text), Refusal)


@given(
    st.recursive(
        st.integers() | st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_brackets_balance(value: object) -> None:
    text = json.dumps(value)
    assert open_brackets(text, 0) == 0
    depth = 0
    for line in json.dumps(value, indent=1).splitlines():
        depth = open_brackets(line, depth)
        assert depth >= 0
    assert depth == 0


@examples(60)
@given(stream=streams, data=st.data())
def test_our_own_otlp_with_something_wrong(stream: list[Record], data: st.DataObject) -> None:
    text = b"\n".join(write_otlp(stream)).decode()
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    changed = text[:start] + data.draw(st.sampled_from([*NUMBERS, "", '"trainspec.seq"', "\n"])) + text[end:]
    items = list(read(enumerate(changed.encode().split(b"\n")), "file", FORMATS["otlp"]))
    for _, entry in items:
        if hasattr(entry, "time_us"):
            assert encode_record(entry)


def test_many_metrics_and_odd_events_of_one_line() -> None:
    entry = histogram("train.step.duration", {"timeUnixNano": "1000", "count": "1", "sum": 1.0})
    found = read_text(metrics(*[entry, total("hw.energy", point(1.0), unit="J")] * 3_000) + logs(*[{}] * 3_000))
    assert_sound(found)
    assert len(found.values("train.step.duration")) == 3_000


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"\0" * 100 + b"PAR1", b"PAR1\xff\xff\xff\xffPAR1"])
def test_damaged_parquet_is_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("twin") / "file"
    path.write_bytes(content)
    with pytest.raises(SourceError, match="no sound Parquet"):
        list(parquet.read(path))


def test_foreign_parquet_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path_factory.mktemp("twin") / "file"
    mark = {parquet.MARK: parquet.VERSION}
    whole = {name: pa.array([1]) for name in ("time_us", "seq", "att", "step", "rank")}
    texts = {"host": pa.array(["a"]), "device": pa.array(["a"]), "emitter": pa.array(["a"])}
    sound = {**whole, **texts, "train.step.count": pa.array([1.0]), "json": pa.array([None], pa.string())}
    for table, words in (
        (pa.table(sound), "is no metric stream"),
        (pa.table(sound | {"time_us": ["a"]}).replace_schema_metadata(mark), "time_us is absent or of another type"),
        (pa.table(sound | {"x.y": ["a"]}).replace_schema_metadata(mark), "x.y is no double"),
        (pa.table(sound | {"host": [5]}).replace_schema_metadata(mark), "host is absent or of another type"),
    ):
        pq.write_table(table, path)
        with pytest.raises(SourceError, match=words):
            list(parquet.read(path))
    odd = pa.table(sound | {"time_us": pa.array([-5]), "json": pa.array(["{"])}).replace_schema_metadata(mark)
    pq.write_table(
        pa.concat_tables([odd, odd.set_column(odd.schema.get_field_index("json"), "json", sound["json"])]), path
    )
    *found, losses = list(parquet.read(path))
    assert [(place, getattr(entry, "code", "")) for place, entry in found] == [(0, "cut-off"), (1, "time")]
    assert losses[1].num_refusals == 2  # type: ignore[union-attr]
