"""What the doctor sees, and what it says of it."""
