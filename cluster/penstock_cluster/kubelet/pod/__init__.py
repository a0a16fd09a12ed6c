"""One pod from its start to its end."""
