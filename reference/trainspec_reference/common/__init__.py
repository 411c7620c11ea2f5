"""Everything of a trainer that is arithmetic or policy; it imports neither torch nor jax."""
