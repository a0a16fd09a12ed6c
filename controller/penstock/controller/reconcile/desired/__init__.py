"""What a job should consist of: its targets, the ranks that follow, and their pods."""
