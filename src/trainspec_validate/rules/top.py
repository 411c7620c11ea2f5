"""The only place for the rules of the top chapter."""
