"""What was measured of a program, and the resources that it has or might have."""
