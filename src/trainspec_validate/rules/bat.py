"""The only place for the rules of the bat chapter."""
