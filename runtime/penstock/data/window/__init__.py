"""The steps of one epoch on their way to the program, and how many may be: pure."""
