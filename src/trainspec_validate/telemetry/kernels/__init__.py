"""The only place for loops over single records and values: plain Python, compiled where numba is installed.

These loops pass many plain values: a compiled function pays for each array or tuple that it takes.
"""
