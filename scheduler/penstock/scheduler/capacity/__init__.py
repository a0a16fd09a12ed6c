"""What would happen to the jobs that run and wait, were there other nodes (pure)."""
