"""What decisions are made of: what is observed, what may be done, and how both are written."""
