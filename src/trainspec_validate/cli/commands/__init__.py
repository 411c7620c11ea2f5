"""Commands of `trainspec`, one module each."""
