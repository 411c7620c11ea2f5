"""Messages show values as files have them, and never as Python does: importers, their refusals, and the rules."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainspec_validate.interop.fragment import ForeignFormatError, ForeignText
from trainspec_validate.interop.recognise import recognise
from trainspec_validate.pipeline.inputs import NamedText
from trainspec_validate.pipeline.validation import validate
from trainspec_validate.system.boundary import InputError

TESTS = Path(__file__).resolve().parent
FIXTURES = sorted(path for path in (TESTS / "fixtures").glob("*/*") if path.suffix in {".yaml", ".yml", ".json"})
BASE = TESTS.parents[1] / "spec" / "v1" / "base"
PYTHON = re.compile(r"(?<!\.)\b(?:None|True|False|nan|inf)\b|datetime|<class|object at 0x|Decimal\(|\('|\[\"")
_YAML = ("null", "true", "false", "2026-01-01", "2026-01-01 10:00:00", "[a, true, null]", "{a: null}", "-1", ".nan")
_JSON = ("null", "true", "false", '["a", true, null]', '{"a": null}', "-1")
_LINE = re.compile(
    r"(?m)^(?P<key>[ \t]*(?:- )?\"?[\w.-]+\"?:[ \t]+)(?P<value>[^\s#,{[][^#,\n]*?)(?P<end>,?[ \t]*(?:#.*)?)$"
)


def _with_other_values(path: Path, number: int) -> Iterator[str]:
    """Texts of a file in which the value of one line is another one."""
    text = path.read_text(encoding="utf-8")
    words = _JSON if path.suffix == ".json" else _YAML
    cases = [(found, word) for found in _LINE.finditer(text) for word in words]
    for found, word in random.Random(path.name).sample(cases, min(number, len(cases))):
        yield f"{text[: found.start('value')]}{word}{text[found.end('value') :]}"


def _told(name: str, text: str) -> list[str]:
    """Everything that an importer says of a text."""
    given = ForeignText(name, text)
    try:
        found = recognise(given).read(given)
    except ForeignFormatError as error:
        return [str(error), error.help]
    reasons = [entry.reason for entry in found.unknown]
    return [*(remark.message for remark in found.remarks), *reasons, *map(str, (found.derived or {}).values())]


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
@pytest.mark.parametrize(
    "number", [6, pytest.param(30, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)]
)
def test_importers_show_values_as_files_have_them(path: Path, number: int) -> None:
    told = [words for text in _with_other_values(path, number) for words in _told(path.name, text)]
    assert [words for words in told if PYTHON.search(words)] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hidden_size: true", "hidden_size is true"),
        ("hidden_size: [8, null]", "hidden_size is [8, null]"),
        ("hidden_size: 2026-01-01", "2026-01-01"),
    ],
)
def test_a_value_of_another_kind_is_shown_as_it_is_written(text: str, words: str) -> None:
    base = (TESTS / "fixtures" / "plans" / "nemo-gpt.yaml").read_text(encoding="utf-8")
    key = text.partition(":")[0]
    base = re.sub(rf"(?m)^  {key}:.*\n(?:    .*\n)*", f"  {text}\n", base)
    assert words in " ".join(_told("a.yaml", base))


@pytest.mark.parametrize("name", ["cluster", "plan", "checkpoint"])
@pytest.mark.parametrize(
    "number", [4, pytest.param(20, marks=pytest.mark.slow), pytest.param(200, marks=pytest.mark.long)]
)
def test_findings_show_values_as_files_have_them(name: str, number: int) -> None:
    others = [BASE / f"{other}.yaml" for other in ("cluster", "plan", "checkpoint") if other != name]
    for text in _with_other_values(BASE / f"{name}.yaml", number):
        try:
            report = validate([*others, NamedText(f"{name}.yaml", text)])
        except InputError as error:
            told = [str(error)]
        else:
            told = [words for found in report.findings for words in (found.message, found.help)]
            told += [words for entry in report.unjudged for words in (entry.reason, entry.help)]
        assert [words for words in told if PYTHON.search(words)] == []
