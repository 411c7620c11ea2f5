"""Recognizes what launchers, containers and loggers write before the lines of a console log, by its regularity.

No producer is known by its name. The start of a line is read as parts: times, groups in brackets, words. Parts that
most lines have in common are a prefix. Whether it is one, and where it ends, is decided by the format of the log: a
line without its prefix is what the program printed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from trainspec_validate.telemetry.formats.source import HEAD_BYTES, MAX_LINE_BYTES

_TIME: Final = (
    rb"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,6})?"
    rb"|\d\d/\d\d(?:/\d{2,4})? \d\d:\d\d:\d\d(?:[.,]\d{1,6})?|\d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?![\w.])\]?"
)
_GROUP: Final = rb"(?:\[[^\[\]\n]{1,160}\]|\([^()\n]{1,160}\)|<[\w. -]{1,40}>)"
_WORD: Final = rb"[\w.@/+-]{1,120}(?:\[[\w-]{1,20}\])?"
_AFTER_WORD: Final = rb"(?=[:|\s]|$)"
_PART: Final = re.compile(
    rb"[ \t]{0,5}(?:(?P<time>%s)|(?P<group>%s)|(?P<word>%s)%s)" % (_TIME, _GROUP, _WORD, _AFTER_WORD)
)
_MARK: Final = re.compile(rb"[ \t]{0,12}\||:|")
"""Ends a part; names before a bar are padded to one width."""
_MARKS: Final = {b"": b"", b":": b":", b"|": rb"[ \t]{0,12}\|"}
_SPACES: Final = re.compile(rb"[ \t]*")
_COLOR: Final = re.compile(rb"\x1b\[[0-9;]{0,20}[mK]")
_NUMBERS: Final = re.compile(rb"\d+")
_NUMBERED: Final = {
    "group": rb"(?=[^\s\])>]{0,40}(?: [^\])>\n]{0,100})?\d)" + _GROUP,
    "word": rb"(?=\D{0,119}\d)" + _WORD,
}
"""Parts with a number: of a rank, a process, a host. Those that the start of a file lacks are known by it."""
_STREAMS, _LEVELS = rb"std(?:out|err)", rb"(?:INFO|DEBUG|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_ALIKE: Final = ((rb"std(?:out|err)", _STREAMS), (rb"\b" + _LEVELS + rb"\b", _LEVELS), (rb"\A[FP]\Z", rb"[FP]"))
"""Words of a prefix that stand for others, which may come for the first time where a program fails."""
_STANDS: Final = re.compile(rb"%s|%s|[FP]|-" % (_STREAMS, _LEVELS))
_NO_SOURCE: Final = re.compile(
    rb"\b%s\b|\b%s\b|(?<= )[FP](?= )|\b[\w.]{1,80}\.py:\d{1,6}|\x1b\[[0-9;]{0,20}[mK]|%s" % (_STREAMS, _LEVELS, _TIME)
)
"""Parts of a prefix that differ between lines of one process."""
_WARNED: Final = re.compile(rb"\b(?:WARN(?:ING)?|DEBUG)\b")
"""In the prefix of a line that a program logs and goes on, such as those of an exception that it has caught."""
_RANK: Final = re.compile(
    rb"(?:rank[ _-]?|default|\[\d{1,6},|\A[\s\[]{0,8})(?P<rank>\d{1,6})(?:\]|:|\Z)", re.IGNORECASE
)
_MOMENT: Final = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d[T_ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_PARTIAL: Final = re.compile(rb"\b" + _STREAMS + rb" P ?\Z")
"""Ends the prefix of a line that a container runtime cut into several."""
_TEXTS: Final = ("log", "MESSAGE", "message", "textPayload")
"""Keys of the text in objects that hold a line each, as container runtimes and journals write them."""
_TIMES: Final = ("time", "timestamp", "__REALTIME_TIMESTAMP", "ts")
_MOST_PARTS: Final = 7
_MOST_LINES: Final = 600
"""Lines that are looked at, from all of the start of a file."""
_FEWEST_LINES: Final = 3
_MOST_BYTES: Final = 400
_LEAST_SHARE: Final = 0.6
"""Share of the lines that have a prefix: the script of a job prints lines of its own before those of its processes."""
_MOST_UNSPACED: Final = 0.02
_MOST_WORDS: Final = 8
"""Different words, their numbers aside, in one place of a prefix, or a tenth of the lines."""


_COUNTED: Final = 0.8
"""Share of the lines of a part that counts whose number is above that of the line before."""


class Taken(NamedTuple):
    """A line without its prefix."""

    text: bytes
    prefix: bytes = b""
    is_part: bool = False
    """Whether the next line of the file continues it."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """A common start of most lines of a file."""

    pattern: re.Pattern[bytes] | None = None
    """Pattern of the start of a line; None where only its object is opened, or colors are taken off."""
    is_object: bool = False
    """Whether each line is an object that holds the line of the program as a text."""
    has_color: bool = False
    has_time: bool = False
    is_certain: bool = True
    """Whether its last part is one of most prefixes, and no word that the program may have printed."""
    example: bytes = b""

    def take(self, raw: bytes) -> Taken:
        """A line without its prefix; a line that has none as it is."""
        before, is_part = b"", False
        if self.is_object and (opened := _opened(raw)) is not None:
            raw, before, is_part = opened
        if self.has_color and b"\x1b" in raw:
            raw = _COLOR.sub(b"", raw)
        found = self.pattern.match(raw) if self.pattern else None
        if found is None or _WARNED.search(found[0]):
            return Taken(raw, before, is_part)
        return Taken(raw[found.end() :], before + found[0], is_part or _PARTIAL.search(found[0]) is not None)

    def without(self, text: bytes) -> bytes:
        """A text of many lines, each without its prefix."""
        if self.pattern and not self.is_object and not (self.has_color and b"\x1b" in text):
            return re.sub(
                rb"(?m)^(?:%s)" % self.pattern.pattern,
                lambda found: b"" if not _WARNED.search(found[0]) else found[0],
                text,
            )
        return b"\n".join(self.take(raw).text for raw in text.split(b"\n"))


def source_of(prefix: bytes) -> bytes:
    """The process that a prefix names: all of it but times, streams, levels and places in programs.

    >>> source_of(b"2024-05-01T12:00:00.5Z stdout F [rank3]: ")
    b'[rank3]:'
    """
    return b" ".join(_NO_SOURCE.sub(b"", prefix).split())


def whose(source: bytes) -> str:
    """The process of a source in words.

    >>> whose(b"[1,3]<>:"), whose(b"(RayTrainWorker pid=7, ip=10.0.0.1)")
    ('rank 3', "'(RayTrainWorker pid=7, ip=10.0.0.1)'")
    """
    found = _RANK.search(source)
    return f"rank {int(found['rank'])}" if found else repr(source[:80].decode("utf-8", "replace"))


def moment_of(prefix: bytes) -> str | None:
    """The date and time in a prefix, that of the program itself where it has several; None where it has none."""
    found = _MOMENT.findall(prefix)
    return found[-1].decode().replace("/", "-").replace(",", ".").replace("_", "T") if found else None


def prefixes_of(head: bytes) -> list[Prefix]:
    r"""Prefixes that the lines of a text may have, the shortest first; each begins with those before it.

    >>> text = b"[1,0]<stdout>:a b\n[1,1]<stdout>:{c}\n[1,0]<stdout>:[d]\n"
    >>> [prefix.take(b"[1,7]<stderr>:ab").text for prefix in prefixes_of(text)]
    [b'<stderr>:ab', b'ab']
    """
    found: list[Prefix] = []
    lines = _sample(head[:HEAD_BYTES].split(b"\n"))
    opened = [each for each in map(_opened, lines) if each is not None]
    is_object = len(opened) >= max(_FEWEST_LINES, _LEAST_SHARE * len(lines))
    if is_object:
        lines = _sample(each.text for each in opened)
        found.append(Prefix(is_object=True, has_time=True, example=b"{"))
    has_color = any(b"\x1b[" in line for line in lines)
    if has_color:
        lines = _sample(_COLOR.sub(b"", line) for line in lines)
        found.append(Prefix(is_object=is_object, has_color=True, has_time=is_object, example=b"\x1b["))
    forms, has_time, places = list[bytes](), is_object, [0] * len(lines)
    for _ in range(_MOST_PARTS):
        part = _common(lines, places)
        if part is None:
            break
        form, kind, is_certain, places = part
        forms.append(form)
        has_time = has_time or kind == "time"
        example = next((line[:place] for line, place in zip(lines, places, strict=True) if place > 0), b"")
        pattern = re.compile(b"(?:".join(forms) + b")?" * (len(forms) - 1))  # a line may have the first parts alone
        found.append(Prefix(pattern, is_object, has_color, has_time, is_certain, example))
    return found


def prefix_for(head: bytes, looks_like: Callable[[bytes], bool] | None, *, has_times: bool) -> Prefix | None:
    """The prefix of the lines of a file, by what its format takes for a report; None where lines have none.

    Without a report in the text it is what is no word of the program; no time is then taken off where `has_times` says
    that the program writes times itself. `looks_like` is None for a program that is not known.
    """
    found = prefixes_of(head)
    known = [looks_like(head), *(looks_like(each.without(head)) for each in found)] if looks_like and found else []
    if not any(known):
        certain = [*takewhile(lambda prefix: prefix.is_certain and not (has_times and prefix.has_time), found)]
        return certain[-1] if certain else None
    first = known.index(True)
    until = next((place for place in range(first, len(known)) if not known[place]), len(known))
    longer = [*takewhile(lambda prefix: prefix.is_certain, found[first : until - 1])]
    return longer[-1] if longer else found[first - 1] if first else None


def _opened(raw: bytes) -> Taken | None:
    """The text of a line that is an object with a text and its time; None for any other line."""
    if not raw.startswith(b"{") or len(raw) > MAX_LINE_BYTES:
        return None
    try:
        held = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    text = next((held[key] for key in _TEXTS if isinstance(held.get(key), str)), None)
    time = next((held[key] for key in _TIMES if isinstance(held.get(key), str)), None)
    if text is None or time is None:
        return None
    is_part = isinstance(held.get("log"), str) and not text.endswith("\n")
    return Taken(text.rstrip("\r\n").encode("utf-8", "replace"), time.encode("utf-8", "replace") + b" ", is_part)


def _sample(lines: Iterable[bytes]) -> list[bytes]:
    """Lines from all of a text that are not blank."""
    whole = [line for line in lines if line and not line.isspace()]
    return whole[:: max(1, len(whole) // _MOST_LINES)][:_MOST_LINES]


def _common(lines: list[bytes], places: list[int]) -> tuple[bytes, str, bool, list[int]] | None:
    """The pattern and kind of the next part of most lines, whether it is certain, and where it ends; else None."""
    least = max(_FEWEST_LINES, _LEAST_SHARE * len(lines))
    found = [_PART.match(line[:_MOST_BYTES], at) if at >= 0 else None for line, at in zip(lines, places, strict=True)]
    marks = [_mark(line, each) for line, each in zip(lines, found, strict=True)]
    counts = Counter((each.lastgroup or "", mark.strip()) for each, mark in zip(found, marks, strict=True) if each)
    (kind, mark), num = next(iter(counts.most_common(1)), (("", b""), 0))
    chosen = [
        each if each and (each.lastgroup, its.strip()) == (kind, mark) else None
        for each, its in zip(found, marks, strict=True)
    ]
    texts = [each[kind] for each in chosen if each]
    if num < least or (kind != "time" and not _is_of_process(texts)):
        return None
    ends = [each.end() + len(its) if each else -1 for each, its in zip(chosen, marks, strict=True)]
    spaces = sorted(
        _num_spaces(line, end) for line, end in zip(lines, ends, strict=True) if 0 <= end < len(line.rstrip())
    )
    num_spaces = spaces[int(len(spaces) * _MOST_UNSPACED)] if spaces else 0
    if kind == "word" and not mark and not num_spaces:
        return None
    form = b"[ \\t]{0,5}%s%s[ \\t]{0,%d}" % (_form(kind, set(texts)), _MARKS[mark], num_spaces)
    after = [
        end + min(num_spaces, _num_spaces(line, end)) if end >= 0 else -1 for line, end in zip(lines, ends, strict=True)
    ]
    is_one = len(set(texts)) == 1 and max(places) > 0 and num == sum(at >= 0 for at in places)
    is_certain = kind != "word" or is_one or all(_NUMBERS.search(text) or _STANDS.fullmatch(text) for text in texts)
    return form, kind, is_certain, after


def _is_of_process(texts: list[bytes]) -> bool:
    """Whether parts are few but for their numbers, and count nothing: a rank or a process returns, a step rises."""
    if len({_NUMBERS.sub(b"0", text) for text in texts}) > max(_MOST_WORDS, len(texts) // 10):
        return False
    numbers = [int(found[-1][:18]) for found in map(_NUMBERS.findall, texts) if found]
    num_risen = sum(before < after for before, after in pairwise(numbers))
    return len(numbers) < _FEWEST_LINES or num_risen < _COUNTED * (len(numbers) - 1)


def _mark(line: bytes, found: re.Match[bytes] | None) -> bytes:
    mark = _MARK.match(line, found.end()) if found else None
    return mark[0] if mark else b""


def _num_spaces(line: bytes, start: int) -> int:
    found = _SPACES.match(line, start)
    return len(found[0]) if found else 0


def _form(kind: str, texts: set[bytes]) -> bytes:
    """The pattern of a part with these texts: of those without a number no other fits, so that no message is taken."""
    if kind == "time":
        return b"(?:%s)" % _TIME
    forms = {_alike(text) for text in texts if not _NUMBERS.search(text)}
    if any(map(_NUMBERS.search, texts)):
        forms.add(_NUMBERED[kind])
    return b"(?:%s)%s" % (b"|".join(sorted(forms)), _AFTER_WORD if kind == "word" else b"")


def _alike(text: bytes) -> bytes:
    """The pattern of a text, in which words stand for others of their kind."""
    for seen, form in _ALIKE:
        if found := re.search(seen, text):
            return re.escape(text[: found.start()]) + form + re.escape(text[found.end() :])
    return re.escape(text)
