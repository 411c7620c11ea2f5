"""The only place for the rules of the mem chapter."""
