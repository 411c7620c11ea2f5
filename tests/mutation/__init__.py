"""Damages valid documents and counts how much of the damage the validator notices."""
