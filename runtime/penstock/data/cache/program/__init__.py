"""What of the cache is inside a program: its files, and its readers in C."""
