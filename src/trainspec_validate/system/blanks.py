"""Says whether a file has nothing but blanks, so that messages say so."""

from __future__ import annotations


def is_blank(content: bytes) -> bool:
    r"""Whether a text has nothing but blanks, those of Unicode included, and the mark of its encoding.

    >>> is_blank("\ufeff\u00a0\n".encode()), is_blank(b" \0"), is_blank(b"\x80"), is_blank(b"")
    (True, False, False, True)
    """
    try:
        return not content.decode().replace("\ufeff", "").strip()
    except UnicodeDecodeError:
        return False
