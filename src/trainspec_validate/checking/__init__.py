"""Checks of every kind: their registry, their evaluation, the selection of requirements and suppressions."""
