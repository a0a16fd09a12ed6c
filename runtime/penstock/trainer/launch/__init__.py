"""How an agent runs a training program: once as it is, or as ranks of one world.

`world` and `launcher` decide, without I/O and clock; the others start, signal and await processes.
"""
