"""The JAX backend of the reference trainer."""
