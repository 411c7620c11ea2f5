"""The compiled reader of numbers gives the float that Python gives, bit for bit, or says that it is not sure."""

from __future__ import annotations

import json
import math
import random
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import examples
from trainspec_validate.telemetry.kernels import jit, number, words

if not jit.can_compile():
    pytest.skip("numba is not installed", allow_module_level=True)

MOST_SURE_DIGITS = 17
ALL_ENDS = (b",", b"}", b" ", b"\n", b"")
ENDS = st.sampled_from(ALL_ENDS)
NUM_DRAWN = 10_000


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    jit.compile_loops()


def looked_at(text: str, end: bytes) -> tuple[Any, Any]:
    """A text as the loops take it: with zeros behind it, and its words."""
    content = np.frombuffer(text.encode() + end + b"\0" * 16, np.uint8)
    return content, words.view(content)


def read(text: str, end: bytes = b",") -> float | None:
    """The value; None where the loop leaves it to another reader."""
    value, place = number.read_number(*looked_at(text, end), 0)
    if place < 0:
        return None
    assert place == len(text)
    return float(value)


def assert_exact(text: str, end: bytes = b",") -> None:
    found = read(text, end)
    assert found is not None, text
    assert struct.pack("d", found) == struct.pack("d", float(text)), text


def assert_decimal(digits: int, power: int, tail: str, sign: str, end: bytes) -> None:
    text = sign + format(Decimal(digits).scaleb(power), "f") + tail
    found = read(text, end)
    if found is not None:
        assert struct.pack("d", found) == struct.pack("d", float(text)), text
    else:
        assert len(text.lstrip("-0.")) > MOST_SURE_DIGITS or "e" in text.lower() or float(text) == 0


@pytest.mark.slow
@examples(300)
@given(
    digits=st.integers(0, 10**MOST_SURE_DIGITS - 1),
    power=st.integers(-17, 0),
    tail=st.one_of(st.just(""), st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-40, 40))),
    sign=st.sampled_from(("", "-")),
    end=ENDS,
)
def test_any_decimal(digits: int, power: int, tail: str, sign: str, end: bytes) -> None:
    assert_decimal(digits, power, tail, sign, end)


def test_many_decimals() -> None:
    """As above, a hundred times faster: numbers of any length, since most of all numbers are as long as can be."""
    drawn = random.Random(1)
    for _ in range(NUM_DRAWN):
        digits = drawn.randrange(10 ** drawn.randint(1, MOST_SURE_DIGITS))
        tail = drawn.choice(("", f"{drawn.choice('eE')}{drawn.randint(-40, 40)}"))
        assert_decimal(digits, drawn.randint(-17, 0), tail, drawn.choice(("", "-")), drawn.choice(ALL_ENDS))


@examples(2_000)
@given(value=st.floats(min_value=1e-30, max_value=1e30))
@example(value=9007199254740993.0)
@example(value=5e-20)
def test_the_shortest_text_of_any_float(value: float) -> None:
    assert_exact(repr(value))
    assert_exact(f"{value:.6g}")
    assert_exact(f"{value:.16e}")


def assert_near_middle(mantissa: int, power: int, step: int) -> None:
    middle = (2 * mantissa + 1) * 2**power if power >= 0 else Decimal(2 * mantissa + 1) / Decimal(2**-power)
    digits, exponent = f"{Decimal(middle):.16e}".split("e")
    whole = int(digits.replace(".", "")) + step
    found = read(f"{whole}e{int(exponent) - 16}")
    assert found is None or found == float(f"{whole}e{int(exponent) - 16}")


@examples(200)
@given(mantissa=st.integers(2**52, 2**53 - 1), power=st.integers(-12, 8), step=st.sampled_from((-1, 0, 1)))
def test_next_to_the_middle_between_two_floats(mantissa: int, power: int, step: int) -> None:
    assert_near_middle(mantissa, power, step)


def test_many_next_to_the_middle() -> None:
    drawn = random.Random(1)
    for _ in range(NUM_DRAWN):
        assert_near_middle(drawn.randrange(2**52, 2**53), drawn.randint(-12, 8), drawn.randint(-1, 1))


@pytest.mark.parametrize(
    "text",
    [
        "9007199254740993",
        "9007199254740992.5",
        "-0",
        "-0.0",
        "0e5",
        "0.1",
        "1e22",
        "1e23",
        "8.5e-23",
        "123456789012345678",
    ]
    + [f"{2**53 + 1}e{power}" for power in range(-8, 9)]
    + [f"{digits}e{power}" for digits in (1, 9, 2**63 // 1000, 10**17 - 1) for power in (-65, -28, -27, 23, 55, 65)],
)
def test_edges(text: str) -> None:
    found = read(text)
    assert found is None or struct.pack("d", found) == struct.pack("d", float(text))


@examples(1_000)
@given(text=st.text(alphabet="0123456789+-.eE", min_size=1, max_size=24))
@example(text="01")
@example(text="1.")
@example(text=".5")
@example(text="1e")
@example(text="1e400")
@example(text="-")
def test_what_is_no_number_of_json_is_not_taken(text: str) -> None:
    value, place = number.read_number(*looked_at(text, b","), 0)
    if place < 0:
        return
    taken = text[:place]
    assert float(json.loads(taken)) == value
    assert math.isfinite(value)


@given(value=st.integers(0, 10**18), most=st.sampled_from((7, 12, 15, 16)), lead=st.sampled_from(("", "0", "-", "+")))
def test_whole_numbers(value: int, most: int, lead: str) -> None:
    text = f"{lead}{value}"
    found, place = number.read_whole(*looked_at(text, b"}"), 0, most)
    if lead or len(text) > most:
        assert place < 0 or (lead == "0" and value == -1)
    else:
        assert (found, place) == (value, len(text))


def test_few_numbers_are_left_to_another_reader() -> None:
    """Numbers as programs write them: those with up to 17 digits are all read."""
    values = np.random.default_rng(1).random(2_000)
    texts = [f"{value * 10.0**power!r}" for value in values.tolist() for power in (-6, 0, 3, 9)]
    assert sum(read(text) is None for text in texts) < len(texts) // 100


@given(one=st.binary(max_size=40), other=st.binary(max_size=40), begin=st.integers(0, 9), start=st.integers(0, 9))
def test_texts_are_the_same_where_their_bytes_are(one: bytes, other: bytes, begin: int, start: int) -> None:
    arrays = [np.frombuffer(bytes(at) + text + b"x" * 48, np.uint8) for at, text in ((begin, one), (start, other))]
    first, second = (words.view(array) for array in arrays)
    same = words.is_same(first, begin, second, start, len(one))
    assert same == ((other + b"x" * 48)[: len(one)] == one)
    assert words.is_same(first, begin, first, begin, len(one))


@given(text=st.binary(min_size=8, max_size=8) | st.text("0123456789/:", min_size=8, max_size=8).map(str.encode))
def test_digits_of_any_eight_bytes(text: bytes) -> None:
    digits = text[: len(text) - len(text.lstrip(b"0123456789"))]
    num, value = words.digits_of(words.view(np.frombuffer(text, np.uint8))[0])
    assert (num, value) == (len(digits), int(digits or b"0"))
