"""The only room that predicts what a plan does on a cluster: time of a step, memory, collectives, training time."""
