"""Makes whole conformant runs as metric streams, damages them, and counts how much of the damage is noticed."""
