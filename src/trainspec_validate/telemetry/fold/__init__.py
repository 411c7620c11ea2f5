"""From columns to a mergeable digest of a run."""
