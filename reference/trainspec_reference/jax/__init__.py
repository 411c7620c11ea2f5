"""The only place where JAX computes: the reference trainer's backend for it."""
