"""The only room that reads and writes the formats of other programs: topology files, logs, launch configurations."""
