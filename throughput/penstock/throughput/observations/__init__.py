"""From what was seen of a running program to its profile."""
