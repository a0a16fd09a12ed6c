"""Which part of a training step may run elsewhere, which part should, and whether it is the same.

GoldMiner's automatic partition (SIGMOD 2023, section 3.2): what does not descend from anything that
a step changes is *stateless*, and data workers can compute it steps ahead. All of it is pure: no
I/O, no clock, no framework. `graph` is a step, `state` says what has to stay, `maximal` is the
paper's partition, `cut` the cheapest, `worth` whether it is to be had at all, `signature` what one
step called, `proof` when a group of training processes may rely on it, and `declared` the same for
one call of a function that the program declared.
"""
