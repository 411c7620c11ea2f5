"""Loops over single records and values: plain Python, compiled where numba is installed.

These loops allocate no arrays: they borrow those of their callers, so that reference counts never change.
"""
