"""Local workers: the processes that a program's own loader asked for."""
