"""What the demonstration sees of its job, and the figures that it ends with."""
