"""From the bytes of streams to typed columns."""
