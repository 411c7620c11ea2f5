"""Small trainers in PyTorch and JAX that do what the specification asks, to be read, run and measured."""
