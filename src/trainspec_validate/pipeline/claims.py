"""Says whether a text claims to be a document of ours, in every way in which YAML and JSON can write that."""

from __future__ import annotations

import base64
import codecs
import io
import re
import unicodedata
from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from trainspec_validate.documents.load import MAX_BYTES
from trainspec_validate.documents.load.outline import outline_of
from trainspec_validate.documents.types import KINDS
from trainspec_validate.pipeline.files import SUFFIXES
from trainspec_validate.pipeline.foreign import HELD, has_our_keys, has_our_kind, why_foreign
from trainspec_validate.system.blanks import is_blank
from trainspec_validate.system.boundary import open_regular
from trainspec_validate.system.structs import decoded

_PIECE_BYTES: Final = 65_536
_START_BYTES: Final = 262_144
_END_BYTES: Final = 1024**2
_FIRST_BYTES: Final = 4_096
_PLAIN: Final = re.compile(rb"trainspec/(?:v|[\x80-\xff])", re.IGNORECASE)
"""What every document of ours says of its version. Letters that only look like ones of ASCII are a slip, or a trick."""
_VERSION_START: Final = b"trainspec/"
NO_TEXT: Final = "is no text in UTF-8"
_EBCDIC: Final = bytes.fromhex("a399818995a297858361a5")
"""`trainspec/v` as mainframes write it: these characters have the same codes in every code page of EBCDIC for Latin.

In a browser Python has no codec for it.
"""
_ESCAPE: Final = re.compile(rb"\\(?:(?:x|u00|U000000)([0-9a-f]{2})|\r?\n[ \t]*+|(/))", re.IGNORECASE)
"""A character of a quoted text that is written as its code, or a line of it that goes on on the next one."""
_VERSION: Final = re.compile(rb"trainspec/v\d")
_NAME: Final = "trainspec"
_STATED: Final = re.compile(rb"apiVersion[\"']?[ \t]*:[ \t]*([^\r\n,#]{1,80})")
_BEFORE_KEY: Final = re.compile(rb"(?:\A|\n)[ \t{]*+[\"']?\Z")
_MOST_BEFORE: Final = 1_000
"""Blanks and braces before a key that are looked at."""
_SCHEMA: Final = re.compile(rb"\$schema[\"']?[ \t]*+[:=][ \t]*+[\"']?([^\s\"']{1,300}+)")
_SCHEMA_AT_TOP: Final = re.compile(
    rb"^(?:#[^\n]{0,200}?|[\"']?|[ \t{]*+\"(?=\$schema\"))\$schema[\"']?[ \t]*+[:=][ \t]*+[\"']?([^\s\"']{1,300}+)",
    re.MULTILINE,
)
"""A schema of the whole text: in a comment or a key that is not indented, or in a key of JSON."""
_MOST_STATED: Final = 10_000
"""Versions and schemas of a text that are looked at."""
_ALIKE: Final = 0.85
"""Above this share of common letters two names are taken for one with a slip."""
_LEAST_LETTERS: Final = 5
_KIND: Final = re.compile(rf"^[ \t{{]*+[\"']?kind[\"']?\s*+:\s*+[\"']?(?:{'|'.join(KINDS)})\b".encode(), re.MULTILINE)
_KIND_AT_TOP: Final = re.compile(rf"^[\"']?kind[\"']?\s*+:\s*+[\"']?(?:{'|'.join(KINDS)})\b".encode(), re.MULTILINE)
_KIND_ANYWHERE: Final = re.compile(rf"\bkind[\"']?\s*+:\s*+[\"']?(?:{'|'.join(KINDS)})\b".encode())
_IN_NOTEBOOK: Final = tuple(
    re.compile(rf"\"{line}".encode())
    for line in (r"apiVersion: [\\\"']*trainspec/v[0-9]", rf"kind: [\\\"']*(?:{'|'.join(KINDS)})\b")
)
"""Lines of a document in the source of a cell of a notebook, each of which is a text of its own."""
_A_KIND: Final = re.compile(rf"\b(?:{'|'.join(KINDS)})\b".encode())
_BEGINS_WITH_KEY: Final = re.compile(rb"\s*+(?:(?:#[^\n]*+|---[ \t]*+\r?)\n\s*+)*+(?:\{|[\"'\w-]++[ \t]*+:)")
"""How a document begins, and no text for a person: with a key."""
_VERSION_ANYWHERE: Final = re.compile(rb"apiVersion[\"']?[ \t]*+:[ \t]*+[\"']?trainspec/v\d")
_VERSION_AT_TOP: Final = re.compile(rb"^[{ ]*+[\"']?" + _VERSION_ANYWHERE.pattern, re.MULTILINE)
_KIND_WITHIN: Final = re.compile(rf"kind[\"']?\s*+:\s*+[\"']?(?:{'|'.join(KINDS)})\b".encode())
_TOML_VERSION: Final = re.compile(rb"^[\"']?apiVersion[\"']?[ \t]*+=[ \t]*+[\"']trainspec/v", re.MULTILINE)
_TOML_KIND: Final = re.compile(rf"^[\"']?kind[\"']?[ \t]*+=[ \t]*+[\"'](?:{'|'.join(KINDS)})\b".encode(), re.MULTILINE)
_FENCED: Final = re.compile(rb"(```|~~~).*?\1", re.DOTALL)
"""An example in a text for a person."""
_NO_VALUE: Final = rb"[ \t]*+(?:null|~|\"\"|'')?[ \t]*+(?:[#,}\r]|$)"
_VERSION_GIVEN: Final = re.compile(rb"apiVersion[\"']?[ \t]*+:(?!" + _NO_VALUE + rb")", re.MULTILINE)
_VERSION_OPEN: Final = re.compile(rb"^apiVersion[\"']?[ \t]*+:[ \t]*+[\"']?(?:\{\{|\{%|<%|\$\{)", re.MULTILINE)
"""A version that a template fills in."""
_KIND_STEMS: Final = frozenset({"policy", "checkpoint-policy", "training-plan", "cluster-profile"})
"""Starts of names that documents of a kind have, and now and then files of other programs."""
_MOST_NEIGHBOURS: Final = 1_000
_TOO_LONG: Final = f"has more than {MAX_BYTES:,} bytes, the most that a document may have"
_ENCODED: Final = tuple(
    base64.b64encode(b"\0" * shift + name)[shift + bool(shift) : (shift + len(name)) * 4 // 3]
    for name in ("trainspec/v".encode(code) for code in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"))
    for shift in range(3)
)
"""Our version in base64, as it is after as many bytes beyond a multiple of three."""
NO_VERSION: Final = "has the kind of a document and no apiVersion"


class _Top(msgspec.Struct):
    """What is read of an object: other values are passed over and take no memory, whatever their number."""

    kind: msgspec.Raw = msgspec.Raw()


def claims(content: bytes) -> bool:
    """Whether a text says that it is written for a version of the specification, be it with a slip."""
    return bool(
        _names_version(content)
        or _escapes_version(content)
        or _names_schema(content)
        or any(_is_nearly_ours(version) for version in islice(_stated(content), _MOST_STATED))
    )


def _names_version(content: bytes) -> bool:
    return _VERSION_START in content.lower() and _PLAIN.search(content) is not None


def _escapes_version(content: bytes) -> bool:
    r"""Whether a text names our version with characters that are written as their codes.

    >>> _escapes_version(b'"tr\\x61inspec\\/v1"'), _escapes_version(b'"tr\\x62inspec/v1"')
    (True, False)
    """
    if b"\\" not in content:
        return False
    plain = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]) if found[1] else found[2] or b"", content)
    return _VERSION_START + b"v" in plain.lower()


def _stated(content: bytes) -> Iterator[bytes]:
    """The versions that a text gives at the beginnings of lines."""
    for found in _STATED.finditer(content):
        if _BEFORE_KEY.search(content[max(0, found.start() - _MOST_BEFORE) : found.start()]):
            yield found[1]


def _names_schema(content: bytes, place: re.Pattern[bytes] = _SCHEMA) -> bool:
    """Whether a text says that a schema of ours fits it."""
    return any(_is_our_schema(found[1]) for found in islice(place.finditer(content), _MOST_STATED))


def _names_us(version: str) -> bool:
    return _is_nearly_ours(version.encode("utf-8", "replace"))


def _is_our_schema(address: bytes) -> bool:
    return b"trainspec" in address and b".schema.json" in address


def _is_nearly_ours(version: bytes) -> bool:
    r"""Whether a version has the name of ours with a slip, or with letters that look like those of ASCII.

    >>> [_is_nearly_ours(text.encode()) for text in ("tr\u0430inspec/v1", "transpec/v1", "trainer.org/v1")]
    [True, True, False]
    """
    text = unicodedata.normalize("NFKC", version.decode("utf-8", "replace")).lower()
    name = re.split(r"[/:.0-9]|-?v[0-9]", text, maxsplit=1)[0]
    letters = "".join(character for character in name if character.isascii() and character.isalpha())
    if len(letters) < len(name.strip(" \"'-_")):  # something in it is no letter of ASCII
        return len(letters) >= _LEAST_LETTERS and _is_within(letters, _NAME)
    return SequenceMatcher(None, letters, _NAME, autojunk=False).ratio() > _ALIKE


def _is_within(letters: str, name: str) -> bool:
    """Whether letters are in a name in their order."""
    rest = iter(name)
    return all(letter in rest for letter in letters)


def claimed(path: Path) -> bytes:
    """The content of a file that claims to be ours, wherever in a text it does; empty where it does not.

    Of what is no text, the start alone is looked at. A file that cannot be read claims nothing.
    """
    try:
        with open_regular(path) as file:
            start = file.read(_START_BYTES)
            content = start + (_rest(file) if may_be_text(start) else b"")
    except OSError:
        return b""
    plain = content.translate(None, b"\0")
    is_ours = claims(start.translate(None, b"\0")) or _names_version(plain) or _EBCDIC in plain
    return content if is_ours else b""


def _rest(file: BinaryIO) -> bytes:
    """The rest of a text up to the size of a document, and the end of a longer one, before which it may be padded."""
    return file.read(MAX_BYTES) + _end_of_longer(file)


def _end_of_longer(file: BinaryIO) -> bytes:
    """The end of a file of which as much was read as a document may have; empty where nothing is left."""
    place = file.tell()
    end = max(place, file.seek(0, io.SEEK_END) - _END_BYTES)
    file.seek(end)
    return (b"\n" if end > place else b"") + file.read(_END_BYTES)


def may_be_text(start: bytes) -> bool:
    """Whether content begins as a text does, be it with two or four bytes for a letter."""
    num_zeros = start[:_FIRST_BYTES].count(0)
    return num_zeros == 0 or 0.3 < num_zeros / len(start[:_FIRST_BYTES]) < 0.8


def hidden_claims(path: Path) -> bool:
    """Whether a file that a search leaves out claims to be ours; false where it cannot be read."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES).translate(None, b"\0")
    except OSError:
        return False
    return bool(_VERSION.search(content)) or _escapes_version(content)


def is_emptied(path: Path) -> bool:
    """Whether a file with the name of a kind, such as `policy.yaml`, has no value and is next to a document of ours.

    Raises:
        OSError: the file cannot be read.
    """
    if path.name.split(".")[0].lower() not in _KIND_STEMS:
        return False
    with open_regular(path) as file:
        lines = file.read(MAX_BYTES).splitlines()
    if any(line.strip() not in {b"", b"---", b"..."} and not line.lstrip().startswith(b"#") for line in lines):
        return False
    others = (other for other in path.parent.iterdir() if other != path and other.suffix.lower() in SUFFIXES)
    return any(hidden_claims(other) for other in islice(others, _MOST_NEIGHBOURS))


def is_ours(content: bytes) -> bool:
    """Whether a text claims to be a document, by its version or by a kind of ours."""
    return claims(content) or claims(content.translate(None, b"\0")) or bool(_KIND_ANYWHERE.search(content))


def is_in_ebcdic(content: bytes) -> bool:
    """Whether a text claims to be ours as mainframes write it."""
    return _EBCDIC in content


def is_document(content: bytes) -> bool:
    """Whether the whole of a text without a name is a document of ours, be it one that cannot be read."""
    if not claims(content):
        return False
    if outline_of(content) is None:
        return names_kind(content) and bool(_BEGINS_WITH_KEY.match(content))
    return why_foreign(content, _names_us) is None


def has_readable_document(content: bytes) -> bool:
    """Whether one of the YAML documents of a text that can be read is ours, be it not the first."""
    return claims(content) and outline_of(content) is not None and why_foreign(content, _names_us) is None


def is_in_toml(content: bytes) -> bool:
    """Whether a text in TOML has the version and the kind of a document at its top."""
    return bool(_TOML_VERSION.search(content) and _TOML_KIND.search(content))


def document_within(content: bytes) -> bytes:
    """The rest of a text or of other content from where a document of ours begins in it; empty where none does.

    Its version and its kind are keys, one of them at the start of a line. Examples in fences count for nothing.
    """
    if b"trainspec/v" not in content:
        return b""
    content = _FENCED.sub(b"", content)
    version, kind = _VERSION_AT_TOP.search(content), _KIND_WITHIN.search(content)
    if not version:
        version, kind = _VERSION_ANYWHERE.search(content), _KIND_AT_TOP.search(content)
    return content[min(version.start(), kind.start()) :] if version and kind else b""


def why_no_document(path: Path, content: bytes | None = None) -> str | None:
    """Why the text of a file is no document of ours; None where it claims to be one.

    The reason is empty for the text of another program: only what cannot be read as text may be ours in disguise. A
    kind of ours at the top without a version claims to be one: no other program names such kinds without it.

    Args:
        path: of the file.
        content: all of its bytes, where they were read before.

    Raises:
        OSError: the file cannot be read.
    """
    end = b""
    if content is None:
        with open_regular(path) as file:
            content, end = file.read(MAX_BYTES), _end_of_longer(file)
    if (end and document_within(end)) or is_in_ebcdic(content):
        return None
    if claims(content) or (b"\0" in content and claims(content.translate(None, b"\0"))):  # in UTF-16 or UTF-32 too
        is_whole = b"\0" in content or _names_schema(content, _SCHEMA_AT_TOP)
        return None if is_whole else why_foreign(content, _names_us)
    if not end and is_blank(content):
        return "is empty" if not content else "is blank"
    reason = _no_text(content, is_whole=not end)
    is_open = not _VERSION_GIVEN.search(content) or _VERSION_OPEN.search(content)
    if not reason and is_open and _KIND.search(content):
        return None if _has_kind_at_top(content) else NO_VERSION
    if not reason and _A_KIND.search(content) and has_our_keys(content):
        return None
    if not reason and is_open and _A_KIND.search(content) and has_our_kind(content):
        return None
    if not reason and is_encoded(content):
        return HELD
    return reason or (_TOO_LONG if end else "")


def is_encoded(content: bytes) -> bool:
    """Whether a text holds a document of ours in base64, be it in lines."""
    whole = content.translate(None, b" \t\r\n")
    return any(encoded in whole for encoded in _ENCODED)


def start_of(path: Path) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with open_regular(path) as file:
            return file.read(_FIRST_BYTES)
    except OSError:
        return b""


def holds_encoded(path: Path) -> bool:
    """Whether a file is a text that holds a document of ours in base64; false where it cannot be read."""
    try:
        with open_regular(path) as file:
            content = file.read(MAX_BYTES)
    except OSError:
        return False
    return may_be_text(content) and is_encoded(content)


def holds_in_cells(path: Path) -> bool:
    """Whether a notebook of Jupyter has the version and the kind of a document of ours in lines of its cells."""
    content = claimed(path)
    return all(line.search(content) for line in _IN_NOTEBOOK)


def names_kind(content: bytes) -> bool:
    """Whether a kind of ours is a key at the beginning of a line, in whatever encoding."""
    return bool(_KIND_AT_TOP.search(content.translate(None, b"\0")))


def _has_kind_at_top(content: bytes) -> bool:
    """Whether a kind of ours is a key of the whole text: a report of ours has kinds further below."""
    if not content.lstrip().startswith(b"{"):
        return bool(_KIND_AT_TOP.search(content))
    try:
        kind = memoryview(decoded(content, _Top).kind)
        return bytes(kind[:1]) == b'"' and msgspec.json.decode(kind) in KINDS
    except (ValueError, RecursionError):
        return True


def _no_text(content: bytes, *, is_whole: bool) -> str:
    """Why the content of a file is no text; empty where it is one."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), _PIECE_BYTES):
            decoder.decode(content[start : start + _PIECE_BYTES])
        decoder.decode(b"", final=is_whole)
    except UnicodeDecodeError:
        return NO_TEXT
    return "holds zero bytes, which no text does" if b"\0" in content else ""
