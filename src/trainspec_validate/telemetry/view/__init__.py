"""View of a run for the checks of streams."""
