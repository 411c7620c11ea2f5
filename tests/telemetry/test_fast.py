"""The compiled way of reading lines gives what the slow way gives: the same records bit for bit, the same damage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from line_texts import lines

from tests.examples import examples
from trainspec_validate.telemetry.decode.batch import RECORD_COLUMNS, Batch, join
from trainspec_validate.telemetry.decode.line_decoder import BlockDecoder
from trainspec_validate.telemetry.decode.names import Names
from trainspec_validate.telemetry.decode.rows import FileFacts, RowBuilder
from trainspec_validate.telemetry.formats.source import Block
from trainspec_validate.telemetry.kernels import jit

if not jit.can_compile():
    pytest.skip("numba is not installed", allow_module_level=True)

from trainspec_validate.telemetry.decode import fast

HEAD = (
    b'{"k":"head","apiVersion":"trainspec/v1","kind":"MetricStream","run":"r","att":0,"emitter":"job",'
    b'"time_us":1767225600000000,"scopes":["job"],"rank":7,"host":"h-0"}'
)
OTHER_HEAD = HEAD.replace(b'"job"', b'"agent"', 1).replace(b'"h-0"', b'"h-1"')
FACTS = ("heads", "damage", "num_damaged", "first_implicit", "first_record", "other_runs", "spellings", "num_records")
MORE_FACTS = ("attributes", "num_histograms", "tail")
NUMBERS = (
    "0",
    "2.5",
    "-1.25e-3",
    "1e5",
    "123456789.123",
    "0.1",
    "-0",
    "1E+2",
    "5e-324",
    "12345678901234567890",
    "01",
    "1e400",
)
COORDINATES = {
    "step": st.sampled_from(("0", "17", "999999999999", "1000000000000", "-1", "1.0", "null")),
    "att": st.sampled_from(("0", "1", "1000000", "1000001", "2.0")),
    "rank": st.sampled_from(("0", "7", "99999999", "100000000", "007")),
    "emitter": st.sampled_from(('"job"', '"agent"', '"x"', '""', '"\u00e9"', '"a\\u0062"')),
    "host": st.sampled_from(('"h-0"', '"h-1"', '"h-1 "', '"' + "h" * 300 + '"', "1")),
    "device": st.sampled_from(('"GPU-1"', '"GPU-2"', '"a\\nb"')),
    "run": st.sampled_from(('"r"', '"other"')),
    "start_us": st.sampled_from(("1", "9007199254740991", "9007199254740992")),
    "observed_us": st.sampled_from(("5", "-5", "true")),
    "a": st.sampled_from(("{}", '{"train.step.warmup":true}', '{"x":null}')),
}
KEYS = st.sampled_from(
    (
        *("train.loss.mean", "train.step.count", "hw.gpu.utilization", "train.accelerator.busy", "hw.power"),
        *("x{a=b}", "X", "", *(f"com.many.k{number}" for number in range(6))),
    )
)


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    jit.compile_loops()


@st.composite
def samples(draw: st.DrawFn) -> bytes:
    """A line that the compiled way reads, or nearly one."""
    values = draw(st.lists(st.tuples(KEYS, st.sampled_from(NUMBERS)), max_size=5))
    blank = draw(st.sampled_from(("", "", "", " ", "\t")))
    inner = ",".join(f'"{key}"{blank}:{blank}{value}' for key, value in values)
    found = [("k", '"m"'), ("time_us", draw(st.sampled_from(("1767225600000000", "1", "1e3", "9007199254740992"))))]
    found += [("seq", draw(st.sampled_from(("0", "1", "999999999999999", "1000000000000000"))))]
    names = draw(st.lists(st.sampled_from(sorted(COORDINATES)), max_size=4, unique=True))
    found += [("m", f"{{{inner}}}"), *((name, draw(COORDINATES[name])) for name in names)]
    if draw(st.booleans()):
        found = draw(st.permutations(found))
    if draw(st.integers(0, 19)) == 0:
        found.append(found[draw(st.integers(0, len(found) - 1))])
    return ("{" + ",".join(f'"{name}"{blank}:{blank}{value}' for name, value in found) + "}").encode()


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A file with a head or without one; some of its bytes are wrong."""
    starts = draw(st.sampled_from(([HEAD], [HEAD, OTHER_HEAD], [], [HEAD, HEAD])))
    found = [*starts, *draw(st.lists(st.one_of(samples(), samples(), lines(), st.just(OTHER_HEAD)), max_size=12))]
    end = draw(st.sampled_from((b"\n", b"\n", b"\r\n", b"\r\r\n")))
    content = end.join(found) + draw(st.sampled_from((end, b"", b"\n\n", b'{"k":"m"')))
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 3)))):
        place = draw(st.integers(0, max(len(content) - 1, 0)))
        byte = draw(st.one_of(st.sampled_from(b'"{}:,\\\n\r 0-.e'), st.integers(0, 255)))
        content = content[:place] + bytes([byte]) + content[place + 1 :]
    return content


def blocks(content: bytes, num_lines: int) -> list[Block]:
    """The text in blocks of so many lines."""
    pieces = content.splitlines(keepends=True) if b"\r" not in content else _split(content)
    found, offset = [], 0
    whole = [piece for piece in pieces if piece.endswith(b"\n")]
    for start in range(0, len(whole), num_lines):
        text = b"".join(whole[start : start + num_lines])
        found.append(Block(offset, text))
        offset += len(text)
    return found + [Block(offset, piece, is_tail=True) for piece in pieces if not piece.endswith(b"\n")]


def _split(content: bytes) -> list[bytes]:
    pieces = [piece + b"\n" for piece in content.split(b"\n")]
    return [piece for piece in (*pieces[:-1], pieces[-1][:-1]) if piece]


def decoded(content: bytes, num_lines: int, decoder: Any) -> tuple[Batch, RowBuilder]:
    builder = RowBuilder(Names(), FileFacts(0))
    decode = decoder(builder)
    return join([decode(block) for block in blocks(content, num_lines)]), builder


def spelt(batch: Batch, builder: RowBuilder) -> dict[str, Any]:
    """All that was decoded, with names for the numbers of things, which depend on what was read first."""
    names, facts = builder.names, builder.facts
    found: dict[str, Any] = {name: getattr(batch, name).tolist() for name in RECORD_COLUMNS}
    found["writer"] = [names.writers.items[number] for number in found["writer"]]
    found["subject"] = [names.subjects.items[number] for number in found["subject"]]
    found["record"] = batch.sample_record.tolist()
    found["key"] = [names.keys.items[number] for number in batch.sample_key.tolist()]
    found["bits"] = batch.sample_value.view("int64").tolist()
    found |= {name: getattr(batch, name) for name in ("weights", "events", "intervals")}
    found |= {name: getattr(facts, name) for name in FACTS}
    found |= {name: _by_key(getattr(facts, name), names) for name in MORE_FACTS[:2]}
    return found | {"tail": facts.tail, "types": [getattr(batch, name).dtype for name in RECORD_COLUMNS]}


def _by_key(found: dict[int, Any], names: Names) -> dict[str, Any]:
    return {str(names.keys.items[number]): value for number, value in found.items()}


def assert_same(content: bytes, num_lines: int = 4) -> int:
    """Read both ways and compare; returns the number of records."""
    slow, fast_one = (decoded(content, num_lines, kind) for kind in (BlockDecoder, fast.FastDecoder))
    wanted, found = spelt(*slow), spelt(*fast_one)
    for name, value in wanted.items():
        assert found[name] == value, f"{name} of {content!r}"
    return slow[0].num_records


@pytest.mark.slow
@examples(700)
@given(content=texts(), num_lines=st.sampled_from((1, 2, 5, 100)))
@example(content=HEAD + b'\n{"k":"m","time_us":1,"seq":0,"m":{"hw.power":1}}' + b" " * 1_000_000 + b"\n", num_lines=1)
def test_both_ways_give_the_same(content: bytes, num_lines: int) -> None:
    event("records" if assert_same(content, num_lines) else "no records")


def many(keys: int, num: int, start: int = 0) -> bytes:
    inner = ",".join(f'"com.many.k{key}":{key}.5' for key in range(keys))
    return b"".join(
        f'{{"k":"m","time_us":{1767225600000000 + number},"seq":{number},"m":{{{inner}}}}}\n'.encode()
        for number in range(start, start + num)
    )


@pytest.mark.parametrize("keys", [0, 1, 255, 256, 257, 600])
def test_many_keys_in_one_record(keys: int) -> None:
    assert assert_same(HEAD + b"\n" + many(keys, 40), 50) == 40


def test_new_names_all_the_time() -> None:
    assert assert_same(HEAD + b"\n" + b"".join(many(number, 2, 2 * number) for number in range(1, 60)), 1_000) == 118


def test_more_lines_and_values_than_are_read_at_once() -> None:
    assert assert_same(HEAD + b"\n" + many(3, 4_000) + many(120, 300, 4_000), 10_000) == 4_300


@pytest.mark.parametrize("length", [256, 512, 2_000])
def test_long_names(length: int) -> None:
    """A name that is longer than what lies behind the text is looked for at its very end."""
    key = "com.x{a=" + "\u00e9" * (length - 9) + "}"
    line = f'{{"k":"m","time_us":1,"seq":0,"m":{{"{key}":1}}}}\n'.encode()
    assert_same(HEAD + b"\n" + line * 3 + line[:40])


def test_the_compiled_way_reads_what_is_common() -> None:
    """All but the first record are read without the slow way, which is the point of it."""
    builder = RowBuilder(Names(), FileFacts(0))
    decode = fast.FastDecoder(builder)
    decode(Block(0, HEAD + b"\n" + many(8, 1)))
    lines_before = len(builder.names.texts)
    builder.add = None  # type: ignore[assignment,method-assign]
    assert decode(Block(1_000, many(8, 500, 1))).num_records == 500
    assert len(builder.names.texts) == lines_before
