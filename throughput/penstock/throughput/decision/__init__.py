"""What would help, what it would cost, and what to do."""
