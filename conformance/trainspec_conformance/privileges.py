"""Names the permissions and facilities of the machine that an injection lacks."""

from __future__ import annotations


class NotAllowedError(Exception):
    """This machine lacks a privilege or a program that an injection needs; the text says which."""
