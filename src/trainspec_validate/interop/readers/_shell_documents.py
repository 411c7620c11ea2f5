"""Reads configuration files that a shell script writes itself, as documents between `<<END` and `END`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.readers._plan_settings import flatten, load_mapping
from trainspec_validate.interop.readers._shell_choices import has_marks
from trainspec_validate.interop.readers._shell_commands import Script
from trainspec_validate.interop.readers._shell_words import Piece

MAX_DOCUMENTS = 16
_MAX_TEXT = 128 * 1024
_DOCUMENT = re.compile(
    r"(?m)^[ \t]*(?:sudo[ \t]+)?(?:cat|tee)\b(?P<words>[^\n]{0,400}?)<<-?[ \t]*(?P<quote>['\"]?)(?P<end>\w{1,40})"
    r"(?P=quote)(?P<rest>[^\n]{0,400})\n(?P<body>(?:.*\n){0,400}?)[ \t]*(?P=end)[ \t]*$"
)
_TARGET = re.compile(r"(?:>{1,2}|\btee\b)[ \t]*[\"']?(?P<name>[^\s\"'|;&<>]{1,300})")


def written_mapping(script: Script, text: str, name: str) -> Mapping[str, Any]:
    """Settings, with dotted names, of a JSON or YAML file of this name that the script writes; else nothing.

    Variables have the values that the script gives them; a document with any other one is not read.
    """
    wanted, found = name.rpartition("/")[2], dict[str, Any]()
    for number, document in enumerate(_DOCUMENT.finditer(text[:_MAX_TEXT])):
        if number >= MAX_DOCUMENTS:
            break
        target = _TARGET.search(f"{document['words'] if 'tee' in document[0][:20] else ''} {document['rest']}")
        target = target or _TARGET.search(f"tee {document['words'].strip()}" if document["words"].strip() else "")
        if target is None:
            continue
        path = script.value((Piece(target["name"], plain=False, quoted=False),))
        body = document["body"]
        if not document["quote"]:
            body = script.value((Piece(body, plain=False, quoted=True),))
        if path.rpartition("/")[2] != wanted or has_marks(body) or has_marks(path):
            continue
        try:
            found = flatten(load_mapping(ForeignText(wanted, body)).data)
        except ForeignFormatError:
            found = {}
    return found
