"""What a trainer reads and writes in its cluster: its job, its pods, Scales."""
