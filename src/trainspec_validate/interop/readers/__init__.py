"""One module for each family of foreign formats; each lists what it reads in `FORMATS`."""
