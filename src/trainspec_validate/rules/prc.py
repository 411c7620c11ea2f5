"""The only place for the rules of the prc chapter."""
