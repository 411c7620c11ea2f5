"""The only room for what several others derive from documents: a machine, the ranks of a job, the state of a plan."""
