"""A cache of the files that datasets read, below the program's own ``open()``."""
