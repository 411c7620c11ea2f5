"""The form of a requirement is held by the reader of the chapters, and a removed id stays removed."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_text import SpecificationError, requirements

GOOD = """# Chapter

### The degrees multiply {#TS-PAR-001 level=MUST check=rule profile=core since=1.0 name=world-size}

The degrees MUST multiply.

*Why:* Source: a paper.

*Bad:*

```yaml title="plan.yaml"
parallelism: {data: 3}  # <-- TS-PAR-001
```

*Good:*

```yaml title="plan.yaml"
parallelism: {data: 4}
```
"""
REMOVED = 'removed: [{id: TS-PAR-001, name: old, removed: "1.1", reason: wrong, successor: TS-PAR-002}]\n'


def read(directory: Path, text: str, removed: str = "removed: []\n") -> list[dict[str, object]]:
    (directory / "01-chapter.md").write_text(text, encoding="utf-8")
    (directory / "removed.yaml").write_text(removed, encoding="utf-8")
    return requirements(directory)


def test_a_requirement_is_read(tmp_path: Path) -> None:
    (entry,) = read(tmp_path, GOOD)
    assert entry["id"] == "TS-PAR-001"
    assert entry["statement"] == "The degrees MUST multiply."
    assert entry["bad"] == [{"file": "plan.yaml", "text": "parallelism: {data: 3}  # <-- TS-PAR-001\n"}]


def test_the_items_of_a_list_keep_their_lines(tmp_path: Path) -> None:
    listed = GOOD.replace("*Why:*", "One of these:\n\n- a degree, which\n  is long\n- another one\n\n*Why:*")
    (entry,) = read(tmp_path, listed)
    assert entry["details"] == "One of these:\n\n- a degree, which is long\n- another one"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("MUST multiply", "must multiply", "wanted one MUST"),
        ("MUST multiply", "MUST multiply and SHOULD add", "wanted one MUST"),
        ("*Why:* Source: a paper.", "", "no \\*Why:\\*"),
        ("  # <-- TS-PAR-001", "", "needs one line marked"),
        ("*Good:*", "", "shows plan.yaml twice"),
        (" since=1.0", "", "lacks since="),
        ("{#TS-PAR-001 ", "{#TS-PAR-1 ", "not of the form"),
        (" level=MUST", " level MUST", "not of the form"),
    ],
)
def test_a_requirement_without_its_form_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(SpecificationError, match=message):
        read(tmp_path, GOOD.replace(old, new))


def test_an_id_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=r"already used at 01-chapter\.md:3"):
        read(tmp_path, GOOD + GOOD)


def test_a_former_name_is_never_given_again(tmp_path: Path) -> None:
    was = GOOD.replace("TS-PAR-001", "TS-PAR-002").replace("name=world-size}", "name=other was=first,second}")
    with pytest.raises(SpecificationError, match="second is already used at removed"):
        read(tmp_path, was, "removed:\n  - {id: TS-PAR-009, name: second, removed: '1.1', reason: none}\n")


def test_a_removed_id_is_never_given_again(tmp_path: Path) -> None:
    with pytest.raises(SpecificationError, match=r"already used at removed\.yaml \(removed in 1\.1\)"):
        read(tmp_path, GOOD, REMOVED)
