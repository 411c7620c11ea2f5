"""The only room that turns a cluster profile into a graph of blocks and links, and lays the ranks of a job over it."""
