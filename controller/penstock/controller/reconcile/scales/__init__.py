"""What becomes of a Scale: whether it may be applied, and in which of its states it is."""
