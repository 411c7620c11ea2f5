"""The only place for the rules of the nrg chapter."""
