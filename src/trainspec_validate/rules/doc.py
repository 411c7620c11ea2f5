"""The only place for the rules of the doc chapter."""
