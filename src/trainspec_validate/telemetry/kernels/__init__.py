"""The only place for loops over single records and values: plain Python, compiled where numba is installed.

These loops make no arrays: they look at those of their callers, so that nobody has to count who uses one.
"""
