"""Whatever stands in place of a value, a reader of another format reads the file or refuses it,
and nothing that it makes of the file is refused by the schema of documents.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.recognise import formats
from trainspec_validate.interop.refused import join
from trainspec_validate.interop.shape import fitting

FIXTURES = Path(__file__).resolve().parent / "fixtures"
FILES = sorted(path for path in FIXTURES.rglob("*") if path.is_file())
ODD = (
    *("[]", "{}", '""', "null", "1e308", "-1", "0", "1.5", "true", "[[1]]", "[null]", '{"a": 1}', '"auto"'),
    *("9" * 309, f'"{"9" * 20}"'),
)
_VALUE = re.compile(r'(?<=[:=] )[^\s,]+|(?<=[:=])[^\s,:=]+|"[^"\n]*"|\b\d+\b')
_MOST_PLACES = 40
"""In one file; with a seed of its own, so that each run looks at the same."""


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_odd_value_is_read_or_refused(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    readers = [entry for entry in formats().values() if entry.looks_like(ForeignText(path.name, text))]
    chosen = random.Random(path.name)
    places = [match.span() for match in _VALUE.finditer(text)]
    for start, end in chosen.sample(places, min(_MOST_PLACES, len(places))):
        for odd in ODD:
            changed = ForeignText(path.name, f"{text[:start]}{odd}{text[end:]}")
            for reader in readers:
                try:
                    made = join([reader.read(changed)])
                except ForeignFormatError:
                    continue
                assert fitting(made.kind, made.facts)[1] == []
