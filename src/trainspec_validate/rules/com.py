"""The only place for the rules of the com chapter."""
