"""One module for each program that a plan is written for; each lists what it writes in `FORMATS`."""
