"""The only place for loops over single records and values: plain Python that runs as it is, or compiled where numba is."""
