"""Training that stands still: who holds it up, and where in the program (DLRover, section 5.4)."""
