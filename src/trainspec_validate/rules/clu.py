"""The only place for the rules of the clu chapter."""
