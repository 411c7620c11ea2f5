"""Judges incidents that happened in production by the criteria of the suite, from the records that they left."""
