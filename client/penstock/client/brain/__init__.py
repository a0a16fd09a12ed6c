"""The Brain's API: its calls as values, the clients that carry them out, and how it is found."""
