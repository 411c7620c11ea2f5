"""The only place for the rules of the par chapter."""
