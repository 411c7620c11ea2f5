"""What the checks of streams see of a run."""
