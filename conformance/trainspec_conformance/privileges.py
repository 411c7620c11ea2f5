"""The only place that names what keeps the suite from an injection: the machine does not allow it."""

from __future__ import annotations


class NotAllowedError(Exception):
    """This machine lacks a privilege or a program that an injection needs; the text says which."""
