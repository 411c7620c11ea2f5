"""Judges streams of metrics: it folds records into a mergeable digest and checks the digest."""
