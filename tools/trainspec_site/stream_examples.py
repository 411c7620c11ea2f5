"""Lays out examples of streams: heads folded to a line, and what a comment marks on a line of its own."""

from __future__ import annotations

import re
from pathlib import Path

EXAMPLE = re.compile(
    r'(?P<start><span class="filename">[^<]*\.jsonl</span><pre>(?:<span></span>)?<code>)(?P<records>[^<]*)(?=</code>)'
)
"""An example, which no highlighter has touched."""
MARK = re.compile(r" +(?P<comment># &lt;-- [^\n]*)")
HEAD = '{"k":"head"'
QUOTE = "&quot;"


def lay_out(site: Path) -> None:
    """Rewrite the examples on every page of a built version; their text stays as it is."""
    for path in sorted(site.rglob("*.html")):
        text = path.read_text(encoding="utf-8")
        changed = EXAMPLE.sub(lambda found: found["start"] + records(found["records"]), text)
        if changed != text:
            path.write_text(changed, encoding="utf-8")


def records(text: str) -> str:
    r"""The records of an example, those that are folded or marked in elements of their own.

    >>> records('{"k":"head"}\n{"k":"m"}\n')
    '<span class="ts-head" tabindex="0">{"k":"head"}\n</span>{"k":"m"}\n'
    >>> records('{"k":"m"}  # &lt;-- TS-TEL-001\n')
    '{"k":"m"}<span class="ts-mark">  # &lt;-- TS-TEL-001\n</span>'
    """
    return "".join(map(_record, text.splitlines(keepends=True)))


def _record(line: str) -> str:
    mark = MARK.search(line)
    if mark:
        return f'{line[: mark.start()]}<span class="ts-mark">{line[mark.start() :]}</span>'
    if line.replace(QUOTE, '"').startswith(HEAD):
        return f'<span class="ts-head" tabindex="0">{line}</span>'
    return line
