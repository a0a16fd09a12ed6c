"""Batches on their way to the program: what is asked of whom, and in which order it is taken."""
