"""The only place for the rules of the ckp chapter."""
