"""Models of cost: collectives, memory, computation, topology, step time and reliability."""
