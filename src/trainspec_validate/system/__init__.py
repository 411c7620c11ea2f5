"""Files, processes and limits: bounded reading, atomic writing, text that is safe to print."""
