"""Reads configuration files that a shell script writes itself, as documents between `<<END` and `END`."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._plan_settings import flatten, load_mapping
from trainspec_validate.interop.readers._shell_choices import has_marks
from trainspec_validate.interop.readers._shell_variables import Script
from trainspec_validate.interop.readers._shell_words import Piece

MAX_DOCUMENTS = 16
_MAX_TEXT = 128 * 1024
_DOCUMENT = re.compile(
    r"(?m)^[ \t]*(?:sudo[ \t]+)?(?:cat|tee)\b(?P<words>[^\n]{0,400}?)<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w{1,40})"
    r"(?P=quote)(?P<rest>[^\n]{0,400})\n(?P<body>(?:.*\n){0,400}?)[ \t]*(?P=end)[ \t]*$"
)
_TARGET = re.compile(r"(?:>{1,2}|\btee\b)[ \t]*[\"']?(?P<name>[^\s\"'|;&<>]{1,300})")
_BARE = re.compile(
    r"(?P<before>[:,\[][ \t]{0,40})(?P<name>\$(?:\{[A-Za-z_]\w{0,60}\}|[A-Za-z_]\w{0,60}))"
    r"(?=[ \t]{0,40}(?:[,}\]\n]|\Z))"
)
"""A variable that is a whole value of JSON or YAML."""
_OPENS = re.compile(r"(?m)(?:^|;|&&|\|\|)[ \t]*(?:if|case|for|while|until)\b")
_CLOSES = re.compile(r"(?m)(?:^|;)[ \t]*(?:fi|esac|done)\b")
_CONFIGURATION = re.compile(r"\.(?:ya?ml|json|toml|conf|cfg|ini)\Z", re.IGNORECASE)


def without_configurations(text: str) -> str:
    r"""A script in which the lines of configuration files that it writes are blank.

    >>> without_configurations("cat > a.yaml <<END\na: 1\nEND\npython b.py\n")
    'cat > a.yaml <<END\n\nEND\npython b.py\n'
    """
    if "<<" not in text:
        return text

    def blank(found: re.Match[str]) -> str:
        name = _target(found)
        if name is None or not _CONFIGURATION.search(name):
            return found[0]
        begin, end = (found.start("body") - found.start(), found.end("body") - found.start())
        return found[0][:begin] + "\n" * found["body"].count("\n") + found[0][end:]

    return _DOCUMENT.sub(blank, text[:_MAX_TEXT]) + text[_MAX_TEXT:]


_READ = re.compile(
    r"(?m)^(?P<indent>[ \t]*)read[ \t]+(?:-r[ \t]+)?-(?:r?d)[ \t]*(?:''|\"\")[ \t]+(?:-r[ \t]+)?"
    r"(?P<name>[A-Za-z_]\w{0,60})"
    r"[ \t]*<<[ \t]*(?P<quote>['\"]?)(?P<end>\w{1,40})(?P=quote)[ \t]*\n(?P<body>(?:.*\n){0,400}?)(?P=end)[ \t]*$"
)
"""A document that becomes the value of a variable as a whole."""


def with_read_documents(text: str) -> str:
    r"""A script in which `read -d ''` takes no document: the variable is assigned in quotes, on as many lines.

    >>> with_read_documents("read -r -d '' A <<EOF\n--lr 1 \\\\\n --x \"b\"\nEOF\nrun $A\n")
    'A="\n--lr 1 \\\\\n --x \\\\"b\\\\"\n"\nrun $A\n'
    """
    if "<<" not in text or "read" not in text:
        return text

    def assigned(found: re.Match[str]) -> str:
        if found["quote"]:
            body = found["body"].replace("'", "'\\''")
            return f"{found['indent']}{found['name']}='\n{body}'"
        body = re.sub(r'(?<!\\)"', r"\\\"", found["body"])
        return f'{found["indent"]}{found["name"]}="\n{body}"'

    return _READ.sub(assigned, text[:_MAX_TEXT]) + text[_MAX_TEXT:]


def _target(document: re.Match[str]) -> str | None:
    """The file that a document is written to; None where it is added to one or goes elsewhere."""
    words = document["words"]
    found = _TARGET.search(f"{words if 'tee' in document[0][:20] else ''} {document['rest']}")
    found = found or _TARGET.search(f"tee {words.strip()}" if words.strip() else "")
    return None if found is None else found["name"]


def written_mapping(script: Script, text: str, name: str) -> Mapping[str, Any]:
    """Settings, with dotted names, of a JSON or YAML file of this name that the script writes; else nothing.

    Variables have the values that the script gives them; a document with any other one is not read, and no file that a
    branch writes, that is written twice or changed.
    """
    wanted, text = name.rpartition("/")[2], text[:_MAX_TEXT]
    found = []
    for document in itertools.islice(_DOCUMENT.finditer(text), MAX_DOCUMENTS):
        target = _target(document)
        path = "" if target is None else script.value((Piece(target, plain=False, quoted=False),))
        if path.rpartition("/")[2] == wanted and not has_marks(path):
            found.append(document)
    if len(found) != 1 or _in_branch(text[: found[0].start()]) or _is_changed(text, wanted):
        return {}
    body = found[0]["body"]
    if _is_set_later(text[found[0].end() :], body, quoted=bool(found[0]["quote"])):
        return {}
    if not found[0]["quote"]:
        body = _filled(script, body)
    if has_marks(body):
        return {}
    try:
        return flatten(load_mapping(ForeignText(wanted, body)).data)
    except ForeignFormatError:
        return {}


def _filled(script: Script, body: str) -> str:
    """A document with the values of its variables; one that is a whole value and open stays, as text, a reference."""

    def value(found: re.Match[str]) -> str:
        known = script.value((Piece(found["name"], plain=False, quoted=True),))
        plain = not has_marks(known) and "$" not in known and "`" not in known
        return f"{found['before']}{known}" if plain else f'{found["before"]}"${{{found["name"].strip("${}")}}}"'

    parts = [script.value((Piece(part, plain=False, quoted=True),)) for part in _BARE.sub("\0", body).split("\0")]
    bare = [value(found) for found in _BARE.finditer(body)]
    return "".join(itertools.chain.from_iterable(itertools.zip_longest(parts, bare, fillvalue="")))


def _in_branch(before: str) -> bool:
    """Whether a text ends inside an `if`, a `case` or a loop."""
    lines = _DOCUMENT.sub("", before)
    return len(_OPENS.findall(lines)) > len(_CLOSES.findall(lines))


def _is_set_later(after: str, body: str, *, quoted: bool) -> bool:
    """Whether a variable of a document gets another value after it, so that its last value is not the one in it."""
    names = set() if quoted else set(re.findall(r"\$\{?([A-Za-z_]\w{0,60})", body))
    return any(re.search(rf"(?m)(?:^|[;\s]){name}\+?=", after) for name in names)


def _is_changed(text: str, name: str) -> bool:
    """Whether a command edits a file or adds to it."""
    plain = re.escape(name)
    return bool(re.search(rf"(?m)\bsed[ \t]+-i[^\n]*{plain}|>>[ \t]*[\"']?[^\s\"']{{0,200}}{plain}", text))
